//! Datagrams that a queueing discipline kept beyond the send call that they came from. UDP has no sequence numbers: of one flow they leave
//! in the order in which they came, and have the lengths that were sent. Where the protocol has ids, a datagram says whose reply it is.
//!
//! In: send calls in which no datagram of theirs was given to the driver, and datagrams that were given to it later or dropped. Out: the
//! hand-over of the replies. All times in ns, CLOCK_MONOTONIC.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use tailsight_trace::FlowKey;

use super::Traffic;
use super::replies::transmit;
use crate::model::flags;

/// A datagram that has not left in this time will not: it was dropped unseen, or its event was lost.
const LONGEST_NS: u64 = 1_000_000_000;
/// Datagrams of one flow that are remembered.
const LIMIT: usize = 4096;

/// A datagram that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    sent_ns: u64,
    bytes: u32,
    /// Whose reply it is, or the last part of.
    message: u32,
}

/// A datagram that was given to the driver outside of the call that sent it.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Its flow.
    pub key: FlowKey,
    /// When.
    pub ts: u64,
    /// On which core.
    pub cpu: u16,
    /// Its payload bytes.
    pub bytes: u32,
    /// The thread of the core was interrupted then: it was in nobody's send call.
    pub outside: bool,
}

/// All of them, by flow.
#[derive(Clone, Debug, Default)]
pub struct Queued {
    flows: FxHashMap<FlowKey, VecDeque<Waiting>>,
    /// The last that left outside of its call and does not wait: another core may be faster than the end of the call. Its hand-over and
    /// bytes.
    early: FxHashMap<FlowKey, (u64, u16, u32)>,
    /// When a datagram last left outside of its call: only then do calls give others' datagrams to the driver.
    last_left_ns: u64,
}

impl Queued {
    /// A send call of this many bytes ended, and its datagram had not come to the driver.
    pub fn sent(&mut self, key: FlowKey, sent_ns: u64, bytes: u32, message: u32, traffic: &mut Traffic) {
        let recv_ns = traffic.messages[message as usize].recv_ns;
        if let Some((ts, cpu, _)) = self.early.remove(&key).filter(|(ts, _, len)| *ts >= recv_ns && *len == bytes) {
            transmit(&[message], ts, cpu, traffic);
            return;
        }
        let waiting = self.flows.entry(key).or_default();
        while waiting.front().is_some_and(|w| waiting.len() == LIMIT || sent_ns > w.sent_ns + LONGEST_NS) {
            waiting.pop_front();
        }
        waiting.push_back(Waiting { sent_ns, bytes, message });
    }

    /// Whether a datagram that left in a send call is one that was sent before. Without an id, only where some left outside of calls lately.
    pub fn is_older(&self, left: Left, message: Option<u32>) -> bool {
        let left_lately = self.last_left_ns != 0 && left.ts < self.last_left_ns + LONGEST_NS;
        (left_lately || message.is_some()) && self.place(left.key, left.ts, left.bytes, message).is_some()
    }

    /// A datagram has left; `message`: whose reply it is, by its id. `false`: none waits that it can be.
    pub fn left(&mut self, left: Left, message: Option<u32>, traffic: &mut Traffic) -> bool {
        let Left { key, ts, cpu, bytes, outside } = left;
        let Some(message) = self.take(key, ts, bytes, message) else {
            if outside {
                self.early.insert(key, (ts, cpu, bytes));
            }
            return false;
        };
        if outside {
            self.last_left_ns = ts;
        }
        transmit(&[message], ts, cpu, traffic);
        true
    }

    /// A datagram that was sent before was dropped.
    pub fn dropped(&mut self, key: FlowKey, ts: u64, bytes: u32, traffic: &mut Traffic) {
        if let Some(message) = self.take(key, ts, bytes, None) {
            traffic.messages[message as usize].flags |= flags::REPLY_DROPPED;
        }
    }

    fn place(&self, key: FlowKey, ts: u64, bytes: u32, message: Option<u32>) -> Option<usize> {
        let its = |w: &Waiting| message.is_none_or(|message| w.message == message);
        let is_it = |w: &Waiting| w.bytes == bytes && its(w) && ts < w.sent_ns + LONGEST_NS;
        self.flows.get(&key)?.iter().position(is_it)
    }

