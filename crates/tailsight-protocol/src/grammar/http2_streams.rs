//! Requests and replies of HTTP/2 in a recorded connection. In: frames of one direction. Out: a request when its stream ends in the client's
//! direction, a reply when it ends, or is reset, in the server's; both with the stream as id.
//!
//! Streams interleave, so a message has a [`Span`]: how far back its first byte is, and how many bytes are its own. Where header bytes were
//! not seen, the compression's state is lost and with it the class, for those fields that refer to it; framing goes on by lengths.

use std::collections::VecDeque;

use super::hpack::{Decoder, Name};
use super::http2::said;
use super::http2_frames::{Frame, Frames, Sender, begins};
use super::{Answer, Asked, Grammar, Request, Skip, Span, Step, Unseen, http1};
use crate::ProtocolError;
use crate::class::{Class, Command, Shape, hash};
use crate::exchange::{ErrorKind, Op, Status};

/// Streams of a direction that are remembered while they are open; servers allow 100 to 250 unless they are told otherwise.
pub(crate) const STREAMS: usize = 1024;

/// A stream whose message has begun and not ended.
#[derive(Debug)]
struct Stream<T> {
    id: u32,
    /// Where it began; after a hole where it went on.
    begun: Option<u64>,
    /// Bytes of its own since then.
    own: u64,
    /// A part of it was in a hole, so that its bytes are not known.
    is_partial: bool,
    /// Bytes of its body.
    body: u64,
    head: T,
}

/// What both directions have.
#[derive(Debug)]
struct Side<T> {
    frames: Frames,
    table: Decoder,
    /// By id.
    open: VecDeque<Stream<T>>,
    /// Bytes taken, and how many of them before the frame at hand.
    at: u64,
    frame_at: u64,
    /// A frame of a message has begun since the last message.
    within: bool,
}

/// A stream's message has ended.
struct Ended<T> {
    stream: Stream<T>,
    span: Option<Span>,
    reset: bool,
}

impl<T: Default> Side<T> {
    fn new(sender: Sender) -> Self {
        let (frames, table, open) = (Frames::new(sender), Decoder::default(), VecDeque::new());
        Self { frames, table, open, at: 0, frame_at: 0, within: false }
    }

    /// Forgets what a hole makes uncertain. Streams stay open: their ends may come.
    fn reset(&mut self) {
        self.frames.reset();
        self.table.forget();
        self.open.iter_mut().for_each(|stream| (stream.begun, stream.own, stream.is_partial) = (None, 0, true));
        self.frame_at = self.at;
        self.within = false;
    }

    fn is_between(&self) -> bool {
        !self.within && self.frames.is_between()
    }

    fn open_bytes(&self) -> u64 {
        let begun = self.open.iter().filter_map(|stream| stream.begun).min();
        begun.map_or(0, |begun| self.at - begun)
    }

    /// The place of a stream, which is opened if it is not.
    fn place(&mut self, id: u32) -> usize {
        match self.open.binary_search_by_key(&id, |stream| stream.id) {
            Ok(at) => at,
            Err(at) => {
                let at = if self.open.len() < STREAMS {
                    at
                } else {
                    self.open.pop_front();
                    at.saturating_sub(1)
                };
                // A header block opens it; another frame goes on with one that was opened in a hole.
                self.open.insert(at, Stream { id, begun: None, own: 0, is_partial: true, body: 0, head: T::default() });
                at
            }
        }
    }

    fn is_open(&self, id: u32) -> bool {
        self.open.binary_search_by_key(&id, |stream| stream.id).is_ok()
    }

    /// A frame of a stream has ended: it is part of its message. `is_header`: of a header block.
    fn belongs(&mut self, id: u32, is_header: bool) -> &mut Stream<T> {
        let (frame_at, at) = (self.frame_at, self.at);
        self.within = true;
        let is_new = !self.is_open(id);
        let place = self.place(id);
        let stream = &mut self.open[place];
        stream.is_partial &= !(is_new && is_header);
        stream.begun.get_or_insert(frame_at);
        stream.own += at - frame_at;
        stream
    }

    /// A stream's message ends here.
    fn ends(&mut self, id: u32, reset: bool) -> Option<Ended<T>> {
        let at = self.open.binary_search_by_key(&id, |stream| stream.id).ok()?;
        let stream = self.open.remove(at)?;
        let own = if stream.is_partial { 0 } else { stream.own };
        let span = stream.begun.map(|begun| Span { bytes: self.at - begun, own });
        self.within = false;
        Some(Ended { stream, span, reset })
    }

