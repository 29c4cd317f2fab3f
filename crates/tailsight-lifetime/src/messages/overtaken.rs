//! Messages served out of order (Tales of the Tail §4.2): which ones were received after a later arrival, and how long their thread
//! served such later arrivals while they waited.
//!
//! In: messages in order of arrival, busy periods, thread timelines. Out: [`flags::OVERTAKEN`] on messages, and ns by message: the
//! time that its own thread ran inside periods of messages that arrived later and were received earlier. All of that time is `ahead`
//! on the message's path. It takes n log n steps, because an overloaded server overtakes by the thousand.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::messages::by_thread::by_thread;
use crate::model::{Message, flags};
use crate::timelines::busy_periods::BusyPeriod;
use crate::timelines::threads::{State, Threads};
use crate::timelines::time_index::TimeIndex;

/// Marks the messages that were overtaken.
pub fn mark(messages: &mut [Message]) {
    let mut first = u64::MAX;
    for m in messages.iter_mut().rev().filter(|m| m.recv_ns != 0) {
        if first < m.recv_ns {
            m.flags |= flags::OVERTAKEN;
        }
        first = first.min(m.recv_ns);
    }
}

/// The time behind later arrivals by message, ns, of the `wanted` ones (by message), or of all that are marked; empty when there are none.
pub fn behind_later(
    messages: &[Message],
    wanted: Option<&[bool]>,
    periods: &FxHashMap<u32, Vec<BusyPeriod>>,
    threads: &Threads,
) -> Vec<u64> {
    let asked = |i: usize| messages[i].flags & flags::OVERTAKEN != 0 && wanted.is_none_or(|wanted| wanted[i]);
    if !(0..messages.len()).any(asked) {
        return vec![];
    }
    let mut out = vec![0; messages.len()];
    for (tid, ids) in by_thread(messages, |m| m.id as usize) {
        if let Some(periods) = periods.get(&tid) {
            thread(messages, (&ids, asked), periods, |from, to| running(threads, tid, from, to), &mut out);
        }
    }
    out
}

/// One thread: `ids` are its messages, in order of arrival, and those of them that are asked for.
fn thread(
    messages: &[Message],
    (ids, asked): (&[usize], impl Fn(usize) -> bool),
    periods: &[BusyPeriod],
    ran: impl Fn(u64, u64) -> u64,
    out: &mut [u64],
) {
    // How many begin by a time; no period is inside another, so one more at most of those has not ended by then.
    let begins = TimeIndex::new(periods, |w| w.from);
    let begun = |ts: u64| begins.at(periods, ts, |w| w.from).map_or(0, |last| last + 1);
    // The periods that an overtaken message waited through.
    let waited = |m: &Message| {
        let first = begun(m.handoff_ns.saturating_sub(1));
        let begun = begun(m.recv_enter_ns);
        let last = begun.saturating_sub(usize::from(begun > 0 && periods[begun - 1].to > m.recv_enter_ns));
        first..last.max(first)
    };
    let ranges: Vec<(usize, Range<usize>)> =
        ids.iter().copied().filter(|&i| asked(i)).map(|i| (i, waited(&messages[i]))).collect();
    let (Some(first), Some(last)) =
        (ranges.iter().map(|(_, r)| r.start).min(), ranges.iter().map(|(_, r)| r.end).max())
    else {
        return;
    };
    // A period arrived with the earliest of its messages. Only those that somebody waited through matter.
    let periods = &periods[first..last];
    let mut arrived = vec![u64::MAX; periods.len()];
    let mut at = 0;
    for &i in ids {
        let received = messages[i].recv_enter_ns;
        let holds = |w: usize| periods.get(w).is_some_and(|w| w.from <= received && received < w.to);
        // The next message is mostly in the same period or in the next.
        if !holds(at) {
            at = if holds(at + 1) { at + 1 } else { periods.partition_point(|w| w.to <= received) };
        }
        if holds(at) {
            arrived[at] = arrived[at].min(messages[i].driver_ns);
        }
    }
    if ranges.iter().map(|(_, range)| range.len()).sum::<usize>() <= periods.len() {
        // Few: period by period.
        for (i, range) in ranges {
            let later = |w: &usize| arrived[*w] != u64::MAX && arrived[*w] > messages[i].driver_ns;
            let waited = (range.start - first..range.end - first).filter(later);
            out[i] = waited.map(|w| ran(periods[w].from, periods[w].to)).sum();
        }
        return;
    }
    let mut latest: Vec<(u64, usize)> = arrived.iter().copied().zip(0..).filter(|(at, _)| *at != u64::MAX).collect();
    latest.sort_unstable_by_key(|&(at, _)| std::cmp::Reverse(at));
    let mut next = latest.into_iter().peekable();
    // Sums over periods in time, of those that arrived later than the message at hand (a Fenwick tree).
    let mut tree = vec![0u64; periods.len() + 1];
    let before = |tree: &[u64], mut w: usize| {
        let mut sum = 0;
        while w > 0 {
            sum += tree[w];
            w &= w - 1;
        }
        sum
    };
    for (i, range) in ranges.into_iter().rev() {
        while let Some((_, w)) = next.next_if(|&(at, _)| at > messages[i].driver_ns) {
            let ns = ran(periods[w].from, periods[w].to);
            let mut at = w + 1;
            while at < tree.len() {
                tree[at] += ns;
                at += at & at.wrapping_neg();
            }
        }
        out[i] = before(&tree, range.end - first) - before(&tree, range.start - first);
    }
}

