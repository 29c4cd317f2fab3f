//! Stages from the thread timelines: when the thread was woken, when it got its core, and how many messages it received in between.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::scan::Scan;
use crate::timelines::threads::{State, ThreadInterval};
use crate::timelines::time_index::TimeIndex;

/// When a thread received messages, ns.
#[derive(Debug)]
pub struct Received {
    times_ns: Vec<u64>,
    by_time: TimeIndex,
}

impl Received {
    /// Of times in any order; 0: not received.
    fn new(mut times_ns: Vec<u64>) -> Received {
        #[expect(clippy::stable_sort_primitive, reason = "nearly in order already, which this sort makes use of")]
        times_ns.sort();
        times_ns.drain(..times_ns.partition_point(|&ns| ns == 0));
        Received { by_time: TimeIndex::new(&times_ns, |ns| *ns), times_ns }
    }

    /// How many in all.
    pub fn count(&self) -> u64 {
        self.times_ns.len() as u64
    }

    /// How many by this time.
    pub fn upto(&self, ts: u64) -> usize {
        self.by_time.at(&self.times_ns, ts, |ns| *ns).map_or(0, |last| last + 1)
    }
}

/// Fills in `wake_ns`, `on_cpu_ns` and `ahead` of every message, and when each thread received messages.
pub fn complete(scan: &mut Scan) {
    let mut times_ns: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
    // Messages of one thread mostly follow one another.
    for of_thread in scan.messages.chunk_by(|a, b| a.tid == b.tid) {
        times_ns.entry(of_thread[0].tid).or_default().extend(of_thread.iter().map(|m| m.recv_ns));
    }
    let received = times_ns.into_iter().map(|(tid, times_ns)| (tid, Received::new(times_ns)));
    scan.received = received.filter(|(_, received)| received.count() > 0).collect();
    let Scan { messages, threads, received, .. } = scan;
    let wakes: FxHashMap<u32, Vec<Option<u32>>> =
        (received.par_iter()).filter_map(|(&tid, _)| Some((tid, last_wakes(&threads.get(tid)?.intervals)))).collect();
    messages.par_iter_mut().for_each(|m| {
        // Received by the same thread after this one's hand-off and before its own receive call.
        if let Some(received) = received.get(&m.tid) {
            let before = received.upto(m.recv_enter_ns.max(m.handoff_ns).saturating_sub(1));
            m.ahead = before.saturating_sub(received.upto(m.handoff_ns)) as u32;
        }
        let Some((thread, wakes)) = threads.get(m.tid).zip(wakes.get(&m.tid)) else { return };
        let Some(last) = thread.at(m.recv_ns) else { return };
        let woken = wakes[last].map(|i| i as usize).filter(|&i| thread.intervals[i].from > m.handoff_ns);
        if let Some(i) = woken {
            m.wake_ns = thread.intervals[i].from;
        }
        let from = woken.or_else(|| thread.at(m.handoff_ns)).unwrap_or(0).min(last);
        let after = m.wake_ns.max(m.handoff_ns);
        let running = |s: &&ThreadInterval| matches!(s.state, State::Running { .. });
        let on = thread.intervals[from..=last].iter().find(running);
        m.on_cpu_ns = on.map_or(after, |s| s.from.max(after));
    });
}

/// For each interval, the last one up to it that a wake-up began.
fn last_wakes(intervals: &[ThreadInterval]) -> Vec<Option<u32>> {
    let mut last = None;
    (0u32..)
        .zip(intervals)
        .map(|(i, s)| {
            if s.waker.is_some() {
                last = Some(i);
            }
            last
        })
        .collect()
}
