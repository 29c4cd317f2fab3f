//! What the ideal says of a diagnosis, as plain data: the field `ideal` of the JSON. Times in ns.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_units::parse;

use super::fit::Fit;
use crate::cause::Category;

/// The ideal beside a diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// With an objective: the load that it allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
}

/// The part of the latency of some messages that the ideal server would have given them too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Inherent {
    /// Mean latency, ns.
    pub mean_ns: u64,
    /// Of it, what the ideal server would also have given each message at its moment, ns: never more than its latency.
    pub inherent_ns: u64,
    /// The rest, ns.
    pub excess_ns: u64,
}

/// The latencies had a cause been absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// A percentile and what it may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Objective {
    /// Above 0 and below 1.
    pub quantile: f64,
    /// Ns.
    pub at_most_ns: u64,
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (quantile, at_most_ns) = parse::objective(text).map_err(|wrong| wrong.to_string())?;
        Ok(Self { quantile, at_most_ns })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", tailsight_queue::predict::name(self.quantile))
    }
}

/// What the objective allows, and what the load needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// The objective.
    pub objective: Objective,
    /// Messages a second in the run, and the percentile then, ns.
    pub per_s: f64,
    /// See `per_s`.
    pub measured_ns: u64,
    /// Messages a second at which the ideal server passes the objective; null when it does at the lowest load looked at.
    pub ideal_per_s: Option<f64>,
    /// The recorded server, by its messages served again; likewise.
    pub replayed_per_s: Option<f64>,
    /// Messages a second at which the workers have no time left.
    pub saturated_per_s: f64,
    /// What a packet and what a message cost, ns: receiving it; and serving it, in user space and in the kernel.
    pub packet_ns: f64,
    /// See `packet_ns`.
    pub request_ns: f64,
    /// Cores that these keep busy at the run's load.
    pub packet_cores: f64,
    /// See `packet_cores`.
    pub request_cores: f64,
}
