//! Is a percentile of this run different from that of another, and is it below a limit?
//!
//! In: samples of two runs (independent, or in time order with a block length), or one run and a limit. Out: p-value,
//! difference and its interval; a confidence. Units are those of the samples.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::effective::effective_size_at;
use crate::quantile::{quantile, rank, sorted};
use crate::random::{Random, mix};
use crate::self_normalised;
use crate::special::binomial_cdf;

/// Two runs compared at a percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Percentile of the first less that of the second.
    pub difference: f64,
    /// Lower end of the interval of the difference.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
    /// Two-sided p-value of "both are from one distribution", by permutation; not below 1/(resamples + 1).
    pub p_value: f64,
    /// One-sided p-value against "the first is not larger": small when the first is worse.
    pub p_larger: f64,
    /// Permutations, and resamples of the interval.
    pub resamples: usize,
}

/// Permutation test of the difference of the `q` quantile, with a bootstrap interval at `level`, for independent samples.
pub fn permutation_test(
    a: &[f64],
    b: &[f64],
    q: f64,
    level: f64,
    resamples: usize,
    seed: u64,
) -> Result<Comparison, Error> {
    let (ordered_a, ordered_b) = (checked(a)?, checked(b)?);
    let observed = difference(&ordered_a, &ordered_b, q)?;
    let mut pooled = [a, b].concat();
    pooled.sort_unstable_by(f64::total_cmp);
    let mut random = Random::new(mix(seed, 1));
    let differences = (0..resamples).map(|_| independent_split(&pooled, a.len(), q, &mut random));
    let (p_value, p_larger) = p_values(observed, differences, resamples);
    let (lower, upper) = difference_interval(&ordered_a, &ordered_b, q, level, (1.0, 1.0), resamples, seed);
    Ok(Comparison { difference: observed, lower, upper, p_value, p_larger, resamples })
}

/// The same for dependent samples in time order: whole blocks of `block` samples change sides, and the interval is that of the
/// effective sample sizes, by batches or by their own partial sums, whichever is smaller. What does not fill a block is left out.
pub fn block_permutation_test(
    a: &[f64],
    b: &[f64],
    q: f64,
    level: f64,
    block: usize,
    resamples: usize,
    seed: u64,
) -> Result<Comparison, Error> {
    let block = block.max(1);
    let (a, b) = (&a[..a.len() / block * block], &b[..b.len() / block * block]);
    let (ordered_a, ordered_b) = (checked(a)?, checked(b)?);
    let observed = difference(&ordered_a, &ordered_b, q)?;
    let mut pooled: Vec<(f64, usize)> = a.iter().chain(b).enumerate().map(|(i, x)| (*x, i / block)).collect();
    pooled.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    let (blocks_a, blocks) = (a.len() / block, pooled.len() / block);
    let mut first: Vec<bool> = (0..blocks).map(|i| i < blocks_a).collect();
    let mut random = Random::new(mix(seed, 1));
    let differences = (0..resamples).map(|_| {
        random.shuffle(&mut first);
        let labelled = pooled.iter().rev().map(|(x, block)| (*x, first[*block]));
        split_difference(labelled, a.len(), b.len(), q)
    });
    let (p_value, p_larger) = p_values(observed, differences, resamples);
    // A neighbour that comes and goes within a run makes its own percentile uncertain, which the run's partial sums show.
    let shrink = |series: &[f64], ordered: &[f64]| {
        let threshold = quantile(ordered, q).unwrap_or(f64::NAN);
        let by_batches = effective_size_at(series, threshold, level).map(|e| e.interval_n);
        let by_itself = self_normalised::effective_size(series, threshold, level);
        by_batches.into_iter().chain(by_itself).fold(series.len() as f64, f64::min) / series.len() as f64
    };
    let shrinks = (shrink(a, &ordered_a), shrink(b, &ordered_b));
    let (lower, upper) = difference_interval(&ordered_a, &ordered_b, q, level, shrinks, resamples, seed);
    Ok(Comparison { difference: observed, lower, upper, p_value, p_larger, resamples })
}

/// Confidence that the `q` quantile is below `limit`, from independent samples, exact: the level at which the one-sided upper
/// bound, an order statistic, still is below.
pub fn confidence_below(samples: &[f64], q: f64, limit: f64) -> f64 {
    let below = samples.iter().filter(|x| **x < limit).count();
    binomial_cdf(below as i64 - 1, samples.len(), q)
}

/// How sure it is on which side of a limit a percentile is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sides {
    /// Confidence that it is below the limit.
    pub below: f64,
    /// Confidence that it is at or above the limit.
    pub above: f64,
    /// Independent samples that would know as much.
    pub effective_n: f64,
}

/// On which side of `limit` the `q` quantile of independent samples is, exact.
pub fn sides(samples: &[f64], q: f64, limit: f64) -> Sides {
    let below = samples.iter().filter(|x| **x < limit).count();
    sides_of(below as f64, samples.len(), q)
}

