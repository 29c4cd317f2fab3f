//! What was assumed and whether it held, and what is known of each percentile: the one place from which all outputs are made, so
//! that they cannot contradict each other. In: checks, the verdict. Out: [`Assumption`]s, [`Unknown`]s, sentences.

use tailsight_stats::method::{self, CheckId, NoBounds};

use crate::assumption::AssumptionId;
use crate::question::Question;
use crate::report::{Assumption, Checked, State, Unknown, Verdict};

/// ns for a sentence.
fn time(ns: f64) -> String {
    tailsight_units::format::duration(ns.round() as u64)
}

/// Why there is not even an interval.
pub(crate) fn because(why: &NoBounds) -> String {
    let parts = |parts: usize, lowest: f64, highest: f64| match parts {
        0 => String::new(),
        n => format!(" (it was between {} and {} in {n} equal parts of the measurement)", time(lowest), time(highest)),
    };
    match *why {
        NoBounds::NothingRecorded => "no samples were recorded".into(),
        NoBounds::OtherLoad => "what was recorded is the latency under another load than the one asked for".into(),
        NoBounds::OtherArrivals => "what was recorded is the latency under other arrivals than those asked for".into(),
        NoBounds::Failures => "requests that fail have no latency, and are not a random part of all".into(),
        NoBounds::Changing { parts: n, lowest_ns, highest_ns } => {
            format!(
                "the latency changes while it is measured, and how much its samples know of it cannot be told{}",
                parts(n, lowest_ns, highest_ns)
            )
        }
        NoBounds::TooShort { parts: n, lowest_ns, highest_ns } => format!(
            "too few samples for such long correlation: no interval can be computed{}",
            parts(n, lowest_ns, highest_ns)
        ),
        NoBounds::TooFew { n, needed } => {
            let count = |n: usize| tailsight_units::format::count(n as u64);
            format!(
                "{} samples are too few for an interval at this percentile; {} independent ones are needed",
                count(n),
                count(needed)
            )
        }
        _ => "the samples do not tell".into(),
    }
}

/// A percentile of which nothing is known.
pub(crate) fn unknown(missing: &method::Missing) -> Unknown {
    Unknown {
        asked: missing.target.to_string(),
        percentile: method::percentile_name(missing.target.quantile),
        because: because(&missing.because),
    }
}

/// All that was asked, with one reason.
pub(crate) fn all_unknown(question: &Question, because: &str) -> Vec<Unknown> {
    let unknown = |target: &method::PercentileGoal| Unknown {
        asked: target.to_string(),
        percentile: method::percentile_name(target.quantile),
        because: because.into(),
    };
    question.targets.iter().map(unknown).collect()
}

/// The reasons in a sentence: one for all where it is the same.
pub(crate) fn sentence(missing: &[Unknown]) -> Option<String> {
    let first = missing.first()?;
    if missing.iter().all(|m| m.because == first.because) {
        return Some(first.because.clone());
    }
    Some(missing.iter().map(|m| format!("{}: {}", m.percentile, m.because)).collect::<Vec<_>>().join("; "))
}

/// Every assumption once. What the verdict is about did not hold, whatever the last checks say of it: it failed when it counted.
pub(crate) fn assumptions(checks: &[Checked], verdict: &Verdict, closed: bool, agents: usize) -> Vec<Assumption> {
    let blamed = match verdict {
        Verdict::NotAvailable { failed, .. } => Some(failed),
        Verdict::Number { .. } => None,
    };
    let mut assumed: Vec<Assumption> = CheckId::ALL
        .into_iter()
        .filter(|id| agents > 1 || !matches!(id, CheckId::AgentsDiffer | CheckId::ArrivalsSuperposed))
        .map(|check| {
            let id = AssumptionId::Method(check);
            let made = || checks.iter().filter(|c| c.id == id);
            let (n, passed) = (made().count(), made().filter(|c| c.passed).count());
            let (state, because) = if blamed.is_some_and(|f| f.id == id) || passed < n && !check.is_allowed_for() {
                (State::NotHeld, None)
            } else if passed < n {
                (State::AllowedFor, None)
            } else if n > 0 && is_blind(check, checks) {
                (State::NotChecked, Some(TOO_SHORT.into()))
            } else if n > 0 {
                (State::Held, None)
            } else {
                (State::NotChecked, Some(why_not(check, blamed, closed)))
            };
            Assumption { id, state, checks: n, passed, because }
        })
        .collect();
    if let Some(failed) = blamed.filter(|f| assumed.iter().all(|a| a.id != f.id)) {
        assumed.push(Assumption { id: failed.id.clone(), state: State::NotHeld, checks: 1, passed: 0, because: None });
    }
    assumed
}

const TOO_SHORT: &str = "in so short a run a drift cannot be told from a long queue";

/// Whether a test of drift that passed says nothing, because the run failed the test of its length.
fn is_blind(check: CheckId, checks: &[Checked]) -> bool {
    let length = AssumptionId::Method(CheckId::RunLength);
    matches!(check, CheckId::Drift | CheckId::TailDrift) && checks.iter().any(|c| c.id == length && !c.passed)
}

