//! Was the diagnosis right? In: a scenario, what a run gave. Out: a [`Score`], shares beside the truth, coverage.
//!
//! The true share is computed from the client's own samples and the truth logs alone. With `part(m)` the time of message
//! m's leg that the fault has (by [`How`]), and the slices of the diagnosis, p99..p100 (focus) and p45..p55 (reference):
//!
//!     share = (mean part in focus − mean part in reference) / (mean leg in focus − mean leg in reference)

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tailsight_lab::probe::Sample;
use tailsight_lab::truth::{Interval, kind};

use super::scenario::{Cause, Function, How, Scenario, Truth};

/// As in `diagnose --json`: over all focus messages, their median and least.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Coverage {
    pub overall: f64,
    pub p50: f64,
    pub min: f64,
}

/// The time of a sample's leg (from, to) that a cause has, ns.
type Part = Box<dyn Fn(u64, u64, &Sample) -> u64>;

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

/// A cause as the diagnosis names it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Named {
    pub category: String,
    pub name: String,
    pub role: String,
    pub share: f64,
    pub deviation_ns: i64,
    pub evidence: Vec<u32>,
    /// What delayed the messages ahead, of a queue: category and name, the largest first.
    pub root: Vec<(String, String)>,
    /// The same with their shares of the delay, and their functions.
    pub roots: Vec<InQueue>,
    /// Of a cause that is a process, or several of one name: their pids.
    pub pids: Vec<u32>,
    /// The subject, as data.
    pub subject: Subject,
    /// The kinds of the frames that its name goes on with.
    pub frames: Vec<String>,
    /// The functions that samples put it into, the largest first.
    pub functions: Vec<InFunction>,
}

/// A function's part of a cause.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InFunction {
    /// Its name, behind it what a runtime does there: `gc_collect_main: CPython collecting garbage`.
    pub name: String,
    /// Its part of the cause, 0 to 1.
    pub share: f64,
}

/// What delayed the messages ahead.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InQueue {
    /// Its category.
    pub category: String,
    /// Its name.
    pub name: String,
    /// Its part of all the delay, 0 to 1.
    pub share: f64,
    /// The functions that samples put it into, the largest first.
    pub functions: Vec<InFunction>,
}

/// The subject of a cause, as in `diagnose --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subject {
    /// `task`, `frame`, `named` …
    pub kind: String,
    /// Of a task its name; of what the category table has a name for, that.
    pub name: String,
    /// Of a frame, which.
    pub frame: Frame,
}

/// A frame of a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// `vector`, `softirq` …
    pub kind: String,
    /// Which.
    pub of: String,
}

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

/// The causes of `diagnose --json` but `unexplained` and `not-significant`, by rank.
pub fn causes(diagnosis: &serde_json::Value) -> Vec<Named> {
    let text = |cause: &serde_json::Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    let numbers = |list: &serde_json::Value| -> Vec<u32> {
        list.as_array().into_iter().flatten().filter_map(|n| u32::try_from(n.as_u64()?).ok()).collect()
    };
    let all = diagnosis["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .map(|cause| Named {
            category: text(cause, "category"),
            name: text(cause, "name"),
            role: text(cause, "role"),
            share: cause["share"].as_f64().unwrap_or(0.0),
            deviation_ns: cause["deviation_ns"].as_i64().unwrap_or(0),
            evidence: numbers(&cause["evidence"]),
            root: cause["root"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|root| (text(root, "category"), text(root, "name")))
                .collect(),
            roots: cause["root"].as_array().into_iter().flatten().map(in_queue).collect(),
            pids: numbers(&cause["who"]["pids"]),
            subject: Subject::deserialize(&cause["subject"]).unwrap_or_default(),
            frames: cause["frames"].as_array().into_iter().flatten().map(|frame| text(frame, "kind")).collect(),
            functions: in_functions(cause),
        })
        .filter(|cause| cause.category != "unexplained" && cause.category != "not-significant")
        .collect()
}

