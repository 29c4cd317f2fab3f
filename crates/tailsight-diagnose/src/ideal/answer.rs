//! What the ideal says of a diagnosis, as plain data: the field `ideal` of the JSON. Times in ns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::fit::Fit;
use crate::cause::Category;

/// The ideal beside a diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfDiagnosis {
    /// The queue that fits the server.
    pub model: Fit,
    /// Of the focus's mean latency: inherent and excess.
    pub focus: Inherent,
    /// Of the mean latency of all complete messages.
    pub all: Inherent,
    /// Percentiles as replayed with nothing taken out: how well the replay fits.
    pub replayed_ns: BTreeMap<String, u64>,
    /// What the absence of each cause would buy, by rank.
    pub what_if: Vec<WhatIf>,
}

/// The part of the latency of some messages that the ideal server would have given them too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherent {
    /// Mean latency, ns.
    pub mean_ns: u64,
    /// Of it, what the ideal server would also have given each message at its moment, ns: never more than its latency.
    pub inherent_ns: u64,
    /// The rest, ns.
    pub excess_ns: u64,
}

/// The latencies had a cause been absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// Of the cause.
    pub rank: u32,
    /// Of the cause.
    pub category: Category,
    /// Of the cause.
    pub name: String,
    /// The cause's deviation over the focus's excess.
    pub of_excess: Option<f64>,
    /// Percentiles of all complete messages without the cause; the server's own work and wake-ups, without which none is, are
    /// brought down to what the reference has of them.
    pub latency_ns: BTreeMap<String, u64>,
    /// An interval at 95 % of each: what another recording would have measured without the cause.
    pub ci95_ns: BTreeMap<String, [u64; 2]>,
}
