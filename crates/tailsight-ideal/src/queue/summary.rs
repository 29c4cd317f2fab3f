//! Percentiles of many latencies. In: latencies, ns. Out: order statistics, or why there is none; the tail as a curve.

use tailsight_stats::quantile::{needed, rank};

/// A percentile, or how many values it would have needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Percentile {
    /// The value, ns.
    Value(u64),
    /// Too few: an interval at 95 % for this percentile has no upper end among so few values.
    TooFew {
        /// How many there are.
        have: usize,
        /// How many it needs.
        need: usize,
    },
}

impl Percentile {
    /// The value, ns.
    #[must_use]
    pub fn value(self) -> Option<u64> {
        match self {
            Self::Value(ns) => Some(ns),
            Self::TooFew { .. } => None,
        }
    }
}

/// Latencies in rising order.
#[derive(Debug, Clone)]
pub struct Sorted(Vec<u64>);

/// Points of P(latency > x).
#[derive(Debug, Clone, PartialEq)]
pub struct Ccdf(pub Vec<(u64, f64)>);

impl Sorted {
    /// Sorts them.
    #[must_use]
    pub fn new(mut ns: Vec<u64>) -> Self {
        ns.sort_unstable();
        Self(ns)
    }

    /// The values.
    #[must_use]
    pub fn ns(&self) -> &[u64] {
        &self.0
    }

    /// The percentile `q`, above 0 and below 1.
    #[must_use]
    pub fn percentile(&self, q: f64) -> Percentile {
        let (have, need) = (self.0.len(), needed(q));
        if have < need {
            return Percentile::TooFew { have, need };
        }
        Percentile::Value(self.0[rank(have, q) - 1])
    }

    /// The arithmetic mean, ns; 0 of none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let sum: u128 = self.0.iter().map(|ns| u128::from(*ns)).sum();
        sum as f64 / self.0.len().max(1) as f64
    }

    /// The tail, about `points` to a factor of ten of probability, as it is drawn on log axes: the ranks are equally far apart
    /// in log P, the largest value is always one of them.
    #[must_use]
    pub fn ccdf(&self, points: usize) -> Ccdf {
        let n = self.0.len();
        let mut curve = Vec::new();
        let mut last = usize::MAX;
        let steps = (0..).map(|i| 10_f64.powf(-f64::from(i) / points.max(1) as f64) * n as f64);
        for above in steps.take_while(|above| *above > 0.5) {
            // So many are at or above it; the curve says how many are above it.
            let at = n - (above.round() as usize).clamp(1, n);
            if at != last {
                curve.push((self.0[at], (n - at - 1) as f64 / n as f64));
            }
            last = at;
        }
        if let (Some(max), true) = (self.0.last(), last != n.wrapping_sub(1)) {
            curve.push((*max, 0.0));
        }
        Ccdf(curve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_or_says_what_it_needs() {
        assert_eq!((needed(0.5), needed(0.99), needed(0.9999)), (6, 368, 36_887));
        let sorted = Sorted::new((1..=1000).rev().collect());
        assert_eq!(sorted.percentile(0.99), Percentile::Value(990));
        assert_eq!(sorted.percentile(0.5).value(), Some(500));
        assert_eq!(sorted.percentile(0.999), Percentile::TooFew { have: 1000, need: needed(0.999) });
        assert!((sorted.mean() - 500.5).abs() < 1e-12);
    }

    #[test]
    fn the_curve_counts_what_is_above_and_ends_at_the_largest() {
        let curve = Sorted::new((1..=1000).collect()).ccdf(10).0;
        assert_eq!(curve.first(), Some(&(1, 0.999)));
        assert_eq!(curve.last(), Some(&(1000, 0.0)));
        assert!(curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1));
        for (x, above) in curve {
            assert!((above - (1000 - x) as f64 / 1000.0).abs() < 1e-12);
        }
        assert_eq!(Sorted::new(Vec::new()).ccdf(10).0, []);
    }
}
