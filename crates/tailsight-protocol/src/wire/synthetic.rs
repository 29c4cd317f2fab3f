//! The synthetic service-time protocol, which `lab serve synthetic` speaks: the request says what it costs, the reply what it
//! really cost. Big-endian.
//!
//! A request is a head of 16 bytes, then perhaps padding:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | magic `TSrq` |
//! | 4 | 4 | request id, given back |
//! | 8 | 4 | service time to spend, ns |
//! | 12 | 2 | bytes of the whole reply; fewer than its head (32) asks for the head alone |
//! | 14 | 1 | what the server is asked to do beside, as it defines it; 0: nothing |
//! | 15 | 1 | flags: 1 sleep (else spin as the server is set to), 2 padded |
//! | 16 | 4 | only if padded: bytes of padding that follow, not looked at |
//!
//! A reply is a head of 32 bytes, then the pattern ([`Value`]) whose seed is the request's id, up to its length (or what the
//! server was asked for beside):
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | magic `TSrp` |
//! | 4 | 4 | request id |
//! | 8 | 4 | bytes of the whole reply, head included |
//! | 12 | 4 | flags: 1 the queue time is known, 2 the server could not do it |
//! | 16 | 8 | service time really spent, ns |
//! | 24 | 8 | time waited in the server's queue, ns |
//!
//! Streams carry any number of them in any order; a datagram carries one.

use crate::grammar::{be16, be32, be64};
use crate::{Kind, ProtocolError, Value};

const KIND: Kind = Kind::Synthetic;
/// Magics.
const REQUEST_MAGIC: &[u8; 4] = b"TSrq";
const REPLY_MAGIC: &[u8; 4] = b"TSrp";
/// Bytes of a request's head, and of one with padding.
pub const REQUEST_HEAD: usize = 16;
/// Bytes of a request's head and the length of its padding.
pub const PADDED_HEAD: usize = 20;
/// Bytes of a reply's head.
pub const REPLY_HEAD: usize = 32;
/// The most padding, and the longest reply taken for one.
pub const LARGEST: u32 = 64 << 20;

const SLEEP: u8 = 1;
const PADDED: u8 = 2;
const QUEUE_KNOWN: u32 = 1;
const FAILED: u32 = 2;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Given back with the reply.
    pub id: u32,
    /// Service time to spend, ns.
    pub service_ns: u32,
    /// Bytes of the whole reply (at least [`REPLY_HEAD`] come).
    pub reply_bytes: u16,
    /// Sleep instead of spinning.
    pub sleep: bool,
    /// What the server is asked to do beside, as it defines it; 0: nothing. `lab serve synthetic` has faults and stamps here.
    pub beside: u8,
}

impl Request {
    /// Appends the request, `size` bytes in all: [`REQUEST_HEAD`], or [`PADDED_HEAD`] and more.
    pub fn write(&self, buf: &mut Vec<u8>, size: usize) -> Result<(), ProtocolError> {
        let padding = match size {
            REQUEST_HEAD => None,
            PADDED_HEAD.. if size - PADDED_HEAD <= LARGEST as usize => Some(size - PADDED_HEAD),
            _ => {
                let what = "a synthetic request has 16 bytes, or 20 and more up to 64 MiB";
                return Err(ProtocolError::Request { kind: KIND, what });
            }
        };
        buf.extend_from_slice(&self.head(padding.is_some()));
        if let Some(padding) = padding {
            buf.extend_from_slice(&(padding as u32).to_be_bytes());
            buf.resize(buf.len() + padding, 0);
        }
        Ok(())
    }

    /// The head of a request; of one that is padded the length of its padding comes next.
    pub fn head(&self, padded: bool) -> [u8; REQUEST_HEAD] {
        let flags = if self.sleep { SLEEP } else { 0 } | if padded { PADDED } else { 0 };
        let mut head = [0; REQUEST_HEAD];
        head[..4].copy_from_slice(REQUEST_MAGIC);
        head[4..8].copy_from_slice(&self.id.to_be_bytes());
        head[8..12].copy_from_slice(&self.service_ns.to_be_bytes());
        head[12..14].copy_from_slice(&self.reply_bytes.to_be_bytes());
        head[14] = self.beside;
        head[15] = flags;
        head
    }

