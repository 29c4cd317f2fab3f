//! What an ideal server says of a diagnosis, as plain data: the field `ideal` of the JSON, which tailsight-ideal fills. Times in ns.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use tailsight_lifetime::Threshold;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_stats::quantile::name;
use tailsight_units::parse;

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
        f.write_str(&name(self.quantile))
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

/// How requests queue for workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Queues {
    /// All workers take from one.
    One,
    /// Each connection belongs to a worker.
    OneAWorker,
}

/// The queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// The service time of every message, ns.
    pub service_ns: u64,
    /// Where it comes from: `run`, `given` or `calibrated`.
    pub service_from: String,
    /// What a message costs in this run, ns: in user space, in the kernel, and for receiving its packets.
    pub user_ns: u64,
    /// See `user_ns`.
    pub kernel_ns: u64,
    /// See `user_ns`.
    pub receive_ns: u64,
    /// What the application's threads that received no message ran, over the messages, ns: no part of the service time, for what of it is work
    /// for requests no event tells.
    #[serde(default)]
    pub others_ns: u64,
    /// Receive processing has cores of its own: it is no part of the service time, and every message has this much, ns, more.
    pub apart_ns: u64,
    /// How many messages are served at once.
    pub workers: usize,
    /// How they queue.
    pub queues: Queues,
    /// Work that arrives over work that the workers can do.
    pub utilisation: f64,
    /// Threads that received messages, the busiest first, and on how many cores they ran.
    pub threads: usize,
    /// See `threads`.
    pub cores: usize,
    /// What was assumed. Not in the JSON.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// Worker by thread. Not in the JSON.
    #[serde(skip)]
    pub worker: BTreeMap<u32, u32>,
}

impl Fit {
    /// Whether the service time is that of a server that is busy: it was given or calibrated, or the run has load enough.
    pub fn tells_service_time(&self) -> bool {
        self.service_from != "run" || self.utilisation >= Threshold::BusyEnough.share()
    }

    /// The worker that a thread is.
    pub fn worker_of(&self, tid: u32) -> u32 {
        self.worker.get(&tid).copied().unwrap_or(0)
    }

    /// The threads that serve.
    pub fn threads_of_workers(&self) -> Vec<u32> {
        self.worker.keys().copied().collect()
    }
}
