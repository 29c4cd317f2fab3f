//! Where does the warm-up end? MSER-5 (White, Cobb and Spratt 2000) and a test of what it would cut.
//!
//! In: a series in time order. Out: how many values to cut from the front: the cut that minimises the standard error of the
//! mean of the rest. MSER cuts something from any series, so the cut is only made when the part differs from the rest by more
//! than their own noise. Latencies go in as ranks: one late outlier would otherwise move the cut.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::effective::batches;
use crate::special::normal_cdf;

/// What MSER says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mser {
    /// Values to cut, a multiple of the batch size.
    pub cut: usize,
    /// The minimised statistic: squared standard error of the mean of the batches kept.
    pub statistic: f64,
    /// The minimum lies at the bound of half the series: no end of the warm-up is in sight.
    pub at_bound: bool,
}

/// MSER with batches of `size` values (5 for MSER-5); looks for the cut in the first half.
pub fn mser(series: &[f64], size: usize) -> Result<Mser, Error> {
    let size = size.max(1);
    let count = series.len() / size;
    if count < 10 {
        return Err(Error::TooFew { what: "MSER", needed: 10 * size, got: series.len() });
    }
    let means: Vec<f64> = series.chunks_exact(size).map(|chunk| chunk.iter().sum::<f64>() / size as f64).collect();
    // Squares about the overall mean: series with a large level lose no digits.
    let centre = means.iter().sum::<f64>() / count as f64;
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    for d in (0..count).rev() {
        let value = means[d] - centre;
        sum += value;
        squares += value * value;
        let kept = (count - d) as f64;
        let statistic = (squares - sum * sum / kept).max(0.0) / (kept * kept);
        if d <= count / 2 && statistic <= best.0 {
            best = (statistic, d);
        }
    }
    Ok(Mser { cut: best.1 * size, statistic: best.0, at_bound: best.1 >= count / 2 })
}

/// The warm-up of a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WarmUpEnd {
    /// Values to cut; 0 when no warm-up is to be seen.
    pub cut: usize,
    /// What MSER proposed.
    pub proposed: usize,
    /// p-value of "the proposed part is as the rest".
    pub p_value: f64,
    /// MSER found no end in the first half, and the parts differ.
    pub endless: bool,
}

/// MSER-5, then the test: the mean of the part against that of the rest, in units of the noise that the rest's batch means
/// show. `alpha` is the level of the test; the proposed cut is the most conspicuous of many, so take it small (0.001).
pub fn detect(series: &[f64], alpha: f64) -> Result<WarmUpEnd, Error> {
    let minimum = mser(series, 5)?;
    let (head, rest) = series.split_at(minimum.cut);
    if head.is_empty() {
        return Ok(WarmUpEnd { cut: 0, proposed: 0, p_value: 1.0, endless: false });
    }
    let batches =
        batches(rest).ok_or(Error::TooFew { what: "the test of the warm-up", needed: 64, got: rest.len() })?;
    let long_run = batches.variance_of_mean() * rest.len() as f64;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let error = (long_run * (1.0 / head.len() as f64 + 1.0 / rest.len() as f64)).sqrt();
    let p_value = if error > 0.0 { 2.0 * normal_cdf(-((mean(head) - mean(rest)) / error).abs()) } else { 1.0 };
    let differs = p_value < alpha;
    Ok(WarmUpEnd {
        cut: if differs { minimum.cut } else { 0 },
        proposed: minimum.cut,
        p_value,
        endless: differs && minimum.at_bound,
    })
}
