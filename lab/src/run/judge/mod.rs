//! Was the diagnosis right? In: a scenario, and what a run of it gave. Out: a [`Score`], the named shares and the true ones, coverage.
//!
//! [`answer`] reads the diagnosis; this file judges the causes that it names; [`share`] computes the true shares from what the client
//! and the faults wrote down, with [`seen`] (when the host got each request).

use serde::Serialize;

use super::scenario::{Cause, Function, Scenario};

mod answer;
mod seen;
mod share;

pub use answer::{Coverage, InQueue, Named, causes, coverage};
#[cfg(test)]
pub use answer::{Frame, Subject};
pub use seen::as_seen;
pub use share::{Share, shares, untouched};

/// How a run counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// The first cause is the expected one; where nothing is wrong: only permitted causes are named, and all of them are in
    /// the raw events.
    Right,
    /// It is another one.
    Wrong,
    /// There was not enough evidence for a diagnosis: counts as wrong.
    NoDiagnosis,
    /// It cannot run here; not counted.
    NotRun,
    /// It should have run and failed.
    Failed,
}

/// Whether the first cause is an expected one, with the expected root and the expected function first; `None` where nothing is wrong and none is expected.
/// Where a function is expected, the first cause may be the queue behind it: then what held the messages ahead must be the expected
/// cause with the expected function.
pub fn first_is_right(scenario: &Scenario, causes: &[Named]) -> Option<bool> {
    let root = |first: &Named| {
        scenario.root.is_none_or(|root| first.root.first().is_some_and(|(category, name)| root.is(category, name)))
    };
    let function =
        |first: &Named| scenario.function.is_none_or(|f| first.functions.first().is_some_and(|part| f.is(&part.name)));
    let behind = |first: &Named| {
        let held = |of: &InQueue, f: Function| {
            let expected = scenario.expect.iter().any(|cause| cause.is(&of.category, &of.name));
            expected && of.functions.first().is_some_and(|part| f.is(&part.name))
        };
        first.category == QUEUE && scenario.function.zip(first.roots.first()).is_some_and(|(f, of)| held(of, f))
    };
    let right = |first: &Named| is_one_of(&scenario.expect, first) && root(first) && function(first) || behind(first);
    let first = || causes.first().is_some_and(right);
    (!scenario.expect.is_empty()).then(first)
}

/// Whether the first cause is right, or it is a queue and what held the messages ahead most is the expected cause: where the first sentence
/// of a diagnosis ends. `None` as in [`first_is_right`].
pub fn first_or_its_root_is_right(scenario: &Scenario, causes: &[Named]) -> Option<bool> {
    let is_expected =
        |(category, name): &(String, String)| scenario.expect.iter().any(|cause| cause.is(category, name));
    let root = |first: &Named| {
        let held = first.root.first().is_some_and(is_expected);
        scenario.function.is_none() && first.category == QUEUE && held
    };
    first_is_right(scenario, causes).map(|right| right || causes.first().is_some_and(root))
}

/// The category of waits behind other messages.
const QUEUE: &str = "hol-blocking";

/// From this share on, a cause that is not permitted makes a clean run wrong. Caches that the machine's other work left cold
/// make the application's own time vary too, which is true, small, and no answer; shares themselves are claimed within 15
/// points.
pub const TOO_MUCH: f64 = 0.05;

/// The causes of slower messages that a scenario in which nothing is wrong does not permit.
pub fn forbidden<'a>(scenario: &Scenario, causes: &'a [Named]) -> Vec<&'a Named> {
    let Some(may) = &scenario.may else { return Vec::new() };
    causes.iter().filter(|cause| cause.deviation_ns > 0 && !is_one_of(may, cause)).collect()
}

