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

use super::owners::sleep_frame;
use crate::model::Frame;
use crate::scan::activity::Activity;
use crate::timelines::threads::{State, ThreadInterval, Waker};
use crate::timelines::waits::Wait;

/// How many sleepers that wait for each other are followed.
const DEPTH: u32 = 8;

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

/// The thread `tid` waits for a core in interval `at`. The holder of the lock that it sleeps in next, when that begins before `until`
/// and the holder had not slept since this thread got the core.
pub fn of_next_sleep(activity: &Activity, tid: u32, at: usize, until: u64) -> Option<Held> {
    let thread = activity.threads.get(tid)?;
    let intervals = &thread.intervals;
    let awake = |s: &ThreadInterval| matches!(s.state, State::Running { .. } | State::Runnable { .. });
    let ahead = || intervals.iter().enumerate().skip(at).take_while(|(_, s)| s.from < until);
    let (_, runs) = ahead().find(|(_, s)| matches!(s.state, State::Running { .. }))?;
    let (sleeps, sleep) = ahead().find(|(_, s)| !awake(s))?;
    let (got, slept) = (runs.from, sleep.from);
    let Wait { how, waker, .. } = thread.wait(sleeps)?;
    if slept < got || !how.is_for_a_lock() {
        return None;
    }
    let holder = holder(activity, tid, waker, slept, 0)?;
    let of_holder = activity.threads.get(holder)?;
    let (first, last) = (of_holder.at(got)?, of_holder.at(slept)?);
    if !of_holder.intervals[first..=last].iter().all(awake) {
        return None;
    }
    let stretch = of_holder.intervals[..=first].iter().rev().take_while(|s| awake(s));
    Some(Held { tid: holder, since: stretch.last()?.from, because: sleep_frame(how) })
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
pub fn turn(activity: &Activity, tid: u32, (from, until): (u64, u64)) -> Option<Turn> {
    let thread = activity.threads.get(tid)?;
    let mut sleeps = thread.sleeps_ended(from, until).peekable();
    let last = sleeps.next().filter(|sleep| sleep.how.is_for_a_lock())?;
    let is_sibling = |w: &Waker| !w.interrupt && w.tid != tid && activity.threads.names().is_target(w.tid);
    let giver = last.waker.filter(is_sibling)?;
    let mut first = last;
    // Waited with a time limit, and tried once more.
    let again = |sleep: &Wait| sleep.how.is_as(last.how) && thread.is_tried_again(sleep);
    while let Some(earlier) = sleeps.next_if(again) {
        first = earlier;
    }
    let asked = first.from;
    // A thread of a pool may wait for work as others wait for a lock; it then serves nobody.
    let serving = |at: u64| activity.service.is_serving(tid, at);
    let waited_for_work = sleeps.any(|Wait { from: slept, how, .. }| {
        // So may one that slept when the recording began, in a call that is not known.
        let rests = || (how.is_for_a_lock() || how.is_in_unknown_call()) && serving(asked) && !serving(slept);
        !how.stopped && (how.is_for_work() || rests())
    });
    let got = last.to.unwrap_or(until);
    (waited_for_work && asked > from).then_some(Turn { asked, got, before: giver.tid })
}

/// Who was awake at `ts` of those that a sleep waited for: who ended it, or whom that one waited for in a lock itself.
fn holder(activity: &Activity, sleeper: u32, waker: Option<Waker>, ts: u64, depth: u32) -> Option<u32> {
    let waker = waker.filter(|w| !w.interrupt && w.tid != sleeper && activity.threads.names().is_target(w.tid))?;
    let thread = activity.threads.get(waker.tid)?;
    let at = thread.at(ts)?;
    match thread.intervals[at].state {
        State::Running { .. } | State::Runnable { .. } => Some(waker.tid),
        State::Sleeping { how } if how.is_for_a_lock() && depth < DEPTH => {
            let before = thread.wait(at).and_then(|wait| wait.waker);
            holder(activity, waker.tid, before, ts, depth + 1)
        }
        _ => None,
    }
}
