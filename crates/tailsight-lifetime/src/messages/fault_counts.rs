//! Page faults, which have no duration, counted for each message.
//!
//! In: the events of the pass, in time order. Out: how many of them a thread had in an interval. No hook measures their cost; what a
//! diagnosis derives from the counts is an estimate, and is marked as one.

use rustc_hash::FxHashMap;
use tailsight_trace::Event;

use crate::messages::Extra;
use crate::model::{Leg, Message};

/// When each thread faulted, ns, in order.
#[derive(Clone, Debug, Default)]
pub struct FaultCounts {
    faults: FxHashMap<u32, Vec<u64>>,
}

impl FaultCounts {
    /// Takes a page fault.
    pub fn fault(&mut self, event: &Event) {
        self.faults.entry(event.tid).or_default().push(event.ts);
    }

    /// By message: page faults of the thread that answered it, while it worked for it, of the `wanted` ones (by message) or of all. Empty
    /// when there were none.
    pub fn by_message<'a>(
        &self,
        messages: impl Iterator<Item = (&'a Message, &'a Extra)>,
        wanted: Option<&[bool]>,
    ) -> Vec<u32> {
        if self.faults.is_empty() {
            return Vec::new();
        }
        let faults_of = |(m, extra): (&Message, &Extra)| {
            // Most threads have none: asked first, it spares the look at the message.
            let faults_ns = self.faults.get(&extra.send_tid)?;
            let (from, to) = m.ends(Leg::Service)?;
            Some(between(faults_ns, from.max(extra.own_from_ns), to))
        };
        let is_wanted = |i: usize| wanted.is_none_or(|wanted| wanted[i]);
        let faults_of =
            |(i, message_and_extra)| if is_wanted(i) { faults_of(message_and_extra).unwrap_or(0) } else { 0 };
        messages.enumerate().map(faults_of).collect()
    }
}

/// How many of these times, which are in order, lie from `from` to before `to`.
fn between(faults_ns: &[u64], from: u64, to: u64) -> u32 {
    let first = faults_ns.partition_point(|t| *t < from);
    faults_ns[first..].iter().take_while(|t| **t < to).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_count_to_the_message_that_the_thread_works_for() {
        let mut counts = FaultCounts::default();
        for (tid, ts) in [(7, 10), (8, 11), (7, 20), (7, 30), (7, 40)] {
            counts.fault(&Event { tid, ts, ..Event::default() });
        }
        let faults = |tid: u32, from, to| counts.faults.get(&tid).map_or(0, |faults_ns| between(faults_ns, from, to));
        assert_eq!((faults(7, 20, 40), faults(8, 0, 99), faults(9, 0, 99)), (2, 1, 0));
        let m = Message { recv_ns: 5, send_ns: 35, ..Message::default() };
        let extra = Extra { send_tid: 7, own_from_ns: 15, ..Extra::default() };
        // Not answered: no service leg.
        let unanswered = Message { recv_ns: 5, ..Message::default() };
        let messages = || [(&m, &extra), (&unanswered, &extra), (&m, &extra)].into_iter();
        assert_eq!(counts.by_message(messages(), None), [2, 0, 2]);
        assert_eq!(counts.by_message(messages(), Some(&[true, true, false])), [2, 0, 0]);
        assert!(FaultCounts::default().by_message(messages(), None).is_empty());
    }
}