/// Why an assumption was not checked.
fn why_not(check: CheckId, blamed: Option<&Checked>, closed: bool) -> String {
    use CheckId::{ArrivalIndependence, Arrivals, ArrivalsSuperposed, ClientLateness, Load};
    let open_only = matches!(check, Load | ClientLateness | Arrivals | ArrivalsSuperposed | ArrivalIndependence);
    match blamed {
        _ if closed && open_only => "a closed loop has no rate and no times at which requests are due".into(),
        Some(failed) => format!("the measurement ended at `{}` before", failed.id),
        None if matches!(check, Arrivals | ArrivalsSuperposed | ArrivalIndependence) => {
            "these arrivals have no gaps of one law".into()
        }
        None => "it does not apply to this load".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assumption::Na;

    fn check(id: &str, passed: bool) -> Checked {
        Checked::of(id, passed)
    }

    fn na(failed: Checked) -> Verdict {
        Verdict::refused_for(failed)
    }

    fn state(all: &[Assumption], id: &str) -> State {
        all.iter().find(|a| a.id.name() == id).expect(id).state
    }

    /// Regression: "N/A: the latency drifts" stood beside "checked: … no drift", for a check that had passed had one that had not
    /// beside it.
    #[test]
    fn an_assumption_holds_only_when_all_of_its_checks_do() {
        let checks = [check("arrivals", true), check("arrivals", false), check("drift", true), check("load", true)];
        let assumed = assumptions(&checks, &na(check("drift", false)), false, 1);
        assert_eq!((state(&assumed, "arrivals"), state(&assumed, "load")), (State::NotHeld, State::Held));
        assert_eq!(state(&assumed, "drift"), State::NotHeld, "the verdict is about it");
        assert_eq!(state(&assumed, "warm-up"), State::NotChecked);
        let why = assumed.iter().find(|a| a.id.name() == "warm-up").unwrap().because.clone().unwrap();
        assert!(why.contains("`drift`"), "{why}");
        let own = assumptions(&[check("load", true)], &na(check("stalled", false)), false, 1);
        assert_eq!(state(&own, "stalled"), State::NotHeld);
        let ids: std::collections::BTreeSet<&str> = own.iter().map(|a| a.id.name()).collect();
        assert_eq!(ids.len(), own.len(), "each once");
    }

    /// "a drift cannot be told from a long queue" stood beside "checks passed: … no drift of the median, no drift of the tail".
    #[test]
    fn a_drift_that_a_short_run_cannot_show_is_not_checked() {
        let about = |check: Checked, percentile: &str| Checked { subject: Some(percentile.into()), ..check };
        let short = check("run-length", false);
        let drifts = [check("drift", true), about(check("tail-drift", true), "p50")];
        let assumed = assumptions(&[&drifts[..], std::slice::from_ref(&short)].concat(), &na(short.clone()), false, 1);
        for id in ["drift", "tail-drift"] {
            let assumption = assumed.iter().find(|a| a.id.name() == id).unwrap();
            assert_eq!(assumption.state, State::NotChecked, "{id}");
            assert!(assumption.because.as_ref().unwrap().contains("cannot be told"));
        }
        // A drift that is seen is one all the same.
        let assumed = assumptions(&[check("drift", false), short.clone()], &na(short), false, 1);
        assert_eq!(state(&assumed, "drift"), State::NotHeld);
    }

    #[test]
    fn what_the_interval_allows_for_is_neither_held_nor_broken() {
        let number = Verdict::Number { percentiles: Vec::new() };
        let checks = [check("independence", false), check("independence", true), check("agents-differ", false)];
        let assumed = assumptions(&checks, &number, true, 2);
        assert_eq!(state(&assumed, "independence"), State::AllowedFor);
        assert_eq!(state(&assumed, "agents-differ"), State::AllowedFor);
        let load = assumed.iter().find(|a| a.id.name() == "load").unwrap();
        assert_eq!(load.state, State::NotChecked);
        assert!(load.because.as_ref().unwrap().contains("closed loop"));
    }

    #[test]
    fn every_way_to_end_keeps_what_is_known_or_says_why_not() {
        for na in Na::ALL {
            assert!(na.voids().is_none_or(|why| why.len() > 20), "{na:?}");
            assert!(!na.id().is_empty());
        }
        for why in [
            NoBounds::NothingRecorded,
            NoBounds::OtherLoad,
            NoBounds::OtherArrivals,
            NoBounds::Failures,
            NoBounds::Changing { parts: 8, lowest_ns: 1.5e3, highest_ns: 2.5e6 },
            NoBounds::TooShort { parts: 0, lowest_ns: 0.0, highest_ns: 0.0 },
            NoBounds::TooFew { n: 10, needed: 299 },
        ] {
            assert!(because(&why).len() > 20, "{why:?}");
        }
        let changing = because(&NoBounds::Changing { parts: 8, lowest_ns: 1.5e3, highest_ns: 2.5e6 });
        assert!(changing.contains("between 1.50 us and 2.50 ms in 8 equal parts"), "{changing}");
    }
}
