//! The stationary block bootstrap for a percentile of dependent samples (Politis and Romano 1994), with an automatic block
//! length (Politis and White 2004, corrected by Patton, Politis and White 2009).
//!
//! In: a series in time order. Out: an interval of a percentile whose ends are samples. What is resampled is the indicator
//! "at or below": its share moves the ranks, so a resample costs a few sums and no sort.

use serde::{Deserialize, Serialize};

use crate::quantile::{Interval, at_ranks, quantile, sorted};
use crate::random::Random;

/// An interval by block bootstrap and what it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BlockInterval {
    /// The interval.
    pub interval: Interval,
    /// Mean block length, samples.
    pub block: f64,
    /// Resamples.
    pub resamples: usize,
}

/// The mean block length for the stationary bootstrap of a series; at least 1.
pub fn block_length(series: &[f64]) -> f64 {
    let n = series.len();
    if n < 10 {
        return 1.0;
    }
    let mean = series.iter().sum::<f64>() / n as f64;
    let centred: Vec<f64> = series.iter().map(|x| x - mean).collect();
    let run = 5.max((n as f64).log10() as usize);
    let most = ((n as f64).sqrt().ceil() as usize + run).min(n - 2);
    let bound = 2.0 * ((n as f64).log10() / n as f64).sqrt();
    let squares: Vec<f64> = centred
        .iter()
        .scan(0.0, |sum, x| {
            *sum += x * x;
            Some(*sum)
        })
        .collect();
    let total = squares[n - 1];
    if total <= 0.0 {
        return 1.0;
    }
    let mut covariances = Vec::with_capacity(most + 1);
    let mut small = Vec::with_capacity(most + 1);
    let mut significant = None;
    for lag in 0..=most {
        // Autocorrelations that follow a run of insignificant ones are not needed past twice its beginning.
        if significant.is_some_and(|m: usize| lag > 2 * m.max(1)) {
            break;
        }
        let product: f64 = centred[lag..].iter().zip(&centred).map(|(a, b)| a * b).sum();
        covariances.push(product / n as f64);
        let norm = ((total - squares[lag]) * squares[n - lag - 2]).sqrt();
        small.push(norm > 0.0 && product.abs() / norm < bound);
        if significant.is_none() && lag >= run && small[lag - run..lag].iter().all(|s| *s) {
            significant = Some(lag - run);
        }
    }
    let last = significant.map_or(most, |m| (2 * m.max(1)).min(most)).min(covariances.len() - 1);
    let (mut g, mut long_run) = (0.0, covariances[0]);
    for (k, covariance) in covariances.iter().enumerate().take(last + 1).skip(1) {
        let part = k as f64 / last as f64;
        let window = if part <= 0.5 { 1.0 } else { 2.0 * (1.0 - part) };
        g += 2.0 * window * k as f64 * covariance;
        long_run += 2.0 * window * covariance;
    }
    let length = (g * g / (long_run * long_run)).cbrt() * (n as f64).cbrt();
    let longest = (3.0 * (n as f64).sqrt()).min(n as f64 / 3.0).ceil();
    if length.is_finite() { length.clamp(1.0, longest) } else { longest }
}

/// Shares of an indicator series in `resamples` stationary bootstrap resamples, sorted.
fn resampled_shares(indicator: &[bool], block: f64, resamples: usize, seed: u64) -> Vec<f64> {
    let n = indicator.len();
    let mut sums = Vec::with_capacity(n + 1);
    let mut sum = 0u64;
    sums.push(0);
    for set in indicator {
        sum += u64::from(*set);
        sums.push(sum);
    }
    let mut random = Random::new(seed);
    // Lengths are geometric with mean `block`.
    let stay = (-1.0 / block.max(1.0)).ln_1p();
    let mut shares: Vec<f64> = (0..resamples)
        .map(|_| {
            let mut left = n;
            let mut count = 0;
            while left > 0 {
                let drawn = if stay.is_finite() { 1.0 + (random.uniform().ln() / stay).floor() } else { 1.0 };
                let length = (drawn.min(left as f64)) as usize;
                let start = random.below(n);
                let end = start + length;
                count += if end <= n { sums[end] - sums[start] } else { sums[n] - sums[start] + sums[end - n] };
                left -= length;
            }
            count as f64 / n as f64
        })
        .collect();
    shares.sort_unstable_by(f64::total_cmp);
    shares
}

/// The interval of the `q` quantile of a dependent series in time order. `None` when its ranks leave the sample.
pub fn interval(series: &[f64], q: f64, level: f64, resamples: usize, seed: u64) -> Option<BlockInterval> {
    let ordered = sorted(series.to_vec());
    let threshold = quantile(&ordered, q)?;
    let below: Vec<bool> = series.iter().map(|x| *x <= threshold).collect();
    let as_numbers: Vec<f64> = below.iter().map(|b| f64::from(u8::from(*b))).collect();
    let block = block_length(&as_numbers);
    let shares = resampled_shares(&below, block, resamples, seed);
    let share = as_numbers.iter().sum::<f64>() / series.len() as f64;
    let n = series.len() as f64;
    // The sample's share at the true quantile differs from q as a resample's share differs from the sample's.
    let lower = (n * (q + quantile(&shares, (1.0 - level) / 2.0)? - share)).floor();
    let upper = (n * (q + quantile(&shares, 0.5 + level / 2.0)? - share)).ceil() + 1.0;
    if lower < 1.0 || upper > n {
        return None;
    }
    Some(BlockInterval { interval: at_ranks(&ordered, lower as usize, upper as usize), block, resamples })
}

/// Confidence that the `q` quantile of a dependent series in time order is below `limit`: the share of resamples in which at
/// least a share `q` of the samples is. For the bisection of an SLO.
pub fn confidence_below(series: &[f64], q: f64, limit: f64, resamples: usize, seed: u64) -> Option<f64> {
    if series.len() < 10 || resamples == 0 {
        return None;
    }
    let below: Vec<bool> = series.iter().map(|x| *x < limit).collect();
    let as_numbers: Vec<f64> = below.iter().map(|b| f64::from(u8::from(*b))).collect();
    let shares = resampled_shares(&below, block_length(&as_numbers), resamples, seed);
    Some(shares.iter().filter(|share| **share >= q).count() as f64 / resamples as f64)
}
