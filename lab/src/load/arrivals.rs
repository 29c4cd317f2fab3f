//! The times at which requests are due. In: arrivals, rate, burst, seed. Out: CLOCK_MONOTONIC ns, rising.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Arrivals, Workload};

/// Draws one due time after the other.
pub(super) struct ArrivalClock {
    /// Kept as a float so that gaps below one ns do not vanish; exact to 1 ns for 104 days after `start`.
    offset_ns: f64,
    start_ns: u64,
    gap_ns: f64,
    poisson: bool,
    rng: SmallRng,
}

impl ArrivalClock {
    /// The clock of a workload that starts at `start_ns`; `None` for a closed loop, which has none.
    pub(super) fn new(workload: &Workload, start_ns: u64) -> Option<Self> {
        let poisson = match workload.arrivals {
            Arrivals::Poisson => true,
            Arrivals::Fixed => false,
            Arrivals::Closed(_) => return None,
        };
        let mut clock = Self {
            offset_ns: 0.0,
            start_ns,
            gap_ns: workload.pipeline_burst as f64 * 1e9 / workload.rate_per_s,
            poisson,
            rng: SmallRng::seed_from_u64(workload.seed),
        };
        if poisson {
            clock.advance();
        } else {
            // A phase of its own, or several fixed workloads would all be due at the same instants.
            clock.offset_ns = clock.rng.random::<f64>() * clock.gap_ns;
        }
        Some(clock)
    }

    /// When the next arrival is due.
    pub(super) fn due_ns(&self) -> u64 {
        self.start_ns + self.offset_ns as u64
    }

    /// Goes on to the arrival after it.
    pub(super) fn advance(&mut self) {
        self.offset_ns += if self.poisson { -(1.0 - self.rng.random::<f64>()).ln() * self.gap_ns } else { self.gap_ns };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Proto;

    fn gaps(arrivals: Arrivals, seed: u64, burst: usize) -> Vec<f64> {
        let mut workload = Workload::new(Proto::Resp, "127.0.0.1:1".parse().unwrap()).rate(10_000.0);
        workload.arrivals = arrivals;
        workload.seed = seed;
        workload.pipeline_burst = burst;
        let mut clock = ArrivalClock::new(&workload, 5_000_000_000).unwrap();
        let mut last = clock.due_ns();
        assert!(last >= 5_000_000_000);
        (0..100_000)
            .map(|_| {
                clock.advance();
                let gap = clock.due_ns() - last;
                last = clock.due_ns();
                gap as f64
            })
            .collect()
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
        let gaps = gaps(Arrivals::Poisson, 7, 1);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // 100,000 gaps: the standard error of the mean is 0.3 %.
        assert!((mean / 100_000.0 - 1.0).abs() < 0.015, "mean {mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "cv {}", variance.sqrt() / mean);
    }

    #[test]
    fn fixed_gaps_are_equal_and_bursts_are_rarer() {
        assert!(gaps(Arrivals::Fixed, 1, 1).iter().all(|g| (g - 100_000.0).abs() <= 1.0));
        assert!(gaps(Arrivals::Fixed, 1, 4).iter().all(|g| (g - 400_000.0).abs() <= 1.0));
    }

    #[test]
    fn a_seed_gives_the_same_times_again() {
        assert_eq!(gaps(Arrivals::Poisson, 3, 1), gaps(Arrivals::Poisson, 3, 1));
        assert_ne!(gaps(Arrivals::Poisson, 3, 1), gaps(Arrivals::Poisson, 4, 1));
    }
}