    /// Takes note of a frame that has ended. `read`: takes from a header block what it says of a message.
    fn frame(&mut self, frame: Frame, read: impl FnOnce(&mut T, &mut Decoder, (&[u8], bool))) -> Option<Ended<T>> {
        let ended = match frame {
            Frame::Preface => {
                // The connection's first byte: nothing was missed.
                self.table = Decoder::default();
                None
            }
            Frame::Headers { stream, ends } => {
                self.belongs(stream, true);
                let place = self.place(stream);
                read(&mut self.open[place].head, &mut self.table, self.frames.block());
                if ends { self.ends(stream, false) } else { None }
            }
            Frame::Part { stream } => {
                self.belongs(stream, true);
                None
            }
            Frame::Data { stream, bytes, ends } => {
                self.belongs(stream, false).body += bytes;
                if ends { self.ends(stream, false) } else { None }
            }
            Frame::Promise => {
                let (block, is_whole) = self.frames.block();
                self.table.decode(block, is_whole, |_, _| ());
                None
            }
            Frame::Reset { stream } => {
                self.belongs(stream, false);
                self.ends(stream, true)
            }
            Frame::Control => None,
        };
        self.frame_at = self.at;
        ended
    }
}

/// What is known of a request's head.
#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    is_read: bool,
    method: Option<Method>,
    path: Option<Path>,
}

#[derive(Debug, Clone, Copy)]
struct Method {
    command: Command,
    op: Op,
    has_no_path: bool,
}

#[derive(Debug, Clone, Copy)]
struct Path {
    bytes: u32,
    hash: u64,
    shape: Shape,
}

impl RequestHead {
    /// The first block of a stream is its head; a later one has trailers, and is read for the table alone.
    fn read(&mut self, table: &mut Decoder, (block, is_whole): (&[u8], bool)) {
        let is_head = !std::mem::replace(&mut self.is_read, true);
        table.decode(block, is_whole, |name, value| match (name, value) {
            (Name::Method, Some(method)) if is_head => {
                let has_no_path = method == b"CONNECT";
                self.method = Some(Method { command: Command::exact(method), op: http1::op(method), has_no_path });
            }
            (Name::Path, Some(path)) if is_head => {
                let target = path.split(|b| *b == b'?').next().unwrap_or_default();
                self.path = Some(Path { bytes: target.len() as u32, hash: hash(target), shape: Shape::of(target) });
            }
            _ => {}
        });
    }

    fn class(&self) -> Class {
        let mut class = Class::bare(self.method.map_or_else(Command::unknown, |method| method.command));
        if let Some(path) = self.path {
            (class.keys, class.key_bytes, class.key_hash, class.path) = (1, path.bytes, path.hash, path.shape);
        } else if !self.method.is_some_and(|method| method.has_no_path) {
            class.path = Shape::unknown();
        }
        class
    }
}

/// Requests.
#[derive(Debug)]
pub(crate) struct Requests(Side<RequestHead>);

impl Default for Requests {
    fn default() -> Self {
        Self(Side::new(Sender::Client))
    }
}

impl Requests {
    fn frame(&mut self, frame: Frame) -> Option<Request> {
        // A client that gives its request up asks for nothing; once that has ended, for nothing more.
        if let Frame::Reset { stream } = frame {
            self.0.open.retain(|open| open.id != stream);
            self.0.frame_at = self.0.at;
            return None;
        }
        let ended = self.0.frame(frame, RequestHead::read)?;
        let Stream { id, body, head, is_partial, .. } = ended.stream;
        let mut request = Request::new(head.class(), head.method.map_or(Op::Other, |method| method.op));
        request.class.value_bytes = if is_partial { 0 } else { body };
        request.id = Some(u64::from(id));
        request.span = ended.span;
        Some(request)
    }
}

/// What is known of a reply's head.
#[derive(Debug, Default)]
pub(crate) struct ReplyHead {
    code: u16,
}

impl ReplyHead {
    /// The last status counts: those before are 1xx. Trailers have none.
    fn read(&mut self, table: &mut Decoder, (block, is_whole): (&[u8], bool)) {
        table.decode(block, is_whole, |name, value| {
            if let (Name::Status, Some(code)) = (name, value) {
                self.code = super::number(code).and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
            }
        });
    }
}

