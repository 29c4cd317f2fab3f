//! Replies without a protocol, by order on the flow: the first send after a receive call answers the first message that the call
//! returned, the second send the second, and so on. If there are fewer sends than messages, the last send is shared. Messages without a
//! send before the next receive call wait for the sends after it (a request over several segments, a thread pool).

use std::collections::VecDeque;

use super::{SENT, Traffic, sequence_diff};
use crate::model::{Threshold, flags};

/// Replies behind which the flow has gone on, and whose last packet may still come.
const MOST_UNSEEN: usize = 64;

/// A send call.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendCall {
    /// When it was entered.
    pub entered: u64,
    /// When it had taken the data.
    pub ts: u64,
    /// Its thread.
    pub tid: u32,
    /// TCP: the sequence number after its last byte.
    pub end: u32,
    /// UDP: the hand-over to the driver inside the call, if any: (time, core).
    pub inline_xmit: Option<(u64, u16)>,
    /// TCP: the send buffer was full at its end, so that more of the same is to come.
    pub full: bool,
    /// TCP: since the connection's last send call, which did not fill the buffer, its thread had turned to other work.
    pub resumes: bool,
}

/// The reply side of one flow (TCP) or of one thread on one socket (UDP).
#[derive(Clone, Debug, Default)]
pub struct Replies {
    waiting: Vec<u32>,
    sends: usize,
    last: Option<SendCall>,
    /// A send call of the last reply filled the buffer.
    full: bool,
    /// TCP: the sequence number after everything sent so far, once known.
    sent_upto: Option<u32>,
    /// TCP: sends whose last byte has not reached the driver: (end, messages).
    in_flight: VecDeque<(u32, u64, Vec<u32>)>,
    /// TCP: what reached the driver while the send call was still running: its own event comes later.
    early_xmits: VecDeque<(u32, u64, u16)>,
}

/// A packet of a TCP flow that was given to the driver.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The sequence number of its first byte.
    pub begin: u32,
    /// The sequence number after its last byte.
    pub end: u32,
    /// When, ns.
    pub ts: u64,
    /// By which core.
    pub cpu: u16,
}

impl Replies {
    /// A receive call returned these messages.
    pub fn received(&mut self, messages: impl ExactSizeIterator<Item = u32>, traffic: &mut Traffic) {
        if messages.len() == 0 {
            return;
        }
        if self.sends > 0 {
            self.settle(traffic);
        }
        self.waiting.extend(messages);
    }

    /// The oldest message without a send call of its own.
    pub fn unanswered(&self) -> Option<u32> {
        self.waiting.get(self.sends).copied()
    }

    /// When the last message was received, if this thread received all that wait and has sent nothing since.
    pub fn unanswered_by(&self, tid: u32, traffic: &Traffic) -> Option<u64> {
        let mut waiting = self.waiting.iter().map(|&index| &traffic.messages[index as usize]);
        let its = self.sends == 0 && waiting.all(|m| m.tid == tid);
        self.waiting.last().filter(|_| its).map(|&last| traffic.messages[last as usize].recv_ns)
    }

    /// The message whose reply the last send call belongs to, in so far as it answered any.
    pub fn latest(&self) -> Option<u32> {
        self.sends.checked_sub(1).and_then(|at| self.waiting.get(at)).or(self.waiting.last()).copied()
    }

    /// What waits gets no reply.
    pub fn owes_none(&mut self) {
        self.waiting.clear();
    }

    /// Whether every message has a send call of its own, or there is none.
    pub fn owes_nothing(&self) -> bool {
        self.unanswered().is_none()
    }

    /// Whether nothing was received that a send could answer.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A send call that answers nothing; `index`: what it sends, in [`Traffic::sent`].
    pub fn unasked(&mut self, call: SendCall, index: u32, traffic: &mut Traffic) {
        let call = SendCall { entered: self.begun(call, 1), ..call };
        self.sent_upto = Some(call.end);
        answer(&[index], call, traffic);
        self.expect_xmit(call, index, traffic);
    }

