//! The unprofiled latency of each configuration. In: outcomes of loads. Out: percentiles of each repeat in ns, their
//! medians, and ratios. A percentile that the sample cannot support is `None`.

use serde::Serialize;
use tailsight_testbed::load::LoadSummary;

/// The names of the figures, in the order of [`Repeat::memcached_ns`].
pub const NAMES: [&str; 5] = ["p50", "p99", "p99.9", "p99.99", "max"];
/// Parts of the requests that are slower than each percentile, in 1 of so many.
const ONE_IN: [u64; 4] = [2, 100, 1000, 10_000];

/// The measurement of one repeat of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Repeat {
    /// Requests to memcached that were due, and those without a good reply.
    pub requests: u64,
    pub missing: u64,
    /// Latency from when requests were due, ns, as [`NAMES`].
    pub memcached_ns: [Option<u64>; 5],
    /// The 99th percentile of how late the client itself sent, ns.
    pub late_p99_ns: Option<u64>,
    /// nginx: p50 and p99, ns.
    pub nginx_ns: [Option<u64>; 2],
}

impl Repeat {
    /// From [memcached, nginx].
    pub fn of(memcached: &LoadSummary, nginx: &LoadSummary) -> Self {
        let [p50, p99, ..] = percentiles(&nginx.samples_ns, nginx.intended);
        Self {
            requests: memcached.intended,
            missing: memcached.intended - memcached.received,
            memcached_ns: percentiles(&memcached.samples_ns, memcached.intended),
            late_p99_ns: memcached.late_p99_ns,
            nginx_ns: [p50, p99],
        }
    }
}

/// The figures over `intended` requests, of which those without a sample were slower than all that have one.
///
/// The percentile above which one request in n lies takes at least n requests.
fn percentiles(sorted_ns: &[u64], intended: u64) -> [Option<u64>; 5] {
    let at = |one_in: u64| {
        let rank = intended - intended / one_in;
        (intended >= one_in).then(|| sorted_ns.get(rank.checked_sub(1)? as usize).copied())?
    };
    let max = sorted_ns.last().copied().filter(|_| sorted_ns.len() as u64 == intended);
    [at(ONE_IN[0]), at(ONE_IN[1]), at(ONE_IN[2]), at(ONE_IN[3]), max]
}

/// The median over repeats; `None` when a repeat has none.
pub fn median(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let mut sorted_ns: Vec<u64> = values.collect::<Option<_>>()?;
    sorted_ns.sort_unstable();
    let half = sorted_ns.len() / 2;
    match sorted_ns.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted_ns[half]),
        _ => Some(sorted_ns[half - 1].midpoint(sorted_ns[half])),
    }
}

/// The medians of a configuration, as [`NAMES`].
pub fn medians(repeats: &[Repeat]) -> [Option<u64>; 5] {
    std::array::from_fn(|i| median(repeats.iter().map(|repeat| repeat.memcached_ns[i])))
}

/// How many times lower the last configuration's figures are than the first's.
pub fn ratios(first: &[Option<u64>; 5], last: &[Option<u64>; 5]) -> [Option<f64>; 5] {
    std::array::from_fn(|i| Some(first[i]? as f64 / last[i].filter(|ns| *ns > 0)? as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_percentile_needs_the_requests_that_it_speaks_of() {
        let latencies_ns: Vec<u64> = (1..=9999).collect();
        assert_eq!(percentiles(&latencies_ns, 9999), [Some(5000), Some(9900), Some(9990), None, Some(9999)]);
        let latencies_ns: Vec<u64> = (1..=10_000).collect();
        assert_eq!(percentiles(&latencies_ns, 10_000), [Some(5000), Some(9900), Some(9990), Some(9999), Some(10_000)]);
        assert_eq!(percentiles(&[], 0), [None; 5]);
        assert_eq!(percentiles(&[7], 1), [None, None, None, None, Some(7)]);
    }

    #[test]
    fn requests_without_a_reply_are_the_slowest_and_not_left_out() {
        let latencies_ns: Vec<u64> = (1..=995).collect();
        // Five of 1000 have no reply: the 99th percentile is known, those above are not.
        assert_eq!(percentiles(&latencies_ns, 1000), [Some(500), Some(990), None, None, None]);
    }

    #[test]
    fn medians_and_ratios() {
        assert_eq!(median([3, 1, 2].map(Some).into_iter()), Some(2));
        assert_eq!(median([3, 1, 2, 8].map(Some).into_iter()), Some(2));
        assert_eq!(median([Some(1), None, Some(3)].into_iter()), None);
        assert_eq!(median(std::iter::empty()), None);
        let first = [Some(100), Some(50), None, Some(1), Some(1)];
        let last = [Some(25), Some(100), Some(1), None, Some(0)];
        assert_eq!(ratios(&first, &last), [Some(4.0), Some(0.5), None, None, None]);
    }

    proptest! {
        #[test]
        fn percentiles_rise_and_at_most_one_in_n_is_above(
            mut samples in proptest::collection::vec(0_u64..1_000_000, 0..30_000),
        ) {
            samples.sort_unstable();
            let n = samples.len() as u64;
            let figures = percentiles(&samples, n);
            for (one_in, figure) in ONE_IN.iter().zip(figures) {
                prop_assert_eq!(figure.is_some(), n >= *one_in);
                if let Some(ns) = figure {
                    let above = samples.iter().filter(|sample| **sample > ns).count() as u64;
                    prop_assert!(above <= n / one_in, "{} of {} above {}", above, n, ns);
                }
            }
            let percentiles_ns: Vec<u64> = figures.into_iter().flatten().collect();
            prop_assert!(percentiles_ns.is_sorted());
        }
    }
}
