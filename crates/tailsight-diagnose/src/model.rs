//! The diagnosis as data: exactly the JSON contract (`diagnose --json`, schema 1). All times are integer ns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tailsight_lifetime::{Leg, Role};

/// What was found out about a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Always 1.
    pub schema: u32,
    /// The run's directory as the user gave it.
    pub run: String,
    /// The application's name.
    pub app: String,
    /// The leg under study.
    pub leg: Leg,
    /// Messages of the run.
    pub messages: MessageCounts,
    /// Latency percentiles of the leg over all complete messages, keyed `mean`, `p50`, `p90`, `p99`, `p99.9`, `max`;
    /// a percentile that the sample cannot support (fewer than 1/(1-p) messages) is absent.
    pub latency_ns: BTreeMap<String, u64>,
    /// The messages under study.
    pub focus: Slice,
    /// The cohort they are compared with.
    pub reference: Slice,
    /// Causes, largest deviation first; the row `unexplained` comes last. Shares sum to 1.
    pub causes: Vec<Cause>,
    /// How much of the deviation the causes explain.
    pub coverage: Coverage,
    /// The ideal server's percentiles on the same arrivals, keyed as `latency_ns`. Null until the queueing model fills it.
    #[serde(default)]
    pub ideal_ns: Option<BTreeMap<String, u64>>,
    /// What was lost.
    pub loss: Loss,
    /// What the recording cost.
    pub overhead: Overhead,
    /// Notes for the reader: what limits this diagnosis.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What to do next, most useful first.
    #[serde(default)]
    pub next: Vec<String>,
}

/// Counts of messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MessageCounts {
    /// Messages seen.
    pub total: u64,
    /// Messages whose leg is complete.
    pub complete: u64,
    /// The others, by reason.
    pub incomplete: BTreeMap<String, u64>,
}

/// A slice of the latency distribution.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Slice {
    /// From this quantile, 0 to 1.
    pub from: f64,
    /// To this quantile.
    pub to: f64,
    /// Messages in it.
    pub messages: u64,
    /// Their mean latency.
    pub mean_ns: u64,
}

/// One named cause.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cause {
    /// 1 for the largest.
    pub rank: u32,
    /// Category id, e.g. `interference`.
    pub category: String,
    /// The task, function or flow that did it.
    pub name: String,
    /// Application core or receive core.
    pub role: Role,
    /// Its part of the total deviation of the focus; may be negative.
    pub share: f64,
    /// Focus mean less reference mean.
    pub deviation_ns: i64,
    /// 95 % bootstrap interval of the deviation; the deviation twice when no interval was asked for (a note says so).
    pub ci95_ns: [i64; 2],
    /// Focus messages that it hit (more of it than the reference mean).
    pub messages: u64,
    /// Ids of the focus messages that suffered most from it.
    pub evidence: Vec<u32>,
    /// The owner paths in it with their deviations, largest first (at most 8).
    pub paths: Vec<(String, i64)>,
    /// How often it began (or was met running) in a message, on average: focus, reference. Tells more often from slower.
    #[serde(default)]
    pub times: [f64; 2],
    /// The focus percentiles had this cause been absent, keyed as `latency_ns`. Null until the replay fills it.
    #[serde(default)]
    pub what_if: Option<BTreeMap<String, u64>>,
    /// Commands or steps that remove it, filled in with this run's pids.
    pub fix: Vec<String>,
    /// One sentence in words for the terminal and the page.
    pub explanation: String,
}

/// How much of the deviation is explained (NSight §6.3).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Explained fraction of the focus's total deviation.
    pub overall: f64,
    /// Median over the focus messages.
    pub p50: f64,
    /// Smallest over the focus messages.
    pub min: f64,
}

/// What was lost.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Loss {
    /// Events lost.
    pub events: u64,
    /// Largest clock error, ns.
    pub clock_error_ns: u64,
}

/// What the recording cost.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Overhead {
    /// Mean ns of one event.
    pub ns_per_event: f64,
    /// Events.
    pub events: u64,
}