fn is_one_of(all: &[Cause], named: &Named) -> bool {
    all.iter().any(|cause| cause.is(&named.category, &named.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::catalogue;
    use super::share::behind;
    use super::*;

    fn scenario(name: &str) -> Scenario {
        catalogue::all().into_iter().find(|scenario| scenario.name == name).unwrap()
    }

    fn cause(category: &str, name: &str, share: f64) -> serde_json::Value {
        json!({"category": category, "name": name, "role": "A", "share": share, "deviation_ns": 5, "evidence": [3]})
    }

    #[test]
    fn unexplained_is_no_cause_and_refined_names_are_the_task() {
        let diagnosis = json!({"causes": [cause("unexplained", "", 0.9), cause("interference", "lab-hog/user", 0.1)]});
        let named = causes(&diagnosis);
        assert_eq!(named.len(), 1);
        assert_eq!(named[0].evidence, [3]);
        assert_eq!(first_is_right(&scenario("cpu-hog"), &named), Some(true));
        assert_eq!(first_is_right(&scenario("fifo-intruder"), &named), Some(false));
        assert_eq!(first_is_right(&scenario("cpu-hog"), &[]), Some(false));
        assert_eq!(first_is_right(&scenario("clean-low"), &named), None);
        assert!(causes(&json!({})).is_empty());
    }

    /// 3 % of requests sort, and most of the slow ones wait behind them: the queue is right where it says what held it.
    #[test]
    fn a_queue_is_right_where_what_held_it_is_the_expected_function() {
        let sort = scenario("function-node-sort");
        let queue = |category: &str, function: &str| {
            let mut queue = cause("hol-blocking", "node", 0.8);
            queue["root"] = json!([{
                "category": category, "name": "user", "share": 0.5,
                "functions": [{"name": function, "share": 0.9}, {"name": "sortTable", "share": 0.05}],
            }]);
            causes(&json!({"causes": [queue, cause("app-processing", "user", 0.1)]}))
        };
        assert_eq!(first_is_right(&sort, &queue("app-processing", "sortTable server.js")), Some(true));
        assert_eq!(first_is_right(&sort, &queue("app-processing", "parse")), Some(false));
        assert_eq!(first_is_right(&sort, &queue("paging", "sortTable")), Some(false));
        assert_eq!(
            first_is_right(&sort, &causes(&json!({"causes": [cause("hol-blocking", "node", 0.8)]}))),
            Some(false)
        );
        // Without an expected function a queue is no answer to another fault.
        let fsync = queue("disk-wait", "sortTable");
        assert_eq!(first_is_right(&scenario("fsync"), &fsync), Some(false));
        // Its root is: that has a figure of its own.
        assert_eq!(first_or_its_root_is_right(&scenario("fsync"), &fsync), Some(true));
        assert_eq!(first_or_its_root_is_right(&scenario("fsync"), &queue("paging", "")), Some(false));
        assert_eq!(first_or_its_root_is_right(&sort, &queue("app-processing", "parse")), Some(false));
        let truth = sort.truth[0];
        let part = behind(&queue("app-processing", "sortTable")[0], &truth);
        assert!((part - 0.5 * 0.95).abs() < 1e-9, "{part}");
        assert!(behind(&queue("paging", "sortTable")[0], &truth) == 0.0);
    }

    /// Clean scenarios used to be right whatever was named: `clean-high` expected nothing, named head-of-line blocking, and
    /// counted as five of five.
    #[test]
    fn a_clean_scenario_is_wrong_when_it_names_what_cannot_be() {
        let forbidden_in = |name: &str, all: &[(&str, &str, i64)]| {
            let named = |(category, name, ns): &(&str, &str, i64)| {
                let mut cause = cause(category, name, 0.25);
                cause["deviation_ns"] = json!(ns);
                cause
            };
            let rows: Vec<_> = all.iter().map(named).collect();
            let named_causes = causes(&json!({"causes": rows}));
            forbidden(&scenario(name), &named_causes).iter().map(|cause| cause.category.clone()).collect::<Vec<_>>()
        };
        for name in ["clean-low", "clean-rpc", "clean-rpc-epoll", "clean-rpc-udp"] {
            let machine = [("interference", "somebody", 5), ("steal", "steal", 5), ("wakeup-delay", "wake-pending", 5)];
            assert!(forbidden_in(name, &machine).is_empty(), "{name}");
            let own = [("hol-blocking", "lab-rpc", 5), ("app-processing", "user", 5), ("app-processing", "user", -5)];
            assert_eq!(forbidden_in(name, &own), ["hol-blocking", "app-processing"], "{name}");
        }
        // At a high load a queue is the truth, and the expected first cause; the application's own time is not.
        let queue = [("hol-blocking", "lab-synthetic", 5), ("paging", "page faults", 5)];
        assert_eq!(forbidden_in("clean-high", &queue), ["paging"]);
        let queue = causes(&json!({"causes": [cause("hol-blocking", "lab-synthetic", 0.9)]}));
        assert_eq!(first_is_right(&scenario("clean-high"), &queue), Some(true));
        assert_eq!(first_is_right(&scenario("clean-high"), &[]), Some(false));
        // With a fault anything may stand beside it.
        assert!(forbidden_in("cpu-hog", &[("paging", "page faults", 5)]).is_empty());
    }
}
