//! Augmented Dickey-Fuller with AIC lag choice and MacKinnon's p-values (Lancet §4.3, result stationarity).
//!
//! In: a series in time order. Out: the t statistic of its lagged level, the p-value of "has a unit root" (small: the series
//! does not wander like a random walk), MacKinnon's critical values. The same numbers as statsmodels' `adfuller`. Rejecting a
//! unit root is not stationarity: a drifting mean below noise passes (see [`crate::drift`]).

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::special::normal_cdf;

/// The deterministic part of the regression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trend {
    /// A constant: the alternative is a stationary series.
    Constant,
    /// A constant and a linear trend: the alternative is stationary about a line.
    ConstantAndTrend,
}

/// How the number of lagged differences is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lags {
    /// By AIC up to ceil(12 (n/100)^¼), as statsmodels does.
    Aic,
    /// By AIC up to a number.
    AicUpTo(usize),
    /// Just so many.
    Exactly(usize),
}

/// Result of the test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Adf {
    /// t statistic of the lagged level: the more negative, the less of a unit root.
    pub statistic: f64,
    /// Probability of a statistic as small when there is a unit root (MacKinnon 1994).
    pub p_value: f64,
    /// Lagged differences in the regression.
    pub lags: usize,
    /// Observations in the regression.
    pub n: usize,
    /// Critical values at 1 %, 5 % and 10 % for this n (MacKinnon 2010).
    pub critical: [f64; 3],
}

/// Runs the test on a series in time order.
pub fn adf(series: &[f64], trend: Trend, lags: Lags) -> Result<Adf, Error> {
    let what = "the augmented Dickey-Fuller test";
    let n = series.len();
    let deterministic = if trend == Trend::Constant { 1 } else { 2 };
    if n < 10 {
        return Err(Error::TooFew { what, needed: 10, got: n });
    }
    if let Some(&value) = series.iter().find(|value| !value.is_finite()) {
        return Err(Error::BadValue { what, value, why: "it must be a finite number" });
    }
    if series.iter().all(|x| *x == series[0]) {
        return Err(Error::Undefined { what, why: "all values are equal" });
    }
    let most = (n / 2).saturating_sub(deterministic + 1);
    let used = match lags {
        Lags::Exactly(lags) => lags.min(most),
        Lags::AicUpTo(limit) => best_lag(series, trend, limit.min(most))?,
        Lags::Aic => best_lag(series, trend, most.min((12.0 * (n as f64 / 100.0).powf(0.25)).ceil() as usize))?,
    };
    let system = Regression::new(series, trend, used);
    let statistic = system.level_t().ok_or(Error::Undefined { what, why: "the regression is singular" })?;
    let rows = system.rows;
    Ok(Adf { statistic, p_value: p_value(statistic, trend), lags: used, n: rows, critical: critical(trend, rows) })
}

/// The lag count with the smallest AIC among regressions on the same rows.
fn best_lag(series: &[f64], trend: Trend, max: usize) -> Result<usize, Error> {
    let system = Regression::new(series, trend, max);
    let n = system.rows as f64;
    let mut best = (f64::INFINITY, 0);
    for (lag, rss) in system.residuals().into_iter().enumerate() {
        let parameters = (system.deterministic + 1 + lag) as f64;
        // −2 log L + 2 k; the terms that are equal for all are left out.
        let aic = n * (rss / n).ln() + 2.0 * parameters;
        if aic < best.0 {
            best = (aic, lag);
        }
    }
    if best.0.is_infinite() && best.0 > 0.0 {
        return Err(Error::Undefined {
            what: "the augmented Dickey-Fuller test",
            why: "the series is fitted without error",
        });
    }
    Ok(best.1)
}

/// Δx_t on (deterministic, x_{t−1}, Δx_{t−1} … Δx_{t−lags}), triangular after Householder's reflections. Columns are in
/// nested order, so one triangle holds every smaller lag count too.
struct Regression {
    deterministic: usize,
    rows: usize,
    columns: usize,
    /// R, upper triangular, row by row; the last column is Qᵀy.
    r: Vec<Vec<f64>>,
    /// Sum of squares of y behind the last column.
    rest: f64,
}

impl Regression {
    fn new(series: &[f64], trend: Trend, lags: usize) -> Self {
        let n = series.len();
        let rows = n - 1 - lags;
        // Centring and scaling x change no t statistic (there is a constant) and keep the columns of one size.
        let mean = series[0] + series.iter().map(|x| x - series[0]).sum::<f64>() / n as f64;
        let scale = (series.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64).sqrt().max(f64::MIN_POSITIVE);
        let x: Vec<f64> = series.iter().map(|v| (v - mean) / scale).collect();
        let difference = |t: usize| x[t + 1] - x[t];
        let mut columns: Vec<Vec<f64>> = vec![vec![1.0; rows]];
        if trend == Trend::ConstantAndTrend {
            columns.push((0..rows).map(|t| (t as f64 + 1.0) / rows as f64).collect());
        }
        let deterministic = columns.len();
        columns.push((0..rows).map(|t| x[lags + t]).collect());
        for lag in 1..=lags {
            columns.push((0..rows).map(|t| difference(lags + t - lag)).collect());
        }
        columns.push((0..rows).map(|t| difference(lags + t)).collect());
        Self::triangular(columns, deterministic, rows)
    }

