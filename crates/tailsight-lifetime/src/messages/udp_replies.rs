//! Replies over UDP. A send call on a socket that is not connected does not show its destination; the packet that it gives to the driver
//! does. So replies are paired by remote address: by the id that both carry if there is payload, otherwise by order, first those that
//! the sending thread received itself (with one request outstanding at a time this is exact for thread pools, too). Without a packet
//! inside the call, by order on the thread: a queueing discipline keeps it, and when it leaves, its id says whose it was.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use tailsight_protocol::frame::UdpFrame;
use tailsight_trace::FlowKey;

use super::Traffic;
use super::replies::{Replies, SendCall};
use super::udp_queued::{Left, Queued};
use crate::model::flags;

/// A socket's cookie and a thread.
type Place = (u32, u32);

/// Messages that a thread received and that are remembered for sends without a packet.
const LIMIT: usize = 4096;

/// A message that a thread received.
#[derive(Clone, Copy, Debug)]
struct Owed {
    key: FlowKey,
    message: u32,
    /// Its reply will carry its id.
    has_id: bool,
}

/// All UDP sockets of the target.
#[derive(Clone, Debug, Default)]
pub struct UdpReplies {
    /// By remote address, then by the thread that received.
    flows: FxHashMap<FlowKey, Vec<(u32, Replies)>>,
    /// Whom a thread owes replies on a socket, in the order of its receive calls.
    owed: FxHashMap<Place, VecDeque<Owed>>,
    /// When a thread last ended a send call on a socket.
    last: FxHashMap<Place, u64>,
    /// Messages by the id that their reply will carry.
    ids: FxHashMap<(FlowKey, u16), u32>,
    /// Replies that have not reached the driver.
    queued: Queued,
}

impl UdpReplies {
    /// A receive call returned a message, with an id when that is known.
    pub fn received(&mut self, key: FlowKey, cookie: u32, message: u32, id: Option<u16>, traffic: &mut Traffic) {
        let tid = traffic.messages[message as usize].tid;
        match id {
            Some(id) => drop(self.ids.insert((key, id), message)),
            None => of_thread(self.flows.entry(key).or_default(), tid).received(message..message + 1, traffic),
        }
        let owed = self.owed.entry((cookie, tid)).or_default();
        if owed.len() == LIMIT {
            owed.pop_front();
        }
        owed.push_back(Owed { key, message, has_id: id.is_some() });
    }

    /// A send call of this many bytes. `to`: where its packet went, and whether it was dropped; `reply`: what the packet says; `turned`: when
    /// the thread last received a message or waited for work. `false`: it answers nobody.
    pub fn sent(
        &mut self,
        (call, turned): (SendCall, u64),
        (cookie, bytes): (u32, u32),
        (to, dropped): (Option<FlowKey>, bool),
        reply: Option<UdpFrame>,
        traffic: &mut Traffic,
    ) -> bool {
        let place = (cookie, call.tid);
        let own_from = self.last.insert(place, call.ts);
        if let Some(key) = to
            && let Some(message) = self.by_id(key, reply)
        {
            traffic.messages[message as usize].reply_bytes += bytes;
            traffic.messages[message as usize].flags |= flags::PAIRED_BY_ID;
            answer(message, call, own_from, traffic);
            return true;
        }
        let owed = self.owes(place, traffic).filter(|owed| to.is_none_or(|key| key == owed.key));
        if let Some(Owed { key, message, .. }) = owed.filter(|owed| owed.has_id) {
            // More of what the thread sent last, unless it has turned to other work since.
            let answered = traffic.messages[message as usize].send_ns != 0;
            if answered && own_from.is_none_or(|sent| turned > sent) {
                return false;
            }
            traffic.messages[message as usize].reply_bytes += bytes;
            answer(message, call, own_from, traffic);
            self.waits((key, call, bytes), message, dropped, traffic);
            return true;
        }
        let key = to.or(owed.map(|owed| owed.key));
        let Some(flow) = key.and_then(|key| self.flows.get_mut(&key)) else { return false };
        // The thread's own message first, then the oldest of others', then more of what the thread sent last, unless it has turned to
        // other work since.
        let own = flow.iter().position(|(tid, _)| *tid == call.tid);
        let unanswered = |i: usize| flow[i].1.unanswered();
        let at = own.filter(|&i| unanswered(i).is_some());
        let oldest = || (0..flow.len()).filter_map(|i| Some((unanswered(i)?, i))).min().map(|x| x.1);
        let more = own.filter(|_| own_from.is_some_and(|sent| turned <= sent));
        let Some(at) = at.or_else(oldest).or(more) else { return false };
        if let Some(message) = flow[at].1.sent(call, traffic) {
            own_since(message, own_from, traffic);
        }
        if let (Some(key), Some(message)) = (key, flow[at].1.latest()) {
            self.waits((key, call, bytes), message, dropped, traffic);
        }
        true
    }

