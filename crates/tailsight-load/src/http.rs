//! HTTP requests as users send them: method, path, header fields, body, how often each of several is asked for; and which status codes
//! of replies are good.
//!
//! In: what a command line or a file of requests says. Out: [`HttpRequest`]s for a [`Workload`](crate::Workload). A redirect is a reply as
//! any other: it is not followed.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LoadError;

/// Fields that frame a message: they are the client's own.
const FRAMING: [&str; 4] = ["content-length", "transfer-encoding", "connection", "upgrade"];
/// Values of fields with one of these in their names are not kept in reports.
const SECRETS: [&str; 6] = ["auth", "cookie", "token", "key", "secret", "password"];
/// What a report has in place of a secret.
const NOT_KEPT: &str = "(not kept)";

/// A request that is sent again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpRequest {
    /// How often it is sent, beside the weights of the others.
    #[serde(default = "one")]
    pub weight: f64,
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Header fields besides `Host` and `Content-Length`; a `Host` among them stands in for the target's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, String)>,
    /// The body, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
}

fn one() -> f64 {
    1.0
}

/// Bytes, as base64 in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Body(pub Vec<u8>);

impl TryFrom<String> for Body {
    type Error = base64::DecodeError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        BASE64.decode(text).map(Self)
    }
}

impl From<Body> for String {
    fn from(body: Body) -> Self {
        BASE64.encode(body.0)
    }
}

impl HttpRequest {
    /// A `GET` of a path.
    #[must_use]
    pub fn get(path: &str) -> Self {
        Self { weight: 1.0, method: "GET".into(), path: path.into(), fields: Vec::new(), body: None }
    }

    /// The host that a `Host` field names.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, value)| value.as_str())
    }

    /// The fields but `Host`.
    pub(crate) fn fields_but_host(&self) -> impl Iterator<Item = (&str, &str)> {
        let others = self.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
        others.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn validate(&self) -> Result<(), LoadError> {
        let refuse = |reason: String| Err(LoadError::Plan(reason));
        if !(self.weight > 0.0 && self.weight.is_finite()) {
            return refuse(format!("the weight of {} must be above 0, got {}", self.path, self.weight));
        }
        if self.method.is_empty() || !self.method.bytes().all(is_token) {
            return refuse(format!("`{}` is no HTTP method; give for example GET or POST", self.method));
        }
        if self.method.eq_ignore_ascii_case("CONNECT") {
            return refuse("CONNECT opens a tunnel and has no reply to time; measure the server behind it".into());
        }
        path_is_one(&self.path)?;
        for (name, value) in &self.fields {
            if name.is_empty() || !name.bytes().all(is_token) {
                return refuse(format!("`{name}` is no name of a header field"));
            }
            if FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
                return refuse(format!("the field `{name}` frames the message and is the client's own; remove it"));
            }
            // A line end would begin another field, or another request.
            if !value.bytes().all(|b| b == b'\t' || b >= b' ' && b != 0x7f) {
                return refuse(format!("the value of the field `{name}` has control characters"));
            }
        }
        if self.body.as_ref().is_some_and(|body| body.0.len() > 64 << 20) {
            return refuse("bodies of more than 64 MiB".into());
        }
        Ok(())
    }

    /// The same without the values of fields that hold secrets.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        for (name, value) in &mut self.fields {
            let name = name.to_ascii_lowercase();
            if SECRETS.iter().any(|secret| name.contains(secret)) {
                *value = NOT_KEPT.into();
            }
        }
        // A body may hold anything, and its length is what a report needs.
        self.body = self.body.map(|body| Body(format!("({} bytes, not kept)", body.0.len()).into_bytes()));
        self
    }
}

pub(crate) fn path_is_one(path: &str) -> Result<(), LoadError> {
    if !path.starts_with('/') || !path.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(LoadError::Plan(format!("the path `{path}` must begin with / and hold no spaces")));
    }
    Ok(())
}

/// RFC 9110, 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A field as people write it: `Accept: text/html`.
///
/// # Errors
/// [`LoadError::Parse`] for what has no colon.
pub fn field(text: &str) -> Result<(String, String), LoadError> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| LoadError::parse("a header field", text, "NAME: VALUE, such as 'Accept: text/html'"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Requests in a file, one a line: `[WEIGHT] [METHOD] PATH`; `#` begins a comment. `usual` gives the method of a line without one.
///
/// # Errors
/// [`LoadError::Parse`] for the first line that is none; [`LoadError::Plan`] when there is none at all.
pub fn requests(text: &str, usual: &HttpRequest) -> Result<Vec<HttpRequest>, LoadError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let request = |line: &str| {
        let fail = || LoadError::parse("a request", line, "[WEIGHT] [METHOD] PATH, such as `9 GET /search?q=a`");
        let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
        let path = words.pop().filter(|path| path.starts_with('/')).ok_or_else(fail)?;
        let weight = words.first().and_then(|word| word.parse::<f64>().ok());
        let rest = &words[usize::from(weight.is_some())..];
        let method = match rest {
            [] => usual.method.clone(),
            [method] => (*method).to_owned(),
            _ => return Err(fail()),
        };
        // What is read has no body.
        let body = usual.body.clone().filter(|_| !matches!(method.as_str(), "GET" | "HEAD"));
        Ok(HttpRequest { weight: weight.unwrap_or(1.0), method, path: path.into(), body, ..usual.clone() })
    };
    let requests = lines.map(request).collect::<Result<Vec<_>, _>>()?;
    if requests.is_empty() {
        return Err(LoadError::Plan(
            "the file of requests holds none; write [WEIGHT] [METHOD] PATH, one a line".into(),
        ));
    }
    Ok(requests)
}

