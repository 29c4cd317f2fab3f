//! Who had a lock: its holder where that one has the core that a message's thread waits for, and the turns of those that wait for it.
//!
//! In: the timelines of threads, a thread that is runnable for a message, and until when it works for that one. Out: [`Held`], the
//! holder of the lock that the message then sleeps in, and since when its time on the core is a wait for that lock; [`Turn`], from whom
//! a thread that gave a lock away had got it.
//!
//! A thread and the holder of the lock that it needs may share a core. The thread then gets the core when the scheduler decides, asks
//! for the lock, sleeps, and the holder goes on. Had the core been free earlier, the thread would have slept for as much longer: the
//! holder's release ends the wait whatever comes first. When the holder took the lock no event tells. But when it lost the core
//! did not depend on the lock: that it had the lock just then is a random look at how much of its stretch it has it. So all
//! of its stretch counts where the look found the lock held and none of it elsewhere, which is right on average.

use tailsight_kernel::syscalls;

use super::owners::sleep_frame;
use crate::model::Frame;
use crate::scan::Scan;
use crate::timelines::busy_periods;
use crate::timelines::threads::{Sleep, State, ThreadInterval, Waker};

/// How many sleepers that wait for each other are followed.
const DEPTH: u32 = 8;
/// The longest time on a core that one more try for a lock takes; with a time limit of 5 ms each, so many tries are 5 s.
const TRY_NS: u64 = 100_000;
const MOST_TRIES: usize = 1_000;

/// The holder of a lock that a message is going to sleep in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The holder.
    pub tid: u32,
    /// Since when it ran, or waited to, without a sleep; ns.
    pub since: u64,
    /// The message's sleep.
    pub because: Frame,
}

/// Whether a thread may sleep so for a lock that another one of the application holds.
pub fn is_lock(how: Sleep) -> bool {
    !how.stopped && !how.io && syscalls::may_wait_for_a_lock(how.nr)
}

/// The thread `tid` waits for a core in interval `at`. The holder of the lock that it sleeps in next, when that begins before `until`
/// and the holder had not slept since this thread got the core.
pub fn of_next_sleep(scan: &Scan, tid: u32, at: usize, until: u64) -> Option<Held> {
    let intervals = &scan.threads.get(tid)?.intervals;
    let awake = |s: &ThreadInterval| matches!(s.state, State::Running { .. } | State::Runnable { .. });
    let ahead = || intervals.iter().enumerate().skip(at).take_while(|(_, s)| s.from < until);
    let (_, runs) = ahead().find(|(_, s)| matches!(s.state, State::Running { .. }))?;
    let (sleeps, sleep) = ahead().find(|(_, s)| !awake(s))?;
    let (got, slept) = (runs.from, sleep.from);
    let State::Sleeping { how } = sleep.state else { return None };
    if slept < got || !is_lock(how) {
        return None;
    }
    let waker = last_waker(intervals, sleeps).map(|(waker, _)| waker);
    let holder = holder(scan, tid, waker, slept, 0)?;
    let of_holder = scan.threads.get(holder)?;
    let (first, last) = (of_holder.at(got)?, of_holder.at(slept)?);
    if !of_holder.intervals[first..=last].iter().all(awake) {
        return None;
    }
    let stretch = of_holder.intervals[..=first].iter().rev().take_while(|s| awake(s));
    Some(Held { tid: holder, since: stretch.last()?.from, because: sleep_frame(how) })
}

/// Who ended the sleep that is the interval `at`, and when. Some locks are waited for with a time limit, again and again (CPython's
/// interpreter lock: 5 ms): if a timer ended the sleep and the thread did nothing but try once more, that is who ended the last try.
pub fn last_waker(intervals: &[ThreadInterval], at: usize) -> Option<(Waker, u64)> {
    let how = |i: usize| match intervals.get(i)?.state {
        State::Sleeping { how } => Some(how),
        _ => None,
    };
    let first = how(at)?;
    let ended_by = |sleep: usize| intervals.get(sleep + 1).and_then(|s| Some((s.waker?, s.from)));
    let mut sleep = at;
    for _ in 0..MOST_TRIES {
        let (waker, ended) = ended_by(sleep)?;
        if !waker.timer || !is_lock(first) {
            return Some((waker, ended));
        }
        let (ran, next) = ran_after(intervals, sleep);
        if ran > TRY_NS || how(next).is_none_or(|again| again.nr != first.nr || again.place != first.place) {
            break;
        }
        sleep = next;
    }
    ended_by(at)
}

