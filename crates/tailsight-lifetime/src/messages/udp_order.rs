//! Replies over UDP that were overtaken: which message a late one answers, where a call to another server tells.
//!
//! In: messages whose replies were paired by order on their flow ([`crate::messages::udp_replies`]), what was sent unasked, the calls to
//! other servers, and when each thread waited for work. Out: the same messages, some of them with another reply. All times in ns.
//!
//! A client with several requests outstanding on one socket (a resolver) tells replies apart by an id in the payload, which is not
//! recorded. If one request makes the server ask another server, those behind it are answered first. Paired by order, the slow one has
//! the reply of the next one and seems fast, each of the next ones has that of the one behind it, until one shares a reply with the one
//! before; and the late reply answers nobody. The call tells: in the turn of its thread in which it was sent there was one message at
//! hand, and that cannot have been answered before the call was. What the thread sends to the same client, unasked, in the turn in which
//! it receives the answer, is that message's reply.

use rustc_hash::FxHashMap;

use super::{Extra, Traffic};
use crate::messages::call_owner::Question;
use crate::model::{Message, SentKind, flags};

/// Messages behind the slow one that may have the reply of the one behind them.
const MOST_MOVED: usize = 64;

/// What a message has of its reply.
#[derive(Clone, Copy, Default)]
struct Reply {
    send_ns: u64,
    xmit_ns: u64,
    tid: u32,
    sent_ns: u64,
    xmit_cpu: u16,
}

impl Reply {
    fn of(m: &Message, e: &Extra) -> Reply {
        Reply { send_ns: m.send_ns, xmit_ns: m.xmit_ns, tid: e.send_tid, sent_ns: e.sent_ns, xmit_cpu: e.xmit_cpu }
    }

    /// `before`: when the thread had sent the reply before this one; if the message was there already, it worked for that one until then.
    fn give(self, m: &mut Message, e: &mut Extra, before: Option<u64>) {
        (m.send_ns, m.xmit_ns) = (self.send_ns, self.xmit_ns);
        m.flags &= !flags::SHARED_REPLY;
        (e.send_tid, e.sent_ns, e.xmit_cpu) = (self.tid, self.sent_ns, self.xmit_cpu);
        e.own_from_ns = before.filter(|ts| *ts > m.recv_ns).unwrap_or(0);
    }
}

/// What is looked up, by flow or thread.
#[derive(Default)]
struct Lists {
    /// The messages of a flow, in the order of their receive calls.
    of_flow: FxHashMap<u32, Vec<u32>>,
    /// What was sent unasked on a flow: (when, index in [`Traffic::sent`]).
    unasked: FxHashMap<u32, Vec<(u64, usize)>>,
    /// (When, message) of the receive calls of a thread.
    taken: FxHashMap<u32, Vec<(u64, u32)>>,
    /// When a thread sent replies.
    sends: FxHashMap<u32, Vec<u64>>,
    /// When a thread began to wait for work.
    sleeps: FxHashMap<u32, Vec<u64>>,
}

impl Lists {
    fn new(traffic: &Traffic, is_udp: &dyn Fn(u32) -> bool, sleeps: &dyn Fn(u32) -> Vec<u64>) -> Lists {
        let mut lists = Lists::default();
        for (i, (kind, m, extra)) in traffic.sent.iter().enumerate() {
            if *kind == SentKind::Push && is_udp(m.flow) {
                lists.unasked.entry(m.flow).or_default().push((extra.sent_ns, i));
            }
        }
        if lists.unasked.is_empty() {
            return lists;
        }
        let by_order = |m: &Message| m.recv_ns != 0 && m.flags & flags::PAIRED_BY_ID == 0 && is_udp(m.flow);
        for ((m, e), id) in traffic.messages.iter().zip(&traffic.extras).zip(0..).filter(|((m, _), _)| by_order(m)) {
            lists.of_flow.entry(m.flow).or_default().push(id);
            lists.taken.entry(m.tid).or_default().push((m.recv_ns, id));
            lists.sends.entry(e.send_tid).or_default().push(e.sent_ns);
        }
        lists.sleeps = lists.taken.keys().map(|&tid| (tid, sleeps(tid))).collect();
        lists.sends.values_mut().for_each(|sends_ns| sends_ns.sort_unstable());
        lists
    }

