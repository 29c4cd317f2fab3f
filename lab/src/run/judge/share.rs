//! The shares of causes, named and true. In: a scenario, the causes of a diagnosis, the client's samples, the truth logs. Out: [`Share`]s.
//!
//! The true share is computed from the client's own samples and the truth logs alone. With `part(m)` the time of message
//! m's leg that the fault has (by [`How`]), and the slices of the diagnosis, p99..p100 (focus) and p45..p55 (reference):
//!
//!     share = (mean part in focus − mean part in reference) / (mean leg in focus − mean leg in reference)

use std::collections::BTreeMap;

use serde::Serialize;
use tailsight_lab::probe::Sample;
use tailsight_lab::truth::{Interval, kind};
use tailsight_testbed::Cover;

use super::super::scenario::{Function, How, Scenario, Truth};
use super::QUEUE;
use super::answer::{InFunction, InQueue, Named};
use super::seen::{as_seen, whole};

/// The time of a sample's leg (from, to) that a cause has, ns.
type Part = Box<dyn Fn(u64, u64, &Sample) -> u64>;

/// A share beside its truth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// The cause, as `category name`.
    pub cause: String,
    /// What the diagnosis says, 0 to 1.
    pub named: f64,
    /// The true share.
    pub truth: f64,
}

impl Share {
    /// Within ± 15 percentage points.
    pub fn is_right(&self) -> bool {
        (self.named - self.truth).abs() <= 0.15
    }
}

/// The shares of all causes whose truth is known.
pub fn shares(
    scenario: &Scenario,
    causes: &[Named],
    samples: &[Sample],
    logs: &BTreeMap<String, Vec<Interval>>,
    recorded: (u64, u64),
) -> Vec<Share> {
    let received = as_seen(samples, logs);
    let shares = scenario.truth.iter().filter_map(|truth| {
        let part: Part = match truth.how {
            How::Overlap { log, kind } => {
                let cover = covered(logs.get(log)?.iter().filter(|entry| entry.kind == kind));
                Box::new(move |from, to, _| cover.within(from, to))
            }
            How::Service => Box::new(|from, to, s| u64::from(s.service_ns).min(to - from)),
            How::Recovery => {
                let whole = whole(samples, logs);
                Box::new(move |from, to, s| {
                    let whole = whole.get(&(s.connection, from)).copied().unwrap_or(from);
                    whole.clamp(from, to) - from
                })
            }
            How::Ahead => {
                let cover = Cover::of(samples.iter().map(|s| (s.stamps.began_ns, s.stamps.ended_ns)).collect());
                Box::new(move |from, to, s| cover.within(from, to.min(s.stamps.began_ns)))
            }
            How::Others => {
                let cover = Cover::of(busy(samples));
                Box::new(move |from, to, _| cover.within(from, to))
            }
        };
        let truth_share = share(&received, scenario.leg, recorded, part)?;
        let is = |named: &&Named| truth.causes.iter().any(|cause| cause.is(&named.category, &named.name));
        Some(Share {
            cause: truth.causes.first().map(|c| format!("{} {}", c.category, c.name).trim().to_owned())?,
            named: causes
                .iter()
                .map(|cause| {
                    cause.share * if is(&cause) { part_in(cause, truth.functions) } else { behind(cause, truth) }
                })
                .sum(),
            truth: truth_share,
        })
    });
    shares.collect()
}

/// The part of a cause in functions of these names, 0 to 1; all of it if no function is expected.
fn part_in(cause: &Named, functions: Option<Function>) -> f64 {
    functions.map_or(1.0, |f| in_these(&cause.functions, f))
}

fn in_these(functions: &[InFunction], names: Function) -> f64 {
    functions.iter().filter(|p| names.is(&p.name)).map(|p| p.share).sum()
}

/// The part of a wait behind other messages that was for functions of these names in them. The overlap with the function's own log,
/// which is the truth, has these waits, too.
pub(super) fn behind(cause: &Named, truth: &Truth) -> f64 {
    let Some(names) = truth.functions.filter(|_| cause.category == QUEUE) else { return 0.0 };
    let expected = |root: &&InQueue| truth.causes.iter().any(|cause| cause.is(&root.category, &root.name));
    cause.roots.iter().filter(expected).map(|root| root.share * in_these(&root.functions, names)).sum()
}

/// What entries of truth logs cover.
fn covered<'a>(entries: impl Iterator<Item = &'a Interval>) -> Cover {
    Cover::of(entries.map(|entry| (entry.begin_ns, entry.end_ns)).collect())
}