    /// The oldest of this length, and with it goes what came before: the order is kept, so that was dropped.
    fn take(&mut self, key: FlowKey, ts: u64, bytes: u32, message: Option<u32>) -> Option<u32> {
        let at = self.place(key, ts, bytes, message)?;
        self.flows.get_mut(&key)?.drain(..=at).next_back().map(|w| w.message)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extra;
    use super::*;
    use crate::model::Message;

    const KEY: FlowKey = FlowKey { addrs: 1, ports: 11211 << 16 | 4000, proto: 1 };

    /// Messages whose replies were sent at these times, 100 bytes each, and wait.
    fn waiting(sent: &[u64]) -> (Queued, Traffic) {
        let (mut queued, mut traffic) = (Queued::default(), Traffic::default());
        for (message, &send_ns) in (0..).zip(sent) {
            traffic.add(Message { send_ns, ..Message::default() }, Extra::default());
            queued.sent(KEY, send_ns + 5, 100, message, &mut traffic);
        }
        (queued, traffic)
    }

    /// A datagram of 100 bytes that left while a thread was interrupted.
    fn at(ts: u64) -> Left {
        Left { key: KEY, ts, cpu: 0, bytes: 100, outside: true }
    }

    fn left(traffic: &Traffic) -> Vec<u64> {
        traffic.messages.iter().map(|m| m.xmit_ns).collect()
    }

    #[test]
    fn datagrams_leave_in_their_order() {
        let (mut queued, mut traffic) = waiting(&[10, 20]);
        assert!(queued.left(Left { cpu: 3, ..at(500) }, None, &mut traffic));
        assert_eq!((left(&traffic), traffic.extras[0].xmit_cpu), (vec![500, 0], 3));
        assert!(
            !queued.left(Left { key: FlowKey { addrs: 2, ..KEY }, ..at(600) }, None, &mut traffic),
            "of another flow"
        );
        assert!(!queued.left(Left { cpu: 3, bytes: 99, ..at(600) }, None, &mut traffic), "of another length");
        assert!(queued.left(Left { cpu: 3, ..at(700) }, None, &mut traffic));
        assert!(!queued.left(Left { cpu: 3, ..at(800) }, None, &mut traffic), "all have left");
        assert_eq!(left(&traffic), [500, 700]);
    }

    #[test]
    fn one_that_was_dropped_leaves_its_place_to_the_next() {
        let (mut queued, mut traffic) = waiting(&[10, 20]);
        queued.dropped(KEY, 30, 100, &mut traffic);
        queued.left(at(500), None, &mut traffic);
        assert_eq!((left(&traffic), traffic.messages[0].flags), (vec![0, 500], flags::REPLY_DROPPED));
        // Dropped unseen: the next one of another length says so.
        let (mut queued, mut traffic) = waiting(&[10]);
        traffic.add(Message { send_ns: 20, ..Message::default() }, Extra::default());
        queued.sent(KEY, 25, 7, 1, &mut traffic);
        queued.left(Left { bytes: 7, ..at(500) }, None, &mut traffic);
        queued.left(at(600), None, &mut traffic);
        assert_eq!(left(&traffic), [0, 500]);
    }

    #[test]
    fn one_that_another_core_gave_to_the_driver_before_its_call_had_ended_has_left() {
        let (mut queued, mut traffic) = waiting(&[]);
        traffic.add(Message { recv_ns: 5, send_ns: 10, ..Message::default() }, Extra::default());
        assert!(!queued.left(Left { cpu: 1, ..at(12) }, None, &mut traffic));
        queued.sent(KEY, 15, 100, 0, &mut traffic);
        assert_eq!(left(&traffic), [12]);
        assert!(!queued.left(at(500), None, &mut traffic), "it does not wait as well");
        // An older one that nobody waits for is not the next message's.
        traffic.add(Message { recv_ns: 505, send_ns: 510, ..Message::default() }, Extra::default());
        queued.sent(KEY, 515, 100, 1, &mut traffic);
        assert_eq!(left(&traffic), [12, 0]);
    }

    #[test]
    fn a_call_gives_others_datagrams_to_the_driver_only_where_some_left_outside_of_calls_lately() {
        let (mut queued, mut traffic) = waiting(&[10, 20, 30]);
        assert!(!queued.is_older(at(100), None), "nothing was ever queued: an event is missing");
        queued.left(at(100), None, &mut traffic);
        assert!(queued.is_older(at(200), None) && !queued.is_older(Left { bytes: 99, ..at(200) }, None));
        assert!(!queued.is_older(at(2 * LONGEST_NS), None), "long ago");
    }
}
