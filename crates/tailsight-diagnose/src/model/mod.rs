//! The diagnosis as data: exactly the JSON contract (`diagnose --json`, schema 1). All times are integer ns.

mod causes;
mod changes;
mod circumstances;
mod fixes;
pub mod ideal;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_lifetime::{Context, Incomplete, Leg, Role, Threshold};

use crate::cause::names::titled;
use crate::cause::{Category, Subject};
use crate::glob;

pub use causes::{
    Action, Ahead, ByThread, CallerPart, Cause, Cluster, FunctionHow, FunctionPart, HotFrame, InPlaceOf, MeanwhilePart,
    Root, RuntimePart, Who,
};
pub use changes::{Change, Limit};
pub use circumstances::{Circumstances, EstimatedCost};
pub use fixes::{Fix, NextStep};

/// What was found out about a run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// Always 1.
    pub schema: u32,
    /// The run's directory as the user gave it.
    pub run: String,
    /// The application's name.
    pub app: String,
    /// The leg under study.
    pub leg: Leg,
    /// The classes of requests that it is limited to: of their messages are all counts, percentiles and causes, but for `classes`. Absent
    /// where none were chosen (`--class`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ChosenClass>,
    /// Messages of the run.
    pub messages: MessageCounts,
    /// Latency percentiles of the leg over all complete messages, keyed `mean`, `p50`, `p90`, `p99`, `p99.9`, `max`;
    /// a percentile that the messages are too few for is absent: 6 for p50, 36 for p90, 368 for p99, 3,688 for p99.9.
    pub latency_ns: BTreeMap<String, u64>,
    /// The latency of every leg by its name, whichever is under study. Absent in diagnoses of older versions.
    #[serde(default)]
    pub legs: BTreeMap<String, LegLatency>,
    /// The latency of the leg under study by class of requests, most of the focus first, at most 32. Absent where no protocol was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassLatency>,
    /// What connections were taken to speak, of a run recorded with `--protocol auto`; absent for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocols: Option<Protocols>,
    /// Why no causes can be said, when they cannot (N/A): then there are none, and the focus is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_available: Option<String>,
    /// Where a median message spends its time.
    #[serde(default)]
    pub typical: Option<Typical>,
    /// The slowest messages one by one, at most 10.
    #[serde(default)]
    pub slowest: Vec<SlowMessage>,
    /// The messages under study.
    pub focus: Slice,
    /// The cohort they are compared with.
    pub reference: Slice,
    /// Causes, largest deviation first; the row `unexplained` comes last. Shares sum to 1.
    pub causes: Vec<Cause>,
    /// The stages of the messages, T1 to T6 of Tales of the Tail, focus beside reference. Empty where no message has all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// Rows whose 95 % interval holds 0: no causes. Together they are the row `not significant` of `causes`.
    #[serde(default)]
    pub not_significant: Vec<Cause>,
    /// The focus messages by the cause that most of their deviation is.
    #[serde(default)]
    pub clusters: Vec<Cluster>,
    /// The run whose messages are the reference, when it is another one.
    #[serde(default)]
    pub against: Option<String>,
    /// How much of the deviation the reported causes explain: rows whose interval does not hold 0 (NSight's coverage).
    pub coverage: Coverage,
    /// How much of the deviation has a known owner, whether or not its row is a cause: all but `unexplained`.
    #[serde(default)]
    pub owned: Coverage,
    /// Where the transmit leg begins, by the protocols of the messages (`tcp`, `udp`): as run.json's `send_entry`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub send_entry: BTreeMap<String, String>,
    /// What the application sent that no message asked for; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
    /// Messages on connections that requests may share; absent when there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiplexed: Option<Multiplexed>,
    /// What messages are said to have worked themselves, beside what the application's threads ran. Absent for other legs than the total, and
    /// where messages are compared with another run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkBalance>,
    /// What NSight §7.4 looks at beside the causes, when it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<More>,
    /// The rules that decided what the sleeps of the focus were for, by their time, when they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleShare>,
    /// The thresholds of what was inferred, by name (docs/thresholds.md), when rules were asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub thresholds: BTreeMap<String, f64>,
    /// The ideal server's percentiles on the same arrivals, keyed as `latency_ns`. Null where no queue fits, and for other legs
    /// than the total.
    #[serde(default)]
    pub ideal_ns: Option<BTreeMap<String, u64>>,
    /// What the ideal server would have given the focus too, and what each cause's absence would buy. Absent where `ideal_ns` is
    /// null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ideal: Option<ideal::OfDiagnosis>,
    /// The causes that were taken out before (`diagnose --without`): latencies, focus and causes are what the replay predicts. Absent
    /// when none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<Without>,
    /// What was lost.
    pub loss: Loss,
    /// What the recording cost.
    pub overhead: Overhead,
    /// Notes for the reader: what limits this diagnosis.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What to do next, most useful first: each of `next_steps` in a line.
    #[serde(default)]
    pub next: Vec<String>,
    /// Those as data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next_steps: Vec<NextStep>,
    /// What its words rest on beside all this. Not in the JSON.
    #[serde(skip)]
    pub circumstances: Circumstances,
}