/// The part of the focus's deviation that is of requests which no entry of any truth log touches; `None` without entries.
pub fn untouched(
    scenario: &Scenario,
    seen: &[Sample],
    logs: &BTreeMap<String, Vec<Interval>>,
    recorded: (u64, u64),
) -> Option<f64> {
    let entries = logs.values().flatten().filter(|entry| kind::parts(entry.kind).0 != kind::PASSED);
    let cover = covered(entries);
    if cover.intervals().is_empty() {
        return None;
    }
    let touched = |from, to, _: &Sample| if cover.within(from, to) > 0 { to - from } else { 0 };
    let (focus, reference) = slices(seen, scenario.leg, recorded)?;
    let usual = mean(&reference, &|from, to, _| to - from);
    let excess = |of: &[Leg<'_>]| of.iter().map(|((from, to), _)| (to - from) as f64 - usual).sum::<f64>();
    let out: Vec<Leg<'_>> = focus.iter().copied().filter(|((from, to), s)| touched(*from, *to, s) == 0).collect();
    (excess(&focus) > 0.0).then(|| excess(&out) / excess(&focus))
}

/// The leg of a sample, by the client's and the server's stamps; `None` when it was not seen whole.
fn leg(sample: &Sample, leg: &str) -> Option<(u64, u64)> {
    let (from, to) = match leg {
        "receive" => (sample.sent_ns, sample.stamps.received_ns),
        "service" => (sample.stamps.received_ns, sample.stamps.ended_ns),
        "transmit" => (sample.stamps.ended_ns, sample.answered_ns),
        _ => (sample.sent_ns, sample.answered_ns),
    };
    (from > 0 && to > from).then_some((from, to))
}

/// The leg of a request, and the request.
type Leg<'a> = ((u64, u64), &'a Sample);

/// The legs of the slices that the diagnosis compares, focus and reference; `None` with too few samples.
fn slices<'a>(samples: &'a [Sample], which: &str, recorded: (u64, u64)) -> Option<(Vec<Leg<'a>>, Vec<Leg<'a>>)> {
    let inside = |(from, to): &(u64, u64)| recorded.0 <= *from && *to <= recorded.1;
    let mut legs: Vec<Leg<'a>> =
        samples.iter().filter_map(|sample| Some((leg(sample, which).filter(inside)?, sample))).collect();
    legs.sort_by_key(|((from, to), _)| to - from);
    let slice = |from: f64, to: f64| {
        let n = legs.len() as f64;
        legs[(n * from).round() as usize..(n * to).round() as usize].to_vec()
    };
    let (focus, reference) = (slice(0.99, 1.0), slice(0.45, 0.55));
    (!focus.is_empty() && !reference.is_empty()).then_some((focus, reference))
}

