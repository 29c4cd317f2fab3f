//! Spearman's rank correlation of a series with itself: are samples independent? (Lancet §4.3, unbiased result processing.)
//!
//! In: a series in time order. Out: rank autocorrelations with p-values (Student's t), corrected for the number of lags by
//! Holm, a portmanteau over many lags (Ljung-Box on ranks), and whether the samples above a percentile come in clusters: what
//! an interval of a percentile depends on is the independence of the indicator "above it", which ranks alone may not show.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::special::{chi_square_tail, poisson_tail, student_two_sided};

/// A correlation and its p-value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Correlation {
    /// Spearman's ρ.
    pub rho: f64,
    /// Two-sided p-value of "no correlation".
    pub p_value: f64,
    /// Pairs.
    pub n: usize,
}

/// Ranks from 1; equal values share the mean of their ranks.
pub fn midranks(values: &[f64]) -> Vec<f64> {
    Ranked::new(values, 0.0).ranks
}

/// A series with its ranks and its sorted values, so that a look at the data sorts it once.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Midranks from 1, in time order.
    pub ranks: Vec<f64>,
    /// The values, ascending.
    pub sorted: Vec<f64>,
    /// Place in time of each of the sorted values.
    order: Vec<u32>,
    resolution: f64,
}

impl Ranked {
    /// Sorts a series (of up to 2^32 values). Values that round to the same multiple of `resolution` share a rank (0: only
    /// equal ones do): ranks would otherwise blow up differences that nobody asked about, such as a shift by a nanosecond of
    /// the one latency that half of the requests have.
    pub fn new(values: &[f64], resolution: f64) -> Self {
        let mut pairs: Vec<(f64, u32)> = values.iter().copied().zip(0..).collect();
        pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (sorted, order) = pairs.into_iter().unzip();
        Self::from_sorted(sorted, order, resolution)
    }

    fn from_sorted(sorted: Vec<f64>, order: Vec<u32>, resolution: f64) -> Self {
        let cell = |x: f64| if resolution > 0.0 { (x / resolution).round() } else { x };
        let mut ranks = vec![0.0; order.len()];
        let mut from = 0;
        while from < order.len() {
            let here = cell(sorted[from]);
            let ties = sorted[from..].iter().take_while(|x| cell(**x) == here).count().max(1);
            let rank = (2 * from + ties + 1) as f64 / 2.0;
            for i in &order[from..from + ties] {
                ranks[*i as usize] = rank;
            }
            from += ties;
        }
        Self { ranks, sorted, order, resolution }
    }

    /// Places in time of the values above a threshold, in time order.
    pub fn above(&self, threshold: f64) -> Vec<usize> {
        let first = self.sorted.partition_point(|x| *x <= threshold);
        let mut places: Vec<usize> = self.order[first..].iter().map(|i| *i as usize).collect();
        places.sort_unstable();
        places
    }

    /// The part of the series that `keep` marks, in time order, ranked again without sorting.
    pub fn filter(&self, keep: &[bool]) -> Self {
        let mut place = 0;
        let places: Vec<u32> = keep
            .iter()
            .map(|kept| {
                place += u32::from(*kept);
                place.wrapping_sub(1)
            })
            .collect();
        let left = self.order.iter().zip(&self.sorted).filter(|(i, _)| keep[**i as usize]);
        let (order, sorted) = left.map(|(i, x)| (places[*i as usize], *x)).unzip();
        Self::from_sorted(sorted, order, self.resolution)
    }
}

/// Spearman's correlation of two equally long lists.
pub fn spearman(x: &[f64], y: &[f64]) -> Result<Correlation, Error> {
    let what = "Spearman's correlation";
    if x.len() < 4 || x.len() != y.len() {
        return Err(Error::TooFew { what, needed: 4.max(x.len()), got: y.len() });
    }
    let rho = pearson(&midranks(x), &midranks(y)).ok_or(Error::Undefined { what, why: "the values do not vary" })?;
    Ok(with_p(rho, x.len()))
}

fn with_p(rho: f64, n: usize) -> Correlation {
    let df = n as f64 - 2.0;
    let t = rho * (df / ((1.0 + rho) * (1.0 - rho)).max(0.0)).sqrt();
    Correlation { rho, p_value: student_two_sided(t, df), n }
}

fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    let n = x.len() as f64;
    let (mx, my) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (a, b) in x.iter().zip(y) {
        let (a, b) = (a - mx, b - my);
        xy += a * b;
        xx += a * a;
        yy += b * b;
    }
    (xx > 0.0 && yy > 0.0).then(|| (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0))
}

/// What a series looks like to the independence test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Autocorrelation {
    /// (lag, correlation) for each lag tested.
    pub lags: Vec<(usize, Correlation)>,
    /// The lag with the smallest p-value.
    pub worst_lag: usize,
    /// ρ at that lag.
    pub worst_rho: f64,
    /// Smallest p-value of a single lag after Holm's correction.
    pub p_lags: f64,
    /// Ljung-Box over the first [`PORTMANTEAU`] lags: its p-value. Finds many weak correlations of one sign.
    pub p_portmanteau: f64,
    /// The verdict's p-value: the smaller of the two, doubled (Bonferroni).
    pub p_value: f64,
    /// Samples.
    pub n: usize,
}

