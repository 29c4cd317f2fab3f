//! KPSS: is the series level (or trend) stationary? The null hypothesis is stationarity, the complement of [`crate::adf`].
//!
//! In: a series in time order. Out: the statistic of Kwiatkowski et al. (1992), as statsmodels computes it, with the p-value of
//! its limit: exact for a level (the limit is the Cramér-von Mises distribution), from the paper's table for a trend.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::adf::Trend;
use crate::special::cramer_von_mises_tail;

/// Result of the test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Kpss {
    /// The statistic: large when the level moves.
    pub statistic: f64,
    /// Probability of a statistic as large when the series is stationary; for a trend inside 0.01..0.1, where the table ends.
    pub p_value: f64,
    /// Lags of the Bartlett kernel.
    pub lags: usize,
    /// Values.
    pub n: usize,
}

/// Runs the test; `lags` of `None` are chosen from the data (Hobijn, Franses and Ooms 1998).
pub fn kpss(series: &[f64], trend: Trend, lags: Option<usize>) -> Result<Kpss, Error> {
    let what = "the KPSS test";
    let n = series.len();
    if n < 10 {
        return Err(Error::TooFew { what, needed: 10, got: n });
    }
    let residuals = residuals(series, trend);
    let lags = lags.unwrap_or_else(|| automatic_lags(&residuals)).min(n - 1);
    let mut variance = dot(&residuals, &residuals);
    for lag in 1..=lags {
        let weight = 1.0 - lag as f64 / (lags as f64 + 1.0);
        variance += 2.0 * weight * dot(&residuals[lag..], &residuals[..n - lag]);
    }
    variance /= n as f64;
    if variance.is_nan() || variance <= 0.0 {
        return Err(Error::Undefined { what, why: "the values do not vary" });
    }
    let mut sum = 0.0;
    let mut squares = 0.0;
    for r in &residuals {
        sum += r;
        squares += sum * sum;
    }
    let statistic = squares / (n as f64 * n as f64) / variance;
    let p_value = match trend {
        Trend::Constant => cramer_von_mises_tail(statistic),
        Trend::ConstantAndTrend => table(statistic),
    };
    Ok(Kpss { statistic, p_value, lags, n })
}

fn residuals(series: &[f64], trend: Trend) -> Vec<f64> {
    let n = series.len() as f64;
    let first = series[0];
    // About the first value: a large level takes no digits.
    let series: Vec<f64> = series.iter().map(|x| x - first).collect();
    let mean = series.iter().sum::<f64>() / n;
    if trend == Trend::Constant {
        return series.iter().map(|x| x - mean).collect();
    }
    let middle = (n - 1.0) / 2.0;
    let (mut xy, mut xx) = (0.0, 0.0);
    for (t, x) in series.iter().enumerate() {
        xy += (t as f64 - middle) * (x - mean);
        xx += (t as f64 - middle).powi(2);
    }
    let slope = xy / xx;
    series.iter().enumerate().map(|(t, x)| x - mean - slope * (t as f64 - middle)).collect()
}

fn automatic_lags(residuals: &[f64]) -> usize {
    let n = residuals.len() as f64;
    let mut s0 = dot(residuals, residuals) / n;
    let mut s1 = 0.0;
    for lag in 1..=(n.powf(2.0 / 9.0) as usize) {
        let product = 2.0 * dot(&residuals[lag..], &residuals[..residuals.len() - lag]) / n;
        s0 += product;
        s1 += lag as f64 * product;
    }
    (1.1447 * (s1 / s0).powi(2).cbrt() * n.cbrt()) as usize
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// p-value of the trend statistic, between the table's four points.
fn table(statistic: f64) -> f64 {
    let points = [(0.119, 0.10), (0.146, 0.05), (0.176, 0.025), (0.216, 0.01)];
    if statistic <= points[0].0 {
        return points[0].1;
    }
    for pair in points.windows(2) {
        if statistic <= pair[1].0 {
            let part = (statistic - pair[0].0) / (pair[1].0 - pair[0].0);
            return pair[0].1 + part * (pair[1].1 - pair[0].1);
        }
    }
    points[3].1
}
