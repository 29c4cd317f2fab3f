//! Replies over UDP. A send call on a socket that is not connected does not show its destination; the packet that it gives to the driver
//! does. So replies are paired by remote address: by the id that both carry if there is payload, otherwise by order, first those that
//! the sending thread received itself (with one request outstanding at a time this is exact for thread pools, too). Without a packet
//! inside the call, by order on the thread.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use tailsight_protocol::frame::UdpFrame;
use tailsight_trace::FlowKey;

use super::Found;
use super::replies::{Replies, SendCall};
use super::udp_queued::Queued;
use crate::model::flags;

/// A socket's cookie and a thread.
type Place = (u32, u32);

/// Messages that a thread received and that are remembered for sends without a packet.
const LIMIT: usize = 4096;

/// All UDP sockets of the target.
#[derive(Clone, Debug, Default)]
pub struct UdpReplies {
    /// By remote address, then by the thread that received.
    flows: FxHashMap<FlowKey, Vec<(u32, Replies)>>,
    /// Whom a thread owes replies on a socket, in the order of its receive calls.
    owed: FxHashMap<Place, VecDeque<(FlowKey, u32)>>,
    /// When a thread last ended a send call on a socket.
    last: FxHashMap<Place, u64>,
    /// Messages by the id that their reply will carry.
    ids: FxHashMap<(FlowKey, u16), u32>,
    /// Replies that have not reached the driver.
    pub queued: Queued,
}

impl UdpReplies {
    /// A receive call returned a message, with an id when that is known.
    pub fn received(&mut self, key: FlowKey, cookie: u32, message: u32, id: Option<u16>, found: &mut Found) {
        let tid = found.messages[message as usize].tid;
        if let Some(id) = id {
            self.ids.insert((key, id), message);
            return;
        }
        of_thread(self.flows.entry(key).or_default(), tid).received(message..message + 1, found);
        let owed = self.owed.entry((cookie, tid)).or_default();
        if owed.len() == LIMIT {
            owed.pop_front();
        }
        owed.push_back((key, message));
    }

    /// A send call of this many bytes. `to`: where its packet went, and whether it was dropped; `reply`: what the packet says; `turned`: when
    /// the thread last received a message or waited for work. `false`: it answers nobody.
    pub fn sent(
        &mut self,
        (call, turned): (SendCall, u64),
        (cookie, bytes): (u32, u32),
        (to, dropped): (Option<FlowKey>, bool),
        reply: Option<UdpFrame>,
        found: &mut Found,
    ) -> bool {
        let place = (cookie, call.tid);
        let own_from = self.last.insert(place, call.ts);
        if let (Some(key), Some(frame)) = (to, reply)
            && let Some(&message) = self.ids.get(&(key, frame.id))
        {
            if frame.index + 1 >= frame.total {
                self.ids.remove(&(key, frame.id));
            }
            found.messages[message as usize].reply_bytes += bytes;
            answer(message, call, own_from, found);
            return true;
        }
        let key = match to {
            Some(key) => Some(key),
            None => self.owes(place, found),
        };
        let Some(flow) = key.and_then(|key| self.flows.get_mut(&key)) else { return false };
        // The thread's own message first, then the oldest of others', then more of what the thread sent last, unless it has turned to
        // other work since.
        let own = flow.iter().position(|(tid, _)| *tid == call.tid);
        let unanswered = |i: usize| flow[i].1.unanswered();
        let at = own.filter(|&i| unanswered(i).is_some());
        let oldest = || (0..flow.len()).filter_map(|i| Some((unanswered(i)?, i))).min().map(|x| x.1);
        let more = own.filter(|_| own_from.is_some_and(|sent| turned <= sent));
        let Some(at) = at.or_else(oldest).or(more) else { return false };
        if let Some(message) = flow[at].1.sent(call, found) {
            own_since(message, own_from, found);
        }
        if call.inline_xmit.is_none()
            && !dropped
            && let (Some(key), Some(message)) = (key, flow[at].1.latest())
        {
            self.queued.sent(key, call.ts, bytes, message, found);
        }
        true
    }

    /// Whom the thread owes the oldest reply, or else whom it answered last: a reply may be several datagrams.
    fn owes(&mut self, place: Place, found: &Found) -> Option<FlowKey> {
        let owed = self.owed.get_mut(&place)?;
        while owed.len() > 1 && owed.front().is_some_and(|(_, m)| found.messages[*m as usize].send_ns != 0) {
            owed.pop_front();
        }
        owed.front().map(|o| o.0)
    }

    /// The recording ended.
    pub fn end(&mut self, found: &mut Found) {
        self.flows.values_mut().flatten().for_each(|(_, replies)| replies.end(found));
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
fn own_since(message: u32, sent: Option<u64>, found: &mut Found) {
    let recv_ns = found.messages[message as usize].recv_ns;
    found.extras[message as usize].own_from_ns = sent.filter(|ts| *ts > recv_ns).unwrap_or(0);
}

/// A datagram of the message's own reply.
fn answer(index: u32, call: SendCall, own_from: Option<u64>, found: &mut Found) {
    let message = &mut found.messages[index as usize];
    let (xmit_ns, xmit_cpu) = call.inline_xmit.unwrap_or_default();
    if message.send_ns == 0 {
        let known = call.entered < call.ts && call.entered >= message.recv_ns;
        let latest = if xmit_ns >= message.recv_ns && xmit_ns != 0 { xmit_ns.min(call.ts) } else { call.ts };
        message.send_ns = if known { call.entered } else { latest };
        message.flags |= flags::PAIRED_BY_ID;
        found.extras[index as usize].send_tid = call.tid;
        own_since(index, own_from, found);
    }
    let message = &mut found.messages[index as usize];
    found.extras[index as usize].sent_ns = call.ts;
    if xmit_ns >= message.send_ns {
        message.xmit_ns = xmit_ns;
        found.extras[index as usize].xmit_cpu = xmit_cpu;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extra;
    use super::*;
    use crate::model::Message;

    /// From the third on, the datagrams of a reply that all waited in a queueing discipline were sends that nobody had asked for.
    #[test]
    fn a_reply_of_several_datagrams_without_a_packet_in_their_calls_is_one_reply() {
        let key = FlowKey { addrs: 1, ports: 11211 << 16 | 4000, proto: 1 };
        let (mut replies, mut found) = (UdpReplies::default(), Found::default());
        found.add(Message { recv_ns: 10, tid: 7, ..Message::default() }, Extra::default());
        replies.received(key, 1, 0, None, &mut found);
        for entered in [20, 30, 40] {
            let call = SendCall { entered, ts: entered + 5, tid: 7, end: 0, inline_xmit: None };
            assert!(replies.sent((call, 10), (1, 100), (None, false), None, &mut found), "sent at {entered}");
        }
        for at in [500, 600, 700] {
            assert!(replies.queued.left(key, (at, 0), 100, true, &mut found));
        }
        assert_eq!((found.messages[0].send_ns, found.messages[0].xmit_ns), (20, 700));
    }
}
