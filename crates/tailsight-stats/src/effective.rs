//! How much dependent samples know: batch means and the effective sample size of a percentile.
//!
//! In: a series in time order. Out: means of batches long enough to be independent, and from them how many independent samples
//! would know a percentile as well. What matters for a percentile is the dependence of the indicator "above it", not of the
//! latency. Batch lengths are judged by *differences* of batch means, which a drift hardly touches: otherwise a drift would
//! pass for dependence and hide.

use serde::{Deserialize, Serialize};

use crate::quantile::{Interval, interval_effective, quantile, sorted};
use crate::self_normalised;
use crate::special::{normal_quantile, student_quantile};

/// A series cut into equal batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batches {
    /// Samples in a batch.
    pub length: usize,
    /// Their means, in time order.
    pub means: Vec<f64>,
    /// Lag-1 correlation of batch means at the length where it was judged, from differences.
    pub correlation: f64,
    /// False when no batch length made the means independent while leaving [`FEWEST_JUDGED`] batches: the run is too short for
    /// its own memory, or its level wanders.
    pub settled: bool,
}

/// Most batches made.
pub const MOST_BATCHES: usize = 128;
/// Fewest batches made.
pub const FEWEST_BATCHES: usize = 16;
/// Fewest batches from which a correlation is judged.
pub const FEWEST_JUDGED: usize = 32;

/// Cuts a series into batches whose means are as good as independent. `None` for fewer than 64 samples.
///
/// Lengths are doubled while [`FEWEST_JUDGED`] batches remain. The chosen one is four times the shortest from which on the lag-1
/// correlation of the means stays below 0.2 and the noise of its estimate; correlation halves with each doubling from there.
pub fn batches(series: &[f64]) -> Option<Batches> {
    let n = series.len();
    if n < 2 * FEWEST_JUDGED {
        return None;
    }
    let mut sums = Vec::with_capacity(n + 1);
    let mut sum = 0.0;
    sums.push(0.0);
    for value in series {
        sum += value;
        sums.push(sum);
    }
    let means = |length: usize| -> Vec<f64> {
        // What does not fill a batch is left out at the front, where the memory of the warm-up is.
        let skip = n % length;
        (0..n / length).map(|i| (sums[skip + (i + 1) * length] - sums[skip + i * length]) / length as f64).collect()
    };
    let mut length = 1;
    let mut chosen: Option<(usize, f64)> = None;
    let mut last = 1.0;
    while n / length >= FEWEST_JUDGED {
        let means = means(length);
        let correlation = difference_correlation(&means);
        last = correlation;
        let noise = 1.5 / (means.len() as f64).sqrt();
        if correlation <= 0.2 + noise {
            chosen.get_or_insert((length, correlation));
        } else {
            chosen = None;
        }
        length *= 2;
    }
    let (judged, correlation) = chosen.unwrap_or((n / FEWEST_BATCHES, last));
    let length = (4 * judged).max(n.div_ceil(MOST_BATCHES)).min(n / FEWEST_BATCHES).max(1);
    Some(Batches { length, means: means(length), correlation, settled: chosen.is_some() })
}

/// Lag-1 correlation from mean squared differences at lags 1 and 3: 1 − D₁/D₃. A level that moves slowly adds next to nothing
/// to either.
fn difference_correlation(means: &[f64]) -> f64 {
    let mean_square = |lag: usize| {
        let sum: f64 = means.windows(lag + 1).map(|w| (w[lag] - w[0]).powi(2)).sum();
        sum / (means.len() - lag) as f64
    };
    let (near, far) = (mean_square(1), mean_square(3));
    if far > 0.0 { 1.0 - near / far } else { 0.0 }
}

impl Batches {
    /// Mean over all batches.
    pub fn mean(&self) -> f64 {
        self.means.iter().sum::<f64>() / self.means.len() as f64
    }

    /// Variance of the mean over all batches.
    pub fn variance_of_mean(&self) -> f64 {
        let (mean, n) = (self.mean(), self.means.len() as f64);
        self.means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (n - 1.0) / n
    }

    /// Degrees of freedom of [`Self::variance_of_mean`]: batches less one for normal means, fewer when a few batches hold most
    /// of the slow requests, by the kurtosis of the means (Satterthwaite).
    pub fn freedom(&self) -> f64 {
        let (mean, n) = (self.mean(), self.means.len() as f64);
        let moment = |power| self.means.iter().map(|m| (m - mean).powi(power)).sum::<f64>() / n;
        let kurtosis = moment(4) / moment(2).powi(2);
        let freedom = 2.0 * n / (kurtosis - (n - 3.0) / (n - 1.0));
        if freedom.is_finite() { freedom.clamp(2.0, n - 1.0) } else { n - 1.0 }
    }
}

/// How much a series knows about a percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// Samples.
    pub n: usize,
    /// Independent samples that would know as much.
    pub effective_n: f64,
    /// The number used for an interval: [`Self::effective_n`] less what the uncertainty of its own estimate costs (Student's t
    /// instead of the normal).
    pub interval_n: f64,
    /// Batches behind the estimate.
    pub batches: usize,
    /// Whether the batches were long enough (see [`Batches::settled`]).
    pub settled: bool,
}

/// Effective sample size for the quantile at `threshold`, at confidence `level`. `None` where the series is too short.
pub fn effective_size_at(series: &[f64], threshold: f64, level: f64) -> Option<Effective> {
    let n = series.len();
    let above: Vec<f64> = series.iter().map(|x| f64::from(u8::from(*x > threshold))).collect();
    let share = above.iter().sum::<f64>() / n as f64;
    let batches = batches(&above)?;
    let variance = batches.variance_of_mean();
    if variance <= 0.0 || share <= 0.0 || share >= 1.0 {
        return None;
    }
    // Samples that repel each other would know more than independent ones; that is not relied on.
    let effective_n = (share * (1.0 - share) / variance).min(n as f64);
    let side = 0.5 + level / 2.0;
    let t = student_quantile(side, batches.freedom());
    let interval_n = effective_n * (normal_quantile(side) / t).powi(2);
    Some(Effective { n, effective_n, interval_n, batches: batches.means.len(), settled: batches.settled })
}

/// The interval of the `q` quantile of a series whose level moves, or whose memory is as long as itself: of the two estimates of what it
/// knows, by batches and by its own partial sums ([`self_normalised`]), the smaller. Gives the interval, and as many independent samples as
/// know as much. `None` when the series cannot support it.
pub fn wandering_interval_sorted(series: &[f64], sorted: &[f64], q: f64, level: f64) -> Option<(Interval, f64)> {
    let threshold = quantile(sorted, q)?;
    let by_batches = effective_size_at(series, threshold, level)?.interval_n;
    let interval_n = self_normalised::effective_size(series, threshold, level)?.min(by_batches);
    Some((interval_effective(sorted, q, level, interval_n)?, interval_n))
}

/// The interval of the `q` quantile of a dependent series in time order, with what it rests on. `None` when the series cannot
/// support it.
pub fn dependent_interval(series: &[f64], q: f64, level: f64) -> Option<(Interval, Effective)> {
    dependent_interval_sorted(series, &sorted(series.to_vec()), q, level)
}

/// The same when the sorted values are at hand.
pub fn dependent_interval_sorted(series: &[f64], sorted: &[f64], q: f64, level: f64) -> Option<(Interval, Effective)> {
    let effective = effective_size_at(series, quantile(sorted, q)?, level)?;
    Some((interval_effective(sorted, q, level, effective.interval_n)?, effective))
}
