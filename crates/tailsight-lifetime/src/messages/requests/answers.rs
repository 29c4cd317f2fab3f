//! The replies of a parsed flow: which send calls and which hand-overs to the driver belong to a request. In: packets to the driver as
//! parsed, send calls. Out: send and hand-over times of messages in [`Traffic`].
//!
//! A reply begins with the send call of its first byte, and is sent when the driver has its last byte. Most packets are given to the
//! driver inside the send call, whose event comes at its end, so a parsed reply waits for that event. Requests without a known reply
//! (its bytes were not parsed) share the send calls that no reply uses, by order, as without a protocol.
//!
//! HTTP/2 answers in any order, and replies interleave. There a reply takes nothing from those before it, send calls are kept since the oldest
//! reply began that has not ended, and nothing is shared by order.

use std::collections::VecDeque;
use std::ops::Range;

use tailsight_protocol::frame::{Frame, Pairing, ReplyFrame, Segment, Why};

use super::capture::Open;
use super::{LastLost, Place, reason};
use crate::messages::Traffic;
use crate::messages::replies::{Replies, SendCall};
use crate::model::flags;

/// A request that was received.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Its number on the flow.
    pub seq: u64,
    /// Its message; none when its packets were not seen.
    pub message: Option<u32>,
    /// It is answered only when there is something to say.
    pub quiet: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    from: u64,
    to: u64,
    call: SendCall,
}

#[derive(Clone, Copy, Debug)]
struct Xmit {
    from: u64,
    to: u64,
    ts: u64,
    cpu: u16,
}

/// The reply before, of the same receive call.
#[derive(Clone, Copy, Debug)]
struct Before {
    seq: u64,
    send_tid: u32,
    /// Since the receive call its thread has turned to no other work.
    at_once: bool,
    recv_ns: u64,
    tid: u32,
    sent_ns: u64,
    own_from_ns: u64,
}

/// The state of a flow's replies.
#[derive(Debug, Default)]
pub struct Answers {
    /// Replies come in any order, each by its id (HTTP/2).
    any_order: bool,
    place: Place,
    /// Where the oldest reply began that has not ended, if others ended since.
    open_from: Option<u64>,
    waiting: VecDeque<Waiting>,
    /// Framed, in the order of the stream; their send calls are not known yet.
    framed: VecDeque<Frame>,
    sends: VecDeque<Sent>,
    xmits: VecDeque<Xmit>,
    before: Option<Before>,
    /// Messages whose reply is not known.
    unpaired: Vec<u32>,
    /// Send calls whose bytes are no known request's reply.
    unclaimed: Vec<SendCall>,
    last_lost: LastLost,
    frames: Vec<Frame>,
}

/// More replies than this without a send call are not waited for.
const LIMIT: usize = 1 << 16;
/// Send calls, and packets, that are kept because a reply that is open began in them.
const KEPT_SENDS: usize = 4096;

impl Answers {
    /// None yet. `any_order`: replies come in any order, each by its id.
    pub fn new(any_order: bool) -> Answers {
        Answers { any_order, ..Answers::default() }
    }

    /// Order tells nothing, of before neither: replies come in any (HTTP/2), or what was sent besides is not told from them (TLS).
    pub fn forget_order(&mut self) {
        if !self.any_order {
            self.any_order = true;
            self.unpaired.clear();
            self.unclaimed.clear();
        }
    }

    /// A request was received.
    pub fn expect(&mut self, request: Waiting) {
        if self.waiting.len() == LIMIT {
            self.waiting.pop_front();
        }
        debug_assert!(self.waiting.back().is_none_or(|last| last.seq < request.seq), "in the order of their numbers");
        self.waiting.push_back(request);
    }

    /// A message in which no request is known was received.
    pub fn unknown(&mut self, message: u32) {
        if !self.any_order {
            self.unpaired.push(message);
        }
    }

