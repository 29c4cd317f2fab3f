//! What goes into framing and what comes out.

use std::ops::Range;

use crate::Class;
use crate::exchange::Status;

/// A part of one direction's stream, as recorded.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// Place of its first byte in its direction's stream.
    pub offset: u64,
    /// Its whole length, bytes.
    pub len: u64,
    /// Its first bytes, as far as they were kept (what is beyond `len` is not looked at).
    pub captured: &'a [u8],
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
}

/// A byte range of one direction: `from..to`. The ranges of a direction tile it, in the order of their ends.
///
/// In HTTP/2 messages interleave: the range of one is what lies between the end of the message before and its own end, the end of the frame
/// that ends its stream, for that is what its receiver waits for. Where it really begins, perhaps before messages that ended since, is
/// `first`, and how many bytes are its own `bytes`; after a hole `first` is where it went on, and `bytes` is 0. Elsewhere these are its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A request.
    Request(RequestFrame),
    /// A reply.
    Reply(ReplyFrame),
    /// A message of the server that answers nothing (RESP push, HTTP/1 1xx, HTTP/2 push).
    Unsolicited {
        /// First byte.
        from: u64,
        /// Behind its last byte.
        to: u64,
    },
    /// Bytes of the connection itself, between messages (HTTP/2: settings, pings, windows).
    Control {
        /// Whose bytes.
        direction: Direction,
        /// First byte.
        from: u64,
        /// Behind the last byte.
        to: u64,
    },
    /// Bytes whose messages are not known.
    Lost {
        /// Whose bytes.
        direction: Direction,
        /// First byte.
        from: u64,
        /// Behind the last byte.
        to: u64,
        /// Why.
        why: Why,
    },
}

impl Frame {
    /// Its bytes.
    pub fn range(&self) -> Range<u64> {
        match *self {
            Frame::Request(RequestFrame { from, to, .. })
            | Frame::Reply(ReplyFrame { from, to, .. })
            | Frame::Unsolicited { from, to }
            | Frame::Control { from, to, .. }
            | Frame::Lost { from, to, .. } => from..to,
        }
    }
}

/// A request of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFrame {
    /// Its number on the flow, from 0, in stream order.
    pub seq: u64,
    /// First byte.
    pub from: u64,
    /// Behind its last byte.
    pub to: u64,
    /// Its first own byte.
    pub first: u64,
    /// Bytes of its own; 0 where a part of it was in a hole.
    pub bytes: u64,
    /// What it is.
    pub class: Class,
    /// Whether it gets an answer: `Some(false)` for noreply, `None` for quiet ones (only when there is something to say).
    pub answered: Option<bool>,
    /// Its end was concluded, not read.
    pub inferred: bool,
}

impl RequestFrame {
    /// Whether nothing else lies between its parts.
    pub fn is_alone(&self) -> bool {
        self.to - self.first == self.bytes
    }
}

/// A reply of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyFrame {
    /// First byte.
    pub from: u64,
    /// Behind its last byte.
    pub to: u64,
    /// Its first own byte.
    pub first: u64,
    /// Bytes of its own; 0 where a part of it was in a hole.
    pub bytes: u64,
    /// The request that it answers, by [`RequestFrame::seq`]; `None` when that is not known.
    pub request: Option<u64>,
    /// What the pairing rests on.
    pub pairing: Pairing,
    /// What it says; [`Status::Ok`] where HTTP/2 compressed it with bytes that were not seen.
    pub status: Status,
    /// Values in it.
    pub values: u32,
    /// Bytes of its values or body.
    pub value_bytes: u64,
    /// Its end was concluded, not read.
    pub inferred: bool,
}

impl ReplyFrame {
    /// Whether nothing else lies between its parts.
    pub fn is_alone(&self) -> bool {
        self.to - self.first == self.bytes
    }
}

/// What pairs a reply with its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// An id on the wire, or the key that the reply names.
    Id,
    /// The order on the flow, both directions framed without a hole since a known beginning.
    Order,
    /// The order since a hole (or since the first segment of a flow recorded from its middle), taking it that what was
    /// asked before the hole was answered in it.
    Assumed,
    /// Not paired.
    None,
}

/// Why bytes have no messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// The flow's first segment does not begin like a message (recorded from its middle, or another protocol).
    NotABeginning,
    /// The capture of a segment ends inside a head: the message's length is not known.
    HeadNotCaptured,
    /// A segment is missing, and no announced length reaches over it.
    Gap,
    /// Bytes that are not the protocol.
    Garbage,
    /// A head larger than the framer keeps.
    TooLarge,
    /// The connection is no longer this protocol's (HTTP CONNECT or upgrade, Redis MONITOR).
    Switched,
    /// The recording ended inside a message.
    Unfinished,
}
