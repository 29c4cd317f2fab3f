//! What a user types as the target: `redis://host`, `https://host/path`, `memcached+unix:/run/m.sock`, `udp://host:port`.
//!
//! In: the text, and a protocol where it names none. Out: transport with address, protocol, path.

use tailsight_load::{Endpoint, LoadError, Protocol};

use crate::Error;

/// A target as the load knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where.
    pub target: Endpoint,
    /// What is spoken there.
    pub protocol: Protocol,
    /// What HTTP asks for.
    pub path: Option<String>,
}

const FORMS: &str = "PROTOCOL://HOST:PORT with memcached, memcached-binary, redis, http, https, http2, echo or \
 synthetic; \
                     PROTOCOL+udp, +r2p2, +tls, +unix for another transport (redis+unix:/run/redis.sock); or tcp://, \
                     tls://, \
                     udp://, r2p2://HOST:PORT, unix:/PATH with --protocol";

impl Address {
    /// Reads it; `protocol` is what `--protocol` says.
    ///
    /// # Errors
    /// [`Error::Load`] for what is no target; [`Error::Contradiction`] when there is no protocol, or two.
    pub fn parse(text: &str, protocol: Option<Protocol>) -> Result<Self, Error> {
        let fail = || Error::Load(LoadError::Parse { what: "a target", text: text.to_owned(), expected: FORMS });
        let (scheme, rest) = text.split_once(':').ok_or_else(fail)?;
        let (name, transport) = scheme.split_once('+').unwrap_or((scheme, ""));
        let named = match name {
            "memcached" => Some((Protocol::MemcachedText, "tcp", 11_211)),
            "memcached-binary" => Some((Protocol::MemcachedBinary, "tcp", 11_211)),
            "redis" | "resp" => Some((Protocol::Resp, "tcp", 6379)),
            "rediss" => Some((Protocol::Resp, "tls", 6379)),
            "http" | "http1" => Some((Protocol::Http1, "tcp", 80)),
            "https" => Some((Protocol::Http1, "tls", 443)),
            "http2" | "h2c" => Some((Protocol::Http2, "tcp", 80)),
            "h2" => Some((Protocol::Http2, "tls", 443)),
            "echo" => Some((Protocol::Echo, "tcp", 7)),
            "synthetic" => Some((Protocol::Synthetic, "tcp", 0)),
            _ => None,
        };
        let Some((of_scheme, usual, port)) = named else {
            // A bare transport, or HOST:PORT.
            let target: Endpoint = text.parse().map_err(|_| fail())?;
            let without = || {
                Error::Contradiction(format!(
                    "`{text}` names no protocol; write for example memcached://HOST:PORT, or add --protocol"
                ))
            };
            return Ok(Self { target, protocol: protocol.ok_or_else(without)?, path: None });
        };
        let over_tls = usual == "tls" || transport == "tls";
        // https:// says HTTP and TLS, not which version: --protocol http2 may.
        let http = |p: Protocol| matches!(p, Protocol::Http1 | Protocol::Http2);
        let protocol = match protocol {
            Some(asked) if asked != of_scheme && !(http(asked) && http(of_scheme)) => {
                return Err(Error::Contradiction(format!(
                    "`{text}` says {of_scheme}, but --protocol says {asked}; remove one"
                )));
            }
            Some(asked) => asked,
            None => of_scheme,
        };
        let transport = if transport.is_empty() { if over_tls { "tls" } else { usual } } else { transport };
        if transport == "unix" {
            let target = format!("unix:{rest}").parse().map_err(|_| fail())?;
            return Ok(Self { target, protocol, path: None });
        }
        let rest = rest.strip_prefix("//").ok_or_else(fail)?;
        let (authority, path) = match rest.find('/') {
            Some(at) => (&rest[..at], Some(&rest[at..])),
            None => (rest, None),
        };
        let path = path.filter(|p| http(protocol) || *p != "/").map(str::to_owned);
        if path.is_some() && !http(protocol) {
            return Err(Error::Contradiction(format!("`{text}`: {protocol} has no paths")));
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
        let target = format!("{transport}://{authority}").parse().map_err(|_| fail())?;
        Ok(Self { target, protocol, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_as_people_type_them() {
        for (text, target, protocol, path) in [
            ("memcached://h:1", "tcp://h:1", Protocol::MemcachedText, None),
            ("redis://h", "tcp://h:6379", Protocol::Resp, None),
            ("redis://[::1]", "tcp://[::1]:6379", Protocol::Resp, None),
            ("http://h/a/b?c", "tcp://h:80", Protocol::Http1, Some("/a/b?c")),
            ("https://h:8443/", "tls://h:8443", Protocol::Http1, Some("/")),
            ("h2://h", "tls://h:443", Protocol::Http2, None),
            ("redis+unix:/run/r.sock", "unix:/run/r.sock", Protocol::Resp, None),
            ("redis+unix:///run/r.sock", "unix:/run/r.sock", Protocol::Resp, None),
            ("memcached+udp://h:1", "udp://h:1", Protocol::MemcachedText, None),
            ("synthetic+r2p2://h:1", "r2p2://h:1", Protocol::Synthetic, None),
        ] {
            let address = Address::parse(text, None).unwrap();
            assert_eq!(
                (address.target.to_string().as_str(), address.protocol, address.path.as_deref()),
                (target, protocol, path),
                "{text}"
            );
        }
        assert_eq!(Address::parse("unix:/x", Some(Protocol::Echo)).unwrap().protocol, Protocol::Echo);
        assert_eq!(Address::parse("https://h", Some(Protocol::Http2)).unwrap().protocol, Protocol::Http2);
    }

    #[test]
    fn what_is_none_says_what_to_write() {
        for bad in
            ["", "h", "h:1", "ftp://h:1", "redis:h", "redis://", "redis://h:x", "synthetic://h", "memcached://h/x"]
        {
            let error = Address::parse(bad, None).unwrap_err().to_string();
            assert!(error.contains("memcached"), "{bad}: {error}");
        }
        let error = Address::parse("redis://h", Some(Protocol::Echo)).unwrap_err().to_string();
        assert!(error.contains("remove one"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = Address::parse(&text, None);
        }
    }
}
