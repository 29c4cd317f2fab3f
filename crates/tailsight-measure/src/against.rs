//! Is this run worse than that one? In: the samples of two measurements. Out: the difference of the percentile with its
//! interval, a p-value by permutation, and whether that is worse. Latencies are ns.
//!
//! Neighbouring samples depend on each other, so whole blocks of them change sides
//! ([`block_permutation_test`]); the longer of both runs' blocks are used. What changes within seconds (a neighbour, a queue of the machine's)
//! makes a part of a run slower, too: the difference must be larger than its interval, in which each run's own wandering is. What changes from
//! start to start (memory layout, hash seeds) one run each cannot show: `worse_by` keeps such differences from failing a build, and
//! [`crate::in_turn`] measures both servers at the same time.
//!
//! A reply that shared its stamp with later ones came up to `shared_ns` earlier than it says. So a run is worse only if it also is
//! when its replies came as early, and those of the other as late, as they can have come; and better the other way round.

use tailsight_stats::compare::block_permutation_test;
use tailsight_stats::effective::batches;
use tailsight_stats::quantile::{quantile, sorted};

use crate::Error;
use crate::latencies::Latencies;
use crate::report::{Against, Report};

/// False-alarm rate of "worse".
pub const ALPHA: f64 = 0.01;
/// Permutations.
const RESAMPLES: usize = 2_000;
const LEVEL: f64 = 0.95;

/// Compares the `q` quantile of `ours` with that of `other`, both in time order.
///
/// # Errors
/// When either has too few samples.
pub fn compare(
    ours: &Latencies,
    other: &Latencies,
    q: f64,
    allowed: f64,
    file: &str,
    seed: u64,
) -> Result<Against, Error> {
    let length = |series: &[f64]| batches(series).map_or(series.len() / 20, |b| b.length).max(1);
    let block = length(&ours.latest_ns).max(length(&other.latest_ns));
    let test = |a: &[f64], b: &[f64]| block_permutation_test(a, b, q, LEVEL, block, RESAMPLES, seed);
    let comparison = test(&ours.latest_ns, &other.latest_ns)?;
    // The most that can be said for this run, and the most that can be said against it.
    let exact = ours.is_exact() && other.is_exact();
    let (kind, harsh) = if exact {
        (comparison, comparison)
    } else {
        (test(ours.earliest(), &other.latest_ns)?, test(&ours.latest_ns, other.earliest())?)
    };
    let value = |series: &[f64]| quantile(&sorted(series.to_vec()), q).unwrap_or(f64::NAN);
    let other_ns = value(&other.latest_ns);
    // Where stamps alone can make the difference, nothing tells the two apart.
    let alike = !exact && kind.difference <= 0.0 && harsh.difference >= 0.0;
    Ok(Against {
        file: file.to_owned(),
        percentile: crate::measure::name(q),
        value_ns: value(&ours.latest_ns),
        other_ns,
        difference_ns: comparison.difference,
        lower_ns: kind.lower,
        upper_ns: harsh.upper,
        p_slower: kind.p_larger,
        p_different: if alike { 1.0 } else { kind.p_value.max(harsh.p_value) },
        block,
        allowed,
        worse: kind.p_larger < ALPHA && kind.lower > allowed * other_ns,
        better: harsh.p_value < ALPHA && harsh.upper < 0.0,
    })
}

