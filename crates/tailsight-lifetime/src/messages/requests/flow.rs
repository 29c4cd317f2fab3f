//! A TCP flow whose requests are messages. In: what each receive call returned, each packet to the driver, each send call, in time
//! order. Out: messages in [`Traffic`].
//!
//! A segment is parsed when a receive call first touches it: by then everything before it has arrived, in order, and no reply to it
//! can have been sent. A request becomes a message with the receive call that returned its last byte. Where the parser lost track, the
//! segments are messages, with the receive calls that they had. Requests of HTTP/2 interleave: the segments since the oldest one began that
//! has not ended are kept, up to a number.
//!
//! With TLS it is the plain text that is parsed, when the library of the target has given it, and its places on the wire that count.

use std::collections::VecDeque;
use std::ops::Range;

use tailsight_protocol::frame::{self, Frame, RequestFrame, Segment, Why};
use tailsight_protocol::{Protocol, ProtocolChoice, frame::Direction};
use tailsight_trace::{Event, fields};

use super::answers::{Answers, Waiting};
use super::capture::{Captures, Open};
use super::plain_text::PlainText;
use super::tls::{Tls, is_record};
use super::{ENCRYPTED, LastLost, Place, reason};
use crate::messages::replies::SendCall;
use crate::messages::tcp::{Pending, Receiver};
use crate::messages::{Extra, RecvCall, Traffic};
use crate::model::{Incomplete, Message, flags};

/// Segments that are kept because a request that is open began in them (HTTP/2). One that began before takes the oldest for its beginning.
const KEPT_SEGMENTS: usize = 4096;

/// A segment that a receive call has touched.
#[derive(Clone, Copy, Debug)]
struct TouchedSegment {
    from: u64,
    to: u64,
    segment: Pending,
    /// When the bytes up to its end were all there.
    whole_ns: u64,
}

/// A part of the stream, in its order.
#[derive(Clone, Copy, Debug)]
enum Item {
    Request(RequestFrame),
    /// No message: bytes of the connection itself.
    Control {
        to: u64,
    },
    Lost {
        from: u64,
        to: u64,
        why: Why,
    },
    /// TLS, whose plain text is not known.
    Encrypted {
        from: u64,
        to: u64,
    },
}

impl Item {
    fn to(&self) -> u64 {
        match self {
            Item::Request(r) => r.to,
            Item::Control { to } | Item::Lost { to, .. } | Item::Encrypted { to, .. } => *to,
        }
    }
}

/// The state of a flow.
#[derive(Debug)]
pub struct Framed {
    choice: ProtocolChoice,
    /// The first byte that comes is the connection's first.
    from_start: bool,
    framer: frame::Flow,
    place: Place,
    flow: u32,
    touched: VecDeque<TouchedSegment>,
    items: VecDeque<Item>,
    /// Receive calls, each with the place up to which it returned.
    calls: VecDeque<(u64, RecvCall)>,
    /// Where the last call before `calls` ended.
    called: u64,
    /// Everything before this is in messages.
    resolved: u64,
    last_lost: LastLost,
    answers: Answers,
    frames: Vec<Frame>,
    /// A connection opened while recording, and no message yet.
    new: bool,
    /// The run has the plain text of TLS, and no request was found in the segments themselves.
    reads_tls: bool,
    /// Its segments are records of TLS.
    tls: Option<Box<Tls>>,
}

impl Framed {
    /// A flow. `flow`: its index; `new`: opened while recording; `from_start`: what comes is the connection's first byte; `reads_tls`: the run
    /// has the plain text of TLS.
    pub fn new(choice: ProtocolChoice, flow: u32, new: bool, from_start: bool, reads_tls: bool) -> Framed {
        Framed {
            choice,
            from_start,
            framer: frame::Flow::new(choice, from_start),
            place: Place::default(),
            flow,
            touched: VecDeque::new(),
            items: VecDeque::new(),
            calls: VecDeque::new(),
            called: 0,
            resolved: 0,
            last_lost: LastLost::default(),
            answers: Answers::new(choice.named().is_some_and(Protocol::pairs_by_id)),
            frames: Vec::new(),
            new,
            reads_tls,
            tls: None,
        }
    }