fn in_queue(root: &serde_json::Value) -> InQueue {
    let text = |key: &str| root[key].as_str().unwrap_or_default().to_owned();
    InQueue {
        category: text("category"),
        name: text("name"),
        share: root["share"].as_f64().unwrap_or(0.0),
        functions: in_functions(root),
    }
}

/// The functions of a cause or of a root.
fn in_functions(of: &serde_json::Value) -> Vec<InFunction> {
    of["functions"].as_array().into_iter().flatten().map(in_function).collect()
}

fn in_function(part: &serde_json::Value) -> InFunction {
    let mut name = part["name"].as_str().unwrap_or_default().to_owned();
    if let (Some(of), Some(does)) = (part["runtime"]["of"].as_str(), part["runtime"]["does"].as_str()) {
        name += &format!(": {of} {does}");
    }
    InFunction { name, share: part["share"].as_f64().unwrap_or(0.0) }
}

/// The paper's coverage, and the part that has an owner. Before `owned` was told apart, `coverage` was that one.
pub fn coverage(diagnosis: &serde_json::Value) -> (Option<Coverage>, Option<Coverage>) {
    let of = |key: &str| {
        let number = |part: &str| diagnosis[key][part].as_f64();
        Some(Coverage { overall: number("overall")?, p50: number("p50")?, min: number("min")? })
    };
    if diagnosis["owned"].is_object() { (of("coverage"), of("owned")) } else { (None, of("coverage")) }
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

/// The shares of all causes whose truth is known.
pub fn shares(
    scenario: &Scenario,
    causes: &[Named],
    samples: &[Sample],
    logs: &BTreeMap<String, Vec<Interval>>,
    recorded: (u64, u64),
) -> Vec<Share> {
    let seen = as_seen(samples, logs);
    let shares = scenario.truth.iter().filter_map(|truth| {
        let part: Part = match truth.how {
            How::Overlap { log, kind } => {
                let cover = Cover::new(logs.get(log)?.iter().filter(|entry| entry.kind == kind));
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
        let truth_share = share(&seen, scenario.leg, recorded, part)?;
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
fn behind(cause: &Named, truth: &Truth) -> f64 {
    let Some(names) = truth.functions.filter(|_| cause.category == QUEUE) else { return 0.0 };
    let expected = |root: &&InQueue| truth.causes.iter().any(|cause| cause.is(&root.category, &root.name));
    cause.roots.iter().filter(expected).map(|root| root.share * in_these(&root.functions, names)).sum()
}

/// The requests as the server's host sees them. Behind a relay, a request begins when the host first gets it, whatever
/// happened to its packet before; requests of one packet are one message there, as in a diagnosis without a protocol.
pub fn as_seen(samples: &[Sample], logs: &BTreeMap<String, Vec<Interval>>) -> Vec<Sample> {
    if !logs.contains_key(RELAY) {
        return samples.to_vec();
    }
    let arrived = arrived(logs);
    let mut seen: BTreeMap<(u32, u64), Sample> = BTreeMap::new();
    for (id, sample) in samples.iter().enumerate() {
        let Some(&sent_ns) = arrived.get(&(id as u32)) else { continue };
        let message = seen.entry((sample.connection, sent_ns)).or_insert(Sample { sent_ns, ..*sample });
        // Received when the last of them is.
        if sample.stamps.received_ns > message.stamps.received_ns {
            *message = Sample { sent_ns, ..*sample };
        }
    }
    seen.into_values().collect()
}

/// The part of the focus's deviation that is of requests which no entry of any truth log touches; `None` without entries.
pub fn untouched(
    scenario: &Scenario,
    seen: &[Sample],
    logs: &BTreeMap<String, Vec<Interval>>,
    recorded: (u64, u64),
) -> Option<f64> {
    let entries = logs.values().flatten().filter(|entry| kind::parts(entry.kind).0 != kind::PASSED);
    let cover = Cover::new(entries);
    if cover.intervals.is_empty() {
        return None;
    }
    let touched = |from, to, _: &Sample| if cover.within(from, to) > 0 { to - from } else { 0 };
    let (all, reference) = slices(seen, scenario.leg, recorded)?;
    let usual = mean(&reference, &|from, to, _| to - from);
    let excess = |of: &[Leg<'_>]| of.iter().map(|((from, to), _)| (to - from) as f64 - usual).sum::<f64>();
    let out: Vec<Leg<'_>> = all.iter().copied().filter(|((from, to), s)| touched(*from, *to, s) == 0).collect();
    (excess(&all) > 0.0).then(|| excess(&out) / excess(&all))
}

/// The log of packets on their way.
const RELAY: &str = "lab-relay";

/// When the server's host first got each request: its first packet that was passed on, or the delayed one.
fn arrived(logs: &BTreeMap<String, Vec<Interval>>) -> BTreeMap<u32, u64> {
    let mut first = BTreeMap::new();
    for entry in logs.get(RELAY).map(Vec::as_slice).unwrap_or_default() {
        let came = match kind::parts(entry.kind) {
            (kind::PASSED, id) => Some(id),
            // One that was lost ends where it began.
            (kind::PACKET, id) if entry.end_ns > entry.begin_ns => Some(id),
            _ => None,
        };
        if let Some(id) = came {
            first.entry(id).and_modify(|at: &mut u64| *at = entry.end_ns.min(*at)).or_insert(entry.end_ns);
        }
    }
    first
}

/// By connection and arrival of a message: when all bytes up to its own were at the host. TCP passes nothing to an
/// application before (RFC 9293 section 3.10.7.4); the time between is the hole's, and later time is not.
fn whole(samples: &[Sample], logs: &BTreeMap<String, Vec<Interval>>) -> BTreeMap<(u32, u64), u64> {
    let arrived = arrived(logs);
    let mut latest: BTreeMap<u32, u64> = BTreeMap::new();
    let mut whole = BTreeMap::new();
    // In the order of the connection's bytes: requests are numbered as they are sent.
    for (id, sample) in samples.iter().enumerate() {
        let Some(&at) = arrived.get(&(id as u32)) else { continue };
        let latest = latest.entry(sample.connection).or_default();
        *latest = at.max(*latest);
        whole.insert((sample.connection, at), *latest);
    }
    whole
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
    let mut all: Vec<&Sample> = samples.iter().filter(|s| s.stamps.received_ns > 0).collect();
    all.sort_by_key(|s| s.stamps.received_ns);
    let next = all.iter().skip(1).map(Some).chain([None]);
    all.iter()
        .zip(next)
        .map(|(this, next)| {
            let end = next.filter(|next| next.sent_ns < this.stamps.ended_ns).map(|next| next.stamps.received_ns);
            (this.stamps.received_ns, end.unwrap_or(this.stamps.ended_ns))
        })
        .collect()
}

/// Intervals that do not overlap, in order, with the sums of their lengths: how much of any interval they cover.
pub struct Cover {
    intervals: Vec<(u64, u64)>,
    /// Length of all intervals before the i-th.
    before: Vec<u64>,
}

impl Cover {
    /// Of truth log entries.
    fn new<'a>(entries: impl Iterator<Item = &'a Interval>) -> Self {
        Self::of(entries.map(|entry| (entry.begin_ns, entry.end_ns)).collect())
    }

    /// Of any intervals; those that overlap are joined.
    pub fn of(mut all: Vec<(u64, u64)>) -> Self {
        all.sort_unstable();
        let mut intervals: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all.into_iter().filter(|(from, to)| *from > 0 && to > from) {
            match intervals.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => intervals.push((from, to)),
            }
        }
        let mut sum = 0;
        let before = intervals
            .iter()
            .map(|(from, to)| {
                sum += to - from;
                sum - (to - from)
            })
            .collect();
        Self { intervals, before }
    }

    /// What is covered.
    pub fn intervals(&self) -> &[(u64, u64)] {
        &self.intervals
    }

    /// The covered time before `at`, ns.
    fn until(&self, at: u64) -> u64 {
        let i = self.intervals.partition_point(|(from, _)| *from < at);
        if i == 0 {
            return 0;
        }
        let (from, to) = self.intervals[i - 1];
        self.before[i - 1] + (at.min(to) - from)
    }

    /// The covered part of [from, to), ns.
    pub fn within(&self, from: u64, to: u64) -> u64 {
        self.until(to.max(from)) - self.until(from)
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use tailsight_lab::wire::Stamps;

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
        assert_eq!(first_is_right(&scenario("fsync"), &queue("disk-wait", "sortTable")), Some(false));
        let truth = sort.truth[0];
        let part = behind(&queue("app-processing", "sortTable")[0], &truth);
        assert!((part - 0.5 * 0.95).abs() < 1e-9, "{part}");
        assert!(behind(&queue("paging", "sortTable")[0], &truth) == 0.0);
    }

    #[test]
    fn a_diagnosis_that_has_one_figure_has_no_coverage_as_in_the_paper() {
        let figure = |p50| json!({"overall": 0.5, "p50": p50, "min": 0.25});
        let (coverage, owned) = coverage(&json!({"coverage": figure(0.9)}));
        assert!(coverage.is_none() && owned.unwrap().p50 == 0.9);
        let (coverage, owned) = super::coverage(&json!({"coverage": figure(0.9), "owned": figure(1.0)}));
        assert_eq!((coverage.unwrap().p50, owned.unwrap().p50, coverage.unwrap().min), (0.9, 1.0, 0.25));
    }

    /// Clean scenarios used to be right whatever was named: `clean-high` expected nothing, named head-of-line blocking, and
    /// counted as five of five.
    #[test]
    fn a_clean_scenario_is_wrong_when_it_names_what_cannot_be() {
        let of = |name: &str, all: &[(&str, &str, i64)]| {
            let named = |(category, name, ns): &(&str, &str, i64)| {
                let mut cause = cause(category, name, 0.25);
                cause["deviation_ns"] = json!(ns);
                cause
            };
            let all: Vec<_> = all.iter().map(named).collect();
            let all = causes(&json!({"causes": all}));
            forbidden(&scenario(name), &all).iter().map(|cause| cause.category.clone()).collect::<Vec<_>>()
        };
        for name in ["clean-low", "clean-rpc", "clean-rpc-epoll", "clean-rpc-udp"] {
            let machine = [("interference", "somebody", 5), ("steal", "steal", 5), ("wakeup-delay", "wake-pending", 5)];
            assert!(of(name, &machine).is_empty(), "{name}");
            let own = [("hol-blocking", "lab-rpc", 5), ("app-processing", "user", 5), ("app-processing", "user", -5)];
            assert_eq!(of(name, &own), ["hol-blocking", "app-processing"], "{name}");
        }
        // At a high load a queue is the truth, and the expected first cause; the application's own time is not.
        let queue = [("hol-blocking", "lab-synthetic", 5), ("paging", "page faults", 5)];
        assert_eq!(of("clean-high", &queue), ["paging"]);
        let queue = causes(&json!({"causes": [cause("hol-blocking", "lab-synthetic", 0.9)]}));
        assert_eq!(first_is_right(&scenario("clean-high"), &queue), Some(true));
        assert_eq!(first_is_right(&scenario("clean-high"), &[]), Some(false));
        // With a fault anything may stand beside it.
        assert!(of("cpu-hog", &[("paging", "page faults", 5)]).is_empty());
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
        let of = |entries: &[Interval]| {
            let logs = BTreeMap::from([("lab-hog".to_owned(), entries.to_vec())]);
            untouched(&scenario("cpu-hog"), &samples, &logs, recorded)
        };
        assert_eq!(of(&log), Some(0.0));
        // Ten slow requests, of which three were hit; the fault is nowhere else.
        assert!((of(&log[..3]).unwrap() - 0.7).abs() < 1e-9);
        assert_eq!(of(&[]), None, "nothing is known");
    }

    #[test]
    fn a_server_is_busy_from_one_request_to_the_next_that_waits() {
        let request = |sent_ns, received_ns, ended_ns| {
            let stamps = Stamps { received_ns, began_ns: received_ns, ended_ns };
            Sample { sent_ns, stamps, ..Sample::default() }
        };
        // The second waits for the first, the third comes when nobody is served.
        let all = [request(10, 20, 60), request(30, 70, 110), request(200, 210, 250)];
        assert_eq!(busy(&all), [(20, 70), (70, 110), (210, 250)]);
        let cover = Cover::of(busy(&all));
        assert_eq!(cover.within(30, 70), 40, "all of the second's wait");
        assert_eq!(cover.within(200, 210), 0);
    }

    /// Four requests on one connection, 10 apart: the second is lost and comes again at 70, the third comes in time, the
    /// fourth in one packet with the second. The server reads all of them at 90.
    fn held_back() -> (Vec<Sample>, BTreeMap<String, Vec<Interval>>) {
        let request = |sent_ns, received_ns| {
            let stamps = Stamps { received_ns, began_ns: received_ns, ended_ns: received_ns + 1 };
            Sample { sent_ns, stamps, ..Sample::default() }
        };
        let samples = vec![request(10, 15), request(20, 90), request(30, 90), request(40, 90)];
        let entry = |kind, begin_ns, end_ns| Interval { begin_ns, end_ns, kind };
        let log = vec![
            entry(kind::passed(0), 11, 12),
            entry(kind::packet(1), 21, 21),
            entry(kind::passed(2), 31, 32),
            entry(kind::passed(1), 69, 70),
            entry(kind::passed(3), 69, 70),
            // A retransmission that nobody needed.
            entry(kind::passed(2), 79, 80),
        ];
        (samples, BTreeMap::from([(RELAY.to_owned(), log)]))
    }

    #[test]
    fn a_relayed_request_begins_when_the_host_gets_it_and_one_packet_is_one_message() {
        let (samples, logs) = held_back();
        assert_eq!(arrived(&logs), BTreeMap::from([(0, 12), (1, 70), (2, 32), (3, 70)]));
        let seen = as_seen(&samples, &logs);
        assert_eq!(seen.iter().map(|s| s.sent_ns).collect::<Vec<_>>(), [12, 32, 70]);
        // Kept back, not lost: it came when it was passed on.
        let late = Interval { begin_ns: 5, end_ns: 60, kind: kind::packet(4) };
        assert_eq!(arrived(&BTreeMap::from([(RELAY.to_owned(), vec![late])])), BTreeMap::from([(4, 60)]));
        assert_eq!(as_seen(&samples, &BTreeMap::new()), samples, "no relay: as the client has them");
    }

    /// The truth used to give the hole all the time until the application had read the missing request, and to the ones
    /// that came before it on the connection too: up to 16 points more than TCP held anything back.
    #[test]
    fn a_hole_ends_when_the_missing_bytes_are_there_and_holds_only_what_is_behind_it() {
        let (samples, logs) = held_back();
        let whole = whole(&samples, &logs);
        assert_eq!(whole, BTreeMap::from([((0, 12), 12), ((0, 32), 70), ((0, 70), 70)]));
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
        fn cover_is_what_a_count_of_units_gives(
            all in prop::collection::vec((1_u64..200, 0_u64..40), 0..20),
            from in 0_u64..260,
            length in 0_u64..260,
        ) {
            let intervals: Vec<(u64, u64)> = all.iter().map(|(from, n)| (*from, from + n)).collect();
            let to = from + length;
            let units = (from..to).filter(|at| intervals.iter().any(|(a, b)| a <= at && at < b)).count() as u64;
            prop_assert_eq!(Cover::of(intervals).within(from, to), units);
        }

        #[test]
        fn parts_of_a_partition_have_shares_that_sum_to_one(cut in 0_u64..=100) {
            let (samples, _) = samples(0);
            let whole = |from: u64, to: u64, _: &Sample| to - from;
            let part = move |from: u64, to: u64, _: &Sample| (to - from) * cut / 100;
            let rest = move |from: u64, to: u64, s: &Sample| whole(from, to, s) - part(from, to, s);
            let all = (0, u64::MAX);
            let sum = share(&samples, "receive", all, part).unwrap() + share(&samples, "receive", all, rest).unwrap();
            prop_assert!((sum - 1.0).abs() < 1e-6);
        }
    }
}