    /// A call sent a datagram of this message's reply: it waits, if it has not left in the call.
    fn waits(&mut self, sent: (FlowKey, SendCall, u32), message: u32, dropped: bool, traffic: &mut Traffic) {
        let (key, call, bytes) = sent;
        if call.inline_xmit.is_some() {
            return;
        }
        // Whatever else of the reply has left, this one comes after it, or never.
        traffic.messages[message as usize].xmit_ns = 0;
        if dropped {
            traffic.messages[message as usize].flags |= flags::REPLY_DROPPED;
        } else {
            self.queued.sent(key, call.ts, bytes, message, traffic);
        }
    }

    /// Whose reply a datagram is of, by its id; with its last datagram the id is free.
    fn by_id(&mut self, key: FlowKey, frame: Option<UdpFrame>) -> Option<u32> {
        let frame = frame?;
        let message = self.ids.get(&(key, frame.id)).copied()?;
        if frame.index + 1 >= frame.total {
            self.ids.remove(&(key, frame.id));
        }
        Some(message)
    }

    /// A datagram was given to the driver outside of the call that sent it; `frame`: what is in it. `false`: none waits that it can be.
    pub fn left(&mut self, left: Left, frame: Option<UdpFrame>, traffic: &mut Traffic) -> bool {
        let message = self.by_id(left.key, frame);
        // An id that nobody waits for: not the oldest of its length.
        (frame.is_none() || message.is_some()) && self.queued.left(left, message, traffic)
    }

    /// Whether a datagram that a thread gave to the driver in a send call is one that was sent before: a call that finds the queueing
    /// discipline open gives it the oldest datagrams first.
    pub fn is_older(&self, left: Left, frame: Option<UdpFrame>) -> bool {
        let message = frame.and_then(|frame| self.ids.get(&(left.key, frame.id)).copied());
        (frame.is_none() || message.is_some()) && self.queued.is_older(left, message)
    }

    /// A datagram was dropped outside of the call that sent it.
    pub fn dropped(&mut self, key: FlowKey, ts: u64, bytes: u32, traffic: &mut Traffic) {
        self.queued.dropped(key, ts, bytes, traffic);
    }

    /// Whom the thread owes the oldest reply, or else whom it answered last: a reply may be several datagrams.
    fn owes(&mut self, place: Place, traffic: &Traffic) -> Option<Owed> {
        let owed = self.owed.get_mut(&place)?;
        while owed.len() > 1 && owed.front().is_some_and(|o| traffic.messages[o.message as usize].send_ns != 0) {
            owed.pop_front();
        }
        owed.front().copied()
    }

    /// The recording ended.
    pub fn end(&mut self, traffic: &mut Traffic) {
        self.flows.values_mut().flatten().for_each(|(_, replies)| replies.end(traffic));
    }
}

fn of_thread(flow: &mut Vec<(u32, Replies)>, tid: u32) -> &mut Replies {
    let at = flow.iter().position(|(t, _)| *t == tid).unwrap_or_else(|| {
        flow.push((tid, Replies::default()));
        flow.len() - 1
    });
    &mut flow[at].1
}

/// The thread sent another reply after it had received this message: until then it worked for that.
fn own_since(message: u32, sent: Option<u64>, traffic: &mut Traffic) {
    let recv_ns = traffic.messages[message as usize].recv_ns;
    traffic.extras[message as usize].own_from_ns = sent.filter(|ts| *ts > recv_ns).unwrap_or(0);
}