/// What a rule for sleeps decided of the focus (docs/rules.md).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleShare {
    /// Its id.
    pub rule: String,
    /// The time that it decided, and what was followed because of it: mean of a focus message, ns.
    pub mean_ns: u64,
    /// Focus messages of which it decided any.
    pub messages: u64,
}

/// Own work of messages beside the time that there was for it; both are means of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkBalance {
    /// What a message is said to have worked itself from its receive call to its reply, ns: of a sample of all messages.
    pub own_ns: u64,
    /// What all threads of the application ran, over the messages that they received, ns; 0 where that is not known. Own work above it
    /// counts work for several messages for each of them.
    pub ran_ns: u64,
}

/// Causes that were taken out of the messages before they were compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Without {
    /// What was taken out, the largest first.
    pub causes: Vec<TakenOut>,
    /// Percentiles of the total latency as measured, keyed as [`Diagnosis::latency_ns`].
    pub measured_ns: BTreeMap<String, u64>,
    /// As the replay predicts them without these causes.
    pub latency_ns: BTreeMap<String, u64>,
    /// An interval at 95 % of each: what another recording would have measured without the causes.
    pub ci95_ns: BTreeMap<String, [u64; 2]>,
}

/// A cause that was taken out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TakenOut {
    /// Its category.
    pub category: Category,
    /// Its name.
    pub name: String,
    /// Whose side.
    pub role: Role,
    /// Its share of the deviation of the total's focus, before.
    pub share: f64,
}

/// Messages on connections that requests may share. Of those that do, a message is a segment and has no reply: only its receive leg is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Multiplexed {
    /// On connections of HTTP/2 in the clear: without a reply.
    pub http2: u64,
    /// On connections of TLS to ports on which requests do not wait for each other: without a reply.
    pub tls_shared: u64,
    /// On connections of TLS to ports on which requests and replies alternate: paired by order.
    pub tls_in_turn: u64,
    /// On connections of which it is not known what carries them, to ports on which requests do not wait for each other: paired by order, which
    /// is wrong for HTTP/2.
    #[serde(default)]
    pub unknown_shared: u64,
}

/// Send calls that answer no received message; they are no messages of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sent {
    /// Unasked, to clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushes: Option<SentCalls>,
    /// To other servers, on connections that the application opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<SentCalls>,
}

/// Send calls of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentCalls {
    /// How many.
    pub calls: u64,
    /// Those whose transmit leg was seen whole.
    pub complete: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Percentiles of their transmit leg, keyed as `latency_ns`.
    pub transmit_ns: BTreeMap<String, u64>,
    /// Requests whose answer was seen.
    #[serde(default)]
    pub answered: u64,
    /// Percentiles of their wait, from the end of the send call until the last part of the answer could be read, keyed as `latency_ns`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wait_ns: BTreeMap<String, u64>,
    /// To whom: address and port with the number of calls, the most called first; at most 8.
    pub peers: Vec<(String, u64)>,
}

