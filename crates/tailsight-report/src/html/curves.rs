//! Distributions for the page: of each leg and of each stage between the stamps T1 to T6, over all complete messages.
//!
//! In: messages in order of arrival. Out: points (ns, share of the messages that are as slow or slower), no more than a screen can show,
//! but each of the slowest hundred; and the 95 % intervals of each leg's percentiles. Slow messages come in groups, so the intervals are
//! computed for the number of independent messages that would give as much information (tailsight-stats, `effective`).

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;
use tailsight_lifetime::model::STAGES;
use tailsight_lifetime::{Leg, Message};
use tailsight_stats::effective::dependent_interval_sorted;

/// Points of a curve besides the slowest.
const CURVE: usize = 600;
/// So many of the slowest messages have a point each.
const SLOWEST: usize = 100;

/// One distribution.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Curve {
    /// A leg or a stage.
    name: &'static str,
    /// `leg` or `stage`.
    #[cfg_attr(test, schemars(extend("enum" = ["leg", "stage"])))]
    kind: &'static str,
    messages: usize,
    points: Vec<(u64, f64)>,
    /// By percentile of a leg: 95 % interval, ns; without percentiles that need more messages.
    intervals: BTreeMap<String, (u64, u64)>,
}

/// The distributions of the legs, then those of the stages, without those that no message has. `percentiles`: those with intervals (`p50`,
/// `p99` …).
pub(super) fn curves(messages: &[Message], percentiles: &[&str]) -> Vec<Curve> {
    let mut out = Vec::new();
    let mut add = |name, kind, mut values: Vec<u64>| {
        values.sort_unstable();
        if !values.is_empty() {
            let intervals = BTreeMap::new();
            out.push(Curve { name, kind, messages: values.len(), points: curve(&values), intervals });
        }
    };
    for leg in Leg::ALL {
        add(leg.name(), "leg", messages.iter().filter_map(|m| m.latency(leg)).collect());
    }
    let mut stages: [Vec<u64>; STAGES.len()] = Default::default();
    for times in messages.iter().filter_map(Message::stages) {
        stages.iter_mut().zip(times).for_each(|(values, ns)| values.push(ns));
    }
    for (name, values) in STAGES.into_iter().zip(stages) {
        add(name, "stage", values);
    }
    let legs: Vec<Leg> = if percentiles.is_empty() { vec![] } else { Leg::ALL.to_vec() };
    let by_leg: Vec<_> = legs.into_par_iter().map(|leg| (leg.name(), intervals(messages, leg, percentiles))).collect();
    for (name, intervals) in by_leg {
        if let Some(curve) = out.iter_mut().find(|curve| curve.kind == "leg" && curve.name == name) {
            curve.intervals = intervals;
        }
    }
    out
}

/// The quantile of a percentile's key: 0.99 of `p99`.
pub(super) fn quantile_of(key: &str) -> Option<f64> {
    Some(key.strip_prefix('p')?.parse::<f64>().ok()? / 100.0)
}

/// The 95 % intervals of a leg's percentiles, over its messages in order of arrival.
fn intervals(messages: &[Message], leg: Leg, percentiles: &[&str]) -> BTreeMap<String, (u64, u64)> {
    let series: Vec<f64> = messages.iter().filter_map(|m| m.latency(leg)).map(|ns| ns as f64).collect();
    let mut sorted = series.clone();
    sorted.par_sort_unstable_by(f64::total_cmp);
    let interval_of = |key: &&str| {
        let q = quantile_of(key)?;
        let (interval, effective) = dependent_interval_sorted(&series, &sorted, q, 0.95)?;
        effective.settled.then(|| ((*key).to_owned(), (interval.lower.round() as u64, interval.upper.round() as u64)))
    };
    percentiles.par_iter().filter_map(interval_of).collect()
}

