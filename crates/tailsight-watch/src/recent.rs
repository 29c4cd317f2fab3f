//! Latencies of the last minutes: the sum of some slices of time, the oldest of which is forgotten as a new one begins.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::latencies::LatencyCounts;

/// How long a slice is.
const SLICE: Duration = Duration::from_secs(15);
/// How many there are: five minutes.
const SLICES: usize = 20;

/// Latencies of the last minutes.
#[derive(Clone, Debug)]
pub struct Recent {
    /// What was counted when each slice began, the oldest first.
    begins: VecDeque<(Instant, LatencyCounts)>,
    now: LatencyCounts,
}

impl Recent {
    /// From now on. `counted`: what was counted before.
    pub fn new(now: Instant, counted: LatencyCounts) -> Recent {
        Recent { begins: VecDeque::from([(now, counted.clone())]), now: counted }
    }

    /// Takes in what is counted by now.
    pub fn take(&mut self, now: Instant, counted: LatencyCounts) {
        if self.begins.back().is_none_or(|(began, _)| now.duration_since(*began) >= SLICE) {
            self.begins.push_back((now, counted.clone()));
            while self.begins.len() > SLICES {
                self.begins.pop_front();
            }
        }
        self.now = counted;
    }

    /// The latencies of the last minutes.
    pub fn counts(&self) -> LatencyCounts {
        self.begins.front().map_or_else(LatencyCounts::default, |(_, begin)| self.now.since(begin))
    }

    /// All that was counted.
    pub fn all(&self) -> &LatencyCounts {
        &self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latencies::Leg;

    #[test]
    fn what_was_slow_some_minutes_ago_is_forgotten() {
        let began = Instant::now();
        let mut counted = LatencyCounts::default();
        let mut recent = Recent::new(began, counted.clone());
        for second in 1..=600 {
            let ns = if second < 200 { 50_000_000 } else { 1_000_000 };
            (0..10).for_each(|_| counted.add(Leg::Total, ns));
            recent.take(began + Duration::from_secs(second), counted.clone());
        }
        let counts = recent.counts();
        let seconds = counts.messages() / 10;
        assert!((270..=300).contains(&seconds), "{seconds} s are kept");
        assert!(counts.quantile(Leg::Total, 0.999).is_some_and(|ns| ns < 2_000_000));
        assert_eq!(recent.all().messages(), 6_000);
    }
}
