//! A TCP flow whose requests are messages. In: what each receive call returned, each packet to the driver, each send call, in time
//! order. Out: messages in [`Traffic`].
//!
//! A segment is parsed when a receive call first touches it: by then everything before it has arrived, in order, and no reply to it
//! can have been sent. A request becomes a message with the receive call that returned its last byte. Where the parser lost track, the
//! segments are messages, with the receive calls that they had. Requests of HTTP/2 interleave: the segments since the oldest one began that
//! has not ended are kept, up to a number.

use std::collections::VecDeque;

use tailsight_protocol::frame::{self, Frame, RequestFrame, Segment, Why};
use tailsight_protocol::{Protocol, frame::Direction};
use tailsight_trace::{Event, fields};

use super::answers::{Answers, Waiting};
use super::capture::{Captures, Open};
use super::{Place, reason};
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
}

impl Item {
    fn to(&self) -> u64 {
        match self {
            Item::Request(r) => r.to,
            Item::Control { to } | Item::Lost { to, .. } => *to,
        }
    }
}

/// The state of a flow.
#[derive(Debug)]
pub struct Framed {
    protocol: Protocol,
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
    answers: Answers,
    frames: Vec<Frame>,
    /// A connection opened while recording, and no message yet.
    new: bool,
}

impl Framed {
    /// A flow. `flow`: its index; `new`: opened while recording; `from_start`: what comes is the connection's first byte.
    pub fn new(protocol: Protocol, flow: u32, new: bool, from_start: bool) -> Framed {
        Framed {
            protocol,
            framer: frame::Flow::new(protocol, from_start),
            place: Place::default(),
            flow,
            touched: VecDeque::new(),
            items: VecDeque::new(),
            calls: VecDeque::new(),
            called: 0,
            resolved: 0,
            answers: Answers::new(protocol.pairs_by_id()),
            frames: Vec::new(),
            new,
        }
    }

    /// A receive call returned bytes up to the event's `copied_seq`. Returns the range of new messages in `traffic`.
    pub fn recv(
        &mut self,
        event: &Event,
        call: RecvCall,
        receiver: &mut Receiver,
        captures: &Captures,
        traffic: &mut Traffic,
    ) -> std::ops::Range<u32> {
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
                self.framer.request(Segment { offset: from, len: to - from, captured }, |f| frames.push(f));
                self.items.extend(self.frames.drain(..).filter_map(item));
            }
        });
        let upto = self.place.at(copied_seq);
        self.calls.push_back((upto, call));
        self.settle(upto, traffic);
        let last = traffic.messages.len() as u32;
        let now = traffic.messages[first as usize..].iter().filter(|m| m.recv_ns == call.ts).count();
        for message in traffic.messages[first as usize..].iter_mut().filter(|m| m.recv_ns == call.ts) {
            message.batch = now.min(usize::from(u16::MAX)) as u16;
        }
        first..last
    }

    /// A packet was given to the driver, with what was kept of it.
    pub fn xmit(&mut self, packet: &Open, cpu: u16, captured: &[u8], traffic: &mut Traffic) {
        let framer = &mut self.framer;
        self.answers.xmit(packet, cpu, captured, traffic, |segment, frames| {
            framer.reply(segment, |f| frames.push(f));
            framer.open_replies_from()
        });
    }

    /// A send call took bytes up to `call.end`.
    pub fn sent(&mut self, call: SendCall, bytes: u32, traffic: &mut Traffic) {
        self.answers.sent(call, bytes, traffic);
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
                Item::Lost { from, to, why } => self.lost(from, to, why, traffic),
            }
            self.resolved = item.to();
        }
        // What is framed and not received yet began where its frame says.
        let framed = self.items.iter().filter_map(|item| match item {
            Item::Request(frame) => Some(frame.first),
            _ => None,
        });
        let needed = framed.chain(self.framer.open_requests_from()).min().unwrap_or(u64::MAX).min(self.resolved);
        while self
            .touched
            .front()
            .is_some_and(|s| s.to <= needed || (s.to <= self.resolved && self.touched.len() > KEPT_SEGMENTS))
        {
            self.touched.pop_front();
        }
        while let Some((end, _)) = self.calls.front()
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
        if let Some(index) = index {
            let class = traffic.classes.of(self.protocol, &frame.class);
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

    fn lost(&mut self, from: u64, to: u64, why: Why, traffic: &mut Traffic) {
        *traffic.framing.why.entry(reason(why).to_owned()).or_default() += 1;
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
        let frames = std::mem::take(&mut self.frames);
        self.items.extend(frames.iter().copied().filter_map(item));
        let received = self.calls.back().map_or(self.called, |c| c.0);
        self.settle(received, traffic);
        for item in std::mem::take(&mut self.items) {
            // Of a gap, the segments that were received.
            if let Item::Lost { from, why, .. } = item {
                let whole = self.touched.iter().filter(|s| s.to <= received).map(|s| s.to).next_back().unwrap_or(0);
                if why != Why::Unfinished && from < whole {
                    self.lost(from, whole, why, traffic);
                }
            }
            traffic.lose(Incomplete::RecordingEnded, 1);
        }
        self.answers.end(frames, traffic);
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
