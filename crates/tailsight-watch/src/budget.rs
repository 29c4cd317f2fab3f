//! Whether a capture may be made now: one in so long, so many in an hour.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// How many captures may be made.
#[derive(Clone, Debug)]
pub struct Budget {
    every: Duration,
    per_hour: usize,
    /// Those of the last hour.
    made: VecDeque<Instant>,
}

/// Why no capture is made of a slow message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// The last one was a short time ago.
    TooSoon,
    /// There were as many as may be in an hour.
    ThisHour,
}

impl Budget {
    /// At most one in `every`, and `per_hour` in an hour.
    pub fn new(every: Duration, per_hour: usize) -> Budget {
        Budget { every, per_hour, made: VecDeque::new() }
    }

    /// Whether a capture may be made at this time.
    ///
    /// # Errors
    /// Why not.
    pub fn may_capture(&mut self, now: Instant) -> Result<(), Refused> {
        while self.made.front().is_some_and(|made| now.duration_since(*made) >= HOUR) {
            self.made.pop_front();
        }
        if self.made.back().is_some_and(|made| now.duration_since(*made) < self.every) {
            return Err(Refused::TooSoon);
        }
        if self.made.len() >= self.per_hour { Err(Refused::ThisHour) } else { Ok(()) }
    }

    /// One was made.
    pub fn made(&mut self, now: Instant) {
        self.made.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn captures_are_apart_and_so_many_in_an_hour() {
        let start = Instant::now();
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let mut budget = Budget::new(Duration::from_secs(60), 3);
        for minute in [0, 1, 2] {
            assert_eq!(budget.may_capture(at(minute)), Ok(()));
            budget.made(at(minute));
            assert_eq!(budget.may_capture(at(minute) + Duration::from_secs(59)), Err(Refused::TooSoon));
        }
        assert_eq!(budget.may_capture(at(59)), Err(Refused::ThisHour));
        assert_eq!(budget.may_capture(at(60)), Ok(()), "the first is an hour ago");
    }

    proptest! {
        /// Whenever slow messages come, no hour has more captures than it may, and no two are too close.
        #[test]
        fn no_hour_has_more_than_it_may(gaps in prop::collection::vec(0u64..600, 1..400), per_hour in 1usize..30) {
            let start = Instant::now();
            let every = Duration::from_secs(30);
            let mut budget = Budget::new(every, per_hour);
            let (mut now, mut made) = (start, vec![]);
            for gap in gaps {
                now += Duration::from_secs(gap);
                if budget.may_capture(now).is_ok() {
                    budget.made(now);
                    made.push(now);
                }
            }
            prop_assert!(made.windows(2).all(|pair| pair[1] - pair[0] >= every));
            prop_assert!(made.windows(per_hour + 1).all(|window| window[per_hour] - window[0] >= HOUR));
        }
    }
}
