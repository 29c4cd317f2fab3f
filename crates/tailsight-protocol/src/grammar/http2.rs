//! HTTP/2 (RFC 9113), the client's side of a connection. In: requests, and bytes from the server. Out: bytes for the
//! server (requests, acknowledgements, window updates), and replies by their stream.

use std::collections::VecDeque;

use super::{Answer, Asked, Body, Fixed, Step, be16, be32};
use crate::exchange::{ErrorKind, Op, Status};
use crate::wire::http2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME, FrameHead, GOAWAY, HEAD, HEADERS, LAST_ID, PADDED, PING,
    PREFACE, PRIORITY, PUSH_PROMISE, RST_STREAM, Request, SETTINGS, WINDOW_UPDATE, frame, header_block, status,
};
use crate::{Kind, ProtocolError};

const KIND: Kind = Kind::Http2;
/// A header block of a reply: what is beyond is not kept (`:status` comes first).
const BLOCK: usize = 16 << 10;
/// Windows: the default, the largest, and how much of ours may be used before it is topped up.
const WINDOW: i64 = 65_535;
const LARGEST: i64 = (1 << 31) - 1;
const TOP_UP: i64 = 1 << 30;
/// What a server may make us keep or do without answering anything; beyond it the connection is given up. The numbers are those of
/// servers that were attacked so: nghttp2 lets 1,000 acknowledgements wait (CVE-2019-9512 and 9515, PING and SETTINGS floods) and takes
/// 8 CONTINUATION frames and 64 KiB of header block (CVE-2024-28182), Go lets 10,000 control frames wait.
const MOST_OWED: u32 = 1_000;
const MOST_CONTINUATIONS: u32 = 8;
pub(super) const LARGEST_BLOCK: usize = 64 << 10;
const MOST_IDLE: u32 = 10_000;
/// Frames in a row that carry nothing and end nothing (CVE-2019-9518).
const MOST_EMPTY: u32 = 100;

/// Why a request cannot be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockedBy {
    /// As many streams are open as the server allows (or as the caller said); send again after a reply.
    Streams,
    /// Bodies of earlier requests wait for the server's windows; send again after a read.
    Window,
    /// The server sent GOAWAY, or the ids of this connection are used up: open another.
    Connection,
}

/// A request whose reply is outstanding.
#[derive(Debug)]
struct Stream {
    id: u32,
    /// What may be sent of its body.
    window: i64,
    /// What the server may still send.
    received: i64,
    /// Final status, once its headers came.
    code: u16,
    body: Body,
    wire: u64,
    head_request: bool,
}

/// What a final status code says.
pub(super) fn said(code: u16) -> Status {
    match code {
        200..400 => Status::Ok,
        404 | 410 => Status::Miss,
        429 | 503 => Status::Error(ErrorKind::Busy),
        400..500 => Status::Error(ErrorKind::Client),
        _ => Status::Error(ErrorKind::Server),
    }
}

/// A frame that is being read.
#[derive(Debug, Clone, Copy)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    /// Bytes of it still to come.
    left: usize,
}

/// One connection, the client's side.
#[derive(Debug)]
pub struct Http2 {
    output: Vec<u8>,
    streams: Vec<Stream>,
    next_id: u32,
    /// What the caller said.
    limit: u32,
    /// What the server said.
    most_streams: u32,
    first_window: i64,
    most_frame: usize,
    /// What may be sent, and received, on the whole connection.
    window: i64,
    received: i64,
    /// Bodies that wait for windows: stream, bytes, how many are sent.
    waiting: VecDeque<(u32, Vec<u8>, usize)>,
    goaway: Option<u32>,
    /// Streams that ended without a reply in a frame of their own.
    refused: VecDeque<u32>,
    head: Fixed<HEAD>,
    frame: Option<Frame>,
    payload: Vec<u8>,
    /// DATA: bytes of padding at its end, once known.
    padding: Option<usize>,
    /// A header block goes on in the next frame: its stream and flags.
    block: Option<(u32, u8)>,
    greeted: bool,
    /// Acknowledgements that the socket has not taken ([`Http2::sent`]).
    owed: u32,
    /// CONTINUATION frames and bytes of the header block at hand.
    continuations: u32,
    block_bytes: usize,
    /// Frames since the last one that belonged to an answer, and of those that did, since the last one that carried something.
    idle: u32,
    empty: u32,
}

