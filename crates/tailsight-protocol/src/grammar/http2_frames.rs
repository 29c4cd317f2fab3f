//! Frames of HTTP/2 (RFC 9113 §4) as a third party sees them, of either direction. In: bytes, and how many were not seen. Out: each
//! frame when it ends, with its header block if it ends one.
//!
//! Lengths are taken at their word, so that a frame of which only the head was seen is passed over. Nothing is kept but one header block,
//! up to the bound of the load generator's side; of a longer one, or one of which a part was not seen, what came before is read.

use super::http2::LARGEST_BLOCK;
use super::{Fixed, Unseen};
use crate::wire::http2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME, FrameHead, GOAWAY, HEAD, HEADERS, PADDED, PING, PREFACE,
    PRIORITY, PRIORITY_FRAME, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use crate::{Kind, ProtocolError};

const KIND: Kind = Kind::Http2;
/// Bytes of a stream's id, and of the priority that HEADERS may carry (§6.2).
const STREAM_ID: usize = 4;
const DEPENDENCY: usize = 5;
/// An extension of RFC 9218, the last kind of frame that is in use.
const PRIORITY_UPDATE: u8 = 16;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Client,
    Server,
}

/// A frame that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// What the client sends first.
    Preface,
    /// A header block has ended, over as many frames as it took.
    Headers { stream: u32, ends: bool },
    /// A part of a header block.
    Part { stream: u32 },
    /// A promise has ended: its block is read for what it adds to the table.
    Promise,
    /// Bytes of a body, without padding.
    Data { stream: u32, bytes: u64, ends: bool },
    /// A stream is given up.
    Reset { stream: u32 },
    /// Of the connection, or of nothing that a message is made of.
    Control,
}

/// The frame at hand.
#[derive(Debug, Clone, Copy)]
struct Open {
    head: FrameHead,
    left: usize,
    /// Its first byte, with which padding is announced.
    first: Option<u8>,
    /// A byte of it was not seen, or not kept; what follows is not kept.
    is_cut: bool,
    /// Where its bytes begin in the block.
    at: usize,
    is_preface: bool,
}

/// The header block at hand.
#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    is_cut: bool,
    /// The stream, and the flags and kind of its first frame, while it goes on.
    goes_on: Option<FrameHead>,
}

/// The state of one direction.
#[derive(Debug)]
pub(super) struct Frames {
    sender: Sender,
    head: Fixed<HEAD>,
    frame: Option<Open>,
    block: Block,
}

impl Frames {
    pub(super) fn new(sender: Sender) -> Self {
        Self { sender, head: Fixed::default(), frame: None, block: Block::default() }
    }

    pub(super) fn reset(&mut self) {
        self.head.reset();
        self.frame = None;
        self.block.goes_on = None;
    }

    /// Whether the next byte is that of a frame's head, and no header block goes on.
    pub(super) fn is_between(&self) -> bool {
        self.head.is_empty() && self.frame.is_none() && self.block.goes_on.is_none()
    }

    /// The header block that has ended, and whether that is all of it.
    pub(super) fn block(&self) -> (&[u8], bool) {
        (&self.block.bytes, !self.block.is_cut)
    }

