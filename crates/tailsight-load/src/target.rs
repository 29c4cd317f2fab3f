//! Where the load goes. In: `tcp://host:port`, `tls://…`, `udp://…`, `r2p2://…`, `unix:/path`. Out: socket addresses.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LoadError;

/// A server, by the transport that reaches it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(rename = "Target")]
pub enum Endpoint {
    /// TCP, without Nagle's delay: `host:port` or `tcp://host:port`.
    Tcp(String),
    /// TLS over TCP: `tls://host:port`. The name is checked against the certificate.
    Tls(String),
    /// Datagrams: `udp://host:port`.
    Udp(String),
    /// R2P2 (Kogias et al. 2019) over UDP: `r2p2://host:port`.
    R2p2(String),
    /// A Unix stream socket: `unix:/path`.
    Unix(PathBuf),
}

impl Endpoint {
    /// `host:port`, where it has one.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        match self {
            Self::Tcp(host) | Self::Tls(host) | Self::Udp(host) | Self::R2p2(host) => Some(host),
            Self::Unix(_) => None,
        }
    }

    /// The host alone, without brackets.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        let (host, _) = self.authority()?.rsplit_once(':')?;
        Some(host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host))
    }

    /// Whether the server is on this host, as far as addresses tell: an address of this network namespace, or one of another
    /// namespace on this host (a container) to which no hardware device leads.
    #[must_use]
    pub fn is_here(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            _ => self.resolve().unwrap_or_default().iter().any(|address| crate::nearby::is_here(*address)),
        }
    }

    /// Whether requests are datagrams, which may be lost.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        matches!(self, Self::Udp(_) | Self::R2p2(_))
    }

    /// A protocol with the transport that changes its bytes, for messages: `http1 over TLS`.
    pub(crate) fn spoken(&self, protocol: tailsight_protocol::Kind) -> String {
        match self {
            Self::Tls(_) => format!("{protocol} over TLS"),
            Self::Udp(_) => format!("{protocol} over UDP"),
            Self::R2p2(_) => format!("{protocol} over R2P2"),
            _ => protocol.to_string(),
        }
    }

    /// Its addresses, in the resolver's order; none for a Unix socket.
    ///
    /// # Errors
    /// [`LoadError::Resolve`] when the name has none.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, LoadError> {
        let Some(authority) = self.authority() else {
            return Ok(Vec::new());
        };
        let fail = |source| LoadError::Resolve { host: authority.to_owned(), source };
        let addresses: Vec<SocketAddr> = authority.to_socket_addrs().map_err(fail)?.collect();
        if addresses.is_empty() {
            return Err(fail(std::io::Error::other("the name has no address")));
        }
        Ok(addresses)
    }
}

impl FromStr for Endpoint {
    type Err = LoadError;

    fn from_str(input: &str) -> Result<Self, LoadError> {
        let fail = || {
            let forms = "HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT, udp://HOST:PORT, r2p2://HOST:PORT or unix:/PATH";
            LoadError::parse("a target", input, forms)
        };
        if let Some(path) = input.strip_prefix("unix:") {
            // unix:///path means the path /path.
            let path = path.strip_prefix("//").unwrap_or(path);
            // The kernel's sun_path has room for 107 bytes and a NUL.
            return if path.is_empty() || path.len() > 107 { Err(fail()) } else { Ok(Self::Unix(path.into())) };
        }
        let (scheme, authority) = input.split_once("://").unwrap_or(("tcp", input));
        let (host, port) = authority.rsplit_once(':').ok_or_else(fail)?;
        let bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        let plain = host.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b'@');
        if host.is_empty() || bare_v6 || !plain || port.parse::<u16>().ok().filter(|p| *p > 0).is_none() {
            return Err(fail());
        }
        let authority = authority.to_owned();
        match scheme {
            "tcp" => Ok(Self::Tcp(authority)),
            "tls" => Ok(Self::Tls(authority)),
            "udp" => Ok(Self::Udp(authority)),
            "r2p2" => Ok(Self::R2p2(authority)),
            _ => Err(fail()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Tls(host) => write!(f, "tls://{host}"),
            Self::Udp(host) => write!(f, "udp://{host}"),
            Self::R2p2(host) => write!(f, "r2p2://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl TryFrom<String> for Endpoint {
    type Error = LoadError;
    fn try_from(text: String) -> Result<Self, LoadError> {
        text.parse()
    }
}

impl From<Endpoint> for String {
    fn from(target: Endpoint) -> Self {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_written() {
        for text in ["tcp://localhost:80", "tls://[::1]:443", "udp://10.0.0.1:9", "r2p2://h:9", "unix:/run/x"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("unix:///run/x".parse::<Endpoint>().unwrap(), Endpoint::Unix("/run/x".into()));
        assert_eq!("[::1]:80".parse::<Endpoint>().unwrap().host(), Some("::1"));
        for bad in [
            "",
            "host",
            "host:",
            ":80",
            "host:0",
            "host:70000",
            "::1:80",
            "ftp://h:1",
            "unix:",
            "a b:1",
            "http://h/x:1",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_without_address_says_so() {
        let error = "name.invalid:80".parse::<Endpoint>().unwrap().resolve().unwrap_err();
        assert!(matches!(&error, LoadError::Resolve { host, .. } if host == "name.invalid:80"), "{error}");
    }
}