fn mean(slice: &[Leg<'_>], of: &dyn Fn(u64, u64, &Sample) -> u64) -> f64 {
    slice.iter().map(|((from, to), sample)| of(*from, *to, sample) as f64).sum::<f64>() / slice.len() as f64
}

/// The true share of what `part` gives; `None` with too few samples or without a deviation.
fn share(
    samples: &[Sample],
    which: &str,
    recorded: (u64, u64),
    part: impl Fn(u64, u64, &Sample) -> u64,
) -> Option<f64> {
    let (focus, reference) = slices(samples, which, recorded)?;
    let length = |from: u64, to: u64, _: &Sample| to - from;
    let deviation = mean(&focus, &length) - mean(&reference, &length);
    (deviation > 0.0).then(|| (mean(&focus, &part) - mean(&reference, &part)) / deviation)
}

/// When a server of one worker served: from each receive call to the next one when that request was there before this
/// one's service ended, else to the end of its service.
fn busy(samples: &[Sample]) -> Vec<(u64, u64)> {
    let mut received: Vec<&Sample> = samples.iter().filter(|s| s.stamps.received_ns > 0).collect();
    received.sort_by_key(|s| s.stamps.received_ns);
    let next = received.iter().skip(1).map(Some).chain([None]);
    received
        .iter()
        .zip(next)
        .map(|(this, next)| {
            let end = next.filter(|next| next.sent_ns < this.stamps.ended_ns).map(|next| next.stamps.received_ns);
            (this.stamps.received_ns, end.unwrap_or(this.stamps.ended_ns))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailsight_lab::wire::Stamps;

    use super::super::super::catalogue;
    use super::*;

    fn scenario(name: &str) -> Scenario {
        catalogue::all().into_iter().find(|scenario| scenario.name == name).unwrap()
    }

    /// 1,000 requests, 1 ms apart, of 10 us; the last 10 take 110 us of which the fault has `fault` us.
    fn samples(fault: u64) -> (Vec<Sample>, Vec<Interval>) {
        let mut log = Vec::new();
        let samples = (1..=1000_u64)
            .map(|i| {
                let sent_ns = i * 1_000_000;
                let slow = i > 990;
                if slow && fault > 0 {
                    log.push(Interval { begin_ns: sent_ns + 5_000, end_ns: sent_ns + 5_000 + fault * 1000, kind: 1 });
                }
                let received_ns = sent_ns + if slow { 110_000 } else { 10_000 };
                let stamps = Stamps { received_ns, began_ns: received_ns, ended_ns: received_ns + 1000 };
                Sample { sent_ns, answered_ns: received_ns + 2000, stamps, ..Sample::default() }
            })
            .collect();
        (samples, log)
    }

    #[test]
    fn the_true_share_is_the_part_of_the_deviation() {
        for (fault, expected) in [(100, 1.0), (50, 0.5), (0, 0.0)] {
            let (samples, log) = samples(fault);
            let logs = BTreeMap::from([("lab-hog".to_owned(), log)]);
            let named = [Named {
                category: "interference".into(),
                name: "lab-hog".into(),
                role: "A".into(),
                share: 0.6,
                deviation_ns: 1,
                evidence: vec![],
                ..Named::default()
            }];
            let shares = shares(&scenario("cpu-hog"), &named, &samples, &logs, (0, u64::MAX));
            assert_eq!(shares.len(), 1);
            assert!((shares[0].truth - expected).abs() < 1e-9, "{shares:?}");
            assert_eq!(shares[0].is_right(), fault == 50, "{shares:?}");
        }
    }

    #[test]
    fn requests_that_no_fault_met_are_told_apart() {
        let (samples, log) = samples(100);
        let recorded = (0, u64::MAX);
        let untouched_with = |entries: &[Interval]| {
            let logs = BTreeMap::from([("lab-hog".to_owned(), entries.to_vec())]);
            untouched(&scenario("cpu-hog"), &samples, &logs, recorded)
        };
        assert_eq!(untouched_with(&log), Some(0.0));
        // Ten slow requests, of which three were hit; the fault is nowhere else.
        assert!((untouched_with(&log[..3]).unwrap() - 0.7).abs() < 1e-9);
        assert_eq!(untouched_with(&[]), None, "nothing is known");
    }

    #[test]
    fn a_server_is_busy_from_one_request_to_the_next_that_waits() {
        let request = |sent_ns, received_ns, ended_ns| {
            let stamps = Stamps { received_ns, began_ns: received_ns, ended_ns };
            Sample { sent_ns, stamps, ..Sample::default() }
        };
        // The second waits for the first, the third comes when nobody is served.
        let requests = [request(10, 20, 60), request(30, 70, 110), request(200, 210, 250)];
        assert_eq!(busy(&requests), [(20, 70), (70, 110), (210, 250)]);
        let cover = Cover::of(busy(&requests));
        assert_eq!(cover.within(30, 70), 40, "all of the second's wait");
        assert_eq!(cover.within(200, 210), 0);
    }

    #[test]
    fn what_lies_outside_the_recording_does_not_count() {
        let (samples, log) = samples(100);
        let logs = BTreeMap::from([("lab-hog".to_owned(), log)]);
        // Only the first 900 requests, none of which was hit: there is no deviation, and so no share.
        assert!(shares(&scenario("cpu-hog"), &[], &samples, &logs, (0, 900_500_000)).is_empty());
    }

    proptest! {
        #[test]
        fn parts_of_a_partition_have_shares_that_sum_to_one(cut in 0_u64..=100) {
            let (samples, _) = samples(0);
            let whole = |from: u64, to: u64, _: &Sample| to - from;
            let part = move |from: u64, to: u64, _: &Sample| (to - from) * cut / 100;
            let rest = move |from: u64, to: u64, s: &Sample| whole(from, to, s) - part(from, to, s);
            let whole_run = (0, u64::MAX);
            let sum = share(&samples, "receive", whole_run, part).unwrap() + share(&samples, "receive", whole_run, rest).unwrap();
            prop_assert!((sum - 1.0).abs() < 1e-6);
        }
    }
}
