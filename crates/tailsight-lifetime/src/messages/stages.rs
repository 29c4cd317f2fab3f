//! Stages from the thread timelines: when the thread was woken, when it got its core, and how many messages it received in between.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::scan::Scan;
use crate::timelines::threads::{State, ThreadInterval};
use crate::timelines::time_index::TimeIndex;

/// Fills in `wake_ns`, `on_cpu_ns` and `ahead` of every message, and how many each thread received.
pub fn complete(scan: &mut Scan) {
    let mut received: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
    // Messages of one thread mostly follow one another.
    for of_thread in scan.messages.chunk_by(|a, b| a.tid == b.tid) {
        received.entry(of_thread[0].tid).or_default().extend(of_thread.iter().map(|m| m.recv_ns));
    }
    #[expect(clippy::stable_sort_primitive, reason = "nearly in order already, which this sort makes use of")]
    received.values_mut().for_each(|times| times.sort());
    let count = |(&tid, times): (&u32, &Vec<u64>)| (tid, (times.len() - times.partition_point(|ns| *ns == 0)) as u64);
    scan.received = received.iter().map(count).filter(|(_, received)| *received > 0).collect();
    let received: FxHashMap<u32, (TimeIndex, Vec<u64>)> =
        received.into_iter().map(|(tid, times)| (tid, (TimeIndex::new(&times, |t| *t), times))).collect();
    let Scan { messages, threads, .. } = scan;
    let wakes: FxHashMap<u32, Vec<Option<u32>>> =
        (received.par_iter()).filter_map(|(&tid, _)| Some((tid, last_wakes(&threads.get(tid)?.intervals)))).collect();
    messages.par_iter_mut().for_each(|m| {
        // Received by the same thread after this one's hand-off and before its own receive call.
        if let Some((by_time, times)) = received.get(&m.tid) {
            let upto = |ts: u64| by_time.at(times, ts, |t| *t).map_or(0, |last| last + 1);
            let before = upto(m.recv_enter_ns.max(m.handoff_ns).saturating_sub(1));
            m.ahead = before.saturating_sub(upto(m.handoff_ns)) as u32;
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
