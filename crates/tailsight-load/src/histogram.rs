//! A histogram of the client's own lateness over all requests. In: ns. Out: percentiles, at most 1.6 % above the truth.
//!
//! Only the client's lateness is stored this way: it is compared with a limit, not reported as a latency. Latencies are
//! samples.

use serde::{Deserialize, Serialize};

/// Bins a power of two.
const PER_OCTAVE: usize = 64;
const BINS: usize = (64 - 6 + 1) * PER_OCTAVE;

/// Counts in bins of equal relative width.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Histogram {
    bins: Vec<u64>,
    count: u64,
    max: u64,
    sum: u128,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { bins: vec![0; BINS], count: 0, max: 0, sum: 0 }
    }
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.bins[Self::bin(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
        self.sum += u128::from(value);
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            *bin += more;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    #[inline]
    fn bin(value: u64) -> usize {
        if value < PER_OCTAVE as u64 {
            return value as usize;
        }
        let octave = value.ilog2() as usize - 6;
        (octave + 1) * PER_OCTAVE + (value >> octave) as usize - PER_OCTAVE
    }

    /// The highest value of a bin.
    fn top(bin: usize) -> u64 {
        if bin < PER_OCTAVE {
            return bin as u64;
        }
        let octave = bin / PER_OCTAVE - 1;
        let next = ((bin % PER_OCTAVE + PER_OCTAVE) as u128 + 1) << octave;
        (next - 1).min(u128::from(u64::MAX)) as u64
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest; 0 when there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 when there is none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The value that a share `q` of the values do not exceed, at most 1.6 % too high; `None` when there are none.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        let mut cumulative = 0;
        let bin = self.bins.iter().position(|n| {
            cumulative += n;
            cumulative >= rank
        })?;
        (self.count > 0).then(|| Self::top(bin).min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_right_within_a_bin(values in proptest::collection::vec(proptest::num::u64::ANY, 1..200), q in 0.0..=1.0_f64) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|v| histogram.add(*v));
            let mut sorted = values;
            sorted.sort_unstable();
            let exact = sorted[((sorted.len() as f64 * q).ceil() as usize).clamp(1, sorted.len()) - 1];
            let estimate = histogram.quantile(q).unwrap();
            prop_assert!(estimate >= exact && estimate - exact <= exact / 64 + 1, "{exact} {estimate}");
        }
    }

    #[test]
    fn the_ends_are_exact() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        histogram.add(0);
        histogram.add(u64::MAX);
        assert_eq!((histogram.quantile(0.0), histogram.quantile(1.0)), (Some(0), Some(u64::MAX)));
    }
}
