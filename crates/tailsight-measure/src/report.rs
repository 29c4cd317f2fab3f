//! What a measurement came to, as plain data: the JSON of `tailsight load --json`, schema 1. Times are ns, rates requests/s.
//!
//! A percentile that cannot be known is `null`, never 0; so is a statistic that could not be computed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_load::{Complaint, Counts, Plan};
use tailsight_stats::method;

use crate::assumption::AssumptionId;
use crate::objective::{Decision, Objective};
use crate::question::Latency;

/// Version of the JSON: raised when something that was there changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// A measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `measurement`.
    pub kind: String,
    /// The program's version.
    pub version: String,
    /// Unix time at which the load began, s.
    pub began_s: u64,
    /// The server.
    pub target: String,
    /// What was spoken to it.
    pub protocol: String,
    /// Which latency the verdict is of.
    pub latency: Latency,
    /// What is known, or why nothing is.
    pub verdict: Verdict,
    /// From due to answered; absent values where the run does not bear them.
    pub response_ns: Summary,
    /// From sent to answered.
    pub service_ns: Summary,
    /// The client's own lateness over all requests: sent less due.
    pub lateness_ns: Lateness,
    /// What was asked and what came of it while measuring.
    pub rate: Achieved,
    /// What the latencies leave out, in a sentence; absent in an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves_out: Option<String>,
    /// All requests, by what became of them.
    pub counts: Counts,
    /// What the client was and cost.
    pub client: Client,
    /// The agents on other machines, where there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentFacts>,
    /// All checks of the last look at the data.
    pub checks: Vec<Checked>,
    /// What is assumed, and whether it held: each assumption once, from the checks and the verdict together. Empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<Assumption>,
    /// The percentiles asked for, agent by agent, where several have samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_agent: Vec<ByAgent>,
    /// The client's machine; absent in older files.
    #[serde(default)]
    pub machine: crate::machine::Machine,
    /// Where the warm-up ended, since the start of the load, ns; absent where none was seen.
    pub warm_up_ns: Option<u64>,
    /// What the method did, in order.
    pub steps: Vec<StepTaken>,
    /// Why the measurement started again, each time that it did.
    pub restarts: Vec<String>,
    /// What was wrong with the client or the server besides, in words and as data.
    pub complaints: Vec<Remark>,
    /// Values of the samples kept where the verdict is N/A: what there is, not a result.
    pub kept: Kept,
    /// The load, whole: enough to repeat it.
    pub plan: Plan,
    /// The comparison with another run, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    /// Whether an objective is met at this rate, where one was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<ObjectiveResult>,
}

/// A comparison with an earlier run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Against {
    /// The other run's file.
    pub file: String,
    /// `p99`.
    pub percentile: String,
    /// Of this run, ns.
    pub value_ns: f64,
    /// Of the other one, ns.
    pub other_ns: f64,
    /// This one less the other, ns.
    pub difference_ns: f64,
    /// Lower end of its interval at 95 %.
    pub lower_ns: f64,
    /// Upper end.
    pub upper_ns: f64,
    /// p-value of "this run is not slower", by permutation of blocks.
    pub p_slower: f64,
    /// p-value of "both are alike", two-sided.
    pub p_different: f64,
    /// Samples a block.
    pub block: usize,

    /// By how much the other value may be exceeded, as a share of it.
    pub allowed: f64,
    /// Significantly slower, and by more than allowed.
    pub worse: bool,
    /// Significantly faster.
    pub better: bool,
}

/// Whether an objective is met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Met")]
pub struct ObjectiveResult {
    /// The objective.
    pub objective: Objective,
    /// Confidence that the percentile of what was measured is below the limit; absent if the samples cannot tell.
    pub confidence: Option<f64>,
    /// The decision is `met`.
    pub met: bool,
    /// On which side of the limit it is, with 95 % confidence; `open` in older files, whose `met` says more.
    #[serde(default)]
    pub decision: Decision,
    /// Why it is open; or why it is missed, where no share of slow requests says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Samples behind the decision.
    #[serde(default)]
    pub n: usize,
    /// Of these, how many took as long as the limit, or longer, or failed.
    #[serde(default)]
    pub above: usize,
}

impl Report {
    /// Whether it holds a number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        matches!(self.verdict, Verdict::Number { .. })
    }
}