    /// Whether its segments are records of TLS, whose plain text the run has.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether some of its plain text was read.
    pub fn is_decrypted(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_read)
    }

    /// Bytes of an alert, with which a client says that it closes and which a server that closed itself never receives; where plain text was read.
    pub fn alert_bytes(&self) -> Option<u32> {
        self.tls.as_ref().filter(|tls| tls.is_read).map(|tls| tls.incoming.alert_bytes())
    }

    /// Whether replies have their requests by an id alone, whatever their order.
    pub fn pairs_by_id(&self) -> bool {
        self.framer.protocol().is_some_and(Protocol::pairs_by_id)
    }

    /// A receive call returned bytes up to the event's `copied_seq`. Returns the range of new messages in `traffic`.
    pub fn recv(
        &mut self,
        event: &Event,
        call: RecvCall,
        receiver: &mut Receiver,
        captures: &Captures,
        traffic: &mut Traffic,
    ) -> Range<u32> {
        let first = traffic.messages.len() as u32;
        let copied_seq = fields::Recv::of(event).copied_seq;
        receiver.touch(copied_seq, |segment, fresh, whole_ns| {
            let from = self.place.at(segment.seq);
            let to = from + u64::from(segment.end.wrapping_sub(segment.seq));
            let touched = TouchedSegment { from, to, segment: *segment, whole_ns };
            match self.touched.back_mut() {
                Some(last) if last.from == from => *last = touched,
                _ => self.touched.push_back(touched),
            }
            if fresh {
                let captured = captures.from(segment.capture, segment.seq);
                let frames = &mut self.frames;
                if self.reads_tls && is_record(captured) {
                    self.framer.finish(|f| frames.push(f));
                    self.framer = frame::Flow::new(self.choice, self.from_start && self.items.is_empty());
                    (self.reads_tls, self.tls) = (false, Some(Box::default()));
                }
                if self.tls.is_none() {
                    self.framer.request(Segment { offset: from, len: to - from, captured }, |f| frames.push(f));
                }
                self.reads_tls &= !frames.iter().any(|frame| matches!(frame, Frame::Request(_)));
                self.items.extend(self.frames.drain(..).filter_map(item));
            }
        });
        if self.pairs_by_id() {
            self.answers.forget_order();
        }
        let upto = self.place.at(copied_seq);
        self.calls.push_back((upto, call));
        if let Some(tls) = &mut self.tls {
            tls.incoming.received(call.ts, upto);
            // Its library is no longer read, or never was: so many are not one record.
            if self.touched.len() > 2 * KEPT_SEGMENTS {
                self.items.push_back(Item::Encrypted { from: self.resolved, to: upto });
            }
        }
        self.settle(upto, traffic);
        self.tell_batch(first, call.ts, traffic);
        first..traffic.messages.len() as u32
    }

    /// Of the messages since `first` those that one receive call returned.
    fn tell_batch(&self, first: u32, recv_ns: u64, traffic: &mut Traffic) {
        let of_call = |m: &&mut Message| m.recv_ns == recv_ns;
        let now = traffic.messages[first as usize..].iter_mut().filter(of_call).count();
        for message in traffic.messages[first as usize..].iter_mut().filter(of_call) {
            message.batch = now.min(usize::from(u16::MAX)) as u16;
        }
    }

    /// A TLS library gave plain text that this flow carried. Returns the range of new messages in `traffic`.
    pub fn given(&mut self, text: &PlainText, traffic: &mut Traffic) -> Range<u32> {
        let first = traffic.messages.len() as u32;
        let Some(tls) = &mut self.tls else { return first..first };
        if text.bytes == 0 {
            tls.incoming.gave_nothing();
            return first..first;
        }
        tls.is_read = true;
        let len = u64::from(text.bytes);
        let offset = tls.incoming.gave(len, text.begin_ns);
        let frames = &mut self.frames;
        self.framer.request(Segment { offset, len, captured: &text.captured }, |f| frames.push(f));
        if self.framer.protocol().is_some_and(Protocol::pairs_by_id) {
            self.answers.forget_order();
        }
        tls.incoming.stream.frames_on_wire(frames, self.framer.open_requests_from());
        self.items.extend(frames.drain(..).filter_map(item));
        let Some((upto, call)) = self.calls.back().copied() else { return first..first };
        self.settle(upto, traffic);
        // Texts of one receive call come one by one.
        let of_call = |m: &Message| m.flow == self.flow && m.recv_ns == call.ts;
        let earlier = traffic.messages[..first as usize].iter().rev().take_while(|m| of_call(m)).count() as u32;
        self.tell_batch(first - earlier, call.ts, traffic);
        first..traffic.messages.len() as u32
    }

    /// A TLS library took plain text that this flow carries.
    pub fn taken(&mut self, text: PlainText, traffic: &mut Traffic) {
        let Some(tls) = &mut self.tls else { return };
        if text.bytes == 0 {
            return tls.outgoing.took_nothing(text.begin_ns);
        }
        let bytes = u64::from(text.bytes);
        match tls.outgoing.sent_in(text.begin_ns) {
            Some(wire) => self.took(bytes, &text.captured, wire, traffic),
            None => tls.outgoing.pending.push((bytes, text.captured)),
        }
    }

    /// Plain text that became these bytes on the wire.
    fn took(&mut self, len: u64, captured: &[u8], wire: Range<u64>, traffic: &mut Traffic) {
        let Some(tls) = &mut self.tls else { return };
        let offset = tls.outgoing.took(len, wire);
        let frames = &mut self.frames;
        self.framer.reply(Segment { offset, len, captured }, |f| frames.push(f));
        let open_from = self.framer.open_replies_from();
        let open_on_wire = open_from.map(|open| tls.outgoing.stream.begin(open));
        tls.outgoing.stream.frames_on_wire(frames, open_from);
        tls.outgoing.open_from = open_on_wire;
        self.answers.framed(frames.drain(..), open_on_wire, traffic);
    }

    /// A packet was given to the driver, with what was kept of it.
    pub fn xmit(&mut self, packet: &Open, cpu: u16, captured: &[u8], traffic: &mut Traffic) {
        if let Some(tls) = &self.tls {
            let open_from = tls.outgoing.open_from;
            self.answers.xmit(packet, cpu, captured, traffic, |_, _| open_from);
            return self.answers.forget_unframed();
        }
        let framer = &mut self.framer;
        self.answers.xmit(packet, cpu, captured, traffic, |segment, frames| {
            framer.reply(segment, |f| frames.push(f));
            framer.open_replies_from()
        });
    }

    /// A send call took bytes up to `call.end`.
    pub fn sent(&mut self, call: SendCall, bytes: u32, traffic: &mut Traffic) {
        let wire = self.answers.sent(call, bytes, traffic);
        let Some(tls) = &mut self.tls else { return };
        if tls.outgoing.pending.is_empty() {
            return tls.outgoing.sent(call.ts, wire);
        }
        for (bytes, captured, wire) in tls.outgoing.flush(wire) {
            self.took(bytes, &captured, wire, traffic);
        }
    }

    /// Everything that ends at or before `upto` becomes messages.
    fn settle(&mut self, upto: u64, traffic: &mut Traffic) {
        while let Some(item) = self.items.front().copied()
            && item.to() <= upto
        {
            self.items.pop_front();
            match item {
                Item::Request(frame) => self.request(&frame, traffic),
                Item::Control { .. } => {}
                Item::Lost { why: Why::Unfinished, .. } => traffic.lose(Incomplete::RecordingEnded, 1),
                Item::Lost { from, to, why } => self.lost(from, to, reason(why), traffic),
                Item::Encrypted { from, to } => self.lost(from, to, ENCRYPTED, traffic),
            }
            self.resolved = item.to();
        }
        // What is framed and not received yet began where its frame says.
        let framed = self.items.iter().filter_map(|item| match item {
            Item::Request(frame) => Some(frame.first),
            _ => None,
        });
        let open_from = self.framer.open_requests_from();
        let open_from = match &self.tls {
            Some(tls) => open_from.map(|open| tls.incoming.stream.begin(open)),
            None => open_from,
        };
        let needed = framed.chain(open_from).min().unwrap_or(u64::MAX).min(self.resolved);
        // With TLS more of the last one may come: what of its plain text was not given yet.
        let kept = usize::from(self.tls.is_some());
        while self.touched.len() > kept
            && let Some(s) = self.touched.front()
            && (s.to <= needed || (s.to <= self.resolved && self.touched.len() > KEPT_SEGMENTS))
        {
            self.touched.pop_front();
        }
        while self.calls.len() > kept
            && let Some((end, _)) = self.calls.front()
            && *end <= self.resolved
        {
            self.called = *end;
            self.calls.pop_front();
        }
    }

    /// The receive call that returned the byte before `end`, and whether the byte at `begin` was the first it returned.
    fn call(&self, end: u64) -> Option<RecvCall> {
        let at = self.calls.partition_point(|c| c.0 < end);
        self.calls.get(at).map(|c| c.1)
    }

    /// When its thread turned to a request that took several receive calls: the entry of the first of them, when that
    /// returned nothing else; 0 when the last call is all there is to tell.
    fn began(&self, from: u64, end: u64) -> u64 {
        let at = self.calls.partition_point(|c| c.0 <= from);
        let before = at.checked_sub(1).map_or(self.called, |i| self.calls[i].0);
        let Some((upto, first)) = self.calls.get(at) else { return 0 };
        let alone = before == from && *upto < end;
        if alone { first.entered } else { 0 }
    }

    fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = &TouchedSegment> {
        let at = self.touched.partition_point(|s| s.to <= from);
        self.touched.range(at..).take_while(move |s| s.from < to)
    }

    fn request(&mut self, frame: &RequestFrame, traffic: &mut Traffic) {
        let index = self.message(frame.first, frame.to, traffic);
        if let (Some(index), Some(protocol)) = (index, self.framer.protocol()) {
            let class = traffic.classes.of(protocol, &frame.class);
            let message = &mut traffic.messages[index as usize];
            if frame.bytes > 0 {
                message.bytes = frame.bytes.min(u64::from(u32::MAX)) as u32;
            }
            message.class = class;
            message.flags |= if frame.inferred { flags::INFERRED } else { 0 };
            message.flags |= if frame.answered == Some(false) { flags::NO_REPLY } else { 0 };
            let began_ns = if frame.is_alone() { self.began(frame.first, frame.to) } else { 0 };
            if began_ns != 0 {
                traffic.uncommon.entry(&mut traffic.extras[index as usize]).began_ns = began_ns;
            }
        } else {
            traffic.lose(Incomplete::PacketsNotSeen, 1);
        }
        if frame.answered != Some(false) {
            self.answers.expect(Waiting { seq: frame.seq, message: index, quiet: frame.answered.is_none() });
        }
    }

    fn lost(&mut self, from: u64, to: u64, why: &'static str, traffic: &mut Traffic) {
        self.last_lost.count(from..to, why, &mut traffic.framing);
        let parts: Vec<(u64, u64)> = self.overlapping(from, to).map(|s| (s.from.max(from), s.to.min(to))).collect();
        let first = traffic.messages.len();
        for (from, to) in parts {
            if let Some(index) = self.message(from, to, traffic) {
                traffic.messages[index as usize].flags |= flags::UNFRAMED;
                traffic.messages[index as usize].class = traffic.classes.unframed();
                self.answers.unknown(index);
            }
        }
        // Batches, by receive call.
        for batch in traffic.messages[first..].chunk_by_mut(|a, b| a.recv_ns == b.recv_ns) {
            let n = batch.len().min(usize::from(u16::MAX)) as u16;
            batch.iter_mut().for_each(|m| m.batch = n);
        }
    }

    /// A message of the bytes `from..to`: seen with the first of them, readable and received with the last.
    fn message(&mut self, from: u64, to: u64, traffic: &mut Traffic) -> Option<u32> {
        let call = self.call(to)?;
        let first = *self.overlapping(from, to).next()?;
        let mut last = first;
        let (mut retransmitted, mut arrived, mut own) = (0, 0, 0);
        for touched in self.overlapping(from, to) {
            last = *touched;
            retransmitted |= touched.segment.flags;
            arrived = arrived.max(touched.segment.driver_ns);
            own = own.max(touched.segment.stack_ns);
        }
        let (begin, end) = (&first.segment, &last.segment);
        let mut message = Message {
            flow: self.flow,
            bytes: (to - from).min(u64::from(u32::MAX)) as u32,
            tid: call.tid,
            nic_ns: begin.nic.ns,
            nic_error_ns: begin.nic.error_ns,
            driver_ns: begin.driver_ns,
            stack_ns: begin.stack_ns,
            handoff_ns: end.handoff_ns,
            recv_enter_ns: call.entered,
            recv_ns: call.ts,
            driver_cpu: begin.driver_cpu,
            handoff_cpu: end.handoff_cpu,
            recv_cpu: call.cpu,
            batch: 1,
            flags: retransmitted | if std::mem::take(&mut self.new) { flags::FIRST } else { 0 },
            ..Message::default()
        };
        if message.handoff_ns == 0 || message.handoff_ns > message.recv_ns {
            message.flags |= flags::NO_HANDOFF;
            message.handoff_ns = own;
            message.handoff_cpu = end.stack_cpu;
        }
        let mut extra = Extra { stack_cpu: begin.stack_cpu, ..Extra::default() };
        if last.whole_ns > own && last.whole_ns <= message.handoff_ns {
            message.flags |= flags::HELD;
            traffic.uncommon.entry(&mut extra).held_until_ns = last.whole_ns;
        }
        if arrived > begin.stack_ns {
            traffic.uncommon.entry(&mut extra).arrived_ns = arrived;
        }
        Some(traffic.add(message, extra))
    }

    /// The flow or the recording ended.
    pub fn end(&mut self, traffic: &mut Traffic) {
        let frames = &mut self.frames;
        self.framer.finish(|f| frames.push(f));
        let mut frames = std::mem::take(&mut self.frames);
        let received = self.calls.back().map_or(self.called, |c| c.0);
        if let Some(tls) = &mut self.tls {
            // What the library still has is no reply, and what it never gave is no request.
            frames.clear();
            // A request whose reply was not read would get what was sent last: the alert that closes the connection.
            if tls.is_read {
                self.answers.forget_order();
            }
            if !tls.is_read {
                self.items.push_back(Item::Encrypted { from: self.resolved, to: received });
            }
        }
        self.items.extend(frames.iter().copied().filter_map(item));
        self.settle(received, traffic);
        for item in std::mem::take(&mut self.items) {
            // Of a gap, the segments that were received.
            if let Item::Lost { from, why, .. } = item {
                let whole = self.touched.iter().filter(|s| s.to <= received).map(|s| s.to).next_back().unwrap_or(0);
                if why != Why::Unfinished && from < whole {
                    self.lost(from, whole, reason(why), traffic);
                }
            }
            traffic.lose(Incomplete::RecordingEnded, 1);
        }
        self.answers.end(frames, traffic);
        if self.choice == ProtocolChoice::Auto {
            let framing = &mut traffic.framing;
            match self.framer.protocol() {
                Some(protocol) => *framing.connections.entry(protocol.to_string()).or_default() += 1,
                None => framing.untold_connections += 1,
            }
        }
    }
}

fn item(frame: Frame) -> Option<Item> {
    match frame {
        Frame::Request(request) => Some(Item::Request(request)),
        Frame::Control { direction: Direction::Requests, to, .. } => Some(Item::Control { to }),
        Frame::Lost { direction: Direction::Requests, from, to, why } => Some(Item::Lost { from, to, why }),
        _ => None,
    }
}