/// Counts of messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MessageCounts {
    /// Messages seen.
    pub total: u64,
    /// Messages whose leg is complete.
    pub complete: u64,
    /// The others, by reason.
    pub incomplete: BTreeMap<Incomplete, u64>,
    /// Messages served out of order: one of the same application that arrived later was received before them.
    #[serde(default)]
    pub out_of_order: u64,
}

/// A stage of messages (Tales of the Tail §3.3.1): how long it took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// `stack`, `wake-up`, `copy`, `application` or `transmit`.
    pub name: String,
    /// Its ends, `T1` to `T6`.
    pub from: String,
    /// See `from`.
    pub to: String,
    /// Percentiles over the focus messages, keyed as [`Diagnosis::latency_ns`].
    pub focus_ns: BTreeMap<String, u64>,
    /// Over the reference messages.
    pub reference_ns: BTreeMap<String, u64>,
}

/// The latency of one leg over the messages that have it complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LegLatency {
    /// How many messages have it complete.
    pub messages: u64,
    /// As [`Diagnosis::latency_ns`].
    #[serde(flatten)]
    pub latency_ns: BTreeMap<String, u64>,
}

/// The latency of a class of requests: a command with sizes, a method with the shape of its path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassLatency {
    /// Its name, as `GET /report` or `get k16..32`; `unframed`: bytes in which no request is known.
    pub name: String,
    /// How many messages have the leg complete.
    pub messages: u64,
    /// How many of them are in focus.
    pub focus: u64,
    /// As [`Diagnosis::latency_ns`].
    #[serde(flatten)]
    pub latency_ns: BTreeMap<String, u64>,
}

/// The classes of requests that a diagnosis is limited to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChosenClass {
    /// The class's name; of several the beginning that was asked for, with `*`.
    pub name: String,
    /// The classes by name.
    pub classes: Vec<String>,
}

/// What each TCP connection's first bytes told that it speaks (`record --protocol auto`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Protocols {
    /// Connections by their protocol: `memcached`, `resp`, `http1`, `http2`.
    pub connections: BTreeMap<String, u64>,
    /// Connections that begin like none of them; their messages are segments.
    pub untold_connections: u64,
    /// Messages that are one request each.
    pub requests: u64,
    /// Messages in which no request is known: segments, and datagrams.
    pub segments: u64,
}

/// Where a median message of the run spends its time: compared with nothing, so also what every message waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Typical {
    /// From this quantile of the leg's latency, 0 to 1.
    pub from: f64,
    /// To this one.
    pub to: f64,
    /// Messages in it that were looked into: at most 5,000, evenly by latency.
    pub messages: u64,
    /// Their mean latency.
    pub mean_ns: u64,
    /// Where it went, largest first; the rows sum to `mean_ns`.
    pub rows: Vec<TypicalRow>,
    /// How long the median reply waited in the socket or the queueing discipline, ns. Not in the JSON.
    #[serde(skip)]
    pub queued_ns: u64,
}

/// One row of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TypicalRow {
    /// Its category.
    pub category: Category,
    /// The task, function or flow.
    pub name: String,
    /// Who or what that is, as data. Absent in diagnoses of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// Application core or receive core.
    pub role: Role,
    /// The leg that it was in.
    pub leg: Leg,
    /// Mean ns of a message.
    pub mean_ns: u64,
    /// Its part of the whole.
    pub share: f64,
    /// As of a cause ([`Cause::guessed`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guessed: Option<f64>,
    /// Where in the program it waited, largest first; empty where the recording does not say it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionPart>,
    /// What is known to cause such a row, and what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
    /// Whether it is a wait for a server that most messages ask beside others. Not in the JSON.
    #[serde(skip)]
    pub asked_in_parallel: bool,
}

impl TypicalRow {
    /// Whether so much of a median message is in it that it is worth a look.
    pub fn is_large(&self) -> bool {
        self.share >= Threshold::TypicalRow.share()
    }