    /// The turn of a thread that holds `ts`: from one wait for work to the next.
    fn turn(&self, tid: u32, ts: u64) -> (u64, u64) {
        let sleeps = self.sleeps.get(&tid).map_or(&[][..], Vec::as_slice);
        let end = sleeps.partition_point(|at| *at < ts);
        (end.checked_sub(1).map_or(0, |i| sleeps[i]), sleeps.get(end).copied().unwrap_or(u64::MAX))
    }

    /// The one message that the thread had at hand when it asked; none if there were several.
    fn asker(&self, traffic: &Traffic, q: &Question) -> Option<u32> {
        let taken = self.taken.get(&q.sent.0)?;
        let from = taken.partition_point(|&(ts, _)| ts <= self.turn(q.sent.0, q.sent.1).0);
        let upto = taken.partition_point(|&(ts, _)| ts <= q.sent.1);
        let is_open = |&&(_, id): &&(u64, u32)| {
            let sent_ns = traffic.extras[id as usize].sent_ns;
            sent_ns == 0 || sent_ns > q.sent.1
        };
        let mut at_hand = taken[from.min(upto)..upto].iter().filter(is_open);
        let (&(_, asker), None) = (at_hand.next()?, at_hand.next()) else { return None };
        Some(asker)
    }

    fn before(&self, reply: Reply) -> Option<u64> {
        let sends_ns = self.sends.get(&reply.tid)?;
        sends_ns.partition_point(|ts| *ts < reply.sent_ns).checked_sub(1).map(|i| sends_ns[i])
    }
}

/// Gives messages of the flows for which `is_udp` holds the replies that are theirs. `questions`: the calls that were answered; `sleeps`:
/// when a thread began to wait for work, in order.
pub fn put_right(
    traffic: &mut Traffic,
    mut questions: Vec<Question>,
    is_udp: impl Fn(u32) -> bool,
    sleeps: impl Fn(u32) -> Vec<u64>,
) {
    questions.retain(|q| q.sent.0 == q.received.0);
    if questions.is_empty() {
        return;
    }
    questions.sort_unstable_by_key(|q| q.received.1);
    let mut lists = Lists::new(traffic, &is_udp, &sleeps);
    for q in questions {
        let Some(asker) = lists.asker(traffic, &q) else { continue };
        let m = &traffic.messages[asker as usize];
        if m.send_ns == 0 || m.send_ns >= q.received.1 {
            continue;
        }
        let end = lists.turn(q.sent.0, q.received.1).1;
        let (flow, tid) = (m.flow, q.sent.0);
        let Some(unasked) = lists.unasked.get_mut(&flow) else { continue };
        let its = |&(ts, i): &(u64, usize)| (q.received.1..=end).contains(&ts) && traffic.sent[i].2.send_tid == tid;
        let Some(at) = unasked.iter().position(its) else { continue };
        let (_, sent) = unasked[at];
        if move_up(traffic, &lists, asker, sent) {
            traffic.sent[sent].1.send_ns = 0; // No push.
            lists.unasked.get_mut(&flow).map(|unasked| unasked.remove(at));
        }
    }
}

/// The message gets what was sent unasked; each one behind it gets the reply that the one before it had, up to the first that had none of
/// its own. `false`: there is no such one, or one would be answered before it was received.
fn move_up(traffic: &mut Traffic, lists: &Lists, asker: u32, sent: usize) -> bool {
    let (_, m, extra) = &traffic.sent[sent];
    let mut reply = Reply::of(m, extra);
    let Some(of_flow) = lists.of_flow.get(&m.flow) else { return false };
    let from = of_flow.partition_point(|&id| id < asker);
    let mut given = vec![];
    for &id in of_flow[from..].iter().take(MOST_MOVED) {
        let m = &traffic.messages[id as usize];
        let had = Reply::of(m, &traffic.extras[id as usize]);
        if reply.send_ns < m.recv_ns {
            return false;
        }
        given.push((id, reply));
        if had.send_ns == 0 || m.flags & flags::SHARED_REPLY != 0 {
            for (id, reply) in given {
                let before = lists.before(reply);
                reply.give(&mut traffic.messages[id as usize], &mut traffic.extras[id as usize], before);
            }
            return true;
        }
        reply = had;
    }
    false
}
