//! TCP: a message is a byte range of a flow. It arrives as a packet (or several, merged by GRO), becomes readable when
//! `rcv_nxt` passes its end, and is received when `copied_seq` does.
//!
//! Handles sequence wrap, retransmission and overlap (only new bytes make a message), out-of-order arrival, a packet
//! that passes several devices (veth, bridge), several messages in one read, one message over several reads.

use std::collections::VecDeque;

use tailsight_trace::{Event, fields};

use super::{Extra, RecvCall, Traffic, sequence_diff};
use crate::messages::nic::Stamp;
use crate::model::{Incomplete, Message, flags};

/// A packet seen before protocol processing.
#[derive(Clone, Copy, Debug)]
struct Early {
    seq: u32,
    end: u32,
    ifindex: u32,
    ts: u64,
    cpu: u16,
    nic: Stamp,
}

/// A byte range on its way to a receive call.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub(crate) seq: u32,
    pub(crate) end: u32,
    /// The devices it was seen on: the first and the last.
    entry: u32,
    ifindex: u32,
    pub(crate) driver_ns: u64,
    pub(crate) stack_ns: u64,
    pub(crate) handoff_ns: u64,
    pub(crate) driver_cpu: u16,
    pub(crate) stack_cpu: u16,
    pub(crate) handoff_cpu: u16,
    pub(crate) flags: u16,
    /// What was kept of its packet, 0: nothing.
    pub(crate) capture: u32,
    /// The NIC's stamp of its packet.
    pub(crate) nic: Stamp,
    dropped: bool,
    /// A receive call has returned a part of it.
    touched: bool,
    /// When the same bytes came again before they were readable, 0: never.
    again_ns: u64,
}

/// One flow's receive side.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    early: VecDeque<Early>,
    /// Ranges not yet received, by sequence, disjoint.
    pending: VecDeque<Pending>,
    /// Everything before this was received (`copied_seq`), once known.
    received: Option<u32>,
    /// How many of `pending`, from the front, have a hand-off.
    handed: usize,
    /// When the bytes up to the last received ones were all there: the latest arrival among them.
    whole_ns: u64,
    /// The last receive call, if it returned the beginning of a range but not its end.
    part: Option<RecvCall>,
}

/// Packets that never entered protocol processing are forgotten beyond this many a flow, and after this long.
const EARLY_LIMIT: usize = 4096;
/// How far from the end a packet's range is looked for that was seen a moment ago.
const STAMPED_WITHIN: usize = 64;
const EARLY_WITHIN_NS: u64 = 1_000_000_000;

impl Receiver {
    /// A packet before protocol processing (RxNapi, RxBacklog).
    pub fn early(&mut self, event: &Event, cpu: u16) {
        let fields::Packet { sequence: seq, bytes: len, ifindex, .. } = fields::Packet::of(event);
        if len == 0 {
            return;
        }
        if self.early.len() == EARLY_LIMIT {
            self.early.pop_front();
        }
        let nic = Stamp::default();
        self.early.push_back(Early { seq, end: seq.wrapping_add(len), ifindex, ts: event.ts, cpu, nic });
    }

    /// The NIC's stamp of the packet of that event on that core.
    pub fn stamped(&mut self, event: &Event, cpu: u16, stamp: Stamp) {
        let is_at = |ts: u64, at: u16| ts == event.ts && at == cpu;
        let fields::Packet { sequence, bytes, .. } = fields::Packet::of(event);
        if let Some(early) = self.early.iter_mut().rev().find(|e| is_at(e.ts, e.cpu) && e.seq == sequence) {
            early.nic = stamp;
        }
        let end = sequence.wrapping_add(bytes);
        let is_stamped =
            |p: &&mut Pending| is_at(p.stack_ns, p.stack_cpu) && p.nic.ns == 0 && sequence_diff(end, p.end) >= 0;
        self.pending.iter_mut().rev().take(STAMPED_WITHIN).filter(is_stamped).for_each(|p| p.nic = stamp);
    }