/// The same of dependent samples in time order: the sample counts for as many as its effective size, the smaller of that by batches and
/// that by its own partial sums, as nobody has looked whether its level moves. `None` where that cannot be estimated. A sample may be
/// infinite (a request that was never answered).
pub fn sides_dependent(series: &[f64], q: f64, limit: f64) -> Option<Sides> {
    let below = series.iter().filter(|x| **x < limit).count();
    // Nothing at or above the limit (or nothing below): its own indicator does not vary, that of the percentile stands in.
    let threshold = if below == 0 || below == series.len() { quantile(&sorted(series.to_vec()), q)? } else { limit };
    let by_batches = effective_size_at(series, threshold, 0.95)?.interval_n;
    let n = self_normalised::effective_size(series, threshold, 0.95)?.min(by_batches).floor();
    Some(sides_of(below as f64 / series.len() as f64 * n, n as usize, q))
}

/// Of so many that are below the limit out of `n` independent ones. What is not whole is rounded against each claim.
fn sides_of(below: f64, n: usize, q: f64) -> Sides {
    Sides {
        below: binomial_cdf(below.floor() as i64 - 1, n, q),
        above: 1.0 - binomial_cdf(below.ceil() as i64, n, q),
        effective_n: n as f64,
    }
}

/// Confidence that the `q` quantile is below `limit`: [`sides_dependent`]'s.
pub fn confidence_below_dependent(series: &[f64], q: f64, limit: f64) -> Option<f64> {
    sides_dependent(series, q, limit).map(|sides| sides.below)
}

fn checked(samples: &[f64]) -> Result<Vec<f64>, Error> {
    let what = "the comparison of a percentile";
    if let Some(&value) = samples.iter().find(|x| !x.is_finite()) {
        return Err(Error::BadValue { what, value, why: "it must be a finite number" });
    }
    if samples.len() < 10 {
        return Err(Error::TooFew { what, needed: 10, got: samples.len() });
    }
    Ok(sorted(samples.to_vec()))
}

fn difference(a: &[f64], b: &[f64], q: f64) -> Result<f64, Error> {
    let why = "it must be between 0 and 1";
    let bad = Error::BadValue { what: "the comparison of a percentile", value: q, why };
    if !(q > 0.0 && q < 1.0) {
        return Err(bad);
    }
    Ok(quantile(a, q).ok_or(bad.clone())? - quantile(b, q).ok_or(bad)?)
}

fn p_values(observed: f64, differences: impl Iterator<Item = f64>, resamples: usize) -> (f64, f64) {
    let (mut two_sided, mut larger) = (0, 0);
    for other in differences {
        two_sided += usize::from(other.abs() >= observed.abs());
        larger += usize::from(other >= observed);
    }
    let p = |beyond: usize| (beyond + 1) as f64 / (resamples + 1) as f64;
    (p(two_sided), p(larger))
}

/// Deals pooled, sorted samples to two sides and returns the difference of their quantiles. Walks down from the largest and
/// stops when both quantiles are passed.
fn independent_split(pooled: &[f64], na: usize, q: f64, random: &mut Random) -> f64 {
    let (mut left_a, mut left) = (na, pooled.len());
    let labelled = pooled.iter().rev().map(|x| {
        let to_a = random.below(left) < left_a;
        left -= 1;
        left_a -= usize::from(to_a);
        (*x, to_a)
    });
    split_difference(labelled, na, pooled.len() - na, q)
}

fn split_difference(labelled_downwards: impl Iterator<Item = (f64, bool)>, na: usize, nb: usize, q: f64) -> f64 {
    let (mut to_a, mut to_b) = (na - rank(na, q) + 1, nb - rank(nb, q) + 1);
    let (mut at_a, mut at_b) = (None, None);
    for (x, first) in labelled_downwards {
        let (to, at) = if first { (&mut to_a, &mut at_a) } else { (&mut to_b, &mut at_b) };
        *to = to.saturating_sub(1);
        if *to == 0 && at.is_none() {
            *at = Some(x);
        }
        if let (Some(a), Some(b)) = (at_a, at_b) {
            return a - b;
        }
    }
    // Blocks of unequal value cannot leave a side without its quantile: both sides keep their number of samples.
    at_a.unwrap_or(0.0) - at_b.unwrap_or(0.0)
}

/// Percentile bootstrap of the difference. The q quantile of a resample of n is the sample at rank n U with U the order
/// statistic of n uniforms, which is Beta distributed: one draw stands for a resample.
fn difference_interval(
    a: &[f64],
    b: &[f64],
    q: f64,
    level: f64,
    shrink: (f64, f64),
    resamples: usize,
    seed: u64,
) -> (f64, f64) {
    let mut random = Random::new(mix(seed, 2));
    let mut draw = |ordered: &[f64], shrink: f64| {
        let n = (ordered.len() as f64 * shrink).max(2.0);
        let share = random.beta((n * q).max(1.0), (n * (1.0 - q) + 1.0).max(1.0));
        ordered[((ordered.len() as f64 * share) as usize).min(ordered.len() - 1)]
    };
    let mut differences: Vec<f64> = (0..resamples.max(1)).map(|_| draw(a, shrink.0) - draw(b, shrink.1)).collect();
    differences.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| differences[rank(differences.len(), q) - 1];
    (at((1.0 - level) / 2.0), at(0.5 + level / 2.0))
}