/// Replies.
#[derive(Debug)]
pub(crate) struct Replies(Side<ReplyHead>);

impl Default for Replies {
    fn default() -> Self {
        Self(Side::new(Sender::Server))
    }
}

impl Replies {
    fn frame(&mut self, frame: Frame) -> Option<Answer> {
        // Behind a reply's end a reset only says that no more of the request is wanted.
        let begun = matches!(frame, Frame::Reset { stream } if self.0.is_open(stream));
        let ended = self.0.frame(frame, ReplyHead::read)?;
        let Stream { id, body, head, .. } = ended.stream;
        let status = match (ended.reset, head.code) {
            (true, _) => Status::Error(ErrorKind::Server),
            // Its code was compressed with bytes that were not seen.
            (false, 0) => Status::Ok,
            (false, code) => said(code),
        };
        let mut answer = Answer::new(status, Op::ANY);
        answer.id = Some(u64::from(id));
        answer.code = head.code;
        (answer.value_bytes, answer.values) = (body, u32::from(body > 0));
        answer.unsolicited = id % 2 == 0;
        answer.reset = ended.reset && !begun;
        answer.span = ended.span;
        Some(answer)
    }
}

/// Both directions take bytes alike.
macro_rules! grammar {
    ($side:ident, $out:ident, $sender:expr) => {
        impl Grammar for $side {
            type Out = $out;

            fn step(&mut self, bytes: &[u8], _asked: &impl Asked) -> Result<Step<$out>, ProtocolError> {
                let mut used = 0;
                while used < bytes.len() {
                    let (taken, frame) = self.0.frames.step(&bytes[used..])?;
                    used += taken;
                    self.0.at += taken as u64;
                    let out = frame.and_then(|frame| self.frame(frame));
                    if out.is_some() || self.0.is_between() {
                        return Ok(Step { used, out });
                    }
                }
                Ok(Step { used, out: None })
            }

            fn skip(&mut self, unseen: Unseen, _asked: &impl Asked) -> Option<Skip<$out>> {
                let (used, frame) = self.0.frames.skip(unseen)?;
                self.0.at += used;
                Some(Skip { used, out: frame.and_then(|frame| self.frame(frame)), inferred: false })
            }

            fn close(&mut self, _asked: &impl Asked) -> Result<Option<$out>, ()> {
                if self.0.is_between() && self.0.open.is_empty() { Ok(None) } else { Err(()) }
            }

            fn reset(&mut self) {
                self.0.reset();
            }

            fn begins(bytes: &[u8]) -> bool {
                begins(bytes, $sender)
            }

            fn is_between(&self) -> bool {
                self.0.is_between()
            }

            fn open_bytes(&self) -> u64 {
                self.0.open_bytes()
            }
        }
    };
}

grammar!(Requests, Request, Sender::Client);
grammar!(Replies, Answer, Sender::Server);

#[cfg(test)]
mod tests {
    use super::super::Nobody;
    use super::super::http2::LARGEST_BLOCK;
    use super::*;
    use crate::wire::http2::{CONTINUATION, END_HEADERS, HEADERS, frame};

    fn take(requests: &mut Requests, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        frame(&mut bytes, payload.len(), kind, flags, stream);
        bytes.extend_from_slice(payload);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            rest = &rest[requests.step(rest, &Nobody).unwrap().used..];
        }
    }

    /// A header block without end, and streams without end.
    #[test]
    fn what_is_kept_of_a_flood_is_bounded() {
        let mut requests = Requests::default();
        take(&mut requests, HEADERS, 0, 1, &[0x82]);
        (0..100).for_each(|_| take(&mut requests, CONTINUATION, 0, 1, &[0x86; 16_384]));
        assert_eq!(requests.0.frames.block().0.len(), LARGEST_BLOCK);
        take(&mut requests, CONTINUATION, END_HEADERS, 1, &[]);
        assert!(!requests.0.frames.block().1, "a part of it was not kept");
        (0..5_000).for_each(|at| take(&mut requests, HEADERS, END_HEADERS, 2 * at + 3, &[0x82, 0x84]));
        assert_eq!((requests.0.open.len(), requests.0.open[0].id), (STREAMS, 2 * (5_000 - STREAMS as u32) + 3));
    }
}
