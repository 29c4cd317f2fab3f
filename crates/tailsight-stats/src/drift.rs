//! Does the level move? The complement of [`crate::adf`], which a drifting mean below noise passes.
//!
//! In: means of batches that are as good as independent ([`crate::effective::batches`]). Out: a p-value of "the level is one".
//! The statistic is that of KPSS and of Cramér-von Mises, the mean square of the partial sums, which grows with trends, level
//! shifts and wandering alike. Its p-value is by permutation of the batches: exact whatever the shape of the means, and with
//! no long-run variance in the denominator that a drift could inflate until it hides itself (for a pure trend over B batches
//! KPSS with l lags cannot exceed about B/(10 (l + 1))).

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::random::Random;

/// Result of the test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Mean square of the normalised partial sums; about 1/6 for a level that stays.
    pub statistic: f64,
    /// Probability of a statistic as large when the order of the batches means nothing.
    pub p_value: f64,
    /// Mean of the last third of the batches over that of the first third, less one: how far the level moved.
    pub change: f64,
    /// Batches.
    pub n: usize,
}

/// Runs the test with so many permutations.
pub fn drift(batch_means: &[f64], permutations: usize, seed: u64) -> Result<Drift, Error> {
    let what = "the drift test";
    let n = batch_means.len();
    if n < 8 {
        return Err(Error::TooFew { what, needed: 8, got: n });
    }
    let mean = batch_means.iter().sum::<f64>() / n as f64;
    let mut residuals: Vec<f64> = batch_means.iter().map(|m| m - mean).collect();
    let variance = residuals.iter().map(|r| r * r).sum::<f64>() / n as f64;
    let third = n / 3;
    let average = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let change = average(&batch_means[n - third..]) / average(&batch_means[..third]) - 1.0;
    if variance.is_nan() || variance <= 0.0 {
        // Nothing varies, nothing drifts (a tail without any sample above it, say).
        return Ok(Drift { statistic: 0.0, p_value: 1.0, change: 0.0, n });
    }
    let scale = (n * n) as f64 * variance;
    let observed = partial_sums(&residuals) / scale;
    let mut random = Random::new(seed);
    let mut beyond = 0;
    for _ in 0..permutations {
        random.shuffle(&mut residuals);
        beyond += usize::from(partial_sums(&residuals) / scale >= observed * (1.0 - 1e-12));
    }
    Ok(Drift { statistic: observed, p_value: (beyond + 1) as f64 / (permutations + 1) as f64, change, n })
}

fn partial_sums(residuals: &[f64]) -> f64 {
    let mut sum = 0.0;
    let mut squares = 0.0;
    for r in residuals {
        sum += r;
        squares += sum * sum;
    }
    squares
}
