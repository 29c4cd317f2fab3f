//! Messages that went on when a timer of their server went off: a rate limit, a delay, a retry.
//!
//! In: a part of a message's service, the timeline of the thread that answers. Out: the time until the timer, and the sleep that it ended.
//! All times in ns.
//!
//! An event loop goes on meanwhile: others' packets end its sleeps, and it works for them. None of that is what the message waited for. What
//! tells so is how the loop came to go on with it: the time limit of a wait for whatever comes was over, and what the loop received since, if
//! anything, it has answered by then, so that this message is no part of that. It may be the timer of another task of the loop, which had what this
//! message needed; and where the loop did other things in between, it may have waited for those at first (its turn in a queue), so that the
//! begin is a guess.

use crate::messages::turns::Whose;
use crate::model::Message;
use crate::scan::activity::Sources;
use crate::timelines::sleep::Sleep;
use crate::timelines::threads::State;

/// The most intervals of the thread between that wait and the reply that are looked at: it may write files, or wait for a core.
const MOST_BETWEEN: usize = 1_000;

/// A wait until a timer went off.
pub(super) struct UntilTimer {
    /// When it began, ns.
    pub from: u64,
    /// When the timer went off, ns.
    pub to: u64,
    /// The sleep that it ended.
    pub how: Sleep,
    /// The thread woke in between, and did other things.
    pub others_between: bool,
}

/// From the thread's first wait for whatever comes, in this part of a service that ends with the reply or a request to another server, until
/// its last one, if a time limit ended that and nothing received since led to what the message did then.
pub(super) fn until_timer(sources: Sources<'_>, m: &Message, tid: u32, (from, to): (u64, u64)) -> Option<UntilTimer> {
    let intervals = &sources.activity.threads.get(tid)?.intervals;
    let waits = |at: usize| match intervals[at].state {
        State::Sleeping { how } => how.is_for_what_comes().then_some(how),
        _ => None,
    };
    let first = intervals.partition_point(|interval| interval.from < from);
    let upto = intervals.partition_point(|interval| interval.from < to);
    let (last, how) = (first..upto).rev().take(MOST_BETWEEN).find_map(|at| Some((at, waits(at)?)))?;
    let woken = intervals.get(last + 1).filter(|woken| woken.from < to)?;
    let by_timer = woken.waker.is_some_and(|waker| waker.interrupt && waker.timer && waker.ready == 0);
    let begin = (first..=last).find(|&at| waits(at).is_some())?;
    (by_timer && !may_be_why(sources, m, tid, (woken.from, to))).then_some(UntilTimer {
        from: intervals[begin].from,
        to: woken.from,
        how,
        others_between: begin < last,
    })
}

/// Whether something that a thread received since `woken` may be why it goes on with this message at `to`.
fn may_be_why(sources: Sources<'_>, m: &Message, tid: u32, (woken, to): (u64, u64)) -> bool {
    if !sources.handling.turns.has(tid) {
        return sources.activity.service.received_between(tid, (woken, to)) > 0;
    }
    let is_open = |whose: Whose| match whose {
        Whose::Reply { send_ns, .. } => whose.is_others(m) && (send_ns == 0 || send_ns > to),
        Whose::OneOfSeveral | Whose::Nobody => false,
    };
    sources.handling.turns.between(tid, woken, to).any(|(.., whose)| is_open(whose))
}
