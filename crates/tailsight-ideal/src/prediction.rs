//! From replayed latencies to percentiles with intervals.
//!
//! In: latencies as measured, as replayed with nothing removed, and as replayed without some causes, ns, in order of arrival. Out:
//! percentiles, ns, each with an interval.
//!
//! A message that the causes hardly affected keeps its measured latency, scaled by the replay. One that they made more than twice as
//! slow has the latency of the replay. If the replay with nothing removed and the measurement differ by more than a factor of two, the
//! message was not served in order of arrival: then the replay's result for all messages served in one busy period decides. The
//! interval is for what another recording of the same length would measure without the causes: from resampled blocks of consecutive
//! messages (slow ones come in bursts), widened by the square root of two because that recording varies as much as this one, by what two
//! recordings differ by that no single one shows ([`BETWEEN_RECORDINGS`]), and by the error of the replay with nothing removed, to the extent that
//! the messages at the percentile were replayed.

use std::collections::BTreeMap;

use crate::queue::{Percentile, Sorted, rng};
use rand::RngExt;
use tailsight_stats::quantile::{name, rank};

/// Latencies without some causes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// Percentiles, ns; those that so few messages do not carry are absent.
    pub latency_ns: BTreeMap<String, u64>,
    /// An interval of each at 95 %, ns.
    pub ci95_ns: BTreeMap<String, [u64; 2]>,
}

/// Resamples, and blocks of messages in each.
const ROUNDS: usize = 200;
const BLOCKS: usize = 128;
/// Ranks are counted in bins: so many to a factor of ten in the distance from the maximum.
const BINS: usize = 64;
/// Standard deviation of the logarithm of the ratio of two recordings' p50, p90 or p99, of the same server under the same load a few minutes
/// apart: the core's speed, and where things are in memory. Measured in the lab, on one virtual machine (docs/ideal.md).
const BETWEEN_RECORDINGS: f64 = 0.17;
/// At the percentile: from so many times the part above it before to as many behind.
const AROUND_PERCENTILE: f64 = 2.0;

/// Latencies as measured and as replayed with everything in place, ready to be compared with those without causes.
#[derive(Clone, Debug, Default)]
pub struct Base {
    measured: Vec<u64>,
    replayed: Vec<u64>,
    /// The busy period that each was served in.
    periods: Vec<u32>,
    /// Percentiles that the messages carry, each with how far the replay is off.
    percentiles: Vec<(f64, f64)>,
    seed: u64,
}

impl Base {
    /// Of messages in order of arrival, for these percentiles.
    #[must_use]
    pub fn new(measured: Vec<u64>, replayed: Vec<u64>, periods: Vec<u32>, percentiles: &[f64], seed: u64) -> Self {
        let [of_measured, of_replayed] = [&measured, &replayed].map(|ns| Sorted::new(ns.clone()));
        let off = |q: &f64| match (of_measured.percentile(*q), of_replayed.percentile(*q)) {
            (Percentile::Value(measured), Percentile::Value(replayed)) => {
                Some((*q, measured.max(1) as f64 / replayed.max(1) as f64))
            }
            _ => None,
        };
        let percentiles = percentiles.iter().filter_map(off).collect();
        Self { measured, replayed, periods, percentiles, seed }
    }

    /// As replayed with everything in place, ns.
    #[must_use]
    pub fn replayed(&self) -> &[u64] {
        &self.replayed
    }

    /// What each message's latency would have been, ns.
    #[must_use]
    pub fn merged(&self, without: &[u64]) -> Vec<u64> {
        let mut sums = vec![(0_u64, 0_u64); self.periods.iter().max().map_or(0, |last| *last as usize + 1)];
        for ((period, replayed), without) in self.periods.iter().zip(&self.replayed).zip(without) {
            let (replayed_sum, left) = &mut sums[*period as usize];
            (*replayed_sum, *left) = (*replayed_sum + replayed, *left + without);
        }
        let scaled = |ns: u64, to: u64, of: u64| (u128::from(ns) * u128::from(to) / u128::from(of.max(1))) as u64;
        let merged_ns = |i: usize| {
            let (measured, replayed, without) = (self.measured[i], self.replayed[i], without[i]);
            let fits = measured / 2 <= replayed && replayed / 2 <= measured;
            let (with, left) = if fits { (replayed, without) } else { sums[self.periods[i] as usize] };
            match () {
                () if left == with => measured,
                () if is_replayed(with, left) => without,
                () => scaled(measured, left, with),
            }
        };
        (0..self.measured.len()).map(merged_ns).collect()
    }