    /// Takes bytes: all of them, or up to the end of a frame.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<(usize, Option<Frame>), ProtocolError> {
        let mut used = 0;
        if self.frame.is_none() {
            let (taken, head) = self.head.take(bytes);
            used = taken;
            let Some(head) = head else { return Ok((used, None)) };
            self.begin(&head)?;
        }
        let Some(open) = &mut self.frame else { return Ok((used, None)) };
        let come = &bytes[used..used + open.left.min(bytes.len() - used)];
        if open.is_preface {
            let at = PREFACE.len() - open.left;
            if PREFACE[at..at + come.len()] != *come {
                return Err(ProtocolError::garbage(KIND, "the preface", come));
            }
        }
        if let (None, false, Some(first)) = (open.first, open.is_cut, come.first()) {
            open.first = Some(*first);
        }
        if !open.is_cut && !self.block.is_cut && matches!(open.head.kind, HEADERS | PUSH_PROMISE | CONTINUATION) {
            let room = LARGEST_BLOCK.saturating_sub(self.block.bytes.len());
            open.is_cut = come.len() > room;
            self.block.bytes.extend_from_slice(&come[..come.len().min(room)]);
        }
        open.left -= come.len();
        used += come.len();
        Ok((used, self.ended()?))
    }

    /// Goes on over unseen bytes, as far as the frame at hand reaches.
    pub(super) fn skip(&mut self, unseen: Unseen) -> Option<(u64, Option<Frame>)> {
        let open = self.frame.as_mut()?;
        let used = usize::try_from(unseen.bytes).unwrap_or(usize::MAX).min(open.left);
        open.is_cut |= used > 0;
        open.left -= used;
        let frame = self.ended().ok()?;
        Some((used as u64, frame))
    }

    fn begin(&mut self, bytes: &[u8; HEAD]) -> Result<(), ProtocolError> {
        let garbage = |expected| Err(ProtocolError::garbage(KIND, expected, bytes));
        let head = FrameHead::read(bytes);
        let mut open = Open { head, left: head.length, first: None, is_cut: false, at: 0, is_preface: false };
        if self.sender == Sender::Client && PREFACE.starts_with(bytes) && self.block.goes_on.is_none() {
            self.frame = Some(Open { left: PREFACE.len() - HEAD, is_preface: true, ..open });
            return Ok(());
        }
        if !has_its_length(&head) {
            return garbage("a frame of its kind's length");
        }
        let wrong = match self.sender {
            Sender::Client => {
                head.kind == PUSH_PROMISE || matches!(head.kind, DATA | HEADERS) && head.stream.is_multiple_of(2)
            }
            Sender::Server => false,
        };
        if wrong || !head.has_its_stream() {
            return garbage("a frame that belongs there");
        }
        match self.block.goes_on {
            Some(begun) if head.kind != CONTINUATION || head.stream != begun.stream => {
                return garbage("CONTINUATION where it belongs");
            }
            None if head.kind == CONTINUATION => return garbage("CONTINUATION where it belongs"),
            Some(_) => open.at = self.block.bytes.len(),
            None if matches!(head.kind, HEADERS | PUSH_PROMISE) => {
                self.block.bytes.clear();
                self.block.is_cut = false;
            }
            None => {}
        }
        self.frame = Some(open);
        Ok(())
    }

    /// The frame at hand, if it has ended.
    fn ended(&mut self) -> Result<Option<Frame>, ProtocolError> {
        let Some(open) = self.frame.take_if(|open| open.left == 0) else { return Ok(None) };
        let FrameHead { kind, flags, stream, .. } = open.head;
        Ok(Some(match kind {
            _ if open.is_preface => Frame::Preface,
            DATA => Frame::Data { stream, bytes: body(&open), ends: flags & END_STREAM != 0 },
            HEADERS | PUSH_PROMISE | CONTINUATION => self.block_part(&open)?,
            RST_STREAM => Frame::Reset { stream },
            _ => Frame::Control,
        }))
    }

    /// A frame of a header block has ended.
    fn block_part(&mut self, open: &Open) -> Result<Frame, ProtocolError> {
        let FrameHead { kind, flags, stream, length } = open.head;
        let is_padded = kind != CONTINUATION && flags & PADDED != 0;
        let before = usize::from(is_padded)
            + match kind {
                HEADERS if flags & PRIORITY != 0 => DEPENDENCY,
                PUSH_PROMISE => STREAM_ID,
                _ => 0,
            };
        let behind = if is_padded { open.first.map_or(0, usize::from) } else { 0 };
        if before + behind > length {
            return Err(ProtocolError::garbage(KIND, "padding within its frame", &self.block.bytes[open.at..]));
        }
        // What was kept of it are its first bytes; padding is cut off as far as it was.
        let kept = self.block.bytes.len() - open.at;
        let upto = kept.min(length - behind);
        self.block.bytes.truncate(open.at + upto);
        self.block.bytes.drain(open.at..open.at + before.min(upto));
        self.block.is_cut |= upto < length - behind;
        let first = self.block.goes_on.take().unwrap_or(open.head);
        if flags & END_HEADERS == 0 {
            self.block.goes_on = Some(first);
            return Ok(Frame::Part { stream });
        }
        Ok(match first.kind {
            PUSH_PROMISE => Frame::Promise,
            _ => Frame::Headers { stream, ends: first.flags & END_STREAM != 0 },
        })
    }
}

/// Bytes of a DATA frame without its padding, as far as that was seen.
fn body(open: &Open) -> u64 {
    let padding = match open.first {
        Some(padding) if open.head.flags & PADDED != 0 => 1 + usize::from(padding),
        _ => 0,
    };
    open.head.length.saturating_sub(padding) as u64
}

/// Whether a frame has a length that its kind can have.
fn has_its_length(head: &FrameHead) -> bool {
    match head.kind {
        PRIORITY_FRAME => head.length == DEPENDENCY,
        RST_STREAM | WINDOW_UPDATE => head.length == 4,
        SETTINGS if head.flags & ACK != 0 => head.length == 0,
        SETTINGS => head.length.is_multiple_of(6) && head.length <= FRAME,
        PING => head.length == 8,
        GOAWAY => (8..=FRAME).contains(&head.length),
        // Peers may agree on more than the usual size.
        DATA | HEADERS | PUSH_PROMISE | CONTINUATION => true,
        // Extensions are passed over (§4.1).
        _ => head.length <= FRAME,
    }
}

/// Whether bytes begin like a frame of this sender: the heads that are in them follow each other by their lengths.
pub(super) fn begins(bytes: &[u8], sender: Sender) -> bool {
    if sender == Sender::Client && bytes.len() >= HEAD && bytes[..HEAD] == PREFACE[..HEAD] {
        return true;
    }
    let mut rest = bytes;
    let mut block = false;
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD>() {
        let frame = FrameHead::read(head);
        let may_have = match frame.kind {
            DATA => END_STREAM | PADDED,
            HEADERS => END_STREAM | END_HEADERS | PADDED | PRIORITY,
            PUSH_PROMISE => END_HEADERS | PADDED,
            CONTINUATION => END_HEADERS,
            SETTINGS | PING => ACK,
            PRIORITY_FRAME | RST_STREAM | GOAWAY | WINDOW_UPDATE | PRIORITY_UPDATE => 0,
            _ => return false,
        };
        let of_client = sender == Sender::Client;
        let wrong = frame.flags & !may_have != 0
            || head[5] & 0x80 != 0
            || frame.length > FRAME
            || !has_its_length(&frame)
            || !frame.has_its_stream()
            || (frame.kind == CONTINUATION) != block
            || of_client
                && (frame.kind == PUSH_PROMISE
                    || matches!(frame.kind, DATA | HEADERS) && frame.stream.is_multiple_of(2));
        if wrong {
            return false;
        }
        block = matches!(frame.kind, HEADERS | PUSH_PROMISE | CONTINUATION) && frame.flags & END_HEADERS == 0;
        match behind.get(frame.length..) {
            Some(next) => rest = next,
            None => return true,
        }
    }
    rest.len() < bytes.len()
}
