//! The sleeps of a thread as waits: what of each does not depend on who asks, built in one place.
//!
//! In: a thread's timeline. Out: [`Wait`]s: when, how, and who ended it. Some locks are waited for with a time limit, again and again
//! (CPython's interpreter lock: 5 ms): such tries are one wait. For what a wait was, rules say (`path/rules/`), which know the message too:
//! three of four sleeps that are on the paths of several messages are another thing to each of them.

use crate::model::Threshold;
use crate::timelines::sleep::Sleep;
use crate::timelines::threads::{State, Thread, ThreadInterval, Waker};

/// With a time limit of 5 ms each, so many tries are 5 s.
const MOST_TRIES: usize = 1_000;

/// A sleep of a thread, or several tries for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The interval of the thread's timeline.
    pub interval: usize,
    /// When it began, ns.
    pub from: u64,
    /// When it ended, of tries the last, ns; none: the recording ended first.
    pub to: Option<u64>,
    /// How the thread slept.
    pub how: Sleep,
    /// Who ended it, of tries the last.
    pub waker: Option<Waker>,
    /// A time limit ended it, and the thread tried again: `to` and `waker` are of the last try.
    pub tried_again: bool,
}

impl Thread {
    /// The sleep that is an interval of the timeline, by itself.
    pub fn sleep(&self, interval: usize) -> Option<Wait> {
        let ThreadInterval { from, state: State::Sleeping { how }, .. } = *self.intervals.get(interval)? else {
            return None;
        };
        let next = self.intervals.get(interval + 1);
        let (to, waker) = (next.map(|next| next.from), next.and_then(|next| next.waker));
        Some(Wait { interval, from, to, how, waker, tried_again: false })
    }

    /// The wait that begins with the sleep that is an interval of the timeline: if a timer ended that, and the thread did nothing but try once
    /// more for the lock, up to the end of the last try.
    pub fn wait(&self, interval: usize) -> Option<Wait> {
        let first = self.sleep(interval)?;
        let is_try = |sleep: &Wait| sleep.waker.is_some_and(|waker| waker.timer);
        if !is_try(&first) || !first.how.is_for_a_lock() {
            return Some(first);
        }
        let mut last = first;
        for _ in 0..MOST_TRIES {
            if !is_try(&last) {
                let tried_again = last.to > first.to;
                return Some(Wait { to: last.to, waker: last.waker, tried_again, ..first });
            }
            match self.next_try(&last).filter(|next| next.how.is_as(first.how) && next.waker.is_some()) {
                Some(next) => last = next,
                None => break,
            }
        }
        Some(first)
    }

    /// The next sleep, if the thread was hardly on a core before it.
    fn next_try(&self, sleep: &Wait) -> Option<Wait> {
        let (ran, next) = self.ran_after(sleep.interval);
        if ran > Threshold::LockRetry.ns() { None } else { self.sleep(next) }
    }

    /// Whether the sleep was a try for a lock, and the next sleep another one.
    pub fn is_tried_again(&self, sleep: &Wait) -> bool {
        sleep.waker.is_some_and(|waker| waker.timer) && self.ran_after(sleep.interval).0 <= Threshold::LockRetry.ns()
    }

    /// How long the thread was on a core between a sleep and its next one, ns, and which interval that is.
    fn ran_after(&self, sleep: usize) -> (u64, usize) {
        let intervals = &self.intervals;
        let (mut ran, mut next) = (0, sleep + 1);
        while let Some(s) = intervals.get(next).filter(|s| !matches!(s.state, State::Sleeping { .. })) {
            let to = intervals.get(next + 1).map_or(s.from, |s| s.from);
            ran += if matches!(s.state, State::Running { .. }) { to - s.from } else { 0 };
            next += 1;
        }
        (ran, next)
    }

    /// The sleeps that ended after `from` and by `upto`, ns, the last first, each by itself.
    pub fn sleeps_ended(&self, from: u64, upto: u64) -> impl Iterator<Item = Wait> + '_ {
        let last = self.at(upto).unwrap_or(0);
        let ended = (0..last).rev().take_while(move |&sleep| self.intervals[sleep + 1].from > from);
        ended.filter_map(|interval| self.sleep(interval))
    }

    /// Whether the thread ran or waited for a core all the while, as far as its timeline goes.
    pub fn is_awake(&self, from: u64, to: u64) -> bool {
        let first = self.intervals.partition_point(|s| s.from <= from).saturating_sub(1);
        let within = self.intervals[first..].iter().take_while(|s| s.from < to);
        let mut within = within.peekable();
        within.peek().is_some() && within.all(|s| matches!(s.state, State::Running { .. } | State::Runnable { .. }))
    }
}
