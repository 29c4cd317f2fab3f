//! What the method is asked ([`Config`], [`PercentileGoal`]) and what it is fed ([`Batch`]).
//!
//! In: the user's words (`p99:10us@95`) and what agents measured. Out: plain data for [`super::Method`]. Times are integer
//! nanoseconds on one clock per agent (any origin); latencies are nanoseconds; rates are requests per second.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// How narrow the interval of a percentile must be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Width {
    /// As narrow as the samples make it: any width will do.
    Any,
    /// Upper less lower end, in nanoseconds.
    Ns(f64),
    /// Upper less lower end as a fraction of the percentile itself.
    Relative(f64),
}

/// A percentile to know, how well, and how surely: `p99:10us@95`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PercentileGoal {
    /// The quantile, inside 0..1: 0.99 for the 99th percentile.
    pub quantile: f64,
    /// Widest interval that is accepted.
    pub width: Width,
    /// Confidence level inside 0..1: 0.95 unless told.
    pub level: f64,
}

impl PercentileGoal {
    /// A target at 95 % confidence.
    pub fn new(quantile: f64, width: Width) -> Self {
        Self { quantile, width, level: 0.95 }
    }

    /// The widest interval accepted about an estimate, ns; infinite for [`Width::Any`].
    pub fn max_width_ns(&self, estimate_ns: f64) -> f64 {
        match self.width {
            Width::Any => f64::INFINITY,
            Width::Ns(ns) => ns,
            Width::Relative(fraction) => fraction * estimate_ns,
        }
    }
}

impl FromStr for PercentileGoal {
    type Err = Error;

    /// Reads `pQ[:WIDTH][@LEVEL]`: Q and LEVEL in percent, WIDTH as `10us`, `500ns`, `1.5ms`, `2s` or `5%`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why| Error::BadTarget { text: text.to_string(), why };
        let rest = text.trim().strip_prefix(['p', 'P']).ok_or_else(|| bad("it does not begin with p"))?;
        let (rest, level) = match rest.split_once('@') {
            Some((rest, level)) => {
                (rest, percent(level.trim_end_matches('%')).ok_or_else(|| bad("the level after @"))?)
            }
            None => (rest, 0.95),
        };
        let (quantile, width) = match rest.split_once(':') {
            Some((quantile, width)) => (quantile, width_of(width).ok_or_else(|| bad("the width after the colon"))?),
            None => (rest, Width::Any),
        };
        let quantile = percent(quantile).ok_or_else(|| bad("the percentile is not a number between 0 and 100"))?;
        Ok(Self { quantile, width, level })
    }
}

impl fmt::Display for PercentileGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", percentile_name(self.quantile))?;
        match self.width {
            Width::Any => {}
            Width::Ns(ns) if ns >= 1e6 => write!(f, ":{}ms", ns / 1e6)?,
            Width::Ns(ns) if ns >= 1e3 => write!(f, ":{}us", ns / 1e3)?,
            Width::Ns(ns) => write!(f, ":{ns}ns")?,
            Width::Relative(fraction) => write!(f, ":{}%", shorten(fraction * 100.0))?,
        }
        write!(f, "@{}", shorten(self.level * 100.0))
    }
}

/// `p99`, `p99.9`: how a quantile is written.
pub fn percentile_name(quantile: f64) -> String {
    format!("p{}", shorten(quantile * 100.0))
}

/// Drops what binary fractions add behind the digits that were meant.
fn shorten(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

fn percent(text: &str) -> Option<f64> {
    let value: f64 = text.trim().parse().ok()?;
    (value > 0.0 && value < 100.0).then_some((value * 1e10).round() / 1e12)
}

fn width_of(text: &str) -> Option<Width> {
    let text = text.trim();
    let positive = |number: &str| number.trim().parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0);
    if let Some(number) = text.strip_suffix('%') {
        return Some(Width::Relative((positive(number)? * 1e10).round() / 1e12));
    }
    let ns = tailsight_units::parse::fractional_ns(text)?;
    Some(Width::Ns((ns * 1e3).round() / 1e3)).filter(|width| *width != Width::Ns(0.0))
}