/// A datagram of the message's own reply.
fn answer(index: u32, call: SendCall, own_from: Option<u64>, traffic: &mut Traffic) {
    let message = &mut traffic.messages[index as usize];
    let (xmit_ns, xmit_cpu) = call.inline_xmit.unwrap_or_default();
    if message.send_ns == 0 {
        let entered_since = call.entered < call.ts && call.entered >= message.recv_ns;
        let latest = if xmit_ns >= message.recv_ns && xmit_ns != 0 { xmit_ns.min(call.ts) } else { call.ts };
        message.send_ns = if entered_since { call.entered } else { latest };
        traffic.extras[index as usize].send_tid = call.tid;
        own_since(index, own_from, traffic);
    }
    let message = &mut traffic.messages[index as usize];
    traffic.extras[index as usize].sent_ns = call.ts;
    if xmit_ns >= message.send_ns {
        message.xmit_ns = xmit_ns;
        traffic.extras[index as usize].xmit_cpu = xmit_cpu;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extra;
    use super::*;
    use crate::model::Message;

    const KEY: FlowKey = FlowKey { addrs: 1, ports: 11211 << 16 | 4000, proto: 1 };

    fn traffic(messages: usize) -> Traffic {
        let mut traffic = Traffic::default();
        for i in 0..messages as u64 {
            traffic.add(Message { recv_ns: 10 * (i + 1), tid: 7, ..Message::default() }, Extra::default());
        }
        traffic
    }

    /// A call from this time for 5 ns in which nothing was given to the driver.
    fn call(entered: u64) -> SendCall {
        SendCall { entered, ts: entered + 5, tid: 7, ..SendCall::default() }
    }

    fn left(ts: u64) -> Left {
        Left { key: KEY, ts, cpu: 0, bytes: 100, outside: true }
    }

    fn frame(id: u16, index: u16, total: u16) -> Option<UdpFrame> {
        Some(UdpFrame { id, index, total, class: None })
    }

    fn sent(replies: &mut UdpReplies, entered: u64, turned: u64, traffic: &mut Traffic) -> bool {
        replies.sent((call(entered), turned), (1, 100), (None, false), None, traffic)
    }

    fn xmits(traffic: &Traffic) -> Vec<u64> {
        traffic.messages.iter().map(|m| m.xmit_ns).collect()
    }

    /// From the third on, the datagrams of a reply that all waited in a queueing discipline were sends that nobody had asked for.
    #[test]
    fn a_reply_of_several_datagrams_without_a_packet_in_their_calls_is_one_reply() {
        for id in [None, Some(77)] {
            let (mut replies, mut traffic) = (UdpReplies::default(), traffic(1));
            replies.received(KEY, 1, 0, id, &mut traffic);
            for entered in [20, 30, 40] {
                assert!(sent(&mut replies, entered, 10, &mut traffic), "sent at {entered}");
            }
            for (at, index) in [(500, 0), (600, 1), (700, 2)] {
                let frame = id.and_then(|id| frame(id, index, 3));
                assert!(replies.left(left(at), frame, &mut traffic));
            }
            assert_eq!((traffic.messages[0].send_ns, traffic.messages[0].xmit_ns), (20, 700));
            assert!(!sent(&mut replies, 800, 750, &mut traffic), "the thread has waited for work since: nobody asked");
        }
    }

    /// With ids, a reply that waited was not followed at all.
    #[test]
    fn the_id_of_a_datagram_that_waited_says_whose_reply_it_is() {
        let (mut replies, mut traffic) = (UdpReplies::default(), traffic(3));
        for (message, id) in [(0, 5), (1, 6), (2, 7)] {
            replies.received(KEY, 1, message, Some(id), &mut traffic);
        }
        assert!((0..3).all(|i| sent(&mut replies, 40 + 10 * i, 30, &mut traffic)), "by order on the thread");
        // The first was dropped unseen. By order and length alone, this one would have been it.
        assert!(replies.is_older(left(500), frame(6, 0, 1)) && !replies.is_older(left(500), frame(9, 0, 1)));
        assert!(replies.left(left(500), frame(6, 0, 1), &mut traffic));
        assert!(!replies.left(left(550), frame(6, 0, 1), &mut traffic), "it has left");
        assert!(replies.left(left(600), frame(7, 0, 1), &mut traffic));
        assert_eq!(xmits(&traffic), [0, 500, 600]);
        assert_eq!(traffic.messages.iter().map(|m| m.send_ns).collect::<Vec<_>>(), [40, 50, 60]);
    }

    #[test]
    fn a_reply_of_which_one_datagram_is_dropped_is_no_whole_reply() {
        for id in [None, Some(77)] {
            let (mut replies, mut traffic) = (UdpReplies::default(), traffic(1));
            replies.received(KEY, 1, 0, id, &mut traffic);
            let inline = SendCall { inline_xmit: Some((23, 0)), ..call(20) };
            assert!(replies.sent(
                (inline, 10),
                (1, 100),
                (Some(KEY), false),
                id.and_then(|id| frame(id, 0, 2)),
                &mut traffic
            ));
            assert_eq!((traffic.messages[0].xmit_ns, traffic.messages[0].flags & flags::REPLY_DROPPED), (23, 0));
            assert!(replies.sent((call(30), 10), (1, 100), (Some(KEY), true), None, &mut traffic));
            let dropped = flags::REPLY_DROPPED;
            assert_eq!((traffic.messages[0].xmit_ns, traffic.messages[0].flags & dropped), (0, dropped));
        }
    }
}
