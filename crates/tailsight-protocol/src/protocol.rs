//! The protocols by name. In: what a user writes. Out: [`Kind`] for the load generator, [`Protocol`] and [`ProtocolChoice`] for recordings.

use std::fmt;
use std::str::FromStr;

use crate::ProtocolError;

/// A protocol as the load generator speaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// memcached's text protocol, with the meta commands (`mg`, `ms`, …).
    MemcachedText,
    /// memcached's binary protocol.
    MemcachedBinary,
    /// Redis' RESP2 and RESP3.
    Resp,
    /// HTTP/1.1 (replies of HTTP/1.0 are understood).
    Http1,
    /// HTTP/2 with prior knowledge (or chosen by ALPN below).
    Http2,
    /// The reply is the request's bytes.
    Echo,
    /// The synthetic service-time protocol ([`wire::synthetic`](crate::wire::synthetic)).
    Synthetic,
}

impl Kind {
    /// Whether replies have HTTP's status codes.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2)
    }

    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::MemcachedText, Self::MemcachedBinary, Self::Resp, Self::Http1, Self::Http2, Self::Echo, Self::Synthetic];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemcachedText => "memcached",
            Self::MemcachedBinary => "memcached-binary",
            Self::Resp => "resp",
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Echo => "echo",
            Self::Synthetic => "synthetic",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = ProtocolError;

    fn from_str(name: &str) -> Result<Self, ProtocolError> {
        let choices = "memcached, memcached-binary, resp, http1, http2, echo, synthetic";
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| ProtocolError::UnknownName { name: name.to_owned(), choices })
    }
}

/// A protocol whose requests and replies are found in recorded flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// memcached: text, meta and binary, told apart by the first byte of each message.
    Memcached,
    /// Redis.
    Resp,
    /// HTTP/1.
    Http1,
    /// HTTP/2 in the clear, and gRPC on it: each stream is a request and its reply.
    Http2,
}

impl Protocol {
    /// Whether an id on the wire says which request a reply answers, whatever their order, and the order says nothing.
    pub const fn pairs_by_id(self) -> bool {
        matches!(self, Self::Http2)
    }

    /// All of them.
    pub const ALL: [Self; 4] = [Self::Memcached, Self::Resp, Self::Http1, Self::Http2];

    /// Its name on the command line and in run.json.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Resp => "resp",
            Self::Http1 => "http1",
            Self::Http2 => "http2",
        }
    }

    /// Whether requests have a method and a path.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Protocol {
    type Err = ProtocolError;

    fn from_str(name: &str) -> Result<Self, ProtocolError> {
        match name {
            "memcached" => Ok(Self::Memcached),
            "resp" => Ok(Self::Resp),
            "http1" => Ok(Self::Http1),
            "http2" => Ok(Self::Http2),
            _ => Err(ProtocolError::UnknownName { name: name.to_owned(), choices: "memcached, resp, http1, http2" }),
        }
    }
}

/// What flows are read as: `record --protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProtocolChoice {
    /// Each flow as what its first request begins like.
    Auto,
    /// Every flow as this one.
    Named(Protocol),
}

impl ProtocolChoice {
    /// The name that lets each flow tell.
    pub const AUTO: &str = "auto";

    /// Its name on the command line and in run.json.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => Self::AUTO,
            Self::Named(protocol) => protocol.name(),
        }
    }

    /// The protocol that was named.
    pub const fn named(self) -> Option<Protocol> {
        match self {
            Self::Auto => None,
            Self::Named(protocol) => Some(protocol),
        }
    }
}

impl From<Protocol> for ProtocolChoice {
    fn from(protocol: Protocol) -> Self {
        Self::Named(protocol)
    }
}

impl fmt::Display for ProtocolChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ProtocolChoice {
    type Err = ProtocolError;

    fn from_str(name: &str) -> Result<Self, ProtocolError> {
        let choices = "auto, memcached, resp, http1, http2";
        match name {
            Self::AUTO => Ok(Self::Auto),
            _ => name
                .parse()
                .map(Self::Named)
                .map_err(|_: ProtocolError| ProtocolError::UnknownName { name: name.to_owned(), choices }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_reads_back_by_its_name() {
        let named = Protocol::ALL.map(ProtocolChoice::Named);
        for choice in named.into_iter().chain([ProtocolChoice::Auto]) {
            assert_eq!(choice.to_string().parse::<ProtocolChoice>().unwrap(), choice);
        }
        let refused = "mysql".parse::<ProtocolChoice>().unwrap_err().to_string();
        assert!(refused.contains("mysql") && refused.contains("auto, memcached"), "{refused}");
        assert!("auto".parse::<Protocol>().is_err(), "it is none of the protocols");
    }
}
