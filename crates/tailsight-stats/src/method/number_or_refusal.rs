//! What comes out of the method: a number with its interval, or N/A with the reason. Plain data for terminal and JSON.
//!
//! All times are nanoseconds.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::model::PercentileGoal;

/// Which assumption was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CheckId {
    /// The asked load was reached and kept (Lancet §4.3, system stability).
    Load,
    /// Requests failed or were lost.
    Errors,
    /// The client itself was late.
    ClientLateness,
    /// Gaps between sends are distributed as specified, on each agent.
    Arrivals,
    /// The same for the streams of all agents together.
    ArrivalsSuperposed,
    /// Gaps do not depend on the gaps before them.
    ArrivalIndependence,
    /// There is enough data behind the warm-up.
    WarmUp,
    /// Augmented Dickey-Fuller rejects a unit root (Lancet §4.3, result stationarity).
    UnitRoot,
    /// The level of latency does not drift.
    Drift,
    /// The share of requests above the percentile does not drift.
    TailDrift,
    /// The run is many times longer than its own memory.
    RunLength,
    /// Samples do not depend on the samples before them (Lancet §4.3, unbiased result processing).
    Independence,
    /// The interval exists and is as narrow as asked (Lancet §4.3, confidence interval).
    IntervalWidth,
    /// Agents that load one server at one time see one percentile. Noted; it does not refuse a number, which is that of the
    /// requests of all agents.
    AgentsDiffer,
}

impl CheckId {
    /// All of them, in the order in which they are made.
    pub const ALL: [Self; 14] = [
        Self::Load,
        Self::Errors,
        Self::ClientLateness,
        Self::Arrivals,
        Self::ArrivalsSuperposed,
        Self::ArrivalIndependence,
        Self::WarmUp,
        Self::UnitRoot,
        Self::Drift,
        Self::TailDrift,
        Self::RunLength,
        Self::AgentsDiffer,
        Self::Independence,
        Self::IntervalWidth,
    ];

    /// Its id, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Errors => "errors",
            Self::ClientLateness => "client-lateness",
            Self::Arrivals => "arrivals",
            Self::ArrivalsSuperposed => "arrivals-superposed",
            Self::ArrivalIndependence => "arrival-independence",
            Self::WarmUp => "warm-up",
            Self::UnitRoot => "unit-root",
            Self::Drift => "drift",
            Self::TailDrift => "tail-drift",
            Self::RunLength => "run-length",
            Self::Independence => "independence",
            Self::IntervalWidth => "interval-width",
            Self::AgentsDiffer => "agents-differ",
        }
    }

    /// Whether a number may stand although this failed: it is in the interval already, or noted beside it.
    pub fn is_allowed_for(self) -> bool {
        matches!(self, Self::Independence | Self::AgentsDiffer)
    }
}

/// One check: what was computed, against what, on how much.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Which assumption.
    pub id: CheckId,
    /// Name of the test: `Anderson-Darling, exponential, estimated mean`.
    pub test: String,
    /// The agent or percentile it is about, when it is about one.
    pub subject: Option<String>,
    /// Did it hold?
    pub passed: bool,
    /// The statistic; NaN where there was too little to compute it, infinite for an interval that does not exist. JSON has
    /// neither and says `null`, which is read as NaN.
    #[serde(deserialize_with = "null_is_nan")]
    pub statistic: f64,
    /// The statistic's (or, when there is one, the p-value's) bound.
    #[serde(deserialize_with = "null_is_nan")]
    pub threshold: f64,
    /// Whether `threshold` bounds the p-value from below (true) or the statistic from above (false).
    pub threshold_is_p: bool,
    /// The p-value, where the test has one.
    pub p_value: Option<f64>,
    /// Values the test used.
    pub n: usize,
}

/// How an interval was made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "method", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum IntervalMethod {
    /// Order statistics of independent samples (exact binomial ranks).
    OrderStatistic,
    /// Order statistics whose ranks are widened to the effective sample size of dependent samples (batch means of the
    /// indicator, Student's t).
    EffectiveSampleSize {
        /// As many independent samples would know as much.
        effective_n: f64,
        /// Batches behind the variance.
        batches: usize,
    },
    /// The same where the level moves, or its memory is as long as the measurement: the effective size is the smaller of that of batch
    /// means and that of the series' own partial sums. For bounds only.
    SelfNormalised {
        /// As many independent samples would know as much.
        effective_n: f64,
    },
}