    /// A packet in protocol processing (RxStack): the message.
    pub fn stack(&mut self, event: &Event, cpu: u16) {
        self.captured(event, cpu, 0);
    }

    /// The same, and where its first bytes are kept.
    pub fn captured(&mut self, event: &Event, cpu: u16, capture: u32) {
        let fields::Packet { sequence: seq, bytes: len, ifindex, .. } = fields::Packet::of(event);
        if len == 0 {
            return;
        }
        let end = seq.wrapping_add(len);
        let unseen = (event.ts, cpu, Stamp::default());
        let (driver_ns, driver_cpu, nic) = self.first_sight(seq, end, ifindex, event.ts).unwrap_or(unseen);
        let fresh = Pending {
            seq,
            end,
            entry: ifindex,
            ifindex,
            driver_ns,
            stack_ns: event.ts,
            handoff_ns: 0,
            driver_cpu,
            stack_cpu: cpu,
            handoff_cpu: cpu,
            flags: 0,
            capture,
            nic,
            dropped: false,
            touched: false,
            again_ns: 0,
        };
        self.insert(fresh);
    }

    /// The first sight of a packet that enters protocol processing on a device: GRO made it of early packets that follow each other.
    /// Without such (segments that the hooks did not see) it is the earliest packet inside the range.
    fn first_sight(&mut self, seq: u32, end: u32, ifindex: u32, now: u64) -> Option<(u64, u16, Stamp)> {
        while self.early.front().is_some_and(|e| now.saturating_sub(e.ts) > EARLY_WITHIN_NS) {
            self.early.pop_front();
        }
        let mut first: Option<(u64, u16, Stamp)> = None;
        let mut upto = seq;
        // Packets enter protocol processing in about the order in which they came, so the match is near the front.
        for e in &self.early {
            if e.seq == upto && upto != end && e.ifindex == ifindex {
                upto = e.end;
                first.get_or_insert((e.ts, e.cpu, e.nic));
            }
        }
        let whole = upto == end;
        if !whole {
            first = None;
        }
        let mut next = seq;
        self.early.retain(|e| {
            let part = whole && next != end && e.seq == next && e.ifindex == ifindex;
            if part {
                next = e.end;
            }
            let inside =
                !whole && e.ifindex == ifindex && sequence_diff(e.seq, seq) >= 0 && sequence_diff(end, e.end) >= 0;
            if inside && first.is_none_or(|(ts, ..)| e.ts < ts) {
                first = Some((e.ts, e.cpu, e.nic));
            }
            !part && !inside
        });
        first
    }

    /// Inserts the parts of a range that are new.
    fn insert(&mut self, mut fresh: Pending) {
        if let Some(received) = self.received {
            if sequence_diff(fresh.end, received) <= 0 {
                return; // delivered before: a spurious retransmission
            }
            if sequence_diff(fresh.seq, received) < 0 {
                fresh.seq = received;
            }
        }
        // The usual case: it follows everything.
        if self.pending.back().is_none_or(|b| sequence_diff(fresh.seq, b.end) >= 0) {
            self.pending.push_back(fresh);
            return;
        }
        let at = self.pending.partition_point(|p| sequence_diff(p.end, fresh.seq) <= 0);
        let mut i = at;
        let mut seq = fresh.seq;
        let mut added = Vec::new();
        while i < self.pending.len() && sequence_diff(fresh.end, seq) > 0 {
            let pending = &mut self.pending[i];
            if sequence_diff(pending.seq, fresh.end) >= 0 {
                break;
            }
            if sequence_diff(pending.seq, seq) > 0 {
                added.push(Pending { seq, end: pending.seq, ..fresh });
            }
            // The same bytes on the same device again are a retransmission; on another device, the same packet's way.
            if pending.ifindex == fresh.ifindex || pending.entry == fresh.ifindex {
                pending.ifindex = fresh.ifindex;
                pending.flags |= flags::RETRANSMITTED;
                if pending.dropped {
                    pending.dropped = false;
                    pending.again_ns = fresh.stack_ns;
                    pending.stack_cpu = fresh.stack_cpu;
                }
            } else {
                // The last device before the socket is the one whose protocol processing counts.
                pending.stack_cpu = fresh.stack_cpu;
                pending.ifindex = fresh.ifindex;
            }
            seq = pending.end;
            i += 1;
        }
        if sequence_diff(fresh.end, seq) > 0 {
            added.push(Pending { seq, ..fresh });
        }
        for part in added {
            let at = self.pending.partition_point(|p| sequence_diff(p.seq, part.seq) < 0);
            if at < self.handed {
                self.handed += 1;
            }
            self.pending.insert(at, part);
        }
    }

