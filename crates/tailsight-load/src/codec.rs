//! Between a workload and a protocol. In: a key and whether it is read or stored. Out: the request's bytes; from received
//! bytes, the replies in them.

use std::sync::Arc;

use rand::RngExt;
use tailsight_protocol::reply::{BlockedBy, Datagram, Datagrams, Expect, Http2, Op, Parser, Reply, Transport};
use tailsight_protocol::{Kind, ProtocolError, Value, wire};

use crate::http::HttpRequest;
use crate::keys::Keys;
use crate::rng::Rng;
use crate::{Endpoint, Plan};

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Which key; where the workload lists HTTP requests, which of them.
    pub(crate) key: u64,
    pub(crate) set: bool,
    /// Service time asked of the synthetic server, ns.
    pub(crate) service_ns: u32,
}

/// Writes requests; one a thread. Its buffers grow to the largest key and value and are then reused.
#[derive(Debug)]
pub(crate) struct Encoder {
    kind: Kind,
    framing: Framing,
    keys: Arc<Keys>,
    meta: bool,
    sets: f64,
    service: crate::Size,
    secure: bool,
    host: String,
    path: String,
    requests: Arc<[HttpRequest]>,
    /// Sums of their weights.
    weights: Vec<f64>,
    name: Vec<u8>,
    value: Vec<u8>,
    message: Vec<u8>,
}

/// The framing around a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    None,
    MemcachedUdp,
    R2p2,
}

impl Encoder {
    pub(crate) fn new(plan: &Plan, keys: Arc<Keys>) -> Self {
        let framing = match (&plan.target, plan.protocol) {
            (Endpoint::R2p2(_), _) => Framing::R2p2,
            (Endpoint::Udp(_), Kind::MemcachedText | Kind::MemcachedBinary) => Framing::MemcachedUdp,
            _ => Framing::None,
        };
        let workload = &plan.workload;
        Self {
            kind: plan.protocol,
            framing,
            keys,
            meta: workload.meta,
            sets: workload.sets,
            service: workload.service,
            secure: matches!(plan.target, Endpoint::Tls(_)),
            host: plan.target.authority().unwrap_or("localhost").to_owned(),
            path: workload.path.clone(),
            requests: workload.requests.clone().into(),
            weights: cumulative(workload.requests.iter().map(|request| request.weight)),
            name: Vec::with_capacity(256),
            value: Vec::with_capacity(4096),
            message: Vec::with_capacity(4096),
        }
    }

    /// Whether the protocol has keys that can be stored beforehand.
    pub(crate) fn has_keys(&self) -> bool {
        matches!(self.kind, Kind::MemcachedText | Kind::MemcachedBinary | Kind::Resp)
    }