    /// A send call answered. Returns the message whose reply began with it.
    pub fn sent(&mut self, call: SendCall, traffic: &mut Traffic) -> Option<u32> {
        let first = self.waiting.get(self.sends).copied();
        let call = match first {
            Some(index) => SendCall { entered: self.begun(call, traffic.messages[index as usize].recv_ns), ..call },
            None => call,
        };
        self.sent_upto = Some(call.end);
        if let Some(index) = first {
            let own_from = self.last.filter(|_| self.sends > 0).map_or(0, |l| l.ts);
            traffic.extras[index as usize].own_from_ns = own_from;
            answer(&[index], call, traffic);
            self.expect_xmit(call, index, traffic);
        } else if let Some(&last) = self.waiting.last() {
            // More of the last reply: it is complete when its last byte is, not when what was sent before is. What a full buffer
            // kept waits to be sent; else the thread was at it until now.
            traffic.messages[last as usize].xmit_ns = 0;
            let extra = &mut traffic.extras[last as usize];
            extra.reply_end = call.end;
            if !self.full {
                extra.sent_ns = call.ts;
                let before = self.last.filter(|before| {
                    before.tid == call.tid && before.ts + Threshold::BetweenSends.ns() <= call.entered
                });
                if let Some(before) = before {
                    let flow = traffic.messages[last as usize].flow;
                    traffic.between_sends.entry(flow).or_default().push((before.ts, call.entered));
                }
            }
            self.in_flight.iter_mut().for_each(|(_, _, messages)| messages.retain(|m| *m != last));
            self.expect_xmit(call, last, traffic);
        }
        self.full = call.full || (self.full && first.is_none());
        self.sends += 1;
        self.last = Some(call);
        first
    }

    /// When the sending of a reply began. A send without a system call of its own (an io_uring thread of the kernel), or in
    /// one that had received before, began at the latest when its first byte was given to the driver.
    fn begun(&self, call: SendCall, recv_ns: u64) -> u64 {
        if call.entered < call.ts && call.entered >= recv_ns {
            return call.entered;
        }
        let new = |end: u32| self.sent_upto.is_none_or(|upto| sequence_diff(end, upto) > 0);
        let first = self.early_xmits.iter().find(|(end, ts, _)| new(*end) && *ts >= recv_ns).map(|x| x.1);
        first.or(call.inline_xmit.map(|x| x.0).filter(|ts| *ts >= recv_ns)).map_or(call.ts, |ts| ts.min(call.ts))
    }

    fn expect_xmit(&mut self, call: SendCall, message: u32, traffic: &mut Traffic) {
        if let Some((ts, cpu)) = call.inline_xmit {
            transmit(&[message], ts, cpu, traffic);
            return;
        }
        let passed =
            self.early_xmits.iter().find(|x| sequence_diff(x.0, call.end) >= 0 && x.1 >= call.entered).copied();
        match passed {
            Some((_, ts, cpu)) => transmit(&[message], ts, cpu, traffic),
            None => self.in_flight.push_back((call.end, call.entered, vec![message])),
        }
        self.early_xmits.clear();
    }

    /// A packet of the flow was given to the driver. One that begins behind a reply does not tell when that one left: it was dropped and is
    /// sent again later, or no hook saw it (a kernel may hide what happens while some task of its own has the core).
    pub fn xmit(&mut self, packet: Packet, traffic: &mut Traffic) {
        let Packet { begin, end, ts, cpu } = packet;
        if self.early_xmits.len() == 64 {
            self.early_xmits.pop_front();
        }
        self.early_xmits.push_back((end, ts, cpu));
        let mut at = 0;
        while let Some((upto, ..)) = self.in_flight.get(at) {
            if sequence_diff(end, *upto) < 0 {
                break;
            }
            if sequence_diff(begin, *upto) >= 0 {
                at += 1;
            } else if let Some((_, _, messages)) = self.in_flight.remove(at) {
                transmit(&messages, ts, cpu, traffic);
            }
        }
        self.in_flight.drain(..at.saturating_sub(MOST_UNSEEN));
    }