    /// A packet was given to the driver; `feed` frames it, and says where the oldest reply began that has not ended.
    pub fn xmit(
        &mut self,
        packet: &Open,
        cpu: u16,
        captured: &[u8],
        traffic: &mut Traffic,
        feed: impl FnOnce(Segment<'_>, &mut Vec<Frame>) -> Option<u64>,
    ) {
        let from = self.place.at(packet.seq);
        let to = from + u64::from(packet.len);
        self.place.at(packet.seq.wrapping_add(packet.len));
        self.xmits.push_back(Xmit { from, to, ts: packet.ts, cpu });
        self.open_from = feed(Segment { offset: from, len: to - from, captured }, &mut self.frames);
        self.framed.extend(self.frames.drain(..));
        self.resolve(false, traffic);
    }

    /// A send call took `bytes` bytes up to `call.end`. Returns their places.
    pub fn sent(&mut self, call: SendCall, bytes: u32, traffic: &mut Traffic) -> Range<u64> {
        let to = self.place.at(call.end);
        let from = to.saturating_sub(u64::from(bytes));
        self.sends.push_back(Sent { from, to, call });
        self.resolve(false, traffic);
        from..to
    }

    /// Frames that became known when their bytes had been sent already (TLS). `open_from`: where the oldest reply began that has not ended.
    pub fn framed(&mut self, frames: impl Iterator<Item = Frame>, open_from: Option<u64>, traffic: &mut Traffic) {
        self.framed.extend(frames);
        self.open_from = open_from;
        self.resolve(false, traffic);
    }

    /// Forgets send calls and packets that no frame came for; of a connection whose plain text was not read none will.
    pub fn forget_unframed(&mut self) {
        while self.framed.is_empty() && self.sends.len() > LIMIT {
            self.sends.pop_front();
        }
        while self.framed.is_empty() && self.xmits.len() > LIMIT {
            self.xmits.pop_front();
        }
    }

    /// Replies whose send calls are all known become their requests'.
    fn resolve(&mut self, at_end: bool, traffic: &mut Traffic) {
        while let Some(frame) = self.framed.front().copied() {
            let Range { start: from, end: to } = frame.range();
            // With TLS frames may be known before the driver has their bytes.
            let is_sent =
                self.sends.back().is_some_and(|s| s.to >= to) && self.xmits.back().is_some_and(|x| x.to >= to);
            if !is_sent && !at_end && self.framed.len() < LIMIT {
                break;
            }
            self.framed.pop_front();
            match frame {
                Frame::Reply(reply) => self.reply(&reply, traffic),
                Frame::Lost { why, .. } => {
                    if why != Why::Unfinished {
                        self.last_lost.count(from..to, reason(why), &mut traffic.framing);
                    }
                    self.unclaim(from, to);
                }
                _ => {}
            }
            self.pass(to);
        }
    }

    /// Everything before `upto` is in replies: send calls and packets are needed since the oldest reply began that has not ended, or waits for
    /// its send call.
    fn pass(&mut self, upto: u64) {
        let framed = self.framed.iter().filter_map(|frame| match frame {
            Frame::Reply(reply) if self.any_order => Some(reply.first),
            _ => None,
        });
        let needed = framed.chain(self.open_from).min().unwrap_or(upto);
        let is_passed = |to: u64, kept: usize| to <= needed || (to <= upto && kept > KEPT_SENDS);
        while self.sends.front().is_some_and(|s| s.to <= upto && is_passed(s.to, self.sends.len())) {
            self.sends.pop_front();
        }
        while self.xmits.front().is_some_and(|x| x.to <= upto && is_passed(x.to, self.xmits.len())) {
            self.xmits.pop_front();
        }
    }

    fn reply(&mut self, frame: &ReplyFrame, traffic: &mut Traffic) {
        let Some(seq) = frame.request else { return self.unclaim(frame.from, frame.to) };
        if self.any_order {
            // Those before it wait on.
            let request = self.waiting.binary_search_by_key(&seq, |request| request.seq).ok();
            let request = request.and_then(|at| self.waiting.remove(at));
            if let Some(index) = request.and_then(|request| request.message) {
                self.answer(index, frame, traffic);
            }
            return;
        }
        while let Some(request) = self.waiting.front().copied()
            && request.seq <= seq
        {
            self.waiting.pop_front();
            if request.seq < seq {
                self.skip(request, traffic);
                continue;
            }
            self.share_out(traffic);
            if let Some(index) = request.message {
                self.answer(index, frame, traffic);
            }
            return;
        }
        self.unclaim(frame.from, frame.to);
    }

    /// A later request was answered before this one.
    fn skip(&mut self, request: Waiting, traffic: &mut Traffic) {
        let Some(index) = request.message else { return };
        if request.quiet {
            traffic.messages[index as usize].flags |= flags::NO_REPLY;
        } else {
            traffic.framing.unpaired += 1;
            self.unknown(index);
        }
    }

    fn answer(&mut self, index: u32, frame: &ReplyFrame, traffic: &mut Traffic) {
        let message = &mut traffic.messages[index as usize];
        let extra = &mut traffic.extras[index as usize];
        message.reply_bytes = frame.bytes.min(u64::from(u32::MAX)) as u32;
        message.flags |= match frame.pairing {
            Pairing::Id => flags::PAIRED_BY_ID,
            Pairing::Order => flags::PAIRED_BY_ORDER,
            _ => flags::PAIRING_ASSUMED,
        };
        // The send call of the first byte, and that of the last.
        let first = self.sends.iter().position(|s| s.to > frame.first && s.from <= frame.first);
        let last = self.sends.iter().position(|s| s.to >= frame.to && s.from < frame.to);
        // The first call may be too long ago to be there.
        let first = first.or(last.filter(|_| self.any_order));
        let (Some(first), Some(last)) = (first, last) else {
            return;
        };
        let (mut begun, mut taken) = if frame.is_alone() { self.parts(first, last) } else { self.ends(first, last) };
        if self.any_order && begun.call.ts < message.recv_ns {
            // It began before the request had ended (a stream of both directions): what answers the whole request is its end.
            begun = self.sends[last];
            taken = begun.call.ts;
        }
        let call = &begun.call;
        let from = begun.from.max(frame.first);
        message.flags |= if begun.from > frame.first { flags::CONTINUED } else { 0 };
        let last = &self.sends[last];
        let entered = if call.entered < call.ts && call.entered >= message.recv_ns {
            call.entered
        } else {
            // Known only when it was done: it began at the latest when its first byte was given to the driver.
            let new = |x: &&Xmit| x.to > from && x.ts >= message.recv_ns;
            self.xmits.iter().find(new).map_or(call.ts, |x| x.ts.min(call.ts))
        };
        if entered < message.recv_ns {
            return;
        }
        message.send_ns = entered;
        extra.send_tid = call.tid;
        extra.sent_ns = taken;
        extra.reply_end = last.call.end.wrapping_sub((last.to - frame.to) as u32);
        // A packet behind the reply's last byte does not tell when that left.
        if let Some(x) = self.xmits.iter().find(|x| x.from < frame.to && x.to >= frame.to && x.ts >= entered) {
            message.xmit_ns = x.ts;
            extra.xmit_cpu = x.cpu;
        }
        // Requests of one receive call are served one after another, and this one's turn came when the reply before was
        // sent. In one send call with that reply, its turn cannot be told.
        let batch = self.before.filter(|b| b.recv_ns == message.recv_ns && b.tid == message.tid);
        // Where replies come in any order, that is so as long as the thread answers one after the other, in their order, and turns to nothing
        // else: behind a pause they may have waited beside each other.
        let seq = frame.request.unwrap_or_default();
        let at_once = !call.resumes && batch.is_none_or(|b| b.at_once && b.seq < seq && b.send_tid == call.tid);
        let batch = batch.filter(|_| !self.any_order || (at_once && call.tid == message.tid));
        if let Some(before) = batch {
            let same = before.sent_ns >= call.ts;
            extra.own_from_ns = if same { before.own_from_ns } else { before.sent_ns };
            message.flags |= if same { flags::SHARED_REPLY } else { 0 };
        }
        self.before = Some(Before {
            seq,
            send_tid: call.tid,
            at_once,
            recv_ns: message.recv_ns,
            tid: message.tid,
            sent_ns: last.call.ts,
            own_from_ns: extra.own_from_ns,
        });
    }

    /// Of a reply's send calls, from the one of its first byte to the one of its last: that with which it went on for the last time after
    /// its thread had turned to other work (else the first), and the end of the last call of which the thread had charge. What a full
    /// buffer kept waits to be sent.
    fn parts(&self, first: usize, last: usize) -> (Sent, u64) {
        let resumed = (first + 1..=last).rev().find(|&at| self.sends[at].call.resumes).unwrap_or(first);
        let full = (resumed..last).find(|&at| self.sends[at].call.full).unwrap_or(last);
        (self.sends[resumed], self.sends[full].call.ts)
    }

    /// The same where others' replies lie between its parts: only the first and the last call are known to be its own.
    fn ends(&self, first: usize, last: usize) -> (Sent, u64) {
        let resumed = (first + 1..=last).any(|at| self.sends[at].call.resumes);
        let begun = if resumed { last } else { first };
        let taken = if self.sends[begun].call.full { begun } else { last };
        (self.sends[begun], self.sends[taken].call.ts)
    }

    /// The send calls of `from..to` are no known request's.
    fn unclaim(&mut self, from: u64, to: u64) {
        if self.any_order {
            return;
        }
        for send in self.sends.iter().filter(|s| s.to > from && s.from < to) {
            if self.unclaimed.last().is_some_and(|u| u.ts >= send.call.ts) {
                continue;
            }
            let xmit = self.xmits.iter().find(|x| x.from < send.to && x.to >= send.to).map(|x| (x.ts, x.cpu));
            self.unclaimed.push(SendCall { inline_xmit: xmit, ..send.call });
        }
        if self.unpaired.is_empty() && self.unclaimed.len() > LIMIT {
            self.unclaimed.drain(..LIMIT / 2);
        }
    }

    /// What has no reply of its own gets the send calls without a request, by order.
    fn share_out(&mut self, traffic: &mut Traffic) {
        if self.unpaired.is_empty() {
            return;
        }
        let unpaired = std::mem::take(&mut self.unpaired);
        let mut unpaired: Vec<(u64, u32)> =
            unpaired.into_iter().map(|i| (traffic.messages[i as usize].recv_ns, i)).collect();
        unpaired.sort_unstable();
        let mut replies = Replies::default();
        let mut sends = std::mem::take(&mut self.unclaimed).into_iter().peekable();
        for batch in unpaired.chunk_by(|a, b| a.0 == b.0) {
            while let Some(call) = sends.next_if(|s| s.ts < batch[0].0) {
                replies.sent(call, traffic);
            }
            replies.received(batch.iter().map(|x| x.1), traffic);
        }
        sends.for_each(|call| {
            replies.sent(call, traffic);
        });
        replies.end(traffic);
        for (_, i) in unpaired {
            let message = &mut traffic.messages[i as usize];
            if message.flags & flags::UNFRAMED == 0 && message.send_ns != 0 {
                message.flags |= flags::PAIRING_ASSUMED;
            }
        }
    }

    /// The flow or the recording ended. `frames`: the framer's last.
    pub fn end(&mut self, frames: Vec<Frame>, traffic: &mut Traffic) {
        let reply = |f: &Frame| {
            use tailsight_protocol::frame::Direction::Replies;
            matches!(f, Frame::Reply(_) | Frame::Unsolicited { .. } | Frame::Lost { direction: Replies, .. })
        };
        self.framed.extend(frames.into_iter().filter(reply));
        self.resolve(true, traffic);
        // What was sent and not given to the driver is nobody's reply as far as is known.
        self.unclaim(0, u64::MAX);
        for request in std::mem::take(&mut self.waiting) {
            self.skip(request, traffic);
        }
        self.share_out(traffic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_served_until_it_last_goes_on_after_other_work() {
        let sent = |from: u64, ts, full, resumes| {
            let call = SendCall { entered: ts - 5, ts, full, resumes, ..SendCall::default() };
            Sent { from, to: from + 10, call }
        };
        let with = |sends: &[Sent]| {
            let answers = Answers { sends: sends.iter().copied().collect(), ..Answers::default() };
            let (begun, taken) = answers.parts(0, sends.len() - 1);
            (begun.from, taken)
        };
        let head = sent(0, 10, false, true);
        assert_eq!(with(&[head]), (0, 10));
        assert_eq!(with(&[head, sent(10, 30, false, false)]), (0, 30), "its thread was at it all the time");
        assert_eq!(with(&[head, sent(10, 30, false, true), sent(20, 40, false, false)]), (10, 40));
        let rest = [sent(10, 30, true, true), sent(20, 90, false, false)];
        assert_eq!(with(&[head, rest[0], rest[1]]), (10, 30), "then it waited for room");
    }

    /// A reply of HTTP/2: whose, its first byte, its end, and how many bytes between are its own.
    fn reply(request: u64, first: u64, to: u64, bytes: u64) -> Frame {
        let (from, first) = (Place::FIRST + to - 10, Place::FIRST + first);
        Frame::Reply(ReplyFrame {
            from,
            to: Place::FIRST + to,
            first,
            bytes,
            request: Some(request),
            pairing: Pairing::Id,
            status: tailsight_protocol::reply::Status::Ok,
            values: 0,
            value_bytes: 0,
            inferred: false,
        })
    }

    /// Three requests of one receive call. For every ten bytes a packet, the reply that ends with it if any, and a send call. `resumes`: the call
    /// before which the thread turned to other work.
    fn answered<const N: usize>(any_order: bool, frames: [Option<Frame>; N], resumes: Option<usize>) -> Traffic {
        let mut traffic = Traffic::default();
        let mut answers = Answers::new(any_order);
        for seq in 0..3 {
            let message = crate::model::Message { recv_ns: 100, tid: 7, ..Default::default() };
            let message = traffic.add(message, Default::default());
            answers.expect(Waiting { seq, message: Some(message), quiet: false });
        }
        for (at, frame) in frames.into_iter().enumerate() {
            let (seq, ts) = (10 * at as u32, 1_000 * (at as u64 + 1));
            let event = tailsight_trace::Event { ts, b: u64::from(seq) << 32, c: 10, ..Default::default() };
            let packet = Open::of(&event, 0, true);
            let open = (at + 1 < N).then_some(Place::FIRST);
            answers.xmit(&packet, 0, &[], &mut traffic, |_, frames| {
                frames.extend(frame);
                open
            });
            let resumes = resumes == Some(at);
            let call =
                SendCall { entered: ts - 50, ts: ts + 50, tid: 7, end: seq + 10, resumes, ..SendCall::default() };
            answers.sent(call, 10, &mut traffic);
        }
        answers.end(Vec::new(), &mut traffic);
        traffic
    }

    /// The second is begun first and ended last, the third is answered before the first.
    fn interleaved() -> [Option<Frame>; 4] {
        [None, Some(reply(2, 10, 20, 10)), Some(reply(0, 20, 30, 10)), Some(reply(1, 0, 40, 20))]
    }

    fn own_from_ns(traffic: &Traffic) -> Vec<u64> {
        traffic.extras.iter().map(|extra| extra.own_from_ns).collect()
    }

    #[test]
    fn a_reply_that_overtakes_others_takes_nothing_from_them() {
        let traffic = answered(true, interleaved(), Some(3));
        let said: Vec<_> = traffic.messages.iter().map(|m| (m.send_ns, m.xmit_ns, m.reply_bytes)).collect();
        // The second went on after its thread had turned to others: it is sent with its last part.
        assert_eq!(said, [(2_950, 3_000, 10), (3_950, 4_000, 20), (1_950, 2_000, 10)]);
        assert!(traffic.messages.iter().all(|m| m.flags & flags::PAIRED_BY_ID != 0));
        assert_eq!(traffic.messages[1].flags & flags::CONTINUED, flags::CONTINUED);
        assert_eq!(traffic.framing.unpaired, 0);
        let traffic = answered(true, interleaved(), None);
        assert_eq!(
            (traffic.messages[1].send_ns, traffic.messages[1].xmit_ns),
            (950, 4_000),
            "it was at it all the time"
        );
    }

    /// Regression: of streams that waited beside each other, each was said to have waited for the one before.
    #[test]
    fn a_stream_waits_for_its_turn_only_where_its_thread_answers_one_after_the_other() {
        let in_order = [0, 1, 2].map(|at| Some(reply(at, 10 * at, 10 * at + 10, 10)));
        assert_eq!(own_from_ns(&answered(true, in_order, None)), [0, 1_050, 2_050]);
        assert_eq!(own_from_ns(&answered(true, in_order, Some(0))), [0, 0, 0], "they slept before the first reply");
        assert_eq!(own_from_ns(&answered(true, in_order, Some(1))), [0, 0, 0]);
        assert_eq!(own_from_ns(&answered(true, interleaved(), None)), [0, 0, 0]);
        assert_eq!(own_from_ns(&answered(false, in_order, Some(1))), [0, 1_050, 2_050], "where order is all there is");
    }

    /// Regression: the breakpoints at a TLS library were taken away before a reply's text was read, and its request was answered by the alert
    /// that closed the connection 249 ms later.
    #[test]
    fn a_send_that_is_nobodys_answers_no_request_where_order_tells_nothing() {
        let answered_at_the_end = |tells_nothing: bool| {
            let (mut traffic, mut answers) = (Traffic::default(), Answers::new(false));
            let message = crate::model::Message { recv_ns: 100, tid: 7, ..Default::default() };
            let message = traffic.add(message, Default::default());
            answers.expect(Waiting { seq: 0, message: Some(message), quiet: false });
            let call = SendCall { entered: 249_000_000, ts: 249_000_050, tid: 7, end: 24, ..SendCall::default() };
            answers.sent(call, 24, &mut traffic);
            if tells_nothing {
                answers.forget_order();
            }
            answers.end(Vec::new(), &mut traffic);
            (traffic.messages[0].send_ns, traffic.framing.unpaired)
        };
        assert_eq!(answered_at_the_end(false), (249_000_000, 1));
        assert_eq!(answered_at_the_end(true), (0, 1));
    }

    /// By order the first reply would be the first request's, and those before an answered one have none.
    #[test]
    fn a_later_reply_says_in_order_that_earlier_ones_are_missing() {
        assert_eq!(answered(false, interleaved(), None).framing.unpaired, 2);
    }
}
