//! How much CPU time looks at tasks may take: a hundredth of a core over a second, whenever in it; where a server is watched for long, half of
//! that.
//!
//! In: what each look took, and when. Out: how long until the next one. What is not taken is saved, up to [`MOST_SAVED`]: messages wait
//! seldom, and while one does every look counts.

use std::time::{Duration, Instant};

/// The time between two looks at the least.
pub(super) const EVERY: Duration = Duration::from_millis(2);
/// While a server is watched: each look wakes the recorder.
const WATCHED_EVERY: Duration = Duration::from_millis(8);
/// The time between two looks at most.
const MOST_APART: Duration = Duration::from_millis(100);
/// Looks may take this part of the recorder's core: one that took 20 us is paid for by 2 ms.
const SHARE_OF_CORE: u32 = 100;
/// And this one while a server is watched.
const WATCHED_SHARE: u32 = 200;
/// What is saved at most: that of a second.
const MOST_SAVED: Duration = Duration::from_millis(10);

/// CPU time that looks may take.
#[derive(Debug)]
pub(super) struct Allowance {
    /// A look is paid for by so many times the time that it took.
    share: u32,
    /// The time between two looks at the least.
    pub(super) every: Duration,
    saved: Duration,
    /// What was taken too early.
    debt: Duration,
    /// When that was known.
    at: Option<Instant>,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance { share: SHARE_OF_CORE, every: EVERY, saved: MOST_SAVED, debt: Duration::ZERO, at: None }
    }
}

impl Allowance {
    /// While a server is watched.
    pub(super) fn watched() -> Allowance {
        Allowance { share: WATCHED_SHARE, every: WATCHED_EVERY, ..Allowance::default() }
    }

    /// A look took so much CPU time and ended at `now`. How long until the next one.
    pub(super) fn take(&mut self, took: Duration, now: Instant) -> Duration {
        let earned = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at)) / self.share;
        let (has, owes) = (self.saved + earned, self.debt + took);
        self.saved = has.saturating_sub(owes).min(MOST_SAVED);
        // One that took longer than others, because names were read for the first time, does not keep the next ones away.
        self.debt = owes.saturating_sub(has).min(MOST_APART / self.share);
        self.at = Some(now);
        (self.debt * self.share).max(self.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks that take so much each, for so long: how many, and their CPU time.
    fn looks(allowance: &mut Allowance, mut now: Instant, took: Duration, period: Duration) -> (u32, Duration) {
        let (mut count, until) = (0, now + period);
        while now < until {
            now += allowance.take(took, now);
            count += 1;
        }
        (count, took * count)
    }

    #[test]
    fn a_message_that_waits_after_quiet_is_looked_at_as_often_as_is_possible() {
        let (mut allowance, now) = (Allowance::default(), Instant::now());
        // Nobody waits: 4 us each.
        let quiet = Duration::from_secs(1);
        let (count, _) = looks(&mut allowance, now, Duration::from_micros(4), quiet);
        assert_eq!(count, 500);
        // One waits for 20 ms, and a look takes 200 us: with no savings that is one look in 20 ms.
        let (count, _) = looks(&mut allowance, now + quiet, Duration::from_micros(200), Duration::from_millis(20));
        assert_eq!(count, 10);
    }

    #[test]
    fn looks_that_never_end_take_a_hundredth_of_a_core_and_what_was_saved() {
        for us in [5, 20, 60, 200, 900] {
            let period = Duration::from_secs(20);
            let (_, cpu) = looks(&mut Allowance::default(), Instant::now(), Duration::from_micros(us), period);
            assert!(cpu <= period / SHARE_OF_CORE + MOST_SAVED + Duration::from_micros(us), "{us} us: {cpu:?}");
        }
    }

    #[test]
    fn one_long_look_does_not_keep_the_next_away_for_long() {
        let mut allowance = Allowance::default();
        assert_eq!(allowance.take(Duration::from_millis(80), Instant::now()), MOST_APART);
    }
}
