//! `tailsight tune --json`: a session as data. Times are ns, ratios are latency with the fix over latency without it.

use schemars::JsonSchema;
use serde::Serialize;
use tailsight_diagnose::model::Fix;
use tailsight_load::Plan;
use tailsight_tune::{Candidate, Level, Objective, Step, Stopped};

/// tailsight tune --json
#[derive(Serialize, JsonSchema)]
pub struct Tuning {
    /// Always 1.
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    /// The server's name.
    pub app: String,
    /// What was asked for, as `p99 min` or `p99 < 5ms`.
    pub objective: Objective,
    /// The load; absent where the server's own traffic was recorded (--observe).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// What a window took, ns: a round has two.
    pub window_ns: u64,
    /// The probability that the session keeps a fix without effect; its steps share it.
    pub alpha: f64,
    /// The recordings that were diagnosed, in order.
    pub recordings: Vec<Recording>,
    /// The percentile as the server was before each diagnosis; of an objective with a limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<Level>,
    /// Fixes that were tried or skipped, in order.
    pub steps: Vec<Step>,
    /// Fixes that were not tried, the next one first.
    pub left: Vec<Candidate>,
    /// What only a person can do, of the last diagnosis.
    pub by_hand: Vec<ByHand>,
    /// Why it ended.
    pub stopped: Stopped,
    /// That in words, where there is more to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What stays changed, in the order in which it was applied.
    pub changed: Vec<String>,
    /// Fixes that were in effect before, and are still.
    pub earlier_fixes: usize,
    /// The command that undoes all fixes that are in effect; absent where nothing stays changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// How long it took, ns.
    pub elapsed_ns: u64,
}

/// A recording that was diagnosed.
#[derive(Clone, Serialize, JsonSchema)]
pub struct Recording {
    /// Its directory.
    pub run: String,
    /// Its messages with a reply.
    pub messages: u64,
    /// The objective's percentile inside this host, or the next lower one that the messages are enough for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile: Option<String>,
    /// It, ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_ns: Option<u64>,
    /// What an ideal server would have, ns; absent where none fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ideal_ns: Option<u64>,
    /// Why no causes can be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_available: Option<String>,
}

/// What only a person can do: it is not tried.
#[derive(Serialize, JsonSchema)]
pub struct ByHand {
    /// The cause that it is against.
    pub against: String,
    /// The cause's part of the deviation.
    pub share: f64,
    /// In a line.
    pub step: String,
    /// That as data.
    pub fix: Fix,
}