/// A number with its interval, or N/A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant)] // There is one of it in a report.
pub enum Verdict {
    /// Believe it.
    Number {
        /// One for each that was asked, in that order.
        percentiles: Vec<KnownPercentile>,
    },
    /// No number, and why.
    NotAvailable {
        /// The check that failed.
        failed: Checked,
        /// One sentence: what happened.
        reason: String,
        /// One sentence: what would help.
        hint: String,
        /// The percentiles asked for that are known all the same, as narrowly as asked. Each of them is here, in `bounds` or in
        /// `missing`; in older files, perhaps in none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        passed: Vec<KnownPercentile>,
        /// Those that are known less narrowly, with the interval that there is.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        bounds: Vec<KnownPercentile>,
        /// Those of which nothing is known.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        missing: Vec<Unknown>,
        /// Why nothing is known of these, in a sentence; absent where there are none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        no_bounds_because: Option<String>,
    },
}

/// A percentile of which nothing is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unknown {
    /// What was asked: `p99:10us@95`.
    pub asked: String,
    /// `p99`.
    pub percentile: String,
    /// Why there is not even an interval.
    pub because: String,
}

/// Whether an assumption held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// All of its checks passed.
    Held,
    /// At least one did not, or the verdict is about it.
    NotHeld,
    /// It did not hold, and the interval allows for that, or it is noted beside the number.
    AllowedFor,
    /// It was not checked.
    NotChecked,
}

/// An assumption that the number stands on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Assumption {
    /// As in [`Checked::id`].
    pub id: AssumptionId,
    /// Whether it held.
    pub state: State,
    /// Checks made of it.
    pub checks: usize,
    /// Of these, passed.
    pub passed: usize,
    /// Why it was not checked, where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// What one of several agents saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ByAgent {
    /// Its name.
    pub agent: String,
    /// Its samples in the result.
    pub n: usize,
    /// The percentiles asked for, by name, with intervals at 95 %; `null`: its samples cannot support it.
    pub percentiles: BTreeMap<String, Option<Estimate>>,
}

/// A percentile that is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Known")]
pub struct KnownPercentile {
    /// What was asked: `p99:10us@95`.
    pub asked: String,
    /// `p99`.
    pub percentile: String,
    /// 0.99.
    pub quantile: f64,
    /// Confidence level, 0.95.
    pub level: f64,
    /// The percentile, ns.
    pub value_ns: f64,
    /// Lower end of the interval, ns.
    pub lower_ns: f64,
    /// Upper end, ns.
    pub upper_ns: f64,
    /// How the interval was made; print it unless it is `order-statistic`.
    pub how: method::IntervalMethod,
    /// Samples behind it.
    pub n: usize,
}

impl From<&method::PercentileResult> for KnownPercentile {
    fn from(p: &method::PercentileResult) -> Self {
        Self {
            asked: p.target.to_string(),
            percentile: method::percentile_name(p.target.quantile),
            quantile: p.target.quantile,
            level: p.target.level,
            value_ns: p.value_ns,
            lower_ns: p.lower_ns,
            upper_ns: p.upper_ns,
            how: p.how,
            n: p.n,
        }
    }
}

/// A check with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// Which assumption.
    pub id: AssumptionId,
    /// The test.
    pub test: String,
    /// The agent or percentile it is about.
    pub subject: Option<String>,
    /// Did it hold?
    pub passed: bool,
    /// The statistic.
    pub statistic: Option<f64>,
    /// Its bound, or that of the p-value.
    pub threshold: Option<f64>,
    /// Whether the threshold bounds the p-value from below rather than the statistic from above.
    pub threshold_is_p: bool,
    /// The p-value.
    pub p_value: Option<f64>,
    /// Values behind it.
    pub n: u64,
}

impl From<&method::Check> for Checked {
    fn from(check: &method::Check) -> Self {
        let finite = |x: f64| x.is_finite().then_some(x);
        Self {
            id: AssumptionId::Method(check.id),
            test: check.test.clone(),
            subject: check.subject.clone(),
            passed: check.passed,
            statistic: finite(check.statistic),
            threshold: finite(check.threshold),
            threshold_is_p: check.threshold_is_p,
            p_value: check.p_value.and_then(finite),
            n: check.n as u64,
        }
    }
}

/// A latency over the samples that bear the result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Samples behind it; 0 if there are too few for it.
    pub n: usize,
    /// Their mean.
    pub mean: Option<f64>,
    /// The slowest.
    pub max: Option<f64>,
    /// By name (`p99`), with intervals at 95 %; `null`: the samples cannot support it.
    pub percentiles: BTreeMap<String, Option<Estimate>>,
    /// Of each percentile that is `null`, why. Empty in older files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub because: BTreeMap<String, String>,
}

/// A percentile with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The percentile.
    pub value: f64,
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