    fn triangular(mut columns: Vec<Vec<f64>>, deterministic: usize, rows: usize) -> Self {
        let regressors = columns.len() - 1;
        for k in 0..regressors.min(rows) {
            let (done, todo) = columns.split_at_mut(k + 1);
            let pivot = &mut done[k];
            let norm = pivot[k..].iter().map(|v| v * v).sum::<f64>().sqrt();
            if norm == 0.0 {
                continue;
            }
            let alpha = if pivot[k] > 0.0 { -norm } else { norm };
            pivot[k] -= alpha;
            let length = pivot[k..].iter().map(|v| v * v).sum::<f64>();
            for column in todo {
                let dot: f64 = pivot[k..].iter().zip(&column[k..]).map(|(a, b)| a * b).sum();
                let factor = 2.0 * dot / length;
                for (value, v) in column[k..].iter_mut().zip(&pivot[k..]) {
                    *value -= factor * v;
                }
            }
            pivot[k] = alpha;
        }
        let r = (0..regressors).map(|i| columns.iter().map(|c| c.get(i).copied().unwrap_or(0.0)).collect()).collect();
        let rest = columns[regressors][regressors.min(rows)..].iter().map(|v| v * v).sum();
        Self { deterministic, rows, columns: regressors, r, rest }
    }

    /// Residual sum of squares for 0, 1, … lags.
    fn residuals(&self) -> Vec<f64> {
        let mut rss = self.rest;
        let mut by_lags = vec![rss];
        for i in (self.deterministic + 1..self.columns).rev() {
            rss += self.r[i][self.columns].powi(2);
            by_lags.push(rss);
        }
        by_lags.reverse();
        by_lags
    }

    /// t statistic of the lagged level.
    fn level_t(&self) -> Option<f64> {
        let k = self.columns;
        let level = self.deterministic;
        if self.rows <= k || (0..k).any(|i| self.r[i][i].abs() < 1e-12) {
            return None;
        }
        let mut beta = vec![0.0; k];
        for i in (0..k).rev() {
            let solved: f64 = (i + 1..k).map(|j| self.r[i][j] * beta[j]).sum();
            beta[i] = (self.r[i][k] - solved) / self.r[i][i];
        }
        // (R'R)⁻¹ at (level, level) is the squared length of row `level` of R⁻¹, found by solving Rᵀz = e.
        let mut z = vec![0.0; k];
        for i in level..k {
            let solved: f64 = (level..i).map(|j| self.r[j][i] * z[j]).sum();
            z[i] = (f64::from(u8::from(i == level)) - solved) / self.r[i][i];
        }
        let variance = self.rest / (self.rows - k) as f64 * z.iter().map(|v| v * v).sum::<f64>();
        (variance > 0.0).then(|| beta[level] / variance.sqrt())
    }
}

/// MacKinnon's (1994) approximate p-value of the statistic for one series.
pub fn p_value(statistic: f64, trend: Trend) -> f64 {
    let (max, min, star, small, large) = match trend {
        Trend::Constant => (2.74, -18.83, -1.61, [2.1659, 1.4412, 0.038269], [1.7339, 0.93202, -0.12745, -0.010368]),
        Trend::ConstantAndTrend => {
            (0.7, -16.18, -2.89, [3.2512, 1.6047, 0.049588], [2.5261, 0.61654, -0.37956, -0.060285])
        }
    };
    if statistic > max {
        1.0
    } else if statistic < min {
        0.0
    } else if statistic <= star {
        normal_cdf(polynomial(&small, statistic))
    } else {
        normal_cdf(polynomial(&large, statistic))
    }
}

/// MacKinnon's (2010) critical values at 1 %, 5 % and 10 % for `n` observations.
pub fn critical(trend: Trend, n: usize) -> [f64; 3] {
    let surfaces = match trend {
        Trend::Constant => [
            [-3.43035, -6.5393, -16.786, -79.433],
            [-2.86154, -2.8903, -4.234, -40.040],
            [-2.56677, -1.5384, -2.809, 0.0],
        ],
        Trend::ConstantAndTrend => [
            [-3.95877, -9.0531, -28.428, -134.155],
            [-3.41049, -4.3904, -9.036, -45.374],
            [-3.12705, -2.5856, -3.925, -22.380],
        ],
    };
    surfaces.map(|surface| polynomial(&surface, 1.0 / n as f64))
}

fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}