    /// The socket was made readable up to `rcv_nxt`.
    pub fn handoff(&mut self, event: &Event, cpu: u16) {
        let upto = fields::Handoff::of(event).rcv_nxt;
        while let Some(p) = self.pending.get_mut(self.handed) {
            if sequence_diff(p.end, upto) > 0 {
                break;
            }
            if p.handoff_ns == 0 {
                p.handoff_ns = event.ts;
                p.handoff_cpu = cpu;
            }
            self.handed += 1;
        }
    }

    /// A packet of the flow was dropped.
    pub fn dropped(&mut self, event: &Event) {
        let seq = fields::Drop::of(event).sequence;
        if let Some(p) = self.pending.iter_mut().find(|p| p.seq == seq && p.handoff_ns == 0) {
            p.dropped = true;
        }
    }

    /// A receive call returned bytes up to `copied_seq`. Returns the range of new messages in `traffic`.
    pub fn recv(&mut self, event: &Event, call: RecvCall, flow: u32, traffic: &mut Traffic) -> std::ops::Range<u32> {
        let upto = fields::Recv::of(event).copied_seq;
        let first = traffic.messages.len() as u32;
        while let Some(p) = self.pending.front() {
            if sequence_diff(p.end, upto) > 0 {
                break;
            }
            let mut message = Message {
                flow,
                bytes: p.end.wrapping_sub(p.seq),
                tid: call.tid,
                nic_ns: p.nic.ns,
                nic_error_ns: p.nic.error_ns,
                driver_ns: p.driver_ns,
                stack_ns: p.stack_ns,
                handoff_ns: p.handoff_ns,
                recv_enter_ns: call.entered,
                recv_ns: call.ts,
                driver_cpu: p.driver_cpu,
                handoff_cpu: p.handoff_cpu,
                recv_cpu: call.cpu,
                flags: p.flags,
                ..Message::default()
            };
            if message.handoff_ns == 0 || message.handoff_ns > message.recv_ns {
                message.flags |= flags::NO_HANDOFF;
                message.handoff_ns = p.stack_ns;
                message.handoff_cpu = p.stack_cpu;
            }
            let mut extra = Extra { stack_cpu: p.stack_cpu, ..Extra::default() };
            // Bytes behind a hole are readable when the last of those before them came.
            self.whole_ns = self.whole_ns.max(p.again_ns.max(p.stack_ns));
            if self.whole_ns > p.stack_ns && self.whole_ns <= message.handoff_ns {
                message.flags |= flags::HELD;
                traffic.uncommon.entry(&mut extra).held_until_ns = self.whole_ns;
            }
            traffic.add(message, extra);
            self.pending.pop_front();
            self.handed = self.handed.saturating_sub(1);
        }
        self.part = self.pending.front().filter(|p| sequence_diff(upto, p.seq) > 0).map(|_| call);
        self.received = Some(upto);
        let last = traffic.messages.len() as u32;
        let batch = (last - first).min(u32::from(u16::MAX)) as u16;
        for message in &mut traffic.messages[first as usize..] {
            message.batch = batch;
        }
        first..last
    }

