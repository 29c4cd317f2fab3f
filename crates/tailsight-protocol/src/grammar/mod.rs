//! The grammars that [`reply`](crate::reply) and [`frame`](crate::frame) share. In: bytes, and how many were not seen.
//! Out: whole messages. A grammar keeps at most one unfinished head; bodies are counted, never kept.

pub(crate) mod echo;
mod hpack;
pub(crate) mod http1;
pub(crate) mod http2;
mod http2_frames;
pub(crate) mod http2_streams;
mod huffman;
pub(crate) mod memcached;
pub(crate) mod memcached_binary;
pub(crate) mod memcached_text;
pub(crate) mod resp;
pub(crate) mod resp_requests;
pub(crate) mod synthetic;

use crate::exchange::{Ask, Op, ServerTimes, Status};
use crate::{Class, Kind, ProtocolError, Value};

/// What a grammar made of the bytes it was given.
#[derive(Debug)]
pub(crate) struct Step<T> {
    /// Bytes used. All of them, unless a message ended, or a part that belongs to none ([`Grammar::is_between`]).
    pub used: usize,
    /// The message that ended with the last byte used.
    pub out: Option<T>,
}

/// What a grammar made of bytes that were not seen.
#[derive(Debug)]
pub(crate) struct Skip<T> {
    /// Bytes accounted for, at least one.
    pub used: u64,
    /// The message that ended with the last of them.
    pub out: Option<T>,
    /// The end is a conclusion (nothing else fits), not an announced length.
    pub inferred: bool,
}

/// Bytes that were not seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unseen {
    /// How many.
    pub bytes: u64,
    /// They end where a segment ends, so that something may be concluded from their number.
    pub to_segment_end: bool,
}

/// Who knows what was asked.
pub(crate) trait Asked {
    /// The request that the present reply answers: of this id, or the oldest when the protocol has none.
    fn ask(&self, id: Option<u64>) -> Ask;
}

/// Nobody knows.
pub(crate) struct Nobody;

impl Asked for Nobody {
    fn ask(&self, _id: Option<u64>) -> Ask {
        Ask::UNKNOWN
    }
}

/// One direction of a protocol.
pub(crate) trait Grammar {
    /// A message.
    type Out;

    /// Takes bytes (at least one). Uses all of them, or ends a message or a part that belongs to none.
    fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<Self::Out>, ProtocolError>;

    /// Goes on by what was announced; `None` when that does not say what the unseen bytes were.
    fn skip(&mut self, unseen: Unseen, asked: &impl Asked) -> Option<Skip<Self::Out>>;

    /// The connection ended: a message that this ends. `Err` when one is unfinished.
    fn close(&mut self, asked: &impl Asked) -> Result<Option<Self::Out>, ()>;

    /// Forgets an unfinished message.
    fn reset(&mut self);

    /// Whether bytes look like the beginning of a message, told from the middle of one.
    fn begins(bytes: &[u8]) -> bool;

    /// Whether bytes that begin like a message begin like one of this protocol only, as far as a beginning can tell.
    fn is_distinct(bytes: &[u8]) -> bool {
        Self::begins(bytes)
    }

    /// Whether what was taken since the last message belongs to none, up to here (HTTP/2: frames of the connection).
    fn is_between(&self) -> bool {
        false
    }

    /// How many bytes ago the oldest message began that has not ended; 0 when that is where the last one ended.
    fn open_bytes(&self) -> u64 {
        0
    }
}

/// Where a message is, when others may lie between its parts (HTTP/2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Bytes from its first to its last, of others in between too.
    pub bytes: u64,
    /// Bytes of its own; 0 where a part of it was in a hole.
    pub own: u64,
}

/// A reply as the grammar sees it, before it is held against what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: Status,
    /// Which kinds of request it can answer: bits of [`Ask`]'s operation.
    pub answers: u8,
    /// The request's id, where the wire has it.
    pub id: Option<u64>,
    /// Values in it, and their bytes.
    pub values: u32,
    pub value_bytes: u64,
    /// Hash of the first key that it names; 0 when none.
    pub key_hash: u64,
    /// The protocol's own status number; 0 when it has none.
    pub code: u16,
    /// Whether every value was what it should be.
    pub fits: Fit,
    /// Not the answer to any request (RESP push, HTTP 1xx).
    pub unsolicited: bool,
    /// Bytes on the wire, where they are not those since the last reply (HTTP/2).
    pub wire: Option<u64>,
    pub span: Option<Span>,
    /// It is no reply of the protocol: its stream was reset (HTTP/2).
    pub reset: bool,
    pub server: Option<ServerTimes>,
}

impl Answer {
    pub(crate) fn new(status: Status, answers: u8) -> Self {
        Self {
            status,
            answers,
            id: None,
            values: 0,
            value_bytes: 0,
            key_hash: 0,
            code: 0,
            fits: Fit::Yes,
            unsolicited: false,
            wire: None,
            span: None,
            reset: false,
            server: None,
        }
    }
}

/// A request as framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub class: Class,
    /// `Some(false)`: none; `None`: perhaps.
    pub answered: Option<bool>,
    pub id: Option<u64>,
    pub op: Op,
    /// Values that may come at most; 0 when unknown.
    pub values: u16,
    /// The connection speaks another protocol behind it, once it is granted, or its replies follow no order.
    pub switches: bool,
    pub span: Option<Span>,
}

impl Request {
    pub(crate) fn new(class: Class, op: Op) -> Self {
        let values = if op == Op::Get { u16::try_from(class.keys).unwrap_or(0) } else { 0 };
        Self { class, answered: Some(true), id: None, op, values, switches: false, span: None }
    }
}

