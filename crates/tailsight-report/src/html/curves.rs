//! Distributions for the page: of each leg and of each stage between the stamps T1 to T6, over all complete messages.
//!
//! In: messages. Out: points (ns, share of the messages that are as slow or slower), thinned to what a screen can show, the
//! slowest hundred one by one.

use serde::Serialize;
use tailsight_lifetime::model::STAGES;
use tailsight_lifetime::{Leg, Message};

/// Points of a curve besides the slowest.
const CURVE: usize = 600;
/// Of the slowest, so many one by one.
const SLOWEST: usize = 100;

/// One distribution.
#[derive(Serialize)]
pub(super) struct Curve {
    /// A leg or a stage.
    name: &'static str,
    /// `leg` or `stage`.
    kind: &'static str,
    messages: usize,
    points: Vec<(u64, f64)>,
}

/// Those of the legs, then those of the stages; what no message has is left out.
pub(super) fn curves(messages: &[Message]) -> Vec<Curve> {
    let mut out = Vec::new();
    let mut add = |name, kind, mut values: Vec<u64>| {
        values.sort_unstable();
        if !values.is_empty() {
            out.push(Curve { name, kind, messages: values.len(), points: curve(&values) });
        }
    };
    for leg in Leg::ALL {
        add(leg.name(), "leg", messages.iter().filter_map(|m| m.latency(leg)).collect());
    }
    let mut stages: [Vec<u64>; STAGES.len()] = Default::default();
    for times in messages.iter().filter_map(Message::stages) {
        stages.iter_mut().zip(times).for_each(|(all, ns)| all.push(ns));
    }
    for (name, values) in STAGES.into_iter().zip(stages) {
        add(name, "stage", values);
    }
    out
}

/// (latency, share of samples that are slower or as slow): steps for a log axis of shares. The slowest are all there.
pub(crate) fn curve(sorted: &[u64]) -> Vec<(u64, f64)> {
    let n = sorted.len();
    let at = |i: usize| (sorted[i], (n - i) as f64 / n as f64);
    let tail = n.saturating_sub(SLOWEST);
    let mut chosen: Vec<usize> = Vec::with_capacity(CURVE + SLOWEST);
    if tail > 0 {
        // Half the points are even over the ranks, half over the logarithm of the share that is slower.
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

    #[test]
    fn legs_and_stages_that_were_seen_have_a_curve() {
        let seen = Message { driver_ns: 100, handoff_ns: 110, recv_ns: 150, ..Message::default() };
        let names = |of: &[Message]| curves(of).iter().map(|c| (c.kind, c.name)).collect::<Vec<_>>();
        assert_eq!(names(&[seen]), [("leg", "receive")]);
        let whole = Message { send_ns: 180, xmit_ns: 200, ..seen };
        assert_eq!(names(&[whole]).len(), 9);
        assert_eq!(names(&[]), []);
    }
}
