//! Quantiles that are samples, and intervals whose ends are samples (Lancet §2.3, equations 1 and 2, without the normal
//! approximation).
//!
//! In: sorted samples of any unit. Out: order statistics of the same unit. No histogram, no interpolation, no average of
//! percentiles: pool the samples first. An interval that the sample cannot support is `None`, never a guess.

use serde::{Deserialize, Serialize};

use crate::special::{binomial_cdf, binomial_quantile};

/// A confidence interval whose ends are order statistics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end, a sample.
    pub lower: f64,
    /// Upper end, a sample.
    pub upper: f64,
    /// Rank of the lower end, 1 for the smallest.
    pub lower_rank: usize,
    /// Rank of the upper end.
    pub upper_rank: usize,
}

impl Interval {
    /// Upper less lower end.
    pub fn width(&self) -> f64 {
        self.upper - self.lower
    }
}

/// Sorts samples (by total order; NaN last).
pub fn sorted(mut samples: Vec<f64>) -> Vec<f64> {
    samples.sort_unstable_by(f64::total_cmp);
    samples
}

/// Rank (1 is the smallest) of the `q` quantile of `n` samples: the smallest at or below which a share of at least `q` lies.
pub fn rank(n: usize, q: f64) -> usize {
    // n q is meant to be whole where it is so in decimals: 10,000 × 0.99 must not become 9901 by a rounding error.
    ((n as f64 * q * (1.0 - 1e-12)).ceil() as usize).clamp(1, n.max(1))
}

/// The `q` quantile of sorted samples: an order statistic. `None` for no samples or a `q` outside of 0..=1.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    (!sorted.is_empty() && (0.0..=1.0).contains(&q)).then(|| sorted[rank(sorted.len(), q) - 1])
}

/// Ranks of the two-sided interval for the `q` quantile at confidence `level`: exact for independent samples, with at most
/// (1 − level)/2 of error on each side. `None` when `n` samples cannot support it.
pub fn interval_ranks(n: usize, q: f64, level: f64) -> Option<(usize, usize)> {
    if n == 0 || !(q > 0.0 && q < 1.0) || !(level > 0.0 && level < 1.0) {
        return None;
    }
    let side = (1.0 - level) / 2.0;
    // The lower end is above the quantile when fewer than `lower` samples are at or below it.
    let lower = binomial_quantile(side, n, q);
    let upper = binomial_quantile(1.0 - side, n, q) + 1;
    (lower >= 1 && upper <= n as i64).then_some((lower as usize, upper as usize))
}

/// The confidence interval of the `q` quantile of independent, sorted samples. `None` when the sample cannot support it.
pub fn interval(sorted: &[f64], q: f64, level: f64) -> Option<Interval> {
    let (lower_rank, upper_rank) = interval_ranks(sorted.len(), q, level)?;
    Some(at_ranks(sorted, lower_rank, upper_rank))
}

/// The same when the samples are dependent and know only as much as `effective_n` independent ones: the ranks are those of
/// that sample, scaled up, rounded outwards.
pub fn interval_effective(sorted: &[f64], q: f64, level: f64, effective_n: f64) -> Option<Interval> {
    let n = sorted.len();
    let whole_n = (effective_n.min(n as f64)).floor() as usize;
    let (lower, upper) = interval_ranks(whole_n, q, level)?;
    let scale = n as f64 / whole_n as f64;
    let lower = (lower as f64 * scale).floor().max(1.0) as usize;
    let upper = ((upper as f64 * scale).ceil() as usize).min(n);
    Some(at_ranks(sorted, lower, upper))
}

/// The interval between two ranks.
pub(crate) fn at_ranks(sorted: &[f64], lower_rank: usize, upper_rank: usize) -> Interval {
    Interval { lower: sorted[lower_rank - 1], upper: sorted[upper_rank - 1], lower_rank, upper_rank }
}

/// The probability that the interval between two ranks of `n` independent samples holds the `q` quantile.
pub fn coverage_of_ranks(n: usize, q: f64, lower_rank: usize, upper_rank: usize) -> f64 {
    binomial_cdf(upper_rank as i64 - 1, n, q) - binomial_cdf(lower_rank as i64 - 1, n, q)
}

/// Fewest independent samples for which [`interval`] exists.
pub fn samples_to_support(q: f64, level: f64) -> usize {
    let (mut low, mut high) = (0, 1);
    while interval_ranks(high, q, level).is_none() && high < 1 << 40 {
        low = high;
        high *= 2;
    }
    while high - low > 1 {
        let mid = low + (high - low) / 2;
        if interval_ranks(mid, q, level).is_some() { high = mid } else { low = mid }
    }
    high
}

/// How many values the percentile `q`, above 0 and below 1, needs to be reported, in every command: with fewer, an interval at 95 % has no
/// upper end among them.
#[must_use]
pub fn needed(q: f64) -> usize {
    samples_to_support(q, 0.95)
}

/// Samples needed for an interval `wanted` wide, projected from `n` samples whose interval is `width` wide: widths shrink
/// with the root of the number. At least `n`.
pub fn samples_for_width(n: usize, width: f64, wanted: f64) -> usize {
    if width <= wanted || wanted <= 0.0 {
        return n;
    }
    (n as f64 * (width / wanted).powi(2)).ceil().min(1e15) as usize
}

/// Samples needed for an interval `wanted` wide about the `q` quantile, from the density there: by Bahadur the quantile's
/// variance is q (1 − q) / (n f²), and the density f is the slope between the order statistics a `bandwidth` of ranks
/// (Bofinger) on either side. `None` when the sample has no neighbours there or they are all equal.
pub fn samples_for_width_by_density(sorted: &[f64], q: f64, level: f64, wanted: f64) -> Option<usize> {
    let n = sorted.len() as f64;
    let z = crate::special::normal_quantile(q);
    let phi = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let bandwidth =
        (n.powf(-0.2) * (4.5 * phi.powi(4) / (2.0 * z * z + 1.0).powi(2)).powf(0.2)).min(0.5 * (1.0 - q)).min(0.5 * q);
    let (low, high) = (quantile(sorted, q - bandwidth)?, quantile(sorted, q + bandwidth)?);
    let density = (high > low).then(|| 2.0 * bandwidth / (high - low))?;
    let deviations = 2.0 * crate::special::normal_quantile(0.5 + level / 2.0);
    let needed = q * (1.0 - q) * (deviations / (wanted * density)).powi(2);
    (needed.is_finite() && wanted > 0.0).then(|| (needed.ceil() as usize).max(samples_to_support(q, level)))
}

/// The key of a percentile: `p99.9`.
#[must_use]
pub fn name(q: f64) -> String {
    format!("p{}", (q * 1e8).round() / 1e6)
}
