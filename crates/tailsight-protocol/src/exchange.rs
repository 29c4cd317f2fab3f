//! What is asked and what is answered, in the words of every protocol.

use crate::Value;

/// What a request does, as far as it says which replies fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads values (memcached get/gets/mg, Redis GET, HTTP GET).
    Get,
    /// Stores a value (memcached set/add/…/ms, Redis SET, HTTP PUT and POST).
    Set,
    /// Removes (memcached delete/md, Redis DEL, HTTP DELETE).
    Delete,
    /// Does nothing (memcached version/mn/noop, Redis PING).
    Ping,
    /// HTTP HEAD: the reply has no body, whatever it announces.
    Head,
    /// Anything else: every reply of the protocol's grammar fits.
    Other,
}

impl Op {
    /// Its bit in an answer's set.
    pub(crate) const fn bit(self) -> u8 {
        match self {
            Self::Get => 1,
            Self::Set => 2,
            Self::Delete => 4,
            Self::Ping => 8,
            Self::Head => 16,
            Self::Other => 32,
        }
    }

    /// Every one of them.
    pub(crate) const ANY: u8 = 63;
}

/// What one request hopes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// What it does.
    pub op: Op,
    /// How many values may come at most (`get a b c`: 3); 0 when unknown.
    pub values: u16,
    /// What each value must be.
    pub value: Value,
}

impl Ask {
    /// Anything fits.
    pub const UNKNOWN: Self = Self { op: Op::Other, values: 0, value: Value::Any };
}

/// A request that is outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expect {
    /// Given back with the reply. Where the wire has an id (binary opaque, meta `O`, HTTP/2 stream, synthetic and datagram
    /// ids) this must be it; elsewhere replies come in order and it is the caller's own.
    pub id: u64,
    /// What it hopes for.
    pub ask: Ask,
    /// The server answers only when there is something to say (memcached binary `getq`, meta flag `q`). It is resolved at
    /// the latest by the reply of a later request that is not quiet: as a miss (reads) or as done (all else). Quiet
    /// requests need ids on the wire.
    pub quiet: bool,
}

impl Expect {
    /// A request with one answer.
    pub const fn new(id: u64, op: Op) -> Self {
        Self { id, ask: Ask { op, values: if matches!(op, Op::Get) { 1 } else { 0 }, value: Value::Any }, quiet: false }
    }

    /// The value that must come back.
    pub const fn value(mut self, value: Value) -> Self {
        self.ask.value = value;
        self
    }

    /// A read of this many keys.
    pub const fn keys(mut self, keys: u16) -> Self {
        self.ask.values = keys;
        self
    }

    /// A quiet request.
    pub const fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }
}

/// A reply that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Bytes of this feed up to its end: its time is that of the read (or of the part of it) that brought byte `end - 1`.
    pub end: usize,
    /// Bytes of the whole reply on the wire, heads included (HTTP/2: of its frames).
    pub bytes: u64,
    /// Values in it (memcached gets: hits).
    pub values: u32,
    /// Bytes of its values or body.
    pub value_bytes: u64,
    /// What it says.
    pub status: Status,
    /// The request that it answers; `None` when nobody asked (its status is then `Wrong(Unasked)`).
    pub id: Option<u64>,
    /// The protocol's own status number (HTTP, memcached binary); 0 when it has none.
    pub code: u16,
    /// What the server said about its own time (synthetic).
    pub server: Option<ServerTimes>,
}

/// What the synthetic server says about a request, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerTimes {
    /// Time really spent in service.
    pub service_ns: u64,
    /// Time waited in the server's queue, where it knows.
    pub queue_ns: Option<u64>,
}

/// What a reply says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// What was hoped for.
    Ok,
    /// A proper answer without the thing: no such key, not stored, HTTP 404.
    Miss,
    /// The server reports an error.
    Error(ErrorKind),
    /// Proper grammar, but not an answer to what was asked.
    Wrong(WrongKind),
}

/// Errors that servers report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It does not like the request (memcached ERROR and CLIENT_ERROR, Redis ERR, HTTP 4xx).
    Client,
    /// It failed (memcached SERVER_ERROR, Redis OOM, HTTP 5xx).
    Server,
    /// It refuses for now (Redis LOADING/BUSY, HTTP 429 and 503, memcached busy, R2P2 DROP, HTTP/2 REFUSED_STREAM).
    Busy,
    /// It names another server (Redis MOVED and ASK).
    Elsewhere,
}

/// How a reply is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WrongKind {
    /// It answers another kind of request.
    Kind,
    /// More values than keys were asked for.
    Values,
    /// A value of another length.
    Length,
    /// A value of other bytes.
    Content,
    /// Nobody asked: no such id outstanding, or nothing outstanding at all.
    Unasked,
    /// A datagram, or the last of several, that ends inside its reply or has bytes behind it.
    Size,
    /// A datagram that is not the protocol (in a stream that is an error).
    Garbage,
}
