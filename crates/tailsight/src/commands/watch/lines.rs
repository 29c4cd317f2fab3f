//! What `watch` says, as data: a line of JSON each on standard output with --json; captures are in captures.jsonl of the folder, too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_watch::{LatencyCounts, Leg};

/// What a line is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It is watched from now on: [`Started`].
    Started,
    /// A capture was made and diagnosed: [`Capture`].
    Capture,
    /// It is no longer watched: [`Ended`].
    Ended,
}

/// What is watched.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// `started`.
    pub event: Event,
    /// Always 1.
    pub schema: u32,
    /// The application.
    pub app: String,
    /// Its processes.
    pub pids: Vec<u32>,
    /// Its ports.
    pub ports: Vec<u16>,
    /// What makes a message slow.
    pub when: String,
    /// Memory of the event buffers, bytes.
    pub buffer_bytes: u64,
}

/// A capture.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Capture {
    /// `capture`.
    pub event: Event,
    /// Always 1.
    pub schema: u32,
    /// The wall-clock time at which the slow message's reply began, ns since 1970.
    pub unix_ns: u64,
    /// The run directory; it may have been deleted since, to make room.
    pub run: String,
    /// The application.
    pub app: String,
    /// The leg that was beyond its limit.
    pub leg: String,
    /// The limit, ns.
    pub limit_ns: u64,
    /// How long the slow message took, ns: from the driver until its reply began.
    pub total_ns: u64,
    /// Until the server had received it, ns.
    pub receive_ns: u64,
    /// From there until its reply began, ns.
    pub service_ns: u64,
    /// How much time the run holds, ns.
    pub held_ns: u64,
    /// The slow message came before the run begins: the buffers did not reach that far back.
    pub began_before: bool,
    /// For how long nothing was recorded while the buffers were copied, ns.
    pub blind_ns: u64,
    /// From the slow message until the run was written, ns: slow messages of that time are counted, and have no capture of their own.
    #[serde(default)]
    pub taken_ns: u64,
    /// Complete messages of the run; absent where there is no diagnosis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Messages that the causes are of: those beyond the limit, or the slowest ones where these are too few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<u64>,
    /// The largest causes, the first three.
    pub causes: Vec<CapturedCause>,
    /// The id of the slow message, where too few were like it for causes of their own: the causes are then the parts of its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_message: Option<u32>,
    /// Why there are no causes, or why the run is not whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A cause of a capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapturedCause {
    /// Its category.
    pub category: String,
    /// Its category and its name in words.
    pub words: String,
    /// The function in which most of it was, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Of a queue: what held the requests ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Its part of what these messages took longer, 0 to 1 and beyond; of one message alone, of its time.
    pub share: f64,
}

/// The end.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// `ended`.
    pub event: Event,
    /// Why.
    pub why: String,
    /// How long it was watched, ns.
    pub watched_ns: u64,
    /// Messages that were counted.
    pub messages: u64,
    /// Percentiles of each leg, ns, each known to an eighth; empty without messages.
    pub legs: Vec<LegPercentiles>,
    /// Messages beyond a limit.
    pub slow: u64,
    /// Captures.
    pub captures: u64,
    /// CPU time of the watcher, ns.
    pub cpu_ns: u64,
}

/// Percentiles of a leg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LegPercentiles {
    /// total, receive or service.
    pub leg: String,
    /// Half of the messages took no longer, ns.
    pub p50_ns: u64,
    /// ns.
    pub p99_ns: u64,
    /// ns.
    pub p999_ns: u64,
}

impl LegPercentiles {
    /// Of each leg; none without messages.
    pub fn of(counts: &LatencyCounts) -> Vec<LegPercentiles> {
        let of_leg = |leg: Leg| {
            let at = |quantile| counts.quantile(leg, quantile);
            let [p50_ns, p99_ns, p999_ns] = [at(0.5)?, at(0.99)?, at(0.999)?];
            Some(LegPercentiles { leg: leg.name().to_owned(), p50_ns, p99_ns, p999_ns })
        };
        Leg::ALL.into_iter().filter_map(of_leg).collect()
    }
}