impl Http2 {
    /// A connection that is to have at most `streams` requests outstanding. The preface waits in [`Http2::output`].
    pub fn new(streams: usize) -> Self {
        let limit = u32::try_from(streams.max(1)).unwrap_or(u32::MAX);
        let mut output = Vec::with_capacity(4096);
        output.extend_from_slice(PREFACE);
        // No dynamic table, no push, the largest window.
        frame(&mut output, 18, SETTINGS, 0, 0);
        for (setting, value) in [(1_u16, 0_u32), (2, 0), (4, LARGEST as u32)] {
            output.extend_from_slice(&setting.to_be_bytes());
            output.extend_from_slice(&value.to_be_bytes());
        }
        frame(&mut output, 4, WINDOW_UPDATE, 0, 0);
        output.extend_from_slice(&((LARGEST - WINDOW) as u32).to_be_bytes());
        Self {
            output,
            streams: Vec::with_capacity(streams.max(1)),
            next_id: 1,
            limit,
            most_streams: limit,
            first_window: WINDOW,
            most_frame: FRAME,
            window: WINDOW,
            received: 0,
            waiting: VecDeque::new(),
            goaway: None,
            refused: VecDeque::new(),
            head: Fixed::default(),
            frame: None,
            payload: Vec::new(),
            padding: None,
            block: None,
            greeted: false,
            owed: 0,
            continuations: 0,
            block_bytes: 0,
            idle: 0,
            empty: 0,
        }
    }

    /// Everything that was in [`Http2::output`] is with the kernel. Who never says so can be owed so many acknowledgements in all.
    pub fn sent(&mut self) {
        self.owed = 0;
    }

    /// Bytes for the server: send them and clear this.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Whether a request could be sent now.
    pub fn ready(&self) -> Result<(), BlockedBy> {
        if self.goaway.is_some() || self.next_id > LAST_ID {
            Err(BlockedBy::Connection)
        } else if !self.waiting.is_empty() {
            Err(BlockedBy::Window)
        } else if self.streams.len() >= self.most_streams as usize {
            Err(BlockedBy::Streams)
        } else {
            Ok(())
        }
    }

    /// The id of the stream that the next request gets: expect its reply under it.
    pub fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Writes a request to [`Http2::output`] and gives its stream's id. What the windows do not let through of its body
    /// follows by itself when they open.
    pub fn request(&mut self, request: &Request<'_>) -> Result<u32, BlockedBy> {
        self.ready()?;
        let id = self.next_id;
        self.next_id += 2;
        let start = self.output.len();
        let body = request.body.filter(|body| !body.is_empty());
        let end = if body.is_none() { END_STREAM } else { 0 };
        frame(&mut self.output, 0, HEADERS, END_HEADERS | end, id);
        header_block(&mut self.output, request);
        let len = self.output.len() - start - HEAD;
        if len > self.most_frame {
            self.continue_block(start, len, id);
        } else {
            self.output[start..start + 3].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        }
        self.streams.push(Stream {
            id,
            window: self.first_window,
            received: 0,
            code: 0,
            body: Body::new(u64::MAX),
            wire: 0,
            head_request: request.method == "HEAD",
        });
        if let Some(body) = body {
            let sent = self.send_body(id, body, 0);
            if sent < body.len() {
                self.waiting.push_back((id, body.to_vec(), sent));
            }
        }
        Ok(id)
    }

    /// Cuts a header block that is larger than a frame into HEADERS and CONTINUATION.
    fn continue_block(&mut self, start: usize, len: usize, id: u32) {
        let block = self.output.split_off(start + HEAD);
        let flags = self.output[start + 4] & !END_HEADERS;
        self.output.truncate(start);
        for (index, part) in block.chunks(self.most_frame).enumerate() {
            let last = (index + 1) * self.most_frame >= len;
            let kind = if index == 0 { HEADERS } else { CONTINUATION };
            let flags = if index == 0 { flags } else { 0 } | if last { END_HEADERS } else { 0 };
            frame(&mut self.output, part.len(), kind, flags, id);
            self.output.extend_from_slice(part);
        }
    }

