//! Waiting for the next due time. In: how late sleeps ended lately. Out: how long before the due time to wake and poll.
//!
//! Polling costs CPU time, sleeping costs lateness. A sleep that ends `w` late, begun to end `m` early, makes the request
//! `max(0, w - m)` late and costs `max(0, m - w)` of polling. So the cheapest `m` that keeps the 99th percentile of the
//! lateness at the goal is the 99th percentile of `w` minus the goal, and zero where timers are good.

use crate::Wait;

/// What a request is late by even when the thread is awake (reading the clock, writing the request), ns.
const OWN_NS: f64 = 2_000.0;
/// Polling longer than this before each request costs more than it can mend: what is later is not the timer's doing, ns.
const LONGEST_NS: f64 = 50_000.0;
/// How far the estimate moves down at each sleep; it moves up 99 times as far, so that it rests at the percentile.
const STEP_NS: f64 = 25.0;

/// Learns how late sleeps end.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    wait: Wait,
    goal_ns: f64,
    /// The estimated 99th percentile of how late sleeps end.
    late_p99_ns: f64,
}

impl Pacer {
    /// The lateness that `auto` aims at (p99), ns.
    pub(crate) const GOAL_NS: f64 = 10_000.0;

    pub(crate) fn new(wait: Wait) -> Self {
        Self { wait, goal_ns: Self::GOAL_NS, late_p99_ns: Self::GOAL_NS }
    }

    /// How long before a due time to stop sleeping, ns.
    #[inline]
    pub(crate) fn margin_ns(&self) -> u64 {
        match self.wait {
            Wait::Sleep => 0,
            Wait::Poll(ns) => ns,
            Wait::Spin => u64::MAX,
            Wait::Auto => (self.late_p99_ns + OWN_NS - self.goal_ns).clamp(0.0, LONGEST_NS) as u64,
        }
    }

    /// A sleep that was to end at `asked_ns` ended at `woke_ns`.
    #[inline]
    pub(crate) fn woke(&mut self, asked_ns: u64, woke_ns: u64) {
        let late = woke_ns.saturating_sub(asked_ns) as f64;
        if late > self.late_p99_ns {
            // One sleep that ended a second late must not make the next thousand poll.
            self.late_p99_ns = (self.late_p99_ns + 99.0 * STEP_NS).min(late);
        } else {
            self.late_p99_ns -= STEP_NS;
        }
        self.late_p99_ns = self.late_p99_ns.clamp(0.0, LONGEST_NS + self.goal_ns);
    }
}

/// Sleeps until a time, CLOCK_MONOTONIC ns; signals end it early.
pub(crate) fn sleep_until(ns: u64) {
    let time = libc::timespec { tv_sec: (ns / 1_000_000_000) as libc::time_t, tv_nsec: (ns % 1_000_000_000) as _ };
    // SAFETY: `time` lives over the call; no time is asked back.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const time, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 99th percentile of the lateness left, over sleeps that end late by an exponential with this mean.
    fn left_p99(mean_ns: f64) -> (u64, u64) {
        let mut pacer = Pacer::new(Wait::Auto);
        let (mut late, mut state) = (Vec::new(), 1_u64);
        for i in 0..60_000 {
            state = crate::rng::mix(state);
            let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
            let w = -(1.0 - uniform).ln() * mean_ns;
            let margin = pacer.margin_ns();
            pacer.woke(1_000_000_000, 1_000_000_000 + w as u64);
            if i >= 20_000 {
                late.push((w as u64).saturating_sub(margin));
            }
        }
        late.sort_unstable();
        (late[late.len() * 99 / 100], pacer.margin_ns())
    }

    #[test]
    fn good_timers_are_trusted() {
        assert_eq!(left_p99(1000.0).1, 0);
    }

    #[test]
    fn bad_timers_are_anticipated_up_to_the_goal() {
        let (late, margin) = left_p99(8000.0);
        assert!((6_000..=10_500).contains(&late), "{late}");
        assert!((25_000..=34_000).contains(&margin), "{margin}");
    }

    #[test]
    fn hopeless_timers_do_not_cost_the_core() {
        assert!(left_p99(1e6).1 <= LONGEST_NS as u64);
    }

    #[test]
    fn sleeping_ends_after_the_time() {
        let until = crate::now_ns() + 200_000;
        sleep_until(until);
        assert!(crate::now_ns() >= until);
    }
}