/// The arrival process that the workload specifies: what the sent stream is held against.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Equal gaps on each agent; `tolerance` is the fraction of the gap by which a single one may be off.
    Fixed {
        /// Accepted deviation of a gap, as a fraction of the mean gap.
        tolerance: f64,
    },
    /// Poisson arrivals: exponential gaps.
    Exponential,
    /// Lognormal gaps, both parameters estimated.
    Lognormal,
    /// Pareto gaps, scale and shape estimated.
    Pareto,
    /// Bursty (MMPP), replayed or ramped: the sent gaps are compared with the intended ones (two samples).
    Scheduled,
    /// A closed loop that was asked for by name: arrivals and rate are what the server makes them, and are not tested.
    ClosedLoop,
}

/// From when the latency under study counts, and with it on which side of the measured latency the truth lies when the client
/// was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Since {
    /// From when a request was due (response time): all of the lateness is inside, so the truth is not above what was measured
    /// and above it less the lateness.
    Due,
    /// From when it was sent (service time): the lateness is hidden, so the truth is not below what was measured and below it
    /// plus the lateness.
    Sent,
}

impl Since {
    /// The factor of the lateness that, added to a latency, gives the other end of the range in which the truth lies.
    pub fn other_end(self) -> f64 {
        match self {
            Self::Due => -1.0,
            Self::Sent => 1.0,
        }
    }
}

/// What is asked of the method. [`Config::new`] has the defaults; every threshold of the verdict is here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The percentiles to know.
    pub targets: Vec<PercentileGoal>,
    /// The specified arrival process.
    pub arrivals: Arrivals,
    /// Requests that arrive at once; their counts vary so many times as much.
    pub burst: u32,
    /// From when latencies count.
    pub since: Since,
    /// Relative error of the sent and answered rates that is accepted beside counting noise.
    pub load_tolerance: f64,
    /// How far the client's lateness (sent less intended) may move a target percentile, ns. `None`: the width asked for it,
    /// and where no width is asked half of the percentile.
    pub max_lateness_ns: Option<f64>,
    /// The client sleeps and could poll instead: lateness may then take only half of a width, and a measurement for which it took
    /// more starts again, once.
    #[serde(rename = "client_spares")]
    pub client_sleeps: bool,
    /// Tests the times sent as they are (Lancet §4.3), instead of allowing for lateness that the interval includes.
    pub strict_arrivals: bool,
    /// Largest fraction of requests that may fail or be lost.
    pub max_errors: f64,
    /// Samples in the first batch (Lancet §4.3: 10,000).
    pub batch_samples: usize,
    /// Fraction of requests that agents record, at random (Lancet §4.3: 1 in 5).
    pub recording_rate: f64,
    /// Most requests to send while measuring.
    pub max_requests: u64,
    /// Most samples to hold in memory.
    pub max_samples: usize,
    /// Most batches before the verdict (Lancet §6.3: 10 tries).
    pub max_rounds: usize,
    /// How often the measurement may start again after the load or the arrivals were wrong. All samples are dropped then.
    pub max_restarts: usize,
    /// How much longer to measure for the sake of independent samples: when thinning would need more than so many times the
    /// requests sent so far, no sampling rate helps, and the interval for dependent samples is given, labelled.
    pub patience: f64,
    /// Gaps tested for an agent in a batch, chosen at random: more would find deviations that do not matter.
    pub max_gaps: usize,
    /// False-alarm rate of the arrival checks of a batch, all together.
    pub alpha_arrivals: f64,
    /// False-alarm rate of the independence check.
    pub alpha_independence: f64,
    /// False-alarm rate of the drift check; ADF is held to 0.05 as in the paper.
    pub alpha_stationarity: f64,
    /// False-alarm rate of the check that agents see one percentile.
    pub alpha_agents: f64,
    /// Looks in a row at which the level may drift before it is believed. A warm-up is cut when the samples have grown enough
    /// to see its end, so the first such look is not the last.
    pub max_drifts: usize,
    /// Seed of everything random inside (thinning, permutations). The same input and seed give the same verdict.
    pub seed: u64,
}