    /// The last receive call, if it returned the beginning of a message but not its end.
    pub fn part(&self) -> Option<RecvCall> {
        self.part
    }

    /// For flows whose requests are framed: hands out each range that a receive call up to `upto` returned bytes of, whether
    /// it is the first such call, and when the bytes up to the range's end were all there.
    pub fn touch(&mut self, upto: u32, mut each: impl FnMut(&Pending, bool, u64)) {
        while let Some(p) = self.pending.front_mut() {
            if sequence_diff(p.seq, upto) >= 0 {
                break;
            }
            self.whole_ns = self.whole_ns.max(p.again_ns.max(p.stack_ns));
            each(p, !p.touched, self.whole_ns);
            p.touched = true;
            if sequence_diff(p.end, upto) > 0 {
                break;
            }
            self.pending.pop_front();
            self.handed = self.handed.saturating_sub(1);
        }
        self.received = Some(upto);
    }

    /// What waits for a receive call and has so many bytes is no message.
    pub fn forget(&mut self, bytes: u32) {
        self.pending.retain(|p| p.end.wrapping_sub(p.seq) != bytes);
        self.handed = self.pending.iter().take_while(|p| p.handoff_ns != 0).count();
    }

    /// The first sequence number that waits for a receive call.
    pub fn next(&self) -> Option<u32> {
        self.pending.front().map(|p| p.seq)
    }

    /// Whether the target read from the flow at any time.
    pub fn was_read(&self) -> bool {
        self.received.is_some()
    }