    /// Whether it is a wait of the application's own, of which the kernel does not show what it is for.
    pub fn is_own_wait(&self) -> bool {
        self.category == Category::AppProcessing && OWN_WAITS.iter().any(|name| glob::matches(name, &self.name))
    }
}

/// What waits of the application's own are called.
const OWN_WAITS: [&str; 4] = ["waits in*", "*sleep", "own-timer*", "peer-wait*"];

/// One of the slowest messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowMessage {
    /// Its id.
    pub id: u32,
    /// The leg's length.
    pub latency_ns: u64,
    /// Messages of the application that were served ahead of it.
    pub ahead: u32,
    /// Its flow.
    pub flow: String,
    /// Where its time went, largest first; they sum to the latency.
    pub parts: Vec<TypicalRow>,
}

/// A slice of the latency distribution.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Slice {
    /// From this quantile, 0 to 1.
    pub from: f64,
    /// To this quantile.
    pub to: f64,
    /// Messages in it that were looked into: of the run's own reference at most 5,000, evenly by latency; else all.
    pub messages: u64,
    /// Their mean latency.
    pub mean_ns: u64,
}

/// A part of the deviation (NSight §6.3), from 0 to 1: of reported causes in `coverage`, of time with an owner in `owned`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// Of the focus's total deviation.
    pub overall: f64,
    /// Median over the focus messages.
    pub p50: f64,
    /// Smallest over the focus messages.
    pub min: f64,
    /// Mean over the focus messages.
    #[serde(default)]
    pub mean: f64,
    /// The focus messages with the smallest parts, least first: id and part. At most 16, none that has all of it.
    #[serde(default)]
    pub least: Vec<(u32, f64)>,
}

/// NSight §7.4: beyond the causes of one slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct More {
    /// By slice of the latencies, the causes by how many messages they hit (Figure 18 at every percentile).
    pub pervasive: Vec<Pervasive>,
    /// What was queued ahead of the messages, by function (Figure 19).
    pub queue: Vec<Queue>,
    /// What ran on each core while messages were in it (Figure 20): of the focus, then of the reference.
    pub cores: [Vec<CoreContexts>; 2],
    /// Settings of the host that can lengthen the tail, as they were before the recording; absent of older runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<tailsight_trace::meta::Setting>,
}

/// The causes of one slice by how many messages they hit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pervasive {
    /// From this quantile.
    pub from: f64,
    /// To this one.
    pub to: f64,
    /// Messages in it.
    pub messages: u64,
    /// Their mean latency.
    pub mean_ns: u64,
    /// Rank of the cause, the part of the messages with more of it than the reference mean, its mean deviation; the most
    /// pervasive first.
    pub causes: Vec<(u32, f64, i64)>,
}

/// What was queued ahead of the messages in one function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// The function: `messages`, `app send`, `app receive`, `app processing`, `kernel receive`, `kernel send`.
    pub function: String,
    /// Whose side.
    pub role: Role,
    /// Mean depth: focus, reference.
    pub depth: [f64; 2],
    /// The focus's depth less the reference's mean: 10th, 50th and 90th percentile.
    pub relative: [f64; 3],
    /// Mean ns of a message: focus, reference.
    pub mean_ns: [i64; 2],
    /// Focus messages with more of it than the reference's mean.
    pub messages: u64,
}

/// What ran on a core while messages were in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoreContexts {
    /// The core; null for time that is bound to none (sleeps).
    pub cpu: Option<u16>,
    /// Its part of all of the messages' time.
    pub share: f64,
    /// Contexts and their part of the core's time, largest first; what is not listed together as `others`.
    pub contexts: Vec<(String, f64)>,
    /// The same contexts as data; null for `others`. Absent in diagnoses of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Option<Context>>,
}

/// What was lost.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Loss {
    /// Events lost.
    pub events: u64,
    /// Largest clock error, ns.
    pub clock_error_ns: u64,
}

/// What the recording cost.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Overhead {
    /// Mean ns of one event.
    pub ns_per_event: f64,
    /// Events.
    pub events: u64,
}

titled! {
    TypicalRow: |_| &[];
}
