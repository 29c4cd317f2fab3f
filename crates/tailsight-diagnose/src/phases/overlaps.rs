//! Phase 4 (NSight §5.2): overlaps between messages. Of the same application: head-of-line blocking, with how many messages
//! were ahead and which. Of others: their packets, processed while this message waited.

use rustc_hash::FxHashMap;
use tailsight_lifetime::messages::by_thread::by_thread;
use tailsight_lifetime::messages::reorder::sort_pairs;
use tailsight_lifetime::{Context, Frame, Interrupt, Leg, Message, Owner};

/// Most ids of messages ahead that are listed for one message.
const AHEAD: usize = 16;

/// Whether the time went to another message: the thread's work for one before, or a packet of another application.
pub fn is_other_message(owner: &Owner) -> bool {
    let foreign_packet = |f: &Frame| matches!(f, Frame::Packet { own: false, .. });
    let serving = matches!(owner.context, Context::Sibling { .. }) && owner.frames.contains(&Frame::Serving);
    let handler = |f: &Frame| f.is_interrupt(Interrupt::OtherCore);
    ((owner.context == Context::Ahead || serving) && !owner.frames.iter().any(handler))
        || owner.frames.last().is_some_and(foreign_packet)
}

/// Which messages a message's thread took between its hand-off and its receive call (NSight §4.1), the last before it first.
pub struct Ahead {
    /// By thread: (time of the receive call, message), in order.
    by_thread: FxHashMap<u32, Vec<(u64, u32)>>,
}

impl Ahead {
    /// Sorts all messages by thread and receive call.
    pub fn new(messages: &[Message]) -> Ahead {
        let mut by_thread = by_thread(messages, |m| (m.recv_ns, m.id));
        by_thread.values_mut().for_each(|messages| sort_pairs(messages));
        Ahead { by_thread }
    }

    /// The messages ahead of one on its own thread, at most 16.
    pub fn of(&self, m: &Message) -> Vec<u32> {
        self.taken_before(m).iter().rev().map(|&(_, id)| id).take(AHEAD).collect()
    }

    /// The messages that its thread took between its hand-off and its receive call: (receive call, id), in order.
    pub fn taken_before(&self, m: &Message) -> &[(u64, u32)] {
        let Some(served) = self.by_thread.get(&m.tid) else { return &[] };
        let from = served.partition_point(|&(ts, _)| ts <= m.handoff_ns.max(m.driver_ns));
        let to = served.partition_point(|&(ts, _)| ts < m.recv_ns);
        &served[from.min(to)..to]
    }

    /// The messages of its thread that one waited behind: those taken since its hand-off and those that were still being served
    /// then (at most 16 of the latter), in order.
    pub fn waited_behind(&self, messages: &[Message], m: &Message) -> &[(u64, u32)] {
        let Some(by_recv) = self.by_thread.get(&m.tid) else { return &[] };
        let since = m.handoff_ns.max(m.driver_ns);
        let taken = by_recv.partition_point(|&(ts, _)| ts <= since);
        let to = by_recv.partition_point(|&(ts, _)| ts < m.recv_ns);
        let served = |&&(_, id): &&(u64, u32)| id != m.id && messages[id as usize].send_ns > since;
        let serving = by_recv[..taken.min(to)].iter().rev().take(AHEAD).take_while(served).count();
        &by_recv[taken.min(to) - serving..to]
    }

    /// The time that was a message's turn, before and after its receive call, ns: what of it delayed those behind it. `queue`: where
    /// these wait.
    ///
    /// - [`Leg::Receive`]: to be received. A turn is from the message's hand-off, or the end of the one that its thread received last
    ///   before it, to its own end or the thread's next receive call. Of what one call returned, the first has what was before and the
    ///   last what was after it. Turns of a thread's messages do not overlap.
    /// - Else they were received, and another thread serves one after the other: a turn is from its hand-off, or the end of the one
    ///   before it, to its own end. Turns do not overlap where messages end in the order in which they were received.
    pub fn turn(&self, messages: &[Message], m: &Message, queue: Leg) -> [u64; 2] {
        let since = m.handoff_ns.max(m.driver_ns);
        let end = |m: &Message| m.xmit_ns.max(m.send_ns).max(m.recv_ns);
        let by_recv = self.by_thread.get(&m.tid).map_or(&[][..], Vec::as_slice);
        let at = by_recv.partition_point(|&served| served < (m.recv_ns, m.id));
        let begin = at.checked_sub(1).map_or(since, |before| end(&messages[by_recv[before].1 as usize]).max(since));
        let next = by_recv.get(at + 1).map_or(u64::MAX, |&(next, _)| next);
        let after = if queue == Leg::Receive {
            next.min(end(m)).saturating_sub(m.recv_ns)
        } else {
            end(m).saturating_sub(begin.max(m.recv_ns))
        };
        [m.recv_ns.saturating_sub(begin), after]
    }

