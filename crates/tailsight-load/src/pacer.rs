//! Waiting for the next due time. In: how late sleeps ended lately. Out: how long before the due time to wake and poll.
//!
//! Polling costs CPU time, sleeping costs lateness. A sleep that ends `w` late, begun to end `m` early, makes the request
//! `max(0, w - m)` late and costs `max(0, m - w)` of polling. So the cheapest `m` that keeps the 99th percentile of the
//! lateness at the goal is the 99th percentile of `w` minus the goal, and zero where timers are good.

use crate::Wait;

/// The lateness of a request even when the thread is awake (reading the clock, writing the request, sending the one before),
/// ns.
const OWN_NS: f64 = 2_000.0;
/// Polling longer than this before each request costs more than it gains, ns.
const LONGEST_NS: f64 = 50_000.0;
/// A sleep that ends later than this was delayed by other work on the core, not by the timer; polling does not help, ns.
const OTHERS_NS: f64 = 100_000.0;
/// A pause that leaves less than this to sleep is polled through, ns.
const WORTH_SLEEPING_NS: f64 = 5_000.0;
/// How far the estimate moves down at each request; it moves up 99 times as far, so that it rests at the percentile.
const STEP_NS: f64 = 25.0;

/// Learns how late sleeps end.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    wait: Wait,
    goal_ns: f64,
    /// The estimated 99th percentile over requests of how late the sleep before each ended; without a sleep it was not late.
    late_p99_ns: f64,
    /// How late sleeps end on average.
    late_ns: f64,
}

impl Pacer {
    /// The lateness that `auto` aims at (p99), ns.
    pub(crate) const GOAL_NS: f64 = 8_000.0;

    pub(crate) fn new(wait: Wait) -> Self {
        Self { wait, goal_ns: Self::GOAL_NS, late_p99_ns: Self::GOAL_NS, late_ns: 0.0 }
    }

    /// How long before a due time to stop sleeping, ns.
    #[inline]
    pub(crate) fn margin_ns(&self) -> u64 {
        match self.wait {
            Wait::Sleep | Wait::Batch(_) => 0,
            Wait::Poll(ns) => ns,
            Wait::Spin => u64::MAX,
            Wait::Auto => (self.late_p99_ns + OWN_NS - self.goal_ns).clamp(0.0, LONGEST_NS) as u64,
        }
    }

    /// What must be left to sleep, ns, before the wake-up, for a sleep to be worth it. Measured: a timed sleep costs 1 us of
    /// CPU time on bare metal and up to 14 us in virtual machines, where it also ends about that much too late.
    #[inline]
    pub(crate) fn worth_ns(&self) -> u64 {
        match self.wait {
            Wait::Sleep | Wait::Batch(_) => 0,
            _ => (self.late_ns + OWN_NS - self.margin_ns() as f64).max(WORTH_SLEEPING_NS) as u64,
        }
    }

    /// From now on a thread with `auto` polls all the time.
    pub(crate) fn be_punctual(&mut self) {
        if self.wait == Wait::Auto {
            self.wait = Wait::Spin;
        }
    }

    /// How long a thread with nothing due collects requests before it looks again, ns.
    #[inline]
    pub(crate) fn gather_ns(&self) -> u64 {
        match self.wait {
            Wait::Batch(ns) => ns,
            _ => 0,
        }
    }

    /// A request was due soon enough to poll for it.
    #[inline]
    pub(crate) fn stayed_awake(&mut self) {
        self.late_p99_ns = (self.late_p99_ns - STEP_NS).max(0.0);
    }

    /// A sleep that was to end at `asked_ns` ended at `woke_ns`.
    #[inline]
    pub(crate) fn woke(&mut self, asked_ns: u64, woke_ns: u64) {
        let late = woke_ns.saturating_sub(asked_ns) as f64;
        if late > OTHERS_NS {
            return;
        }
        self.late_ns += (late - self.late_ns) / 64.0;
        if late > self.late_p99_ns {
            // One late sleep must not make the next thousand poll.
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
        assert!((4_000..=8_500).contains(&late), "{late}");
        assert!((27_000..=36_000).contains(&margin), "{margin}");
    }

    #[test]
    fn a_sleep_must_be_longer_than_it_costs() {
        let mut pacer = Pacer::new(Wait::Auto);
        assert_eq!(pacer.worth_ns(), 5_000);
        // Few requests are slept for, so no margin is needed, and the cost of a sleep decides.
        for i in 0..60_000_u64 {
            if i % 200 == 0 { pacer.woke(1_000_000_000, 1_000_014_000) } else { pacer.stayed_awake() }
        }
        assert_eq!(pacer.margin_ns(), 0);
        assert!((15_000..=16_000).contains(&pacer.worth_ns()), "{}", pacer.worth_ns());
        assert_eq!(Pacer::new(Wait::Sleep).worth_ns(), 0);
    }

    /// Regression: on hosts whose sleeps end late the run was N/A although polling was possible.
    #[test]
    fn only_an_auto_thread_is_made_to_poll() {
        for (wait, margin) in [(Wait::Auto, u64::MAX), (Wait::Sleep, 0), (Wait::Poll(7), 7), (Wait::Batch(9), 0)] {
            let mut pacer = Pacer::new(wait);
            pacer.be_punctual();
            assert_eq!(pacer.margin_ns(), margin, "{wait}");
        }
        assert_eq!((Pacer::new(Wait::Batch(9)).gather_ns(), Pacer::new(Wait::Sleep).gather_ns()), (9, 0));
    }

    #[test]
    fn hopeless_timers_do_not_cost_the_core() {
        assert!(left_p99(1e6).1 <= LONGEST_NS as u64);
    }

    /// Regression: a core shared with other work made the thread poll 50 us before each request, and be as late as before.
    #[test]
    fn what_others_take_is_not_polled_for() {
        let mut pacer = Pacer::new(Wait::Auto);
        for i in 0..20_000_u64 {
            let late = if i % 20 == 0 { 2_000_000 } else { 9_000 };
            pacer.woke(1_000_000_000, 1_000_000_000 + late);
        }
        assert!(pacer.margin_ns() < 5_000, "{}", pacer.margin_ns());
    }

    #[test]
    fn sleeping_ends_after_the_time() {
        let until = crate::now_ns() + 200_000;
        sleep_until(until);
        assert!(crate::now_ns() >= until);
    }
}
