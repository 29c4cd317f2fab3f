//! HTTP/1.1 requests.

use super::{decimal, parts};

/// What a request is made of. Names and values are sent as they are: the caller keeps line ends out of them.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `GET`, `POST`, …
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The `Host` field.
    pub host: &'a str,
    /// More fields.
    pub fields: &'a [(&'a str, &'a str)],
    /// The body; `Some` of nothing announces a length of 0.
    pub body: Option<&'a [u8]>,
}

/// Writes a request.
pub fn request(buf: &mut Vec<u8>, request: &Request<'_>) {
    let Request { method, target, host, fields, body } = request;
    parts(buf, &[method.as_bytes(), b" ", target.as_bytes(), b" HTTP/1.1\r\nHost: ", host.as_bytes(), b"\r\n"]);
    for (name, value) in *fields {
        parts(buf, &[name.as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    if let Some(body) = body {
        buf.extend_from_slice(b"Content-Length: ");
        decimal(buf, body.len() as u64);
        parts(buf, &[b"\r\n\r\n", body]);
    } else {
        buf.extend_from_slice(b"\r\n");
    }
}

/// `GET`.
pub fn get(buf: &mut Vec<u8>, host: &str, target: &str) {
    request(buf, &Request { method: "GET", target, host, fields: &[], body: None });
}

/// `HEAD`: expect it with [`Op::Head`](crate::reply::Op::Head).
pub fn head(buf: &mut Vec<u8>, host: &str, target: &str) {
    request(buf, &Request { method: "HEAD", target, host, fields: &[], body: None });
}

/// `POST` of a body.
pub fn post(buf: &mut Vec<u8>, host: &str, target: &str, body: &[u8]) {
    request(buf, &Request { method: "POST", target, host, fields: &[], body: Some(body) });
}