/// Lags behind the portmanteau.
pub const PORTMANTEAU: usize = 20;

/// The lags of the independence test: close ones all, far ones by powers of two.
pub const LAGS: [usize; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128];

/// Rank autocorrelations of a series at [`LAGS`] (up to a quarter of its length).
pub fn autocorrelation(series: &[f64]) -> Result<Autocorrelation, Error> {
    autocorrelation_of_ranks(&midranks(series))
}

/// The same from midranks.
pub fn autocorrelation_of_ranks(ranks: &[f64]) -> Result<Autocorrelation, Error> {
    let what = "the rank autocorrelation";
    let n = ranks.len();
    if n < 4 * PORTMANTEAU {
        return Err(Error::TooFew { what, needed: 4 * PORTMANTEAU, got: n });
    }
    let mean = (n as f64 + 1.0) / 2.0;
    let centred: Vec<f64> = ranks.iter().map(|r| r - mean).collect();
    let variance: f64 = centred.iter().map(|r| r * r).sum();
    if variance <= 0.0 {
        return Err(Error::Undefined { what, why: "the values do not vary" });
    }
    let at = |lag: usize| centred[lag..].iter().zip(&centred).map(|(a, b)| a * b).sum::<f64>() / variance;
    let near: Vec<f64> = (1..=PORTMANTEAU).map(at).collect();
    let q = n as f64 * (n as f64 + 2.0) * near.iter().zip(1..).map(|(r, k)| r * r / (n - k) as f64).sum::<f64>();
    let p_portmanteau = chi_square_tail(q, PORTMANTEAU as f64);
    let lags: Vec<(usize, Correlation)> = LAGS
        .iter()
        .filter(|lag| **lag <= n / 4)
        .map(|&lag| {
            let sum = near.get(lag - 1).copied().unwrap_or_else(|| at(lag));
            // Under independence a sum over n − lag pairs has mean −1/n and a variance of (n − lag)/n².
            let rho = (sum + 1.0 / n as f64) * n as f64 / (n - lag) as f64;
            (lag, with_p(rho.clamp(-1.0, 1.0), n - lag))
        })
        .collect();
    let (worst_lag, worst) = lags
        .iter()
        .min_by(|a, b| a.1.p_value.total_cmp(&b.1.p_value))
        .map(|(lag, c)| (*lag, *c))
        .unwrap_or((1, with_p(0.0, n)));
    let p_lags = holm(&lags.iter().map(|(_, c)| c.p_value).collect::<Vec<_>>()).into_iter().fold(1.0, f64::min);
    let p_value = (2.0 * p_lags.min(p_portmanteau)).min(1.0);
    Ok(Autocorrelation { worst_lag, worst_rho: worst.rho, lags, p_lags, p_portmanteau, p_value, n })
}

/// Holm's step-down correction: p-values that may each be held against the level of the whole family, in the order given.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut largest: f64 = 0.0;
    for (rank, &i) in order.iter().enumerate() {
        largest = largest.max((p_values.len() - rank) as f64 * p_values[i]).min(1.0);
        corrected[i] = largest;
    }
    corrected
}

/// Whether samples above a threshold come in clusters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Clustering {
    /// Pairs of samples above the threshold at most [`CLUSTER_WINDOW`] apart.
    pub pairs: u64,
    /// Pairs that independent samples would have on average.
    pub expected: f64,
    /// Probability of so many pairs when samples are independent.
    pub p_value: f64,
    /// Samples above the threshold.
    pub above: usize,
    /// Samples.
    pub n: usize,
}

/// How close two samples above the threshold must be to count as a pair.
pub const CLUSTER_WINDOW: usize = 10;

/// Counts close pairs of samples above a threshold; under independence the count is Poisson to a good approximation while
/// few samples are above it (a tenth or less).
pub fn clustering(series: &[f64], threshold: f64) -> Clustering {
    let above: Vec<usize> = (0..series.len()).filter(|i| series[*i] > threshold).collect();
    clustering_of(&above, series.len())
}

/// The same from the places, in order, of the samples above the threshold among `n`.
pub fn clustering_of(above: &[usize], n: usize) -> Clustering {
    let mut pairs = 0;
    let mut first = 0;
    for (i, position) in above.iter().enumerate() {
        while position - above[first] > CLUSTER_WINDOW {
            first += 1;
        }
        pairs += (i - first) as u64;
    }
    let (m, samples, w) = (above.len() as f64, n as f64, CLUSTER_WINDOW as f64);
    let share = if n > 2 * CLUSTER_WINDOW {
        (w * samples - w * (w + 1.0) / 2.0) / (samples * (samples - 1.0) / 2.0)
    } else {
        1.0
    };
    let expected = m * (m - 1.0) / 2.0 * share;
    Clustering { pairs, expected, p_value: poisson_tail(pairs, expected), above: above.len(), n }
}