    /// Draws the next request.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Ask {
        if let Some(whole) = self.weights.last() {
            let at = rng.random::<f64>() * whole;
            let request = self.weights.partition_point(|sum| *sum <= at).min(self.weights.len() - 1);
            return Ask { key: request as u64, set: false, service_ns: 0 };
        }
        let key = self.keys.pick(rng);
        let set = self.sets > 0.0 && rng.random::<f64>() < self.sets;
        let service_ns = if self.kind == Kind::Synthetic { self.service.draw(rng, 0, u32::MAX) } else { 0 };
        Ask { key, set, service_ns }
    }

    /// Appends the request and the ends of its datagrams; returns what the reply must be. Not for HTTP/2.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, cuts: &mut impl FnMut(usize), id: u64, ask: Ask) -> Expect {
        match self.framing {
            Framing::None => {
                let expect = self.message(out, id, ask);
                cuts(out.len());
                expect
            }
            Framing::MemcachedUdp => {
                out.extend_from_slice(&wire::memcached::udp_head(id as u16));
                let expect = self.message(out, id, ask);
                cuts(out.len());
                expect
            }
            Framing::R2p2 => {
                let mut message = std::mem::take(&mut self.message);
                message.clear();
                let expect = self.message(&mut message, id, ask);
                let (kind, policy) = (wire::r2p2::Type::Request, wire::r2p2::Policy::Fixed);
                for index in 0..wire::r2p2::packets(kind, message.len()) {
                    // The plan holds values below what R2P2 can number.
                    let _ = wire::r2p2::packet(out, kind, policy, id as u16, &message, index);
                    cuts(out.len());
                }
                self.message = message;
                expect
            }
        }
    }

    /// Writes an HTTP/2 request to its connection's output; returns what the reply must be, under its stream's id.
    pub(crate) fn write_http2(&mut self, http2: &mut Http2, ask: Ask) -> Result<Expect, BlockedBy> {
        if let Some(listed) = self.requests.get(ask.key as usize) {
            // RFC 9113, 8.2.1: names in lower case.
            let names: Vec<(String, &str)> =
                listed.fields_but_host().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
            let length = listed.body.as_ref().map(|body| body.0.len().to_string());
            let mut fields: Vec<(&str, &str)> = names.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            fields.extend(length.as_deref().map(|length| ("content-length", length)));
            let request = wire::http2::Request {
                method: &listed.method,
                scheme: if self.secure { "https" } else { "http" },
                authority: listed.host().unwrap_or(&self.host),
                path: &listed.path,
                fields: &fields,
                body: listed.body.as_ref().map(|body| &body.0[..]),
            };
            let id = http2.request(&request)?;
            return Ok(Expect::new(u64::from(id), op(&listed.method)));
        }
        self.value.clear();
        if ask.set {
            Value::write(&mut self.value, self.keys.value_len(ask.key) as usize, self.keys.value_seed(ask.key));
        }
        let request = wire::http2::Request {
            method: if ask.set { "POST" } else { "GET" },
            scheme: if self.secure { "https" } else { "http" },
            authority: &self.host,
            path: &self.path,
            fields: &[],
            body: ask.set.then_some(&self.value[..]),
        };
        let id = http2.request(&request)?;
        Ok(Expect::new(u64::from(id), if ask.set { Op::Set } else { Op::Get }))
    }

    fn message(&mut self, out: &mut Vec<u8>, id: u64, ask: Ask) -> Expect {
        if let Some(listed) = self.requests.get(ask.key as usize) {
            let fields: Vec<(&str, &str)> = listed.fields_but_host().collect();
            let request = wire::http1::Request {
                method: &listed.method,
                target: &listed.path,
                host: listed.host().unwrap_or(&self.host),
                fields: &fields,
                body: listed.body.as_ref().map(|body| &body.0[..]),
            };
            wire::http1::request(out, &request);
            return Expect::new(id, op(&listed.method));
        }
        let length = self.keys.value_len(ask.key);
        let seed = self.keys.value_seed(ask.key);
        let stored = Value::Pattern { len: u64::from(length), seed };
        if self.has_keys() {
            self.keys.name(ask.key, &mut self.name);
        }
        if ask.set {
            self.value.clear();
            Value::write(&mut self.value, length as usize, seed);
        }
        let (name, value) = (&self.name[..], &self.value[..]);
        match (self.kind, ask.set) {
            (Kind::MemcachedText, false) if self.meta => {
                wire::memcached::meta_get(out, name, "v", Some(id), false);
                Expect::new(id, Op::Get).value(stored)
            }
            (Kind::MemcachedText, true) if self.meta => {
                wire::memcached::meta_set(out, name, value, "", Some(id), false);
                Expect::new(id, Op::Set)
            }
            (Kind::MemcachedText, false) => {
                wire::memcached::get(out, name);
                Expect::new(id, Op::Get).value(stored)
            }
            (Kind::MemcachedText, true) => {
                wire::memcached::set(out, name, 0, 0, value);
                Expect::new(id, Op::Set)
            }
            (Kind::MemcachedBinary, false) => {
                wire::memcached_binary::get(out, name, id as u32);
                Expect::new(u64::from(id as u32), Op::Get).value(stored)
            }
            (Kind::MemcachedBinary, true) => {
                wire::memcached_binary::set(out, name, 0, 0, value, id as u32);
                Expect::new(u64::from(id as u32), Op::Set)
            }
            (Kind::Resp, false) => {
                wire::resp::get(out, name);
                Expect::new(id, Op::Get).value(stored)
            }
            (Kind::Resp, true) => {
                wire::resp::set(out, name, value);
                Expect::new(id, Op::Set)
            }
            (Kind::Http1 | Kind::Http2, false) => {
                wire::http1::get(out, &self.host, &self.path);
                Expect::new(id, Op::Get)
            }
            (Kind::Http1 | Kind::Http2, true) => {
                wire::http1::post(out, &self.host, &self.path, value);
                Expect::new(id, Op::Set)
            }
            (Kind::Echo, _) => {
                let length = length.max(1);
                wire::echo::request(out, length as usize, id);
                Expect::new(id, Op::Get).value(Value::Pattern { len: u64::from(length), seed: id })
            }
            (Kind::Synthetic, _) => {
                let reply_bytes = length.min(u32::from(u16::MAX)) as u16;
                let request = wire::synthetic::Request {
                    id: id as u32,
                    service_ns: ask.service_ns,
                    reply_bytes,
                    sleep: false,
                    beside: 0,
                };
                // The bare head is always a valid size.
                let _ = request.write(out, wire::synthetic::REQUEST_HEAD);
                Expect::new(u64::from(id as u32), Op::Get).value(request.value())
            }
        }
    }
}

