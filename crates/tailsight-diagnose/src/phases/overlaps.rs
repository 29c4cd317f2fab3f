//! Phase 4 (NSight §5.2): overlaps between messages. Of the same application: head-of-line blocking, with how many messages
//! were ahead and which. Of others: their packets, processed while this message waited.

use std::collections::BTreeMap;

use tailsight_lifetime::{Context, Frame, Message, Owner};

/// Most ids of messages ahead that are listed for one message.
const AHEAD: usize = 16;

/// How an overlap is found.
pub fn how() -> &'static str {
    "overlap"
}

/// Whether the time went to another message: the thread's work for one before, or a packet of another application.
pub fn is_other_message(owner: &Owner) -> bool {
    let foreign_packet = |f: &Frame| matches!(f, Frame::Packet { own: false, .. });
    let handler = |f: &Frame| matches!(f, Frame::Irq { .. } | Frame::Vector { .. } | Frame::Csd);
    (owner.context == Context::Ahead && !owner.frames.iter().any(handler))
        || owner.frames.last().is_some_and(foreign_packet)
}

/// Which messages a message's thread took between its hand-off and its receive call (NSight §4.1), the last before it first.
pub struct Ahead {
    /// By thread: (time of the receive call, message), in order.
    by_thread: BTreeMap<u32, Vec<(u64, u32)>>,
}

impl Ahead {
    /// Sorts all messages by thread and receive call.
    pub fn new(messages: &[Message]) -> Ahead {
        let mut by_thread: BTreeMap<u32, Vec<(u64, u32)>> = BTreeMap::new();
        for m in messages.iter().filter(|m| m.recv_ns != 0) {
            by_thread.entry(m.tid).or_default().push((m.recv_ns, m.id));
        }
        by_thread.values_mut().for_each(|all| all.sort_unstable());
        Ahead { by_thread }
    }

    /// The messages ahead of one, at most 16.
    pub fn of(&self, m: &Message) -> Vec<u32> {
        let Some(all) = self.by_thread.get(&m.tid) else { return vec![] };
        let from = all.partition_point(|&(ts, _)| ts <= m.handoff_ns.max(m.driver_ns));
        let to = all.partition_point(|&(ts, _)| ts < m.recv_ns);
        all[from.min(to)..to].iter().rev().map(|&(_, id)| id).take(AHEAD).collect()
    }
}

#[cfg(test)]
mod tests {
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
}