/// How long a thread was on a core.
fn running(threads: &Threads, tid: u32, from: u64, to: u64) -> u64 {
    let Some(thread) = threads.get(tid) else { return 0 };
    let first = thread.at(from).unwrap_or(0);
    let mut ns = 0;
    for (i, s) in thread.intervals.iter().enumerate().skip(first).take_while(|(_, s)| s.from < to) {
        if matches!(s.state, State::Running { .. }) {
            let end = thread.intervals.get(i + 1).map_or(to, |n| n.from).min(to);
            ns += end.saturating_sub(s.from.max(from));
        }
    }
    ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same, message by message and period by period.
    fn plainly(messages: &[Message], ids: &[usize], periods: &[BusyPeriod], i: usize) -> u64 {
        let m = &messages[i];
        let arrived = |w: &BusyPeriod| {
            let inside = |&&j: &&usize| (w.from..w.to).contains(&messages[j].recv_enter_ns);
            ids.iter().filter(inside).map(|&j| messages[j].driver_ns).min()
        };
        let counts = |w: &&BusyPeriod| {
            w.from >= m.handoff_ns && w.to <= m.recv_enter_ns && arrived(w).is_some_and(|at| at > m.driver_ns)
        };
        periods.iter().filter(counts).map(|w| w.to - w.from).sum()
    }

    proptest! {
        #[test]
        fn later_arrivals_that_were_served_first_are_summed(
            arrivals in prop::collection::vec((0u64..1000, 0u64..50), 1..60),
            order in prop::collection::vec(any::<u16>(), 60),
        ) {
            let mut messages: Vec<Message> = arrivals
                .iter()
                .map(|&(at, later)| Message { driver_ns: at, handoff_ns: at + later, flags: flags::OVERTAKEN, ..Message::default() })
                .collect();
            messages.sort_by_key(|m| m.driver_ns);
            let mut served: Vec<usize> = (0..messages.len()).collect();
            served.sort_by_key(|&i| (order[i], i));
            let mut periods = vec![];
            for (k, &i) in served.iter().enumerate() {
                let from = 500 + 10 * k as u64;
                messages[i].recv_enter_ns = from;
                periods.push(BusyPeriod { from, to: from + 10 - (k as u64 % 3) });
            }
            let ids: Vec<usize> = (0..messages.len()).collect();
            let mut out = vec![0; messages.len()];
            thread(&messages, (&ids, |_| true), &periods, |from, to| to - from, &mut out);
            for (i, &ns) in out.iter().enumerate() {
                prop_assert_eq!(ns, plainly(&messages, &ids, &periods, i));
            }
            // Of a part of them: the same.
            let mut some = vec![0; messages.len()];
            thread(&messages, (&ids, |i| i % 7 == 3), &periods, |from, to| to - from, &mut some);
            for (i, &ns) in some.iter().enumerate() {
                prop_assert_eq!(ns, if i % 7 == 3 { out[i] } else { 0 });
            }
        }
    }
}