/// How long the thread was on a core between the sleep that is the interval `sleep` and its next one, ns, and which interval that is.
fn ran_after(intervals: &[ThreadInterval], sleep: usize) -> (u64, usize) {
    let (mut ran, mut next) = (0, sleep + 1);
    while let Some(s) = intervals.get(next).filter(|s| !matches!(s.state, State::Sleeping { .. })) {
        let to = intervals.get(next + 1).map_or(s.from, |s| s.from);
        ran += if matches!(s.state, State::Running { .. }) { to - s.from } else { 0 };
        next += 1;
    }
    (ran, next)
}

/// The turn of a thread that waited for a lock like others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When it began to wait for the lock.
    pub asked: u64,
    /// When it got the lock.
    pub got: u64,
    /// The thread from which it got the lock, which had it, or waited for it, before.
    pub before: u32,
}

/// The thread `tid` gave a lock away at `until`, which somebody had waited for since `from`. Its turn, if its last sleep before that was a
/// wait for the lock, too, and it waited for work after `from` and before that sleep. A thread that waits for work has no lock; had it had
/// this one earlier, since `from`, it would have given it away then, and nobody would have waited on.
pub fn turn(scan: &Scan, tid: u32, (from, until): (u64, u64)) -> Option<Turn> {
    let thread = scan.threads.get(tid)?;
    let intervals = &thread.intervals;
    let upto = thread.at(until)?;
    let since_then = (0..upto).rev().take_while(|&i| intervals[i + 1].from > from);
    let mut sleeps = since_then.filter_map(|i| match intervals[i].state {
        State::Sleeping { how } => Some((i, how)),
        _ => None,
    });
    let (last, how) = sleeps.next().filter(|&(_, how)| is_lock(how))?;
    let ended_by = |sleep: usize| intervals[sleep + 1].waker;
    let giver = ended_by(last).filter(|w| !w.interrupt && w.tid != tid && scan.threads.names().is_target(w.tid))?;
    let mut sleeps = sleeps.peekable();
    // Waited with a time limit, and tried once more.
    let again = |&(i, before): &(usize, Sleep)| {
        let same = before.nr == how.nr && before.place == how.place;
        same && ended_by(i).is_some_and(|w| w.timer) && ran_after(intervals, i).0 <= TRY_NS
    };
    let mut first = last;
    while let Some((earlier, _)) = sleeps.next_if(again) {
        first = earlier;
    }
    let asked = intervals[first].from;
    // A thread of a pool may wait for work as others wait for a lock; it then serves nobody.
    let serving = |at: u64| busy_periods::serving(&scan.busy_periods, tid, at);
    let waited_for_work = sleeps.any(|(i, how)| {
        let rests = || is_lock(how) && serving(asked) && !serving(intervals[i].from);
        !how.stopped && (syscalls::waits_for_work(how.nr) || rests())
    });
    (waited_for_work && asked > from).then(|| Turn { asked, got: intervals[last + 1].from, before: giver.tid })
}

/// Who was awake at `ts` of those that a sleep waited for: who ended it, or whom that one waited for in a lock itself.
fn holder(scan: &Scan, sleeper: u32, waker: Option<Waker>, ts: u64, depth: u32) -> Option<u32> {
    let waker = waker.filter(|w| !w.interrupt && w.tid != sleeper && scan.threads.names().is_target(w.tid))?;
    let thread = scan.threads.get(waker.tid)?;
    let at = thread.at(ts)?;
    match thread.intervals[at].state {
        State::Running { .. } | State::Runnable { .. } => Some(waker.tid),
        State::Sleeping { how } if is_lock(how) && depth < DEPTH => {
            let before = last_waker(&thread.intervals, at).map(|(waker, _)| waker);
            holder(scan, waker.tid, before, ts, depth + 1)
        }
        _ => None,
    }
}