impl Config {
    /// The defaults for these targets and arrivals.
    pub fn new(targets: Vec<PercentileGoal>, arrivals: Arrivals) -> Self {
        Self {
            targets,
            arrivals,
            burst: 1,
            since: Since::Due,
            load_tolerance: 0.02,
            max_lateness_ns: None,
            client_sleeps: false,
            strict_arrivals: false,
            max_errors: 0.001,
            batch_samples: 10_000,
            recording_rate: 0.2,
            max_requests: 20_000_000,
            max_samples: 4_000_000,
            max_rounds: 10,
            max_restarts: 2,
            patience: 4.0,
            max_gaps: 4_096,
            alpha_arrivals: 0.001,
            alpha_independence: 0.05,
            alpha_stationarity: 0.02,
            alpha_agents: 0.01,
            max_drifts: 3,
            seed: 1,
        }
    }

    /// Refuses settings that cannot be meant.
    pub fn validate(&self) -> Result<(), Error> {
        let bad = |name, value, why| Err(Error::BadSetting { name, value, why });
        if self.targets.is_empty() {
            return bad("targets", 0.0, "give at least one percentile");
        }
        for target in &self.targets {
            if !(target.quantile > 0.0 && target.quantile < 1.0) {
                return bad("quantile", target.quantile, "it must be between 0 and 1");
            }
            if !(target.level > 0.0 && target.level < 1.0) {
                return bad("level", target.level, "it must be between 0 and 1");
            }
        }
        if !(self.recording_rate > 0.0 && self.recording_rate <= 1.0) {
            return bad("recording_rate", self.recording_rate, "it must be above 0 and at most 1");
        }
        if self.batch_samples < 1_000 {
            return bad("batch_samples", self.batch_samples as f64, "the tests need 1,000 samples");
        }
        if self.max_samples < self.batch_samples {
            return bad("max_samples", self.max_samples as f64, "it must hold at least one batch");
        }
        if self.max_rounds == 0 {
            return bad("max_rounds", 0.0, "at least one batch must be measured");
        }
        Ok(())
    }
}

/// A recorded request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When the schedule meant it to leave, ns.
    pub intended_ns: i64,
    /// When the client gave it to the kernel, ns. In what [`super::Method`] keeps, as late as the latest request that it may
    /// have waited behind.
    pub sent_ns: i64,
    /// The latency under study, ns: response time (from intended) or service time (from sent), as the caller decides.
    pub latency_ns: f64,
    /// By how much shorter the latency may have been, ns: its reply was read together with later bytes, whose stamp it shares.
    /// 0 where the stamp is its own.
    #[serde(default)]
    pub shared_ns: u32,
    /// Which agent recorded it, an index into the batch's agents; the method sets it.
    #[serde(default)]
    pub agent: u16,
}

/// A request as it was sent; consecutive ones make a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// When the schedule meant it to leave, ns.
    pub intended_ns: i64,
    /// When the client gave it to the kernel, ns.
    pub sent_ns: i64,
}

/// What was asked and achieved in a slice of time, all connections of the agent together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Length, ns.
    pub duration_ns: u64,
    /// Requests that the *specified rate* asks for in this slice (rate × duration, rounded), not the schedule's own draw;
    /// for [`Arrivals::Scheduled`], which has no other rate, the number that the schedule intends.
    pub target: u64,
    /// Requests sent in it.
    pub sent: u64,
    /// Replies that came in it.
    pub answered: u64,
}

/// What one agent (thread or machine) measured since the last batch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentBatch {
    /// Its name, for messages.
    pub agent: String,
    /// Windows of *consecutive* sends in order of sending. All of them or, to save memory, several spread over the batch.
    pub windows: Vec<Vec<Send>>,
    /// Recorded requests, chosen at random with the batch's sampling rate.
    pub samples: Vec<Sample>,
    /// Load over time; slices of 100 ms or longer that together cover the batch.
    pub slices: Vec<Slice>,
    /// Requests sent since the last batch.
    pub requests: u64,
    /// Of these: error replies, wrong replies, lost.
    pub failed: u64,
}

/// What all agents measured since the last batch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// The agents, in the same order every time.
    pub agents: Vec<AgentBatch>,
    /// The fraction of requests that was recorded (at random, not every k-th): the one that the step asked for.
    pub sampling_rate: f64,
    /// True when the agents' clocks are one clock (threads of one process), so that their streams can be superposed.
    pub one_clock: bool,
}
