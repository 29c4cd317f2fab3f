//! Anderson-Darling: are these gaps distributed as the workload says? (Lancet §4.3, system stability.)
//!
//! In: gaps in any unit. Out: the statistic A², corrected for the sample size where a parameter was estimated, and its
//! p-value. Estimating a parameter changes the critical values: with an estimated mean the exponential's 5 % point is 1.321
//! and not 2.492 (Stephens 1974; D'Agostino and Stephens 1986, chapter 4), so each case here has its own.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::random::Random;
use crate::special::normal_cdf;

/// Result of an Anderson-Darling test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Anderson {
    /// A² as computed.
    pub a2: f64,
    /// A² with Stephens' correction for n; equals `a2` where nothing was estimated.
    pub statistic: f64,
    /// Probability of a statistic as large when the distribution is right.
    pub p_value: f64,
    /// Values tested.
    pub n: usize,
}

/// Upper critical values of the corrected statistic for an exponential with estimated mean: (level, value). D'Agostino and
/// Stephens 1986, table 4.14.
pub const EXPONENTIAL_CRITICAL: [(f64, f64); 5] =
    [(0.25, 0.736), (0.15, 0.916), (0.10, 1.062), (0.05, 1.321), (0.01, 1.959)];

/// A² of probabilities u = F(x), sorted upwards. Probabilities are kept off 0 and 1, where a single impossible value would
/// make it infinite.
pub fn statistic(u: &[f64]) -> f64 {
    let inside = |p: f64| p.clamp(1e-300, 1.0 - 1e-16);
    statistic_of_logs(&u.iter().map(|u| (inside(*u).ln(), (-inside(*u)).ln_1p())).collect::<Vec<_>>())
}

/// A² of pairs (ln F(x), ln (1 − F(x))), sorted upwards by x: far out, 1 − F is not 1 less F in floating point.
fn statistic_of_logs(pairs: &[(f64, f64)]) -> f64 {
    let n = pairs.len() as f64;
    let bounded = |log: f64| log.max(-700.0);
    let terms = pairs.iter().zip(pairs.iter().rev()).enumerate();
    let sum: f64 = terms.map(|(i, (low, high))| (2.0 * i as f64 + 1.0) * (bounded(low.0) + bounded(high.1))).sum();
    -n - sum / n
}

/// Against a fully specified distribution (case 0): nothing was estimated from the data.
pub fn specified(data: &[f64], cdf: impl Fn(f64) -> f64) -> Result<Anderson, Error> {
    let sorted = checked(data, "Anderson-Darling", 5)?;
    let u: Vec<f64> = sorted.iter().map(|&x| cdf(x)).collect();
    let a2 = statistic(&u);
    Ok(Anderson { a2, statistic: a2, p_value: specified_p(a2, data.len()), n: data.len() })
}

/// Against an exponential whose mean is the sample's (Stephens' case 4: origin known, scale estimated).
pub fn exponential(data: &[f64]) -> Result<Anderson, Error> {
    let sorted = checked(data, "Anderson-Darling for an exponential", 5)?;
    if sorted[0] < 0.0 {
        return Err(Error::BadValue {
            what: "Anderson-Darling for an exponential",
            value: sorted[0],
            why: "a gap is not negative",
        });
    }
    let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
    if mean <= 0.0 {
        return Err(Error::Undefined { what: "Anderson-Darling for an exponential", why: "all gaps are zero" });
    }
    let logs: Vec<(f64, f64)> = sorted.iter().map(|x| ((-(-x / mean).exp_m1()).ln(), -x / mean)).collect();
    let a2 = statistic_of_logs(&logs);
    let corrected = a2 * (1.0 + 0.6 / data.len() as f64);
    Ok(Anderson { a2, statistic: corrected, p_value: exponential_p(corrected), n: data.len() })
}