    /// Sends as much of a body as the windows allow: how much is sent in all.
    fn send_body(&mut self, id: u32, body: &[u8], mut sent: usize) -> usize {
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) else { return body.len() };
        while sent < body.len() {
            let most = self.window.min(stream.window).clamp(0, self.most_frame as i64) as usize;
            let part = most.min(body.len() - sent);
            if part == 0 {
                break;
            }
            let last = sent + part == body.len();
            frame(&mut self.output, part, DATA, if last { END_STREAM } else { 0 }, id);
            self.output.extend_from_slice(&body[sent..sent + part]);
            sent += part;
            self.window -= part as i64;
            stream.window -= part as i64;
        }
        sent
    }

    /// The windows have opened.
    fn send_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some((id, body, sent)) = self.waiting.pop_front() else { break };
            let sent = self.send_body(id, &body, sent);
            if sent < body.len() {
                self.waiting.push_back((id, body, sent));
            }
        }
    }

    /// Replies wait that need no more bytes.
    pub(crate) fn has_more(&self) -> bool {
        !self.refused.is_empty()
    }

    /// The caller gives a request up: its stream is reset.
    pub(crate) fn forget(&mut self, id: u64) {
        let before = self.streams.len();
        self.streams.retain(|stream| u64::from(stream.id) != id);
        self.waiting.retain(|(stream, ..)| u64::from(*stream) != id);
        if self.streams.len() < before {
            frame(&mut self.output, 4, RST_STREAM, 0, id as u32);
            // CANCEL.
            self.output.extend_from_slice(&8_u32.to_be_bytes());
        }
    }

    /// Takes bytes: all of them, or up to the end of a reply.
    pub(crate) fn step(&mut self, bytes: &[u8], asked: &impl Asked) -> Result<Step<Answer>, ProtocolError> {
        let mut used = 0;
        loop {
            if let Some(id) = self.refused.pop_front() {
                let out = self.ended(id, Some(Status::Error(ErrorKind::Busy)), 7, asked);
                return Ok(Step { used, out });
            }
            if used == bytes.len() && !matches!(self.frame, Some(Frame { left: 0, .. })) {
                return Ok(Step { used, out: None });
            }
            let Some(mut frame) = self.frame else {
                let (taken, head) = self.head.take(&bytes[used..]);
                used += taken;
                if let Some(head) = head {
                    self.begin(&head)?;
                }
                continue;
            };
            let come = &bytes[used..used + frame.left.min(bytes.len() - used)];
            frame.left -= come.len();
            used += come.len();
            if frame.kind == DATA {
                self.data(frame, come, asked)?;
            } else if self.payload.len() < FRAME + BLOCK {
                self.payload.extend_from_slice(come);
            }
            self.frame = if frame.left == 0 { None } else { Some(frame) };
            if frame.left == 0
                && let Some(answer) = self.frame_ended(frame, asked)?
            {
                return Ok(Step { used, out: Some(answer) });
            }
        }
    }

    fn too_large(what: &'static str, limit: u64) -> ProtocolError {
        ProtocolError::TooLarge { kind: KIND, what, limit }
    }

    /// One more acknowledgement waits.
    fn owe(&mut self) -> Result<(), ProtocolError> {
        self.owed += 1;
        if self.owed > MOST_OWED {
            let what = "the number of acknowledgements that the server asks for (PING, SETTINGS) and does not take";
            return Err(Self::too_large(what, u64::from(MOST_OWED)));
        }
        Ok(())
    }

    /// Counts a frame whose head has come against what an honest server needs.
    fn count(&mut self, kind: u8, flags: u8, stream: u32, length: usize) -> Result<(), ProtocolError> {
        if kind == HEADERS {
            (self.continuations, self.block_bytes) = (0, 0);
        }
        if matches!(kind, HEADERS | CONTINUATION) {
            self.continuations += u32::from(kind == CONTINUATION);
            self.block_bytes += length;
            if self.continuations > MOST_CONTINUATIONS {
                let what = "the number of CONTINUATION frames of a header block";
                return Err(Self::too_large(what, u64::from(MOST_CONTINUATIONS)));
            }
            if self.block_bytes > LARGEST_BLOCK {
                return Err(Self::too_large("a header block", LARGEST_BLOCK as u64));
            }
        }
        let answers = matches!(kind, DATA | HEADERS | CONTINUATION | RST_STREAM)
            && self.streams.iter().any(|open| open.id == stream);
        // While a body waits for the windows, their updates are progress.
        if answers || kind == WINDOW_UPDATE && !self.waiting.is_empty() {
            self.idle = 0;
        } else {
            self.idle += 1;
        }
        if self.idle > MOST_IDLE {
            let what = "the number of frames between two that belong to an answer";
            return Err(Self::too_large(what, u64::from(MOST_IDLE)));
        }
        let ends = kind == DATA && flags & END_STREAM != 0 || kind != DATA && flags & END_HEADERS != 0;
        if answers && length == 0 && !ends {
            self.empty += 1;
        } else if answers {
            self.empty = 0;
        }
        if self.empty > MOST_EMPTY {
            return Err(Self::too_large("the number of empty frames in a row", u64::from(MOST_EMPTY)));
        }
        Ok(())
    }

    fn garbage(expected: &'static str, bytes: &[u8]) -> ProtocolError {
        ProtocolError::garbage(KIND, expected, bytes)
    }

    /// A frame's head has come.
    fn begin(&mut self, head: &[u8; HEAD]) -> Result<(), ProtocolError> {
        let frame_head = FrameHead::read(head);
        let FrameHead { length: left, kind, flags, stream } = frame_head;
        if !self.greeted && kind != SETTINGS {
            return Err(Self::garbage("SETTINGS first (does the server speak HTTP/2 without TLS?)", head));
        }
        if left > FRAME {
            return Err(ProtocolError::TooLarge { kind: KIND, what: "a frame", limit: FRAME as u64 });
        }
        if self.block.is_some_and(|(open, _)| kind != CONTINUATION || open != stream)
            || (self.block.is_none() && kind == CONTINUATION)
        {
            return Err(Self::garbage("CONTINUATION where it belongs", head));
        }
        if !frame_head.has_its_stream() || kind == PUSH_PROMISE {
            return Err(Self::garbage("a frame that belongs there", head));
        }
        self.greeted = true;
        self.count(kind, flags, stream, left)?;
        if let Some(stream) = self.streams.iter_mut().find(|open| open.id == stream) {
            stream.wire += (HEAD + left) as u64;
        }
        if self.block.is_none() {
            self.payload.clear();
        }
        self.padding = if flags & PADDED == 0 { Some(0) } else { None };
        self.frame = Some(Frame { kind, flags, stream, left });
        if kind == DATA {
            self.received += left as i64;
            if self.received > TOP_UP {
                self.update(0, self.received);
                self.received = 0;
            }
        }
        Ok(())
    }

    fn update(&mut self, stream: u32, by: i64) {
        frame(&mut self.output, 4, WINDOW_UPDATE, 0, stream);
        self.output.extend_from_slice(&(by as u32).to_be_bytes());
    }

    /// A part of a DATA frame; `frame.left` counts what comes behind it.
    fn data(&mut self, frame: Frame, mut come: &[u8], asked: &impl Asked) -> Result<(), ProtocolError> {
        let padding = match (self.padding, come.split_first()) {
            (Some(padding), _) => padding,
            (None, None) => return Ok(()),
            (None, Some((padding, rest))) => {
                let padding = usize::from(*padding);
                if padding > rest.len() + frame.left {
                    return Err(Self::garbage("padding within its frame", come));
                }
                self.padding = Some(padding);
                come = rest;
                padding
            }
        };
        let body = come.len().min((come.len() + frame.left).saturating_sub(padding));
        let mut update = None;
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == frame.stream) {
            if stream.code == 0 {
                return Err(Self::garbage("HEADERS before DATA", come));
            }
            stream.body.take(&come[..body], &asked.ask(Some(u64::from(stream.id))).value);
            stream.received += come.len() as i64;
            if stream.received > TOP_UP {
                update = Some(stream.received);
                stream.received = 0;
            }
        }
        if let Some(by) = update {
            self.update(frame.stream, by);
        }
        Ok(())
    }

    /// A stream's reply ended.
    fn ended(&mut self, id: u32, status: Option<Status>, code: u16, asked: &impl Asked) -> Option<Answer> {
        let at = self.streams.iter().position(|stream| stream.id == id)?;
        let stream = self.streams.swap_remove(at);
        self.waiting.retain(|(waiting, ..)| *waiting != id);
        let code = if status.is_some() { code } else { stream.code };
        let status = status.unwrap_or_else(|| said(code));
        let mut answer = Answer::new(status, Op::ANY);
        answer.id = Some(u64::from(id));
        answer.code = code;
        answer.value_bytes = stream.body.passed();
        answer.values = u32::from(answer.value_bytes > 0);
        answer.wire = Some(stream.wire);
        if status == Status::Ok && (200..300).contains(&code) && !stream.head_request {
            answer.fits = stream.body.fit(&asked.ask(answer.id).value);
        }
        Some(answer)
    }

    /// A frame has come whole; its payload is kept unless it is DATA.
    fn frame_ended(&mut self, frame: Frame, asked: &impl Asked) -> Result<Option<Answer>, ProtocolError> {
        let length = |expected: bool| {
            if expected { Ok(()) } else { Err(Self::garbage("a frame of its kind's length", &self.payload)) }
        };
        match frame.kind {
            DATA if frame.flags & END_STREAM != 0 => Ok(self.ended(frame.stream, None, 0, asked)),
            HEADERS | CONTINUATION => self.header_frame(frame, asked),
            RST_STREAM => {
                length(self.payload.len() == 4)?;
                let code = be32(&self.payload, 0);
                // REFUSED_STREAM and ENHANCE_YOUR_CALM ask for less.
                let kind = if matches!(code, 7 | 11) { ErrorKind::Busy } else { ErrorKind::Server };
                Ok(self.ended(frame.stream, Some(Status::Error(kind)), code as u16, asked))
            }
            SETTINGS if frame.flags & ACK == 0 => {
                length(self.payload.len().is_multiple_of(6))?;
                self.settings()?;
                Ok(None)
            }
            PING if frame.flags & ACK == 0 => {
                length(self.payload.len() == 8)?;
                self.owe()?;
                self::frame(&mut self.output, 8, PING, ACK, 0);
                self.output.extend_from_slice(&self.payload);
                Ok(None)
            }
            GOAWAY => {
                length(self.payload.len() >= 8)?;
                let (last, code) = (be32(&self.payload, 0) & LAST_ID, be32(&self.payload, 4));
                self.goaway = Some(last);
                if code != 0 {
                    return Err(ProtocolError::GoAway { kind: KIND, code, last: u64::from(last) });
                }
                self.refused.extend(self.streams.iter().map(|stream| stream.id).filter(|id| *id > last));
                Ok(None)
            }
            WINDOW_UPDATE => {
                length(self.payload.len() == 4)?;
                let by = i64::from(be32(&self.payload, 0) & LAST_ID);
                let open = self.streams.iter_mut().find(|stream| stream.id == frame.stream);
                let window = match open {
                    _ if frame.stream == 0 => &mut self.window,
                    Some(stream) => &mut stream.window,
                    None => return Ok(None),
                };
                *window += by;
                // RFC 9113 §6.9 and §6.9.1.
                if by == 0 || *window > LARGEST {
                    return Err(Self::garbage("a window update within its bounds", &self.payload));
                }
                self.send_waiting();
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// HEADERS or CONTINUATION: a status, 1xx, or trailers.
    fn header_frame(&mut self, frame: Frame, asked: &impl Asked) -> Result<Option<Answer>, ProtocolError> {
        if frame.kind == HEADERS {
            let padded = usize::from(frame.flags & PADDED != 0);
            let padding = if padded == 1 { self.payload.first().map_or(0, |padding| usize::from(*padding)) } else { 0 };
            let skip = padded + if frame.flags & PRIORITY != 0 { 5 } else { 0 };
            if skip + padding > self.payload.len() {
                return Err(Self::garbage("padding within its frame", &self.payload));
            }
            self.payload.truncate(self.payload.len() - padding);
            self.payload.drain(..skip);
        }
        let flags = self.block.map_or(frame.flags, |(_, flags)| flags);
        if frame.flags & END_HEADERS == 0 {
            self.payload.truncate(BLOCK);
            self.block = Some((frame.stream, flags));
            return Ok(None);
        }
        self.block = None;
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == frame.stream) else { return Ok(None) };
        if stream.code == 0 {
            let Some(code) = status(&self.payload) else {
                return Err(Self::garbage("a header block with `:status` first", &self.payload));
            };
            if !(100..200).contains(&code) {
                stream.code = code;
            }
        }
        if flags & END_STREAM == 0 {
            return Ok(None);
        }
        Ok(self.ended(frame.stream, None, 0, asked))
    }

    fn settings(&mut self) -> Result<(), ProtocolError> {
        for at in (0..self.payload.len()).step_by(6) {
            let value = be32(&self.payload, at + 2);
            match be16(&self.payload, at) {
                3 => {
                    self.most_streams = value.min(self.limit);
                }
                4 if i64::from(value) <= LARGEST => {
                    let by = i64::from(value) - self.first_window;
                    self.first_window = i64::from(value);
                    for stream in &mut self.streams {
                        stream.window += by;
                    }
                }
                5 if (FRAME..1 << 24).contains(&(value as usize)) => self.most_frame = value as usize,
                4 | 5 => return Err(Self::garbage("settings within their bounds", &self.payload[at..])),
                _ => {}
            }
        }
        self.owe()?;
        frame(&mut self.output, 0, SETTINGS, ACK, 0);
        self.send_waiting();
        Ok(())
    }

    /// Bytes of an unfinished frame or reply.
    pub(crate) fn close(&self) -> Result<(), ()> {
        let within = self.streams.iter().any(|stream| stream.wire > 0);
        if self.head.is_empty() && self.frame.is_none() && !within { Ok(()) } else { Err(()) }
    }
}