    /// Closes a batch: messages without a send of their own share the last one.
    fn settle(&mut self, traffic: &mut Traffic) {
        if let Some(call) = self.last
            && self.sends > 0
            && self.sends < self.waiting.len()
        {
            let shared = self.waiting[self.sends..].to_vec();
            let with = self.waiting[self.sends - 1] as usize;
            answer(&shared, call, traffic);
            let (xmit_ns, xmit_cpu) = (traffic.messages[with].xmit_ns, traffic.extras[with].xmit_cpu);
            for &index in &shared {
                traffic.messages[index as usize].flags |= flags::SHARED_REPLY;
                traffic.extras[index as usize].own_from_ns = traffic.extras[with].own_from_ns;
            }
            let last_ns = traffic.messages[self.waiting[self.waiting.len() - 1] as usize].recv_ns;
            for &index in self.waiting[self.sends - 1..].iter().filter(|i| **i & SENT == 0) {
                if traffic.messages[index as usize].recv_ns < last_ns {
                    traffic.uncommon.entry(&mut traffic.extras[index as usize]).last_part_ns = last_ns;
                }
            }
            if xmit_ns != 0 {
                transmit(&shared, xmit_ns, xmit_cpu, traffic);
            } else if let Some((_, _, messages)) = self.in_flight.iter_mut().find(|(end, ..)| *end == call.end) {
                messages.extend(shared);
            }
        }
        self.waiting.clear();
        self.sends = 0;
        self.last = None;
    }

    /// The recording ended.
    pub fn end(&mut self, traffic: &mut Traffic) {
        self.settle(traffic);
    }
}

fn answer(messages: &[u32], call: SendCall, traffic: &mut Traffic) {
    for &index in messages {
        let (message, extra) = traffic.at(index);
        // A call that both received and sent (io_uring_enter) was entered before the receive.
        message.send_ns = if call.entered >= message.recv_ns { call.entered } else { call.ts };
        extra.send_tid = call.tid;
        extra.sent_ns = call.ts;
        extra.reply_end = call.end;
    }
}

