//! What comes out of the method: a number with its interval, or N/A with the reason. Plain data for terminal and JSON.
//!
//! All times are nanoseconds.

use serde::{Deserialize, Deserializer, Serialize};

use super::model::Target;

/// Which assumption was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
}

/// A percentile with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PercentileResult {
    /// What was asked.
    pub target: Target,
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

/// No number, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The check that failed: test, statistic, threshold, n.
    pub failed: Check,
    /// One sentence: what happened.
    pub reason: String,
    /// One sentence: what would help.
    pub hint: String,
    /// What the samples do say, where everything but the width was as it must be: each percentile with an interval that is
    /// wider than asked, by chance or by the client's lateness. Empty where they say nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<PercentileResult>,
}

/// A number with its interval, or N/A (exit code 3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Outcome {
    /// Believe it.
    Number(Number),
    /// N/A.
    NotAvailable(Box<Refusal>),
}

/// The end of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The number or the refusal.
    #[serde(flatten)]
    pub outcome: Outcome,
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
    /// Why the measurement began anew, each time that it did.
    pub restarts: Vec<String>,
}

fn null_is_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}
