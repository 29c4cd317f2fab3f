//! When every request of a thread is due. In: arrivals, a rate, a seed, the thread. Out: ns from the start, rising.
//!
//! All threads draw the one sequence of the whole load and take every n-th time of it, so the stream that the server sees
//! has exactly the distribution asked for, whatever the number of threads, and one seed always gives the same schedule.

use std::sync::Arc;

use crate::rng::{Purpose, stream};
use crate::{Arrivals, LoadError, Rate, replay};
use tailsight_stats::arrivals::Gaps;

/// Due times in rising order; ends only when a replay does, or a rate stays at zero.
#[derive(Debug, Clone)]
pub struct Schedule {
    source: Source,
    stride: usize,
    /// Times of the whole load to leave out before this thread's next one.
    skip: usize,
}

#[derive(Debug, Clone)]
enum Source {
    /// Gaps in units of the mean gap, which is that of `burst` requests.
    Drawn {
        gaps: Box<Gaps>,
        rate: Rate,
        burst: f64,
        at: f64,
    },
    Replayed {
        times: Arc<[u64]>,
        next: usize,
    },
}

impl Schedule {
    /// The schedule of the whole load; `None` for a closed loop, which has none.
    ///
    /// # Errors
    /// [`LoadError::Replay`] when the replay file cannot be used.
    pub fn new(arrivals: &Arrivals, rate: &Rate, seed: u64) -> Result<Option<Self>, LoadError> {
        Self::in_bursts(arrivals, rate, 1, seed)
    }

    /// The same when `burst` requests are due at each of its times, at the same rate of requests. A replay's times stay.
    ///
    /// # Errors
    /// As [`Schedule::new`].
    pub fn in_bursts(arrivals: &Arrivals, rate: &Rate, burst: u32, seed: u64) -> Result<Option<Self>, LoadError> {
        let burst = f64::from(burst.max(1));
        let source = match arrivals {
            Arrivals::Closed(_) | Arrivals::Batch(_) => return Ok(None),
            Arrivals::Replay(path) => Source::Replayed { times: replay::read(path)?.into(), next: 0 },
            Arrivals::Drawn(process) => {
                let mean = match rate {
                    Rate::Diurnal { low, high, .. } => f64::midpoint(*low, *high),
                    _ => rate.peak(),
                };
                let gaps = Gaps::new(process, mean / burst, stream(seed, Purpose::Arrivals, 0));
                Source::Drawn { gaps: Box::new(gaps), rate: rate.clone(), burst, at: 0.0 }
            }
        };
        Ok(Some(Self { source, stride: 1, skip: 0 }))
    }

    /// The part of one thread: times `thread`, `thread + threads`, … of the whole.
    #[must_use]
    pub fn part(&self, thread: usize, threads: usize) -> Self {
        Self { source: self.source.clone(), stride: threads, skip: thread }
    }

    fn next_of_all(&mut self) -> Option<u64> {
        match &mut self.source {
            Source::Drawn { gaps, rate, burst, at } => {
                *at = rate.advance(*at, *burst * gaps.next_gap());
                // Beyond 2^62 ns (146 years) means never; so does infinity.
                (*at < 4.6e18).then_some(*at as u64)
            }
            Source::Replayed { times, next } => {
                let time = times.get(*next).copied();
                *next += 1;
                time
            }
        }
    }
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        for _ in 0..self.skip {
            self.next_of_all()?;
        }
        self.skip = self.stride - 1;
        self.next_of_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schedule(arrivals: &str, rate: &str, seed: u64) -> Schedule {
        Schedule::new(&arrivals.parse().unwrap(), &rate.parse().unwrap(), seed).unwrap().unwrap()
    }

    proptest! {
        /// The parts of the threads, merged, are the whole, for any number of threads and any process.
        #[test]
        fn threads_share_one_schedule(threads in 1..9_usize, seed: u64, which in 0..4_usize) {
            let arrivals = ["fixed", "exponential", "pareto:1.5", "mmpp:8,0.1,1ms"][which];
            let whole = schedule(arrivals, "ramp:1k..50k/1s", seed);
            let mut merged: Vec<u64> = (0..threads).flat_map(|t| whole.part(t, threads).take(200)).collect();
            merged.sort_unstable();
            let direct: Vec<u64> = whole.clone().take(200 * threads).collect();
            prop_assert!(direct.is_sorted());
            prop_assert_eq!(merged, direct);
        }
    }

    #[test]
    fn a_seed_gives_the_same_times_and_another_gives_others() {
        let times = |seed| schedule("exponential", "10k", seed).take(1000).collect::<Vec<_>>();
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn bursts_are_rarer_and_keep_the_rate() {
        let times = |burst| -> Vec<u64> {
            let (arrivals, rate) = ("fixed".parse().unwrap(), "10k".parse().unwrap());
            Schedule::in_bursts(&arrivals, &rate, burst, 3).unwrap().unwrap().take(1000).collect()
        };
        assert_eq!(times(1)[999] - times(1)[0], 99_900_000);
        assert_eq!(times(4)[999] - times(4)[0], 399_600_000);
    }

    #[test]
    fn the_rate_is_kept() {
        let end = schedule("exponential", "50k", 3).nth(500_000).unwrap();
        assert!((end as f64 / 10e9 - 1.0).abs() < 0.01, "{end}");
    }
}