/// The last byte of these messages' reply was given to the driver.
pub(super) fn transmit(messages: &[u32], ts: u64, cpu: u16, traffic: &mut Traffic) {
    for &index in messages {
        let (message, extra) = traffic.at(index);
        // A hand-over before the send call cannot be this reply's.
        if ts >= message.send_ns {
            message.xmit_ns = ts;
            extra.xmit_cpu = cpu;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extra;
    use super::*;
    use crate::model::Message;

    fn traffic(recv: &[u64]) -> Traffic {
        let mut f = Traffic::default();
        for &recv_ns in recv {
            f.add(Message { recv_ns, ..Message::default() }, Extra::default());
        }
        f
    }
    fn packet(end: u32, ts: u64, cpu: u16) -> Packet {
        Packet { begin: end - 100, end, ts, cpu }
    }
    fn send(entered: u64, end: u32) -> SendCall {
        SendCall { entered, ts: entered + 5, tid: 1, end, ..SendCall::default() }
    }

    #[test]
    fn pipelined_requests_get_their_own_replies() {
        let mut f = traffic(&[10, 10, 10]);
        let mut r = Replies::default();
        r.received(0..3, &mut f);
        for i in 0..3u32 {
            let at = 20 + u64::from(i) * 10;
            r.xmit(packet((i + 1) * 100, at + 2, 1), &mut f); // inline: before the send event
            r.sent(send(at, (i + 1) * 100), &mut f);
        }
        let got: Vec<_> = f.messages.iter().map(|m| (m.send_ns, m.xmit_ns)).collect();
        assert_eq!(got, vec![(20, 22), (30, 32), (40, 42)]);
        assert_eq!(f.extras.iter().map(|e| e.own_from_ns).collect::<Vec<_>>(), vec![0, 25, 35]);
    }

    #[test]
    fn one_send_for_several_messages_is_shared() {
        let mut f = traffic(&[10, 10, 100]);
        let mut r = Replies::default();
        r.received(0..2, &mut f);
        r.xmit(packet(500, 23, 0), &mut f);
        r.sent(send(20, 500), &mut f);
        r.received(2..3, &mut f);
        assert_eq!((f.messages[1].send_ns, f.messages[1].xmit_ns), (20, 23));
        assert_eq!(f.messages[1].flags, flags::SHARED_REPLY);
        r.sent(send(110, 600), &mut f);
        r.xmit(packet(600, 130, 0), &mut f); // deferred: after the send event
        r.end(&mut f);
        assert_eq!((f.messages[2].send_ns, f.messages[2].xmit_ns, f.messages[2].flags), (110, 130, 0));
    }

    #[test]
    fn a_request_over_two_reads_shares_the_reply_after_the_second() {
        let mut f = traffic(&[10, 20]);
        let mut r = Replies::default();
        r.received(0..1, &mut f);
        r.received(1..2, &mut f);
        r.sent(send(30, 100), &mut f);
        r.end(&mut f);
        assert_eq!(f.messages.iter().map(|m| m.send_ns).collect::<Vec<_>>(), vec![30, 30]);
    }

    /// io_uring with SQPOLL: its kernel thread makes no system calls, so a send is known only when it is done, after its
    /// inline transmission. Each reply used to wait for the transmission of the next one.
    #[test]
    fn a_send_without_a_system_call_begins_with_its_first_byte_at_the_driver() {
        let mut f = traffic(&[10, 100]);
        let mut r = Replies::default();
        for (i, at) in [(0, 20), (1, 110)] {
            r.received(i..i + 1, &mut f);
            r.xmit(packet((i + 1) * 100, at, 0), &mut f);
            r.sent(SendCall { entered: at + 5, ts: at + 5, ..send(at, (i + 1) * 100) }, &mut f);
        }
        r.end(&mut f);
        assert_eq!(f.messages.iter().map(|m| (m.send_ns, m.xmit_ns)).collect::<Vec<_>>(), vec![(20, 20), (110, 110)]);
    }

    /// One io_uring_enter that receives a request and sends its reply (linked operations) was entered before both.
    #[test]
    fn a_system_call_that_received_and_sent_began_to_send_after_it_received() {
        let mut f = traffic(&[10]);
        let mut r = Replies::default();
        r.received(0..1, &mut f);
        r.xmit(packet(100, 12, 0), &mut f);
        r.sent(SendCall { entered: 5, ts: 14, ..send(5, 100) }, &mut f);
        r.end(&mut f);
        assert_eq!((f.messages[0].send_ns, f.messages[0].xmit_ns), (12, 12));
    }

    #[test]
    fn a_reply_in_two_sends_ends_with_the_second() {
        let mut f = traffic(&[10]);
        let mut r = Replies::default();
        r.received(0..1, &mut f);
        r.xmit(packet(100, 21, 0), &mut f);
        r.sent(send(20, 100), &mut f);
        r.xmit(packet(200, 41, 0), &mut f);
        r.sent(send(40, 200), &mut f);
        r.end(&mut f);
        assert_eq!((f.messages[0].send_ns, f.messages[0].xmit_ns), (20, 41));
    }

    /// Nagle's algorithm kept a reply's second send back; it left while a hidden task had the core, and no hook ran. The reply was given
    /// the packet of the next one, 10 ms later.
    #[test]
    fn the_packet_of_a_later_reply_does_not_tell_when_an_earlier_one_left() {
        let mut f = traffic(&[10, 100]);
        let mut r = Replies::default();
        r.received(0..1, &mut f);
        r.sent(send(20, 100), &mut f);
        r.received(1..2, &mut f);
        r.sent(send(110, 200), &mut f);
        r.xmit(packet(200, 130, 0), &mut f);
        assert_eq!(f.messages.iter().map(|m| m.xmit_ns).collect::<Vec<_>>(), vec![0, 130]);
        // One that was dropped is sent again.
        r.xmit(packet(100, 300, 0), &mut f);
        r.end(&mut f);
        assert_eq!(f.messages.iter().map(|m| m.xmit_ns).collect::<Vec<_>>(), vec![300, 130]);
    }
}