/// A percentile with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PercentileResult {
    /// What was asked.
    pub target: PercentileGoal,
    /// The percentile, ns.
    pub value_ns: f64,
    /// Lower end, ns.
    pub lower_ns: f64,
    /// Upper end, ns.
    pub upper_ns: f64,
    /// How the interval was made: print it beside the interval unless it is [`IntervalMethod::OrderStatistic`].
    pub how: IntervalMethod,
    /// Samples behind it.
    pub n: usize,
}

/// Where the warm-up ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WarmUp {
    /// Samples cut from the front of the pooled, time-ordered samples; 0 when there is no warm-up to see.
    pub cut_samples: usize,
    /// Intended time of the first sample kept, ns.
    pub ends_at_ns: i64,
    /// p-value of "the cut part is as the rest".
    pub p_value: f64,
}

/// A number: everything that was asked is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Number {
    /// One for each target, in the order asked.
    pub percentiles: Vec<PercentileResult>,
    /// Fraction of all requests that stands behind the numbers after thinning to independence.
    pub sampling_rate: f64,
}

/// Why not even an interval of a percentile is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NoBounds {
    /// The load was never there, or no batch came to its end: no samples were recorded.
    NothingRecorded,
    /// What was recorded is the latency under another load than the one asked for.
    OtherLoad,
    /// What was recorded is the latency under other arrivals, and not only later than due.
    OtherArrivals,
    /// Failed requests have no latency, and are not a random part of all.
    Failures,
    /// The latency changed over time: no percentile is that of the whole. Where there are enough samples, the smallest and the
    /// largest that it had in equal parts of the run.
    Changing {
        /// Equal parts; 0 where there are too few samples for two.
        parts: usize,
        /// The smallest percentile of a part, ns; 0 without parts.
        lowest_ns: f64,
        /// The largest, ns.
        highest_ns: f64,
    },
    /// The run is too short beside its own memory: how much its samples know cannot be estimated. Parts as above.
    TooShort {
        /// Equal parts.
        parts: usize,
        /// The smallest percentile of a part, ns; 0 without parts.
        lowest_ns: f64,
        /// The largest, ns.
        highest_ns: f64,
    },
    /// So few samples have no interval at this percentile.
    TooFew {
        /// Samples that there are.
        n: usize,
        /// Independent ones that would have one.
        needed: usize,
    },
}

/// A percentile of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Missing {
    /// What was asked.
    pub target: PercentileGoal,
    /// Why there is no interval.
    pub because: NoBounds,
}

/// What would help, as data: whoever knows the machine finds the words. [`Refusal::hint`] has them for any machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Advice {
    /// Make the load: a lower rate, or more connections, threads, agents.
    MakeTheLoad,
    /// Look at the errors.
    LookAtErrors,
    /// The client must be on time.
    BeOnTime {
        /// The lateness takes most of the width, which is otherwise only too wide.
        takes_the_width: bool,
    },
    /// Room for requests that wait for replies.
    MoreConnections,
    /// Warm the server up.
    WarmUp,
    /// Find what changes on the server.
    FindTheChange,
    /// Measure for longer, or at a lower rate.
    LongerOrSlower,
    /// Measure for longer, or ask for less.
    LongerOrLess {
        /// Requests that would do, by projection; more than were allowed.
        needed: Option<u64>,
    },
    /// Many replies share one stamp: fewer outstanding on a connection.
    FewerTogether,
}

/// No number, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The check that failed: test, statistic, threshold, n.
    pub failed: Check,
    /// One sentence: what happened.
    pub reason: String,
    /// One sentence: what would help.
    pub hint: String,
    /// The hint as data.
    pub advice: Advice,
    /// The percentiles asked for that are known all the same, as narrowly as asked. Each of them is here, in `bounds` or in
    /// `missing`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<PercentileResult>,
    /// Those that are known less narrowly: by chance, by the client's lateness, by stamps that replies share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<PercentileResult>,
    /// Those of which nothing is known, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// A number with its interval, or N/A (exit code 3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum MethodOutcome {
    /// Believe it.
    Number(Number),
    /// N/A.
    NotAvailable(Box<Refusal>),
}

/// The end of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodResult {
    /// The number or the refusal.
    #[serde(flatten)]
    pub outcome: MethodOutcome,
    /// Every check of the last look at the data, the passed ones too.
    pub checks: Vec<Check>,
    /// Where the warm-up ended; absent when it came to no samples.
    pub warm_up: Option<WarmUp>,
    /// Samples recorded, pooled over agents and batches, warm-up included.
    pub samples: usize,
    /// Requests sent while measuring.
    pub requests: u64,
    /// Batches measured.
    pub rounds: usize,
    /// Why the measurement started again, each time that it did.
    pub restarts: Vec<String>,
}

fn null_is_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}