    /// The messages that other threads of the application served while one waited from its hand-off to its reply: those of
    /// each thread whose receive call came before it ended and whose reply came after it began; the last first, at most 16.
    pub fn elsewhere(&self, messages: &[Message], m: &Message) -> Vec<u32> {
        let (from, to) = (m.handoff_ns.max(m.driver_ns), m.send_ns.max(m.recv_ns));
        let mut out: Vec<(u64, u32)> = vec![];
        for (_, served_ids) in self.by_thread.iter().filter(|(tid, _)| **tid != m.tid) {
            let upto = served_ids.partition_point(|&(ts, _)| ts < to);
            let served = |&&(_, id): &&(u64, u32)| {
                let other = &messages[id as usize];
                other.send_ns.max(other.recv_ns) > from
            };
            out.extend(served_ids[..upto].iter().rev().take(AHEAD).filter(served));
        }
        out.sort_unstable_by_key(|&(ts, id)| (std::cmp::Reverse(ts), id));
        out.into_iter().map(|(_, id)| id).take(AHEAD).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_ahead_are_those_that_the_thread_took_since_the_hand_off() {
        let message = |id, tid, handoff_ns, recv_ns| Message { id, tid, handoff_ns, recv_ns, ..Message::default() };
        let messages = vec![
            message(0, 7, 10, 15),
            message(1, 7, 11, 25),
            message(2, 8, 12, 22),
            message(3, 7, 13, 35),
            message(4, 7, 30, 35),
        ];
        let ahead = Ahead::new(&messages);
        assert_eq!(ahead.of(&messages[3]), [1, 0]);
        assert_eq!(ahead.of(&messages[0]), [0u32; 0]);
        // A message of the same receive call is not ahead.
        assert_eq!(ahead.of(&messages[4]), [0u32; 0]);
    }

    #[test]
    fn a_turn_is_what_delays_those_behind() {
        let message = |id, handoff_ns, recv_ns, send_ns| Message {
            id,
            tid: 7,
            handoff_ns,
            recv_ns,
            send_ns,
            xmit_ns: send_ns,
            ..Message::default()
        };
        let messages = vec![
            message(0, 10, 15, 20),
            // Waited behind 0, and two time units more; still served when 2 was received.
            message(1, 11, 22, 40),
            // Received together, and answered together.
            message(2, 12, 30, 50),
            message(3, 29, 30, 50),
            message(4, 60, 61, 70),
        ];
        let ahead = Ahead::new(&messages);
        let turns = |queue| messages.iter().map(|m| ahead.turn(&messages, m, queue)).collect::<Vec<[u64; 2]>>();
        assert_eq!(turns(Leg::Receive), [[5, 5], [2, 8], [0, 0], [0, 20], [1, 9]]);
        // The first of each call has what was before it.
        assert_eq!(turns(Leg::Service), [[5, 5], [2, 18], [0, 10], [0, 0], [1, 9]]);
    }

    proptest! {
        /// The turns of a thread's messages together are no longer than the time from the first hand-off to the last end.
        #[test]
        fn turns_do_not_overlap(arrivals in prop::collection::vec((0u64..50, 0u64..50, 0u64..200), 1..60), in_order: bool) {
            let mut messages: Vec<Message> = vec![];
            let (mut recv_ns, mut end_ns) = (1_000, 0);
            for (id, &(gap, waited, served)) in (0..).zip(&arrivals) {
                recv_ns += gap;
                // Replies in the order of the receive calls, or in any.
                end_ns = if in_order { end_ns.max(recv_ns) + served } else { recv_ns + served };
                let handoff_ns = recv_ns - waited;
                messages.push(Message { id, tid: 7, handoff_ns, recv_ns, send_ns: end_ns, xmit_ns: end_ns, ..Message::default() });
            }
            let ahead = Ahead::new(&messages);
            let first = messages.iter().map(|m| m.handoff_ns).min().unwrap_or(0);
            let last = messages.iter().map(|m| m.xmit_ns).max().unwrap_or(0);
            for queue in [Leg::Receive, Leg::Service].into_iter().filter(|queue| in_order || *queue == Leg::Receive) {
                let sum: u64 = messages.iter().flat_map(|m| ahead.turn(&messages, m, queue)).sum();
                prop_assert!(sum <= last - first, "{queue:?}: {sum} of {}", last - first);
            }
        }
    }
}