/// Refuses to compare what was not measured under the same load.
///
/// # Errors
/// [`Error::Contradiction`] says what differs.
pub fn comparable(ours: &crate::Question, other: &Report, file: &str) -> Result<(), Error> {
    let (a, b) = (&ours.plan, &other.plan);
    let differ = |what: &str, ours: String, theirs: String| {
        let reason = format!(
            "{file} was measured with {what} {theirs}, this run has {ours}; latencies under different loads cannot be \
             compared"
        );
        Err(Error::Contradiction(reason))
    };
    if ours.latency != other.latency {
        return differ("the latency", format!("{:?}", ours.latency), format!("{:?}", other.latency));
    }
    if a.arrivals != b.arrivals {
        return differ("arrivals", a.arrivals.to_string(), b.arrivals.to_string());
    }
    if a.rate != b.rate && !a.arrivals.is_closed() {
        return differ("the rate", a.rate.to_string(), b.rate.to_string());
    }
    // A file keeps no secrets.
    if a.clone().without_secrets().workload != b.workload || a.protocol != b.protocol {
        return differ(
            "the workload",
            format!("{} {}", a.protocol, a.workload),
            format!("{} {}", b.protocol, b.workload),
        );
    }
    if !other.is_number() {
        return Err(Error::Contradiction(format!(
            "{file} holds no number (its verdict was N/A): measure the baseline again"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_stats::random::Random;

    fn series(seed: u64, scale: f64) -> Vec<f64> {
        let mut random = Random::new(seed);
        // A queue: an AR(1) path under exponential service.
        let mut at = 0.0;
        (0..20_000)
            .map(|_| {
                at = 0.8 * at + random.normal().abs();
                scale * (10_000.0 + 3_000.0 * at - 5_000.0 * random.uniform().ln())
            })
            .collect()
    }

    fn exact(latest_ns: Vec<f64>) -> Latencies {
        Latencies { latest_ns, earliest_ns: None }
    }

    #[test]
    fn a_slower_run_is_worse_and_an_alike_one_is_not() {
        let (series, base) = (|seed, scale| exact(series(seed, scale)), exact(series(1, 1.0)));
        let same = compare(&series(2, 1.0), &base, 0.99, 0.0, "f", 1).unwrap();
        assert!(!same.worse && !same.better && same.block > 1, "{same:?}");
        let slower = compare(&series(3, 1.2), &base, 0.99, 0.0, "f", 1).unwrap();
        assert!(slower.worse && slower.lower_ns > 0.0 && slower.difference_ns < slower.upper_ns, "{slower:?}");
        assert!(!compare(&series(3, 1.2), &base, 0.99, 0.5, "f", 1).unwrap().worse, "20 % is allowed");
        assert!(compare(&series(4, 0.8), &base, 0.99, 0.0, "f", 1).unwrap().better);
        assert!(compare(&exact(vec![1.0]), &base, 0.99, 0.0, "f", 1).is_err());
    }

    /// Regression: the same server was worse, p = 0.0005, in one of three pairs of runs: a neighbour had made one of them slower for a while.
    #[test]
    fn a_run_is_worse_only_by_more_than_it_wanders() {
        // For half of each run, in another half of it, all takes 1.3 times as long.
        let moved = |seed, slow: std::ops::Range<usize>| {
            let scaled = |(i, ns): (usize, f64)| ns * if slow.contains(&i) { 1.3 } else { 1.0 };
            exact(series(seed, 1.0).into_iter().enumerate().map(scaled).collect())
        };
        let alarms = (0..20).filter(|seed| {
            let (ours, base) = (moved(100 + seed, 2_000..14_000), moved(200 + seed, 9_000..12_000));
            compare(&ours, &base, 0.99, 0.0, "f", *seed).unwrap().worse
        });
        let alarms = alarms.count();
        // 19 of 20 by batches alone, which half a run is too long for.
        assert!(alarms <= 4, "{alarms} of 20");
    }

    /// Regression: a run whose replies were read several at a time was worse by what their shared stamps may be late.
    #[test]
    fn what_shared_stamps_may_be_late_by_makes_no_run_worse_or_better() {
        let shared = |seed, scale: f64, late: f64| {
            let came = series(seed, scale);
            Latencies { latest_ns: came.iter().map(|ns| ns * late).collect(), earliest_ns: Some(came) }
        };
        let base = exact(series(1, 1.0));
        // Alike, but read up to 20 % late, in this run or in the other.
        let ours = compare(&shared(3, 1.0, 1.2), &base, 0.99, 0.0, "f", 1).unwrap();
        assert!(!ours.worse && ours.difference_ns > 0.0 && ours.lower_ns < 0.0, "{ours:?}");
        let theirs = compare(&base, &shared(3, 1.0, 1.2), 0.99, 0.0, "f", 1).unwrap();
        assert!(!theirs.better && !theirs.worse && theirs.difference_ns < 0.0 && theirs.upper_ns > 0.0, "{theirs:?}");
        // Slower and faster by more than the stamps can hide.
        let slower = compare(&shared(4, 1.5, 1.1), &base, 0.99, 0.0, "f", 1).unwrap();
        assert!(slower.worse && slower.p_different < ALPHA, "{slower:?}");
        assert!(compare(&shared(5, 0.6, 1.1), &base, 0.99, 0.0, "f", 1).unwrap().better);
    }
}