/// Which status codes are good: `2xx,304` or `200-399`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoodStatuses(Vec<(u16, u16)>);

impl GoodStatuses {
    /// Whether a reply with this code is what was hoped for.
    #[must_use]
    pub fn contains(&self, code: u16) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&code))
    }
}

impl Default for GoodStatuses {
    /// What is done, and what is elsewhere: 200 to 399.
    fn default() -> Self {
        Self(vec![(200, 399)])
    }
}

impl FromStr for GoodStatuses {
    type Err = LoadError;

    fn from_str(input: &str) -> Result<Self, LoadError> {
        let fail =
            || LoadError::parse("status codes", input, "codes and ranges, such as 200,404 or 2xx,304 or 200-399");
        let code = |text: &str| text.parse().ok().filter(|code| (100..=599).contains(code)).ok_or_else(fail);
        let range = |part: &str| match part.trim().split_once('-') {
            Some((first, last)) => Ok((code(first)?, code(last)?)),
            None => match part.trim().strip_suffix("xx") {
                Some(class) => {
                    let first = class.parse::<u16>().ok().filter(|c| (1..=5).contains(c)).ok_or_else(fail)? * 100;
                    Ok((first, first + 99))
                }
                None => code(part.trim()).map(|code| (code, code)),
            },
        };
        let ranges: Vec<(u16, u16)> = input.split(',').map(range).collect::<Result<_, _>>()?;
        if ranges.iter().any(|(first, last)| first > last) { Err(fail()) } else { Ok(Self(ranges)) }
    }
}

impl fmt::Display for GoodStatuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_statuses_are_read_as_people_write_them() {
        for (text, good, bad) in
            [("2xx,304", vec![200, 299, 304], vec![301, 404]), ("200-399,404", vec![302, 404], vec![199, 403, 500])]
        {
            let statuses: GoodStatuses = text.parse().unwrap();
            assert!(good.iter().all(|code| statuses.contains(*code)), "{text}");
            assert!(!bad.iter().any(|code| statuses.contains(*code)), "{text}");
            assert_eq!(statuses.to_string().parse::<GoodStatuses>().unwrap(), statuses);
        }
        for bad in ["", "2x", "9xx", "20", "600", "300-200", "ok", "200,,"] {
            assert!(bad.parse::<GoodStatuses>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_of_requests_has_weights_and_methods_where_they_are_given() {
        let usual = HttpRequest {
            method: "POST".into(),
            fields: vec![("Accept".into(), "*/*".into())],
            body: Some(Body(b"{}".to_vec())),
            ..HttpRequest::get("/")
        };
        let text = "# weights\n 9 GET /a?b=c \n\n/d\n0.5 /e\nPUT /f\n";
        let requests = requests(text, &usual).unwrap();
        let short: Vec<(f64, &str, &str, bool)> =
            requests.iter().map(|r| (r.weight, r.method.as_str(), r.path.as_str(), r.body.is_some())).collect();
        assert_eq!(
            short,
            [
                (9.0, "GET", "/a?b=c", false),
                (1.0, "POST", "/d", true),
                (0.5, "POST", "/e", true),
                (1.0, "PUT", "/f", true)
            ]
        );
        assert!(requests.iter().all(|r| r.fields == usual.fields));
        for bad in ["", "# none", "9 GET", "GET POST /x", "nine /x y"] {
            assert!(super::requests(bad, &usual).is_err(), "{bad}");
        }
    }

    /// A line end in a value would be a field, or a request, of its own.
    #[test]
    fn what_would_break_the_message_is_refused() {
        let with = |name: &str, value: &str| HttpRequest {
            fields: vec![(name.into(), value.into())],
            ..HttpRequest::get("/")
        };
        with("X-Key", "a b").validate().unwrap();
        for bad in [
            with("X", "a\r\nHost: b"),
            with("X y", "a"),
            with("", "a"),
            with("Content-Length", "3"),
            with("transfer-encoding", "chunked"),
            HttpRequest::get("x"),
            HttpRequest::get("/ x"),
            HttpRequest { method: "GET /".into(), ..HttpRequest::get("/") },
            HttpRequest { method: "CONNECT".into(), ..HttpRequest::get("/") },
            HttpRequest { weight: 0.0, ..HttpRequest::get("/") },
            HttpRequest { weight: f64::NAN, ..HttpRequest::get("/") },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
        assert!(field("Accept").is_err());
        assert_eq!(field("Accept:  a: b ").unwrap(), ("Accept".into(), "a: b".into()));
    }

    #[test]
    fn a_report_has_no_secrets() {
        let request = HttpRequest {
            fields: vec![("Authorization".into(), "Bearer s3cret".into()), ("Accept".into(), "text/html".into())],
            body: Some(Body(b"password=s3cret".to_vec())),
            ..HttpRequest::get("/")
        };
        let kept = request.without_secrets();
        assert_eq!(kept.fields[1].1, "text/html");
        assert!(!format!("{kept:?}{}", String::from_utf8_lossy(&kept.body.clone().unwrap().0)).contains("s3cret"));
    }
}
