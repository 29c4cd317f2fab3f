//! Intervals in which events of a core were lost, and the messages that were under way then.

use rustc_hash::FxHashMap;
use tailsight_trace::event::Kind;

use crate::model::Message;

/// Intervals in which events of a core were lost.
#[derive(Default)]
pub(super) struct Losses {
    /// By core: since when, until its next event.
    open: FxHashMap<u16, u64>,
    /// (start, end), ns.
    closed: Vec<(u64, u64)>,
}

impl Losses {
    #[inline]
    pub(super) fn take(&mut self, cpu: u16, kind: Kind, ts: u64) {
        if kind == Kind::Lost {
            self.open.entry(cpu).or_insert(ts);
        } else if !self.open.is_empty()
            && let Some(from) = self.open.remove(&cpu)
        {
            self.closed.push((from, ts));
        }
    }

    /// The intervals in order, none inside another. The recording ended at `end_ns`.
    pub(super) fn finish(mut self, end_ns: u64) -> Vec<(u64, u64)> {
        self.closed.extend(self.open.values().map(|&from| (from, end_ns.max(from))));
        self.closed.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, to) in self.closed {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        merged
    }
}

/// Whether a message was in flight while events were lost.
pub(super) fn overlaps(losses: &[(u64, u64)], m: &Message) -> bool {
    let to = m.xmit_ns.max(m.send_ns).max(m.recv_ns);
    let next = losses.partition_point(|l| l.1 < m.driver_ns);
    losses.get(next).is_some_and(|l| l.0 <= to)
}