    /// The flow ended at a time, ns: what is still pending was not received, for the reason given.
    pub fn end(&self, why: Incomplete, ended_ns: u64, traffic: &mut Traffic) {
        /// A flow that nobody read for so long is another's, or forgotten; before, its end came first.
        const NEVER_READ_NS: u64 = 1_000_000_000;
        // A part that a receive call touched is in a request, which is counted there.
        let pending = || self.pending.iter().filter(|p| !p.touched);
        let dropped = pending().filter(|p| p.dropped).count() as u64;
        let handed = pending().filter(|p| !p.dropped && p.handoff_ns != 0).count() as u64;
        let other = pending().count() as u64 - dropped - handed;
        traffic.lose(Incomplete::Dropped, dropped);
        let waited = self.pending.front().is_some_and(|p| ended_ns.saturating_sub(p.stack_ns) >= NEVER_READ_NS);
        let why = if self.received.is_none() && waited { Incomplete::NeverRead } else { why };
        traffic.lose(why, handed + other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_trace::event::Kind;

    fn packet(ts: u64, seq: u32, len: u32, ifindex: u32) -> Event {
        Event {
            ts,
            kind: Kind::RxStack as u8,
            b: u64::from(seq) << 32,
            c: u64::from(len) | u64::from(ifindex) << 32,
            ..Event::default()
        }
    }
    fn upto(ts: u64, seq: u32) -> Event {
        Event { ts, b: u64::from(seq) << 32, ..Event::default() }
    }
    fn call(ts: u64) -> RecvCall {
        RecvCall { ts, entered: ts - 1, cpu: 0, tid: 5 }
    }

    #[test]
    fn a_message_across_the_sequence_wrap() {
        let (mut r, mut f) = (Receiver::default(), Traffic::default());
        r.stack(&packet(10, u32::MAX - 4, 10, 1), 0);
        r.handoff(&upto(11, 5), 0);
        assert_eq!(r.recv(&upto(20, 5), call(20), 0, &mut f), 0..1);
        assert_eq!((f.messages[0].bytes, f.messages[0].driver_ns, f.messages[0].handoff_ns), (10, 10, 11));
    }

    #[test]
    fn out_of_order_and_retransmitted_bytes_make_each_message_once() {
        let (mut r, mut f) = (Receiver::default(), Traffic::default());
        r.stack(&packet(10, 200, 100, 1), 0); // comes first, belongs second
        r.handoff(&upto(11, 100), 0);
        r.stack(&packet(20, 100, 100, 1), 0);
        r.handoff(&upto(21, 300), 0);
        r.stack(&packet(25, 150, 150, 1), 0); // overlaps both
        r.recv(&upto(30, 300), call(30), 0, &mut f);
        let got: Vec<_> =
            f.messages.iter().map(|m| (m.bytes, m.driver_ns, m.handoff_ns, m.flags & flags::RETRANSMITTED)).collect();
        assert_eq!(got, vec![(100, 20, 21, 1), (100, 10, 21, 1)]);
        r.stack(&packet(40, 100, 200, 1), 0); // spurious, after delivery
        assert_eq!(r.recv(&upto(50, 300), call(50), 0, &mut f), 2..2);
    }

    #[test]
    fn a_second_device_is_the_same_packet() {
        let (mut r, mut f) = (Receiver::default(), Traffic::default());
        r.stack(&packet(10, 0, 50, 2), 0);
        r.stack(&packet(12, 0, 50, 7), 1);
        r.handoff(&upto(13, 50), 1);
        r.recv(&upto(20, 50), call(20), 0, &mut f);
        assert_eq!(f.messages.len(), 1);
        assert_eq!((f.messages[0].driver_ns, f.messages[0].flags), (10, 0));
        assert_eq!(f.extras[0].stack_cpu, 1);
    }

    #[test]
    fn one_read_of_two_messages_and_one_message_over_two_reads() {
        let (mut r, mut f) = (Receiver::default(), Traffic::default());
        r.stack(&packet(10, 0, 10, 1), 0);
        r.stack(&packet(11, 10, 10, 1), 0);
        r.stack(&packet(12, 20, 30, 1), 0);
        assert_eq!(r.recv(&upto(20, 25), call(20), 0, &mut f), 0..2);
        assert_eq!(f.messages[0].batch, 2);
        assert_eq!(r.recv(&upto(30, 50), call(30), 0, &mut f), 2..3);
        assert_eq!(f.messages[2].recv_ns, 30);
    }

    #[test]
    fn early_packets_give_the_first_sight_and_gro_merges_them() {
        let (mut r, mut f) = (Receiver::default(), Traffic::default());
        r.early(&packet(1, 0, 10, 1), 3);
        r.early(&packet(2, 10, 10, 1), 3);
        r.stack(&packet(5, 0, 20, 1), 4);
        r.recv(&upto(9, 20), call(9), 0, &mut f);
        assert_eq!((f.messages.len(), f.messages[0].driver_ns, f.messages[0].driver_cpu), (1, 1, 3));
    }

    #[test]
    fn what_is_left_has_a_reason() {
        let (mut r, mut f) = (Receiver::default(), Traffic::default());
        r.stack(&packet(1, 0, 10, 1), 0);
        r.recv(&upto(2, 10), call(2), 0, &mut f);
        r.stack(&packet(3, 10, 10, 1), 0);
        r.end(Incomplete::RecordingEnded, 4, &mut f);
        assert_eq!(f.incomplete[&Incomplete::RecordingEnded], 1);
    }

    /// "On a flow that the target never read", of a request that came 2.4 ms before the end.
    #[test]
    fn a_flow_is_never_read_if_that_takes_long() {
        for (ended_ns, why) in [(2_400_003, Incomplete::RecordingEnded), (1_000_000_003, Incomplete::NeverRead)] {
            let (mut r, mut f) = (Receiver::default(), Traffic::default());
            r.stack(&packet(3, 0, 10, 1), 0);
            r.end(Incomplete::RecordingEnded, ended_ns, &mut f);
            assert_eq!(f.incomplete[&why], 1);
        }
    }
}