/// What an HTTP method does, as far as it says which replies fit.
fn op(method: &str) -> Op {
    match method {
        "GET" => Op::Get,
        "HEAD" => Op::Head,
        "POST" | "PUT" => Op::Set,
        "DELETE" => Op::Delete,
        _ => Op::Other,
    }
}

fn cumulative(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect()
}

/// Finds the replies of one connection.
pub(crate) enum Replies {
    Stream(Box<Parser>),
    Datagram(Box<Datagrams>),
}

impl Replies {
    pub(crate) fn new(plan: &Plan) -> Self {
        let outstanding = plan.outstanding as usize;
        let transport = match (&plan.target, plan.protocol) {
            (Endpoint::R2p2(_), _) => Transport::R2p2,
            (Endpoint::Udp(_), Kind::MemcachedText | Kind::MemcachedBinary) => Transport::MemcachedUdp,
            (Endpoint::Udp(_), _) => Transport::Plain,
            _ => return Self::Stream(Box::new(Parser::new(plan.protocol, outstanding))),
        };
        Self::Datagram(Box::new(Datagrams::new(transport, plan.protocol, outstanding)))
    }

    pub(crate) fn expect(&mut self, expect: Expect) {
        match self {
            Self::Stream(parser) => parser.expect(expect),
            Self::Datagram(parser) => parser.expect(expect),
        }
    }

    /// Finds the replies that end in these bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Reply)) -> Result<(), ProtocolError> {
        match self {
            Self::Stream(parser) => parser.feed(bytes, each),
            Self::Datagram(parser) => {
                if let Datagram::Reply(reply) = parser.feed(bytes) {
                    each(reply);
                }
                Ok(())
            }
        }
    }

    /// The stream has ended: replies that end with it (HTTP until-close bodies), and what was cut off.
    pub(crate) fn close(&mut self, each: impl FnMut(Reply)) -> Result<(), ProtocolError> {
        match self {
            Self::Stream(parser) => parser.close(each),
            Self::Datagram(_) => Ok(()),
        }
    }

    /// Whether replies are matched to requests by order alone, so that a reply without a request makes all later matches
    /// wrong.
    pub(crate) fn in_order(&self) -> bool {
        match self {
            Self::Stream(parser) => {
                matches!(parser.kind(), Kind::MemcachedText | Kind::Resp | Kind::Http1 | Kind::Echo)
            }
            Self::Datagram(_) => false,
        }
    }

    /// Stops expecting the reply of a request.
    pub(crate) fn forget(&mut self, id: u64) {
        // Whether it was still expected makes no difference.
        let _ = match self {
            Self::Stream(parser) => parser.forget(id),
            Self::Datagram(parser) => parser.forget(id),
        };
    }

    /// HTTP/2, if it is that.
    pub(crate) fn http2(&mut self) -> Option<&mut Http2> {
        match self {
            Self::Stream(parser) => parser.http2(),
            Self::Datagram(_) => None,
        }
    }

    /// Moves what the protocol has to send to the server (HTTP/2) to the end of `out`; returns whether there was any.
    pub(crate) fn owed(&mut self, out: &mut Vec<u8>) -> bool {
        let Self::Stream(parser) = self else { return false };
        let Some(owed) = parser.output().filter(|owed| !owed.is_empty()) else { return false };
        out.append(owed);
        true
    }
}