    /// Reads a request at the beginning of `bytes`: it and its whole length (which may be beyond `bytes`: what is missing
    /// is padding); `None` when more of the head must come.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, ProtocolError> {
        let compared = bytes.len().min(REQUEST_MAGIC.len());
        if bytes[..compared] != REQUEST_MAGIC[..compared] {
            return Err(ProtocolError::garbage(KIND, "the magic of a request", bytes));
        }
        if bytes.len() < REQUEST_HEAD {
            return Ok(None);
        }
        let (beside, flags) = (bytes[14], bytes[15]);
        if flags & !(SLEEP | PADDED) != 0 {
            return Err(ProtocolError::garbage(KIND, "known flags of a request", bytes));
        }
        let len = if flags & PADDED == 0 {
            REQUEST_HEAD
        } else if bytes.len() < PADDED_HEAD {
            return Ok(None);
        } else {
            let padding = be32(bytes, 16);
            if padding > LARGEST {
                return Err(ProtocolError::TooLarge {
                    kind: KIND,
                    what: "a request's padding",
                    limit: u64::from(LARGEST),
                });
            }
            PADDED_HEAD + padding as usize
        };
        let (id, service_ns, reply_bytes) = (be32(bytes, 4), be32(bytes, 8), be16(bytes, 12));
        Ok(Some((Self { id, service_ns, reply_bytes, sleep: flags & SLEEP != 0, beside }, len)))
    }

    /// The value that the reply must carry behind its head: for [`Expect::value`](crate::reply::Expect::value).
    pub fn value(&self) -> Value {
        let len = u64::from(self.reply_bytes).saturating_sub(REPLY_HEAD as u64);
        Value::Pattern { len, seed: u64::from(self.id) }
    }
}

/// The head of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead {
    /// The request's id.
    pub id: u32,
    /// Bytes of the whole reply, head included.
    pub len: u32,
    /// Service time really spent, ns.
    pub service_ns: u64,
    /// Time waited in the server's queue, ns, where it is known.
    pub queue_ns: Option<u64>,
    /// The server could not do it.
    pub failed: bool,
}

impl ReplyHead {
    /// The reply to a request.
    pub fn new(request: &Request, service_ns: u64, queue_ns: Option<u64>) -> Self {
        let len = u32::from(request.reply_bytes).max(REPLY_HEAD as u32);
        Self { id: request.id, len, service_ns, queue_ns, failed: false }
    }

    /// Appends the whole reply.
    pub fn write(&self, buf: &mut Vec<u8>) {
        let flags = if self.queue_ns.is_some() { QUEUE_KNOWN } else { 0 } | if self.failed { FAILED } else { 0 };
        buf.extend_from_slice(REPLY_MAGIC);
        buf.extend_from_slice(&self.id.to_be_bytes());
        buf.extend_from_slice(&self.len.to_be_bytes());
        buf.extend_from_slice(&flags.to_be_bytes());
        buf.extend_from_slice(&self.service_ns.to_be_bytes());
        buf.extend_from_slice(&self.queue_ns.unwrap_or(0).to_be_bytes());
        Value::write(buf, (self.len as usize).saturating_sub(REPLY_HEAD), u64::from(self.id));
    }

    /// Reads a head.
    pub fn parse(head: &[u8; REPLY_HEAD]) -> Result<Self, ProtocolError> {
        let (id, len, flags) = (be32(head, 4), be32(head, 8), be32(head, 12));
        if !head.starts_with(REPLY_MAGIC) || flags & !(QUEUE_KNOWN | FAILED) != 0 || len < REPLY_HEAD as u32 {
            return Err(ProtocolError::garbage(KIND, "the head of a reply", head));
        }
        if len > LARGEST {
            return Err(ProtocolError::TooLarge { kind: KIND, what: "a reply", limit: u64::from(LARGEST) });
        }
        let queue_ns = (flags & QUEUE_KNOWN != 0).then(|| be64(head, 24));
        Ok(Self { id, len, service_ns: be64(head, 16), queue_ns, failed: flags & FAILED != 0 })
    }
}