/// Against a normal whose mean and deviation are the sample's (Stephens' case 3).
pub fn normal(data: &[f64]) -> Result<Anderson, Error> {
    let sorted = checked(data, "Anderson-Darling for a normal", 8)?;
    let n = sorted.len() as f64;
    let first = sorted[0];
    // About the smallest value: a large level takes no digits.
    let sorted: Vec<f64> = sorted.iter().map(|x| x - first).collect();
    let mean = sorted.iter().sum::<f64>() / n;
    let deviation = (sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    if deviation <= 1e-13 * mean || mean.is_nan() || deviation.is_nan() {
        return Err(Error::Undefined { what: "Anderson-Darling for a normal", why: "all values are equal" });
    }
    let z = sorted.iter().map(|x| (x - mean) / deviation);
    let logs: Vec<(f64, f64)> = z.map(|z| (normal_cdf(z).ln(), normal_cdf(-z).ln())).collect();
    let a2 = statistic_of_logs(&logs);
    let corrected = a2 * (1.0 + 0.75 / n + 2.25 / (n * n));
    Ok(Anderson { a2, statistic: corrected, p_value: normal_p(corrected), n: data.len() })
}

/// Against a lognormal with both parameters estimated: the logarithms against a normal.
pub fn lognormal(data: &[f64]) -> Result<Anderson, Error> {
    normal(&logarithms(data, "Anderson-Darling for a lognormal")?)
}

/// Against a Pareto with estimated smallest value and shape. Above the smallest value, the logarithms of the ratio to it are
/// n − 1 independent exponentials, exactly; so it is the exponential's test on those.
pub fn pareto(data: &[f64]) -> Result<Anderson, Error> {
    let logs = logarithms(&checked(data, "Anderson-Darling for a Pareto", 6)?, "Anderson-Darling for a Pareto")?;
    let ratios: Vec<f64> = logs[1..].iter().map(|x| x - logs[0]).collect();
    exponential(&ratios)
}

/// Against any family, by parametric bootstrap: `fit` the data, draw `resamples` data sets from the fit by inversion, fit and
/// test each. The p-value is exact up to its resolution 1/(resamples + 1). `fit` gives `None` where it cannot.
pub fn bootstrap<P>(
    data: &[f64],
    fit: impl Fn(&[f64]) -> Option<P>,
    cdf: impl Fn(&P, f64) -> f64,
    inverse: impl Fn(&P, f64) -> f64,
    resamples: usize,
    seed: u64,
) -> Result<Anderson, Error> {
    let what = "Anderson-Darling by parametric bootstrap";
    let sorted = checked(data, what, 5)?;
    let a2_and_fit = |sorted: &[f64]| -> Option<(f64, P)> {
        let fitted = fit(sorted)?;
        let u: Vec<f64> = sorted.iter().map(|&x| cdf(&fitted, x)).collect();
        Some((statistic(&u), fitted))
    };
    let (a2, fitted) =
        a2_and_fit(&sorted).ok_or(Error::Undefined { what, why: "the family cannot be fitted to the data" })?;
    let mut random = Random::new(seed);
    let mut beyond = 0;
    let mut drawn = 0;
    for _ in 0..resamples {
        let mut copy: Vec<f64> = (0..sorted.len()).map(|_| inverse(&fitted, random.uniform())).collect();
        copy.sort_unstable_by(f64::total_cmp);
        if let Some((other, _)) = a2_and_fit(&copy) {
            drawn += 1;
            beyond += usize::from(other >= a2);
        }
    }
    let p_value = (beyond + 1) as f64 / (drawn + 1) as f64;
    Ok(Anderson { a2, statistic: a2, p_value, n: data.len() })
}

/// Are two samples from one distribution? (Pettitt 1976; Scholz and Stephens 1987 with k = 2, midranks for ties.) The
/// p-value is asymptotic and good from about 100 values a side.
pub fn two_sample(a: &[f64], b: &[f64]) -> Result<Anderson, Error> {
    let what = "two-sample Anderson-Darling";
    let (a, b) = (checked(a, what, 8)?, checked(b, what, 8)?);
    let (na, nb) = (a.len() as f64, b.len() as f64);
    let total = na + nb;
    let (mut i, mut j) = (0, 0);
    let mut sum = 0.0;
    // Scholz and Stephens' equation 7: over the distinct pooled values z, with the counts below and half of those at z.
    while i < a.len() || j < b.len() {
        let z = match (a.get(i), b.get(j)) {
            (Some(&x), Some(&y)) => x.min(y),
            (Some(&x), None) => x,
            (None, Some(&y)) => y,
            (None, None) => break,
        };
        let (from_i, from_j) = (i, j);
        while a.get(i) == Some(&z) {
            i += 1;
        }
        while b.get(j) == Some(&z) {
            j += 1;
        }
        let at = (i - from_i + j - from_j) as f64;
        let below_a = from_i as f64 + (i - from_i) as f64 / 2.0;
        let below = (from_i + from_j) as f64 + at / 2.0;
        let scale = below * (total - below) - total * at / 4.0;
        if scale > 0.0 {
            let difference = total * below_a - below * na;
            sum += at * difference * difference / scale;
        }
    }
    // The term of b is that of a with na replaced by nb, for the differences are equal.
    let a2 = (total - 1.0) / (total * total) * sum * (1.0 / na + 1.0 / nb);
    Ok(Anderson { a2, statistic: a2, p_value: (1.0 - limit_cdf(a2)).clamp(0.0, 1.0), n: a.len() + b.len() })
}

/// Equal gaps, which need no test of a distribution but a bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FixedGaps {
    /// Mean gap.
    pub mean: f64,
    /// Largest deviation from the specified gap, as a fraction of it.
    pub worst: f64,
    /// Share of the gaps that deviate by more than the tolerance.
    pub outside: f64,
    /// Gaps looked at.
    pub n: usize,
}