/// How a value compares with what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fit {
    #[default]
    Yes,
    Length,
    Content,
}

/// A body that is counted off and compared as it passes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Body {
    left: u64,
    at: u64,
    differs: bool,
}

impl Body {
    pub(crate) fn new(left: u64) -> Self {
        Self { left, at: 0, differs: false }
    }

    /// More of the same body is announced (HTTP chunks).
    pub(crate) fn extend(&mut self, by: u64) {
        self.left = by;
    }

    pub(crate) fn done(&self) -> bool {
        self.left == 0
    }

    /// Bytes that have passed.
    pub(crate) fn passed(&self) -> u64 {
        self.at
    }

    pub(crate) fn take(&mut self, bytes: &[u8], value: &Value) -> usize {
        let used = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        if !self.differs && !value.fits(self.at, &bytes[..used]) {
            self.differs = true;
        }
        self.at += used as u64;
        self.left -= used as u64;
        used
    }

    pub(crate) fn skip(&mut self, bytes: u64) -> u64 {
        let used = self.left.min(bytes);
        self.at = self.at.saturating_add(used);
        self.left -= used;
        used
    }

    /// The whole body against what it should be.
    pub(crate) fn fit(&self, value: &Value) -> Fit {
        if !value.len_fits(self.at) {
            Fit::Length
        } else if self.differs {
            Fit::Content
        } else {
            Fit::Yes
        }
    }
}

/// A value and its CRLF, as they pass.
#[derive(Debug, Default)]
pub(crate) struct Data {
    body: Body,
    /// Bytes of CRLF still to come.
    end: u8,
}

impl Data {
    pub(crate) fn new(len: u64) -> Self {
        Self::of(Body::new(len))
    }

    /// The rest of a body, then CRLF.
    pub(crate) fn of(body: Body) -> Self {
        Self { body, end: 2 }
    }

    pub(crate) fn body(&self) -> Body {
        self.body
    }

    pub(crate) fn done(&self) -> bool {
        self.body.done() && self.end == 0
    }

    pub(crate) fn fit(&self, value: &Value) -> Fit {
        self.body.fit(value)
    }

    pub(crate) fn take(&mut self, bytes: &[u8], value: &Value, kind: Kind) -> Result<usize, ProtocolError> {
        let mut used = self.body.take(bytes, value);
        while self.body.done() && self.end > 0 && used < bytes.len() {
            if bytes[used] != if self.end == 2 { b'\r' } else { b'\n' } {
                return Err(ProtocolError::garbage(kind, "CRLF after the announced length", &bytes[used..]));
            }
            self.end -= 1;
            used += 1;
        }
        Ok(used)
    }

    pub(crate) fn skip(&mut self, bytes: u64) -> u64 {
        let used = self.body.skip(bytes);
        let end = if self.body.done() { u64::from(self.end).min(bytes - used) } else { 0 };
        self.end -= end as u8;
        used + end
    }
}

/// Collects what ends with a line feed.
#[derive(Debug, Default)]
pub(crate) struct Line {
    kept: Vec<u8>,
    whole: bool,
}

impl Line {
    pub(crate) fn reset(&mut self) {
        self.kept.clear();
        self.whole = false;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty() || self.whole
    }

    /// What has been kept of an unfinished line.
    pub(crate) fn partial(&self) -> &[u8] {
        if self.whole { &[] } else { &self.kept }
    }

    /// Takes bytes up to the next line feed. Gives the bytes used, and the line without its end when it is whole.
    pub(crate) fn take<'a>(
        &'a mut self,
        bytes: &'a [u8],
        kind: Kind,
        limit: usize,
    ) -> Result<(usize, Option<&'a [u8]>), ProtocolError> {
        if self.whole {
            self.reset();
        }
        let end = memchr::memchr(b'\n', bytes);
        let used = end.map_or(bytes.len(), |end| end + 1);
        if self.kept.len() + used > limit {
            return Err(ProtocolError::TooLarge { kind, what: "a line", limit: limit as u64 });
        }
        let line = match end {
            Some(_) if self.kept.is_empty() => &bytes[..used],
            _ => {
                self.kept.extend_from_slice(&bytes[..used]);
                if end.is_none() {
                    return Ok((used, None));
                }
                self.whole = true;
                &self.kept[..]
            }
        };
        let line = &line[..line.len() - 1];
        Ok((used, Some(line.strip_suffix(b"\r").unwrap_or(line))))
    }
}

/// Collects a head of `N` bytes.
#[derive(Debug)]
pub(crate) struct Fixed<const N: usize> {
    kept: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Fixed<N> {
    fn default() -> Self {
        Self { kept: [0; N], len: 0 }
    }
}

impl<const N: usize> Fixed<N> {
    pub(crate) fn reset(&mut self) {
        self.len = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes bytes; gives how many it used and the head when it is whole.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> (usize, Option<[u8; N]>) {
        let used = bytes.len().min(N - self.len);
        self.kept[self.len..self.len + used].copy_from_slice(&bytes[..used]);
        self.len += used;
        if self.len < N {
            return (used, None);
        }
        self.len = 0;
        (used, Some(self.kept))
    }
}

/// A decimal number of digits only.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0_u64, |n, b| {
        b.is_ascii_digit().then_some(())?;
        n.checked_mul(10)?.checked_add(u64::from(b - b'0'))
    })
}

/// Big-endian numbers at fixed places of a head.
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}