/// The client's lateness.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lateness {
    /// Requests behind it.
    pub n: u64,
    /// Median; at most 1.6 % too high, as are the others.
    pub p50: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: Option<u64>,
    /// The largest.
    pub max: Option<u64>,
    /// By name (`p90`), those of the percentiles reported; empty in older files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub percentiles: BTreeMap<String, Option<u64>>,
    /// 99th percentile of the part of the lateness for which the client was idle and woke too late. The rest it was busy
    /// sending and reading other requests.
    #[serde(default)]
    pub overslept_p99: Option<u64>,
}

/// Rates while measuring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Achieved {
    /// Asked for on average; absent in a closed loop.
    pub asked: Option<f64>,
    /// Sent.
    pub sent: f64,
    /// Answered.
    pub answered: f64,
}

/// The client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Client {
    /// Agents.
    pub agents: Vec<String>,
    /// Loading threads, all together.
    pub threads: usize,
    /// CPU time of the loading threads, user and system.
    pub cpu_ns: u64,
    /// The same over the requests sent: the client's price.
    pub cpu_ns_per_request: Option<f64>,
    /// Share of its time that the busiest thread ran.
    pub busiest_thread: f64,
    /// Largest share of its time that a thread was ready to run and did not.
    pub starved_thread: f64,
    /// Whether every loading thread ran before all threads of ordinary priority.
    #[serde(default)]
    pub real_time: bool,
    /// Share of the samples whose receive time is a stamp, the kernel's or a NIC's.
    pub stamped: f64,
    /// Share of the samples whose reply was read together with later bytes and shares their stamp: by how much each may have arrived
    /// earlier is in the intervals.
    #[serde(default)]
    pub shared: f64,
    /// How many samples that are.
    #[serde(default)]
    pub shared_samples: u64,
    /// Where time stamps come from: `software` (the kernel), `hardware of eth0 (/dev/ptp0)`, `none` (the client's clock), or
    /// several, of several agents.
    #[serde(default)]
    pub stamps: Option<String>,
    /// Why a NIC does not stamp, where it does not.
    #[serde(default)]
    pub stamps_why: Option<String>,
    /// What would make it, where something would.
    #[serde(default)]
    pub stamps_hint: Option<String>,
    /// Share of the samples of which both times are the NIC's.
    #[serde(default)]
    pub hardware: f64,
    /// How exactly clocks were compared, at worst.
    pub clock_error_ns: u64,
}

/// An agent on another machine (or in another process), as its coordinator knows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentFacts {
    /// HOST:PORT; the name that samples and accounts carry.
    pub agent: String,
    /// `symmetric`, `throughput` or `latency`.
    pub role: String,
    /// Its host's name.
    pub host: String,
    /// Its kernel.
    pub kernel: String,
    /// Cores on which it may run.
    pub cores: u32,
    /// Whether its kernel stamps packets.
    pub kernel_stamps: bool,
    /// Its clock minus the coordinator's.
    pub clock_offset_ns: i64,
    /// The most that this can be wrong.
    pub clock_bound_ns: u64,
    /// Where its load went.
    pub target: String,
    /// Its share of the rate.
    pub rate: String,
    /// Its seed.
    pub seed: u64,
    /// How much later than the first agent its schedule began, at most.
    pub start_skew_ns: u64,
    /// Why it is no longer there.
    pub gone: Option<String>,
}

/// A step of the method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepTaken {
    /// When it ended, since the start of the load, s.
    pub at_s: f64,
    /// What was done and what came of it.
    pub what: String,
}

/// Something that was wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Remark {
    /// In words.
    pub text: String,
    /// As data.
    pub complaint: Complaint,
}

/// The samples that are in the file, whatever the verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kept {
    /// How many.
    pub n: usize,
    /// Median of the latency that was asked about.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// The slowest.
    pub max: Option<f64>,
}

/// For tests.
#[cfg(test)]
impl Checked {
    /// A check of that name, which passed or not.
    pub(crate) fn of(id: &str, passed: bool) -> Self {
        Self {
            id: id.into(),
            test: "a test".into(),
            subject: None,
            passed,
            statistic: Some(1.0),
            threshold: Some(1.0),
            threshold_is_p: false,
            p_value: None,
            n: 1,
        }
    }
}

/// For tests.
#[cfg(test)]
impl Verdict {
    /// N/A for a check, of which nothing more is said.
    pub(crate) fn refused_for(failed: Checked) -> Self {
        Self::NotAvailable {
            failed,
            reason: "a reason".into(),
            hint: String::new(),
            passed: Vec::new(),
            bounds: Vec::new(),
            missing: Vec::new(),
            no_bounds_because: None,
        }
    }
}
