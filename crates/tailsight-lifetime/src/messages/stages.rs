//! Stages from the thread timelines: when the thread was woken, when it got its core, and how many messages it received in between.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::messages::by_thread::by_thread;
use crate::model::Message;
use crate::timelines::service::Received;
use crate::timelines::threads::{State, ThreadInterval, Threads};

/// Fills in `wake_ns`, `on_cpu_ns` and `ahead` of every message. Returns when each thread received messages, of those that did.
pub fn complete(messages: &mut [Message], threads: &Threads) -> FxHashMap<u32, Received> {
    let times_ns = by_thread(messages, |m| m.recv_ns);
    let received = times_ns.into_iter().map(|(tid, times_ns)| (tid, Received::new(times_ns)));
    let received: FxHashMap<u32, Received> = received.filter(|(_, received)| received.count() > 0).collect();
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
    received
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