/// How far gaps are from the specified one; `tolerance` is a fraction of it.
pub fn fixed_gaps(gaps: &[f64], specified: f64, tolerance: f64) -> Result<FixedGaps, Error> {
    checked(gaps, "the check of fixed gaps", 1)?;
    if specified <= 0.0 {
        return Err(Error::BadValue {
            what: "the check of fixed gaps",
            value: specified,
            why: "the gap must be positive",
        });
    }
    let deviation = |gap: &f64| ((gap - specified) / specified).abs();
    let n = gaps.len();
    Ok(FixedGaps {
        mean: gaps.iter().sum::<f64>() / n as f64,
        worst: gaps.iter().map(deviation).fold(0.0, f64::max),
        outside: gaps.iter().filter(|gap| deviation(gap) > tolerance).count() as f64 / n as f64,
        n,
    })
}

/// Gaps of the streams of several agents together: their send times merged, on one clock. In: times, each list in order.
pub fn superposed_gaps(streams: &[Vec<i64>]) -> Vec<f64> {
    let mut arrivals_ns: Vec<i64> = streams.concat();
    arrivals_ns.sort_unstable();
    arrivals_ns.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
}

/// p-value of the corrected statistic for an exponential with estimated mean (D'Agostino and Stephens 1986, table 4.14's fit).
pub fn exponential_p(a: f64) -> f64 {
    let p = if a < 0.260 {
        1.0 - (-12.2204 + 67.459 * a - 110.3 * a * a).exp()
    } else if a < 0.510 {
        1.0 - (-6.1327 + 20.218 * a - 18.663 * a * a).exp()
    } else if a < 0.950 {
        (0.9209 - 3.353 * a + 0.300 * a * a).exp()
    } else if a < 3.0 {
        (0.731 - 3.009 * a + 0.15 * a * a).exp()
    } else {
        // The fit's parabola turns up again; its tangent at 3 is the asymptotic exponential tail closely enough.
        (0.731 - 3.009 * 3.0 + 0.15 * 9.0 - (3.009 - 0.9) * (a - 3.0)).exp()
    };
    p.clamp(0.0, 1.0)
}

/// p-value of the corrected statistic for a normal with both parameters estimated (D'Agostino and Stephens 1986, table 4.9).
pub fn normal_p(a: f64) -> f64 {
    let p = if a < 0.2 {
        1.0 - (-13.436 + 101.14 * a - 223.73 * a * a).exp()
    } else if a < 0.34 {
        1.0 - (-8.318 + 42.796 * a - 59.938 * a * a).exp()
    } else if a < 0.6 {
        (0.9177 - 4.279 * a - 1.38 * a * a).exp()
    } else if a < 13.0 {
        (1.2937 - 5.709 * a + 0.0186 * a * a).exp()
    } else {
        0.0
    };
    p.clamp(0.0, 1.0)
}

/// p-value with nothing estimated, for n values (Marsaglia and Marsaglia 2004; absolute error below 1e-5).
fn specified_p(a2: f64, n: usize) -> f64 {
    let x = limit_cdf(a2);
    (1.0 - x - finite_correction(n as f64, x)).clamp(0.0, 1.0)
}

/// Limit distribution of A², nothing estimated.
fn limit_cdf(z: f64) -> f64 {
    if z <= 0.0 {
        0.0
    } else if z < 2.0 {
        (-1.2337141 / z).exp() / z.sqrt()
            * (2.00012 + (0.247105 - (0.0649821 - (0.0347962 - (0.011672 - 0.00168691 * z) * z) * z) * z) * z)
    } else {
        (-(1.0776 - (2.30695 - (0.43424 - (0.082433 - (0.008056 - 0.0003146 * z) * z) * z) * z) * z).exp()).exp()
    }
}

/// What the limit lacks at n values, as a function of the limit's probability x.
fn finite_correction(n: f64, x: f64) -> f64 {
    if x > 0.8 {
        return (-130.2137 + (745.2337 - (1705.091 - (1950.646 - (1116.360 - 255.7844 * x) * x) * x) * x) * x) / n;
    }
    let c = 0.01265 + 0.1757 / n;
    if x < c {
        let t = x / c;
        let t = t.sqrt() * (1.0 - t) * (49.0 * t - 102.0);
        t * (0.0037 / (n * n) + 0.00078 / n + 0.00006) / n
    } else {
        let t = (x - c) / (0.8 - c);
        let t = -0.00022633 + (6.54034 - (14.6538 - (14.458 - (8.259 - 1.91864 * t) * t) * t) * t) * t;
        t * (0.04213 + 0.01365 / n) / n
    }
}

fn logarithms(data: &[f64], what: &'static str) -> Result<Vec<f64>, Error> {
    data.iter()
        .map(|&value| {
            if value > 0.0 { Ok(value.ln()) } else { Err(Error::BadValue { what, value, why: "it has no logarithm" }) }
        })
        .collect()
}

fn checked(data: &[f64], what: &'static str, needed: usize) -> Result<Vec<f64>, Error> {
    if let Some(&value) = data.iter().find(|value| !value.is_finite()) {
        return Err(Error::BadValue { what, value, why: "it must be a finite number" });
    }
    if data.len() < needed {
        return Err(Error::TooFew { what, needed, got: data.len() });
    }
    Ok(crate::quantile::sorted(data.to_vec()))
}