    /// The percentiles of `merged`, and how sure they are.
    #[must_use]
    pub fn prediction(&self, without: &[u64]) -> Prediction {
        let latencies = self.merged(without);
        let mut out = Prediction::default();
        if self.percentiles.is_empty() {
            return out;
        }
        let mut sorted = latencies.clone();
        sorted.sort_unstable();
        let of_this = self.intervals(&latencies, &sorted);
        for ((q, off), [low, high]) in self.percentiles.iter().zip(of_this) {
            let estimate = sorted[rank(sorted.len(), *q) - 1];
            let off = off.powf(self.part_replayed(&latencies, &sorted, *q, without));
            let middle = estimate.max(1) as f64;
            // Logarithms: independent errors add up as their squares do.
            let wider = |end: u64| {
                let messages = 2.0 * (end.max(1) as f64 / middle).ln().powi(2);
                (messages + (1.96 * BETWEEN_RECORDINGS).powi(2)).sqrt().exp()
            };
            let ends = [middle / wider(low) * off.min(1.0), middle * wider(high) * off.max(1.0)];
            out.latency_ns.insert(name(*q), estimate);
            out.ci95_ns.insert(name(*q), ends.map(|ns| ns.round() as u64));
        }
        out
    }

    /// For each percentile, the interval at 95 % that resampled messages of this recording alone give, ns.
    fn intervals(&self, latencies: &[u64], sorted: &[u64]) -> Vec<[u64; 2]> {
        let interval = |mut drawn: Vec<u64>| {
            drawn.sort_unstable();
            [ROUNDS / 40, ROUNDS - 1 - ROUNDS / 40].map(|i| drawn[i])
        };
        self.resampled(latencies, sorted).into_iter().map(interval).collect()
    }

    /// Of the messages around a percentile, the part that were replayed.
    fn part_replayed(&self, latencies: &[u64], sorted: &[u64], q: f64, without: &[u64]) -> f64 {
        let n = sorted.len();
        let at = |q: f64| sorted[((n as f64 * q).max(0.0) as usize).min(n - 1)];
        let around = at(1.0 - AROUND_PERCENTILE * (1.0 - q))..=at(1.0 - (1.0 - q) / AROUND_PERCENTILE);
        let (mut messages, mut replayed) = (0_u32, 0_u32);
        for ((ns, replayed_ns), without) in latencies.iter().zip(&self.replayed).zip(without) {
            let is = around.contains(ns);
            messages += u32::from(is);
            replayed += u32::from(is && is_replayed(*replayed_ns, *without));
        }
        f64::from(replayed) / f64::from(messages.max(1))
    }

    /// For each percentile, what it is in resamples of the messages in whole blocks of neighbours, ns.
    fn resampled(&self, latencies: &[u64], sorted: &[u64]) -> Vec<Vec<u64>> {
        let n = latencies.len();
        let edges = edges(sorted);
        let bins = edges.len() - 1;
        let least: Vec<u64> = edges[..bins].iter().map(|edge| sorted[*edge]).collect();
        let blocks = BLOCKS.min(n);
        let mut counts = vec![0_u32; blocks * bins];
        for (i, ns) in latencies.iter().enumerate() {
            let bin = least.partition_point(|least| least <= ns) - 1;
            counts[i * blocks / n * bins + bin] += 1;
        }
        let mut random = rng(self.seed, 5);
        let mut out = vec![Vec::with_capacity(ROUNDS); self.percentiles.len()];
        let mut sum = vec![0_u32; bins];
        for _ in 0..ROUNDS {
            sum.fill(0);
            for _ in 0..blocks {
                let block = random.random_range(0..blocks) * bins;
                sum.iter_mut().zip(&counts[block..]).for_each(|(sum, n)| *sum += n);
            }
            let drawn: u32 = sum.iter().sum();
            for (values, (q, _)) in out.iter_mut().zip(&self.percentiles) {
                let mut left = rank(drawn as usize, *q);
                // Within a bin as far as its part is needed.
                let quantile = sum.iter().zip(edges.windows(2)).find_map(|(n, edge)| {
                    if left <= *n as usize {
                        let inside = (edge[1] - edge[0]) as f64 * left as f64 / f64::from(*n);
                        return Some((edge[0] + inside as usize).min(edge[1] - 1));
                    }
                    left -= *n as usize;
                    None
                });
                values.push(sorted[quantile.unwrap_or(n - 1)]);
            }
        }
        out
    }
}

fn is_replayed(replayed: u64, without: u64) -> bool {
    without * 2 < replayed
}