/// (latency, share of samples that are slower or as slow): steps for a log axis of shares. The slowest are all there.
pub(crate) fn curve(sorted: &[u64]) -> Vec<(u64, f64)> {
    let n = sorted.len();
    let at = |i: usize| (sorted[i], (n - i) as f64 / n as f64);
    let tail = n.saturating_sub(SLOWEST);
    let mut chosen: Vec<usize> = Vec::with_capacity(CURVE + SLOWEST);
    if tail > 0 {
        // Half of the points are spaced evenly over the ranks, half over the logarithm of the share that is slower.
        chosen.extend((0..CURVE / 2).map(|k| k * tail / (CURVE / 2)));
        let depth = (n as f64 / SLOWEST as f64).ln();
        chosen.extend((0..CURVE / 2).map(|k| {
            let share = (-depth * k as f64 / (CURVE / 2) as f64).exp();
            (n - (share * n as f64) as usize).min(tail - 1)
        }));
    }
    chosen.extend(tail..n);
    chosen.sort_unstable();
    chosen.dedup();
    chosen.into_iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_the_slowest_one_by_one_and_falls() {
        let values: Vec<u64> = (1..=50_000).collect();
        let points = curve(&values);
        assert!(points.len() <= CURVE + SLOWEST && points.len() > CURVE / 2);
        assert_eq!((points[0], points[points.len() - 1]), ((1, 1.0), (50_000, 1.0 / 50_000.0)));
        assert!(points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 > w[1].1));
        assert_eq!(&points[points.len() - SLOWEST..].iter().map(|p| p.0).collect::<Vec<_>>(), &values[49_900..]);
        assert_eq!(curve(&[]).len(), 0);
        assert_eq!(curve(&[7]), [(7, 1.0)]);
    }

    /// The page said that p99.9 needs 1,000 messages, of 1,920.
    #[test]
    fn the_page_says_how_many_messages_a_percentile_needs_by_the_rule_that_refused_it() {
        let needed = ["p50", "p99", "p99.9", "max"].map(|key| quantile_of(key).map(tailsight_stats::quantile::needed));
        assert_eq!(needed, [Some(6), Some(368), Some(3_688), None]);
    }

    /// Independent messages have the binomial interval; messages that come in groups of twenty equal ones have a wider one; too few
    /// messages have none.
    #[test]
    fn percentiles_have_intervals_that_know_of_bursts() {
        // SplitMix64.
        let hash = |i: u64| {
            let z = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let run = |n: u64, alike: u64| -> Vec<Message> {
            let ns = |i: u64| 1_000 + hash(i / alike) % 100_000;
            (0..n).map(|i| Message { driver_ns: 1, recv_ns: 1 + ns(i), ..Message::default() }).collect()
        };
        let intervals_of = |messages: &[Message]| curves(messages, &["p50", "p90", "max"]).remove(0).intervals;
        let (single, bursts) = (intervals_of(&run(20_000, 1)), intervals_of(&run(20_000, 20)));
        let (low, high) = single["p50"];
        // 1.96 √(¼ / 20,000) of 100,000 ns to both sides, for a uniform latency.
        assert!(low < 51_000 && 51_000 < high && (900..2_400).contains(&(high - low)), "{single:?}");
        let wide = bursts["p50"].1 - bursts["p50"].0;
        assert!(wide > 3 * (high - low), "{wide} beside {}", high - low);
        assert_eq!(single.keys().collect::<Vec<_>>(), ["p50", "p90"]);
        assert!(intervals_of(&run(40, 1)).is_empty());
    }

    #[test]
    fn legs_and_stages_that_were_seen_have_a_curve() {
        let received = Message { driver_ns: 100, handoff_ns: 110, recv_ns: 150, ..Message::default() };
        let names =
            |messages: &[Message]| curves(messages, &["p50"]).iter().map(|c| (c.kind, c.name)).collect::<Vec<_>>();
        assert_eq!(names(&[received]), [("leg", "receive")]);
        let whole = Message { send_ns: 180, xmit_ns: 200, ..received };
        assert_eq!(names(&[whole]).len(), 9);
        assert_eq!(names(&[]), []);
    }
}
