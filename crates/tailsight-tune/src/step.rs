//! What became of one trial, as data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Candidate;

/// A fix that was tried or skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// From 1, in the order of the session.
    pub step: usize,
    /// The fix, with what was predicted.
    pub fix: Candidate,
    /// What was measured; absent where it was skipped or too few rounds show the percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Of each round that shows both, in order: the percentile with the fix and without it, ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds_ns: Vec<[f64; 2]>,
    /// What became of it.
    pub decision: Decision,
    /// Why.
    pub why: Why,
    /// That in words, where there is more to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What rounds with and without a fix show.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Rounds that show the percentile of both.
    pub rounds: usize,
    /// The percentile with the fix over that without it: geometric mean of the rounds.
    pub ratio: f64,
    /// Its interval at `level`.
    pub interval: [f64; 2],
    /// The level of the interval: 1 less twice the error that this step may make.
    pub level: f64,
    /// One-sided p-value of "the fix does not lower it", by exchanging rounds.
    pub p: f64,
    /// The error that this step may make: the probability that a fix without effect is kept.
    pub alpha: f64,
    /// Geometric mean of the percentile without the fix, ns.
    pub without_ns: f64,
    /// With it, ns.
    pub with_ns: f64,
}

/// What becomes of a fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It stays.
    Kept,
    /// It was applied, measured, and undone.
    Undone,
    /// It was never applied.
    Skipped,
}

/// Why that becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The whole interval is below 1, and so few exchanges of rounds have as large a difference that chance does not explain it.
    Proven,
    /// The interval holds 1, or chance explains the difference.
    NotProven,
    /// The whole interval is above 1: it makes the percentile higher.
    Worse,
    /// Too few rounds show the percentile of both.
    NotMeasured,
    /// It cannot be applied here and now.
    NotApplicable,
    /// Whoever was asked said no.
    Declined,
}

impl Why {
    /// For a table.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Why::Proven => "proven",
            Why::NotProven => "not proven",
            Why::Worse => "makes it slower",
            Why::NotMeasured => "not measured",
            Why::NotApplicable => "cannot be applied",
            Why::Declined => "declined",
        }
    }
}
