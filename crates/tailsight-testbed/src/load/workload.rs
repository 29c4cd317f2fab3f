//! What a load is made of. In: choices. Out: a [`Workload`] that was checked.

use std::net::SocketAddr;

use super::plan;
use crate::{Error, Result};

/// What is spoken to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proto {
    /// memcached's text protocol over TCP: `get` of a key that was set before.
    Memcached,
    /// memcached's text protocol over UDP: `get` of a key that was set before.
    MemcachedUdp,
    /// Redis' protocol over TCP: `GET` of a key that was set before.
    Resp,
    /// HTTP/1.1 with keep-alive: `GET` of [`Workload::path`].
    Http1,
}

impl Proto {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::MemcachedUdp => "memcached-udp",
            Self::Resp => "resp",
            Self::Http1 => "http1",
        }
    }
}

impl std::str::FromStr for Proto {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Memcached, Self::MemcachedUdp, Self::Resp, Self::Http1]
            .into_iter()
            .find(|proto| proto.name() == text)
            .ok_or_else(|| Error::Parse {
                what: "protocol",
                text: text.into(),
                expected: "memcached, memcached-udp, resp or http1",
            })
    }
}

/// When requests are due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Open loop, exponential gaps.
    Poisson,
    /// Open loop, equal gaps.
    Fixed,
    /// Closed loop: this many requests outstanding on each connection; the next is due when one is answered.
    Closed(usize),
}

impl std::str::FromStr for Arrivals {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "poisson" => Some(Self::Poisson),
            None if text == "fixed" => Some(Self::Fixed),
            Some(("closed", n)) => n.parse().ok().filter(|n| *n > 0).map(Self::Closed),
            _ => None,
        }
        .ok_or_else(|| Error::Parse {
            what: "arrivals",
            text: text.into(),
            expected: "poisson, fixed or closed:N with N outstanding requests a connection",
        })
    }
}

/// One stream of requests to one server.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Its name in results, and part of its keys: no spaces, at most 64 bytes.
    pub name: String,
    /// What is spoken.
    pub proto: Proto,
    /// The server.
    pub addr: SocketAddr,
    /// Connections (UDP: sockets), used in turn.
    pub connections: usize,
    /// Requests a second over all connections; not used by [`Arrivals::Closed`].
    pub rate_per_s: f64,
    /// When requests are due.
    pub arrivals: Arrivals,
    /// Requests sent back to back on one connection at each arrival; the rate stays the same.
    pub pipeline_burst: usize,
    /// Size of the values that are set before and then read, bytes (not used by [`Proto::Http1`]).
    pub value_size: usize,
    /// What [`Proto::Http1`] asks for.
    pub path: String,
    /// Seed of the arrival times.
    pub seed: u64,
}

impl Workload {
    /// Poisson arrivals at 1,000 requests/s over 8 connections, values of 32 bytes, path `/`.
    #[must_use]
    pub fn new(proto: Proto, addr: SocketAddr) -> Self {
        Self {
            name: proto.name().to_owned(),
            proto,
            addr,
            connections: 8,
            rate_per_s: 1000.0,
            arrivals: Arrivals::Poisson,
            pipeline_burst: 1,
            value_size: 32,
            path: "/".to_owned(),
            seed: 1,
        }
    }

    /// The same with another rate, requests/s.
    #[must_use]
    pub fn rate(self, rate_per_s: f64) -> Self {
        Self { rate_per_s, ..self }
    }

    /// The same with another number of connections.
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// Bytes that the server receives from a run of a TCP workload in which `requests` were sent: theirs, and those of the
    /// setup (values are set, one request is tried on each connection).
    #[must_use]
    pub fn bytes_sent(&self, requests: u64) -> u64 {
        plan::preload_bytes(self) + plan::request_bytes(self) * (self.connections as u64 + requests)
    }

    /// Refuses what cannot be run.
    pub(super) fn validate(&self) -> Result<()> {
        let closed = matches!(self.arrivals, Arrivals::Closed(_));
        let refuse =
            |reason: &str| Err(Error::InvalidWorkload { workload: self.name.clone(), reason: reason.to_owned() });
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
        if self.name.is_empty() || self.name.len() > 64 || !plain(&self.name) {
            return refuse("its name must be 1 to 64 printable characters without spaces");
        }
        if self.connections == 0 || self.connections > 50_000 {
            return refuse("it needs 1 to 50000 connections");
        }
        if !(1..=1024).contains(&self.pipeline_burst) {
            return refuse("a burst has 1 to 1024 requests");
        }
        let rate_known = self.rate_per_s > 0.0 && self.rate_per_s <= 1e7;
        if !closed && !rate_known {
            return refuse("its rate must be above 0 and at most 10M requests/s");
        }
        if matches!(self.arrivals, Arrivals::Closed(n) if !(1..=65_536).contains(&n)) {
            return refuse("a closed loop has 1 to 65536 outstanding requests");
        }
        if closed && self.proto == Proto::MemcachedUdp {
            return refuse("UDP has no closed loop here, a lost datagram would stop it; use poisson or fixed");
        }
        let limit = if self.proto == Proto::MemcachedUdp { 32 << 10 } else { 512 << 20 };
        if self.value_size > limit {
            return refuse("its values are too large (at most 32k over UDP, 512M otherwise)");
        }
        if self.proto == Proto::Http1 && !(self.path.starts_with('/') && plain(&self.path)) {
            return refuse("its path must start with / and hold no spaces");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        Workload::new(Proto::Memcached, "127.0.0.1:1".parse().unwrap())
    }

    #[test]
    fn protocols_and_arrivals_are_read() {
        for proto in [Proto::Memcached, Proto::MemcachedUdp, Proto::Resp, Proto::Http1] {
            assert_eq!(proto.name().parse::<Proto>().unwrap(), proto);
        }
        assert!("http2".parse::<Proto>().is_err());
        assert_eq!("poisson".parse::<Arrivals>().unwrap(), Arrivals::Poisson);
        assert_eq!("closed:4".parse::<Arrivals>().unwrap(), Arrivals::Closed(4));
        for bad in ["", "closed", "closed:0", "closed:x", "fixed:3"] {
            assert!(bad.parse::<Arrivals>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sent_bytes_count_requests_and_setup() {
        // `get tailsight:memcached:0\r\n` is 27 bytes; ten keys are set.
        let get = 27;
        let set = "set tailsight:memcached:0 0 0 32\r\n".len() as u64 + 34;
        assert_eq!(workload().connections(1).bytes_sent(0), 10 * set + get);
        assert_eq!(workload().connections(11).bytes_sent(5), 10 * set + (11 + 5) * get);
        let http = Workload::new(Proto::Http1, "127.0.0.1:1".parse().unwrap()).connections(2);
        assert_eq!(http.bytes_sent(1), 3 * "GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n".len() as u64);
    }

    #[test]
    fn impossible_workloads_are_refused() {
        let udp = Workload::new(Proto::MemcachedUdp, "127.0.0.1:1".parse().unwrap());
        let http = Workload::new(Proto::Http1, "127.0.0.1:1".parse().unwrap());
        assert!(workload().validate().is_ok());
        for bad in [
            Workload { name: "a b".into(), ..workload() },
            Workload { connections: 0, ..workload() },
            Workload { pipeline_burst: 0, ..workload() },
            workload().rate(0.0),
            workload().rate(f64::NAN),
            Workload { arrivals: Arrivals::Closed(0), ..workload() },
            Workload { arrivals: Arrivals::Closed(1), ..udp.clone() },
            Workload { value_size: 40 << 10, ..udp },
            Workload { path: "x".into(), ..http },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