/// Edges of bins of ranks, from 0 to all: as fine before the maximum as percentiles are far out there. Equal values are in one bin.
fn edges(sorted: &[u64]) -> Vec<usize> {
    let n = sorted.len();
    let mut above = n as f64;
    let mut out = vec![0];
    while above > 1.0 {
        above /= 10_f64.powf(1.0 / BINS as f64);
        let edge = n - (above as usize).min(n);
        let edge = if edge < n { sorted.partition_point(|ns| *ns < sorted[edge]) } else { n };
        if out.last().is_some_and(|last| *last < edge) {
            out.push(edge);
        }
    }
    if out.last() != Some(&n) {
        out.push(n);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(measured: &[u64], replayed: &[u64], q: &[f64]) -> Base {
        Base::new(measured.to_vec(), replayed.to_vec(), (0..measured.len() as u32).collect(), q, 1)
    }

    #[test]
    fn what_a_cause_hardly_touched_keeps_its_measured_latency() {
        let base = base(&[100, 110, 500, 80], &[100, 100, 400, 90], &[]);
        assert_eq!(base.merged(&[100, 90, 60, 0]), [100, 99, 60, 0]);
    }

    /// Served in one busy period, the first arrival last: taken together the cause was nearly all, or hardly anything.
    #[test]
    fn what_was_served_out_of_order_is_judged_with_its_stretch() {
        let base = Base::new(vec![1000, 100, 20], vec![100, 1000, 20], vec![1, 1, 2], &[], 1);
        assert_eq!(base.merged(&[100, 10, 20]), [100, 10, 20]);
        assert_eq!(base.merged(&[100, 890, 20]), [900, 90, 20]);
    }

    #[test]
    fn edges_are_all_ranks_once_and_fine_at_the_top() {
        for n in [1, 2, 10, 1000, 123_456] {
            let edges = edges(&(0..n).collect::<Vec<u64>>());
            assert_eq!((edges.first(), edges.last()), (Some(&0), Some(&(n as usize))));
            assert!(edges.windows(2).all(|w| w[0] < w[1]), "{n}");
        }
        let fine = edges(&(0..100_000).collect::<Vec<u64>>());
        assert!(fine.windows(2).filter(|w| w[0] >= 99_000).all(|w| w[1] - w[0] <= 40) && fine.len() < 400);
        assert_eq!(edges(&[7; 1000]), [0, 1000], "equal values are in one bin");
    }

    /// Independent latencies: the interval of a percentile is that of order statistics.
    #[test]
    fn the_interval_of_independent_messages_is_that_of_theory() {
        let n = 40_000;
        let mut random = rng(3, 1);
        // Uniform up to 1 ms: the standard error of the median is 0.5 / sqrt(n) of it, 2.5 us.
        let ns: Vec<u64> = (0..n).map(|_| random.random_range(0..1_000_000)).collect();
        let predicted = base(&ns, &ns, &[0.5, 0.99]).prediction(&ns);
        let mut sorted = ns.clone();
        sorted.sort_unstable();
        let [low, high] = base(&ns, &ns, &[0.5]).intervals(&ns, &sorted)[0];
        let half = (high - low) as f64 / 2.0;
        let theory = 1.96 * 2500.0;
        assert!((half / theory - 1.0).abs() < 0.35, "{half} for {theory}");
        // Of another recording: both vary, and what no recording shows is more than that here.
        let expected = (2.0 * (theory / 500_000.0).powi(2) + (1.96 * BETWEEN_RECORDINGS).powi(2)).sqrt().exp();
        let ratio = predicted.ci95_ns["p50"][1] as f64 / predicted.latency_ns["p50"] as f64;
        assert!((ratio / expected - 1.0).abs() < 0.01, "{ratio} for {expected}");
        assert!((985_000..995_000).contains(&predicted.latency_ns["p99"]));
        assert!(
            predicted.ci95_ns["p99"][0] < predicted.latency_ns["p99"]
                && predicted.latency_ns["p99"] < predicted.ci95_ns["p99"][1]
        );
        assert!(base(&ns[..10], &ns[..10], &[0.99]).prediction(&ns[..10]).latency_ns.is_empty(), "too few");
    }

    /// Bursts: a few blocks have all slow messages, so a percentile among them is known badly.
    #[test]
    fn slow_messages_that_come_together_make_the_interval_wide() {
        let together: Vec<u64> =
            (0..40_000).map(|i| if i / 200 % 50 == 0 { 1000 + 10 * (i % 200) } else { 10 + i % 7 }).collect();
        let apart: Vec<u64> =
            (0..40_000).map(|i| if i % 50 == 0 { 1000 + 10 * (i / 50 % 200) } else { 10 + i % 7 }).collect();
        let width = |ns: &[u64]| {
            let mut sorted = ns.to_vec();
            sorted.sort_unstable();
            let [low, high] = base(ns, ns, &[0.99]).intervals(ns, &sorted)[0];
            high - low
        };
        assert!(width(&together) > 3 * width(&apart), "{} {}", width(&together), width(&apart));
    }

    /// A replay that is twice too fast with everything in place is not trusted where messages were replayed.
    #[test]
    fn a_replay_that_does_not_fit_makes_the_interval_wide() {
        let base = base(&[1000; 4000], &[500; 4000], &[0.5]);
        let predicted = base.prediction(&[100; 4000]);
        let between = (1.96 * BETWEEN_RECORDINGS).exp();
        let around = |ns: f64, off: f64| [ns / between, ns * off * between].map(|ns| ns.round() as u64);
        assert_eq!((predicted.latency_ns["p50"], predicted.ci95_ns["p50"]), (100, around(100.0, 2.0)));
        let untouched = base.prediction(&[500; 4000]);
        assert_eq!((untouched.latency_ns["p50"], untouched.ci95_ns["p50"]), (1000, around(1000.0, 1.0)));
    }
}
