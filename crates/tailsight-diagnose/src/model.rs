//! The diagnosis as data: exactly the JSON contract (`diagnose --json`, schema 1). All times are integer ns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tailsight_lifetime::{Context, Incomplete, Leg, NamedFrame, Role};

use crate::cause::names::titled;
use crate::cause::phase::or_empty;
use crate::cause::{Category, How, Phase, Subject};
use crate::ideal::answer::OfDiagnosis;

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
    /// The latency of every leg by its name, whichever is under study. Absent in diagnoses of older versions.
    #[serde(default)]
    pub legs: BTreeMap<String, LegLatency>,
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
    /// What NSight §7.4 looks at beside the causes, when it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<More>,
    /// The ideal server's percentiles on the same arrivals, keyed as `latency_ns`. Null where no queue fits, and for other legs
    /// than the total.
    #[serde(default)]
    pub ideal_ns: Option<BTreeMap<String, u64>>,
    /// What the ideal server would have given the focus too, and what each cause's absence would buy. Absent where `ideal_ns` is
    /// null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ideal: Option<OfDiagnosis>,
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
    /// What to do next, most useful first.
    #[serde(default)]
    pub next: Vec<String>,
}

/// Causes that were taken out of the messages before they were compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// Send calls that answer no received message; they are no messages of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Unasked, to clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushes: Option<SentCalls>,
    /// To other servers, on connections that the application opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<SentCalls>,
}

/// Send calls of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegLatency {
    /// How many messages have it complete.
    pub messages: u64,
    /// As [`Diagnosis::latency_ns`].
    #[serde(flatten)]
    pub latency_ns: BTreeMap<String, u64>,
}

/// Where a median message of the run spends its time: compared with nothing, so also what every message waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Typical {
    /// From this quantile of the leg's latency, 0 to 1.
    pub from: f64,
    /// To this one.
    pub to: f64,
    /// Messages in it.
    pub messages: u64,
    /// Their mean latency.
    pub mean_ns: u64,
    /// Where it went, largest first; the rows sum to `mean_ns`.
    pub rows: Vec<TypicalRow>,
}

/// One row of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// What is known to cause such a row, and what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// One of the slowest messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Its category.
    pub category: Category,
    /// The task, function or flow that did it, with frames behind slashes.
    pub name: String,
    /// Who or what that is, as data. Absent in diagnoses of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// The frames that the nesting rule added to it, outermost first: what of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<NamedFrame>,
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
    /// The phase of NSight §5.2 that found it; none of the row that sums up what is no cause.
    #[serde(default, with = "or_empty")]
    pub phase: Option<Phase>,
    /// How.
    #[serde(default, with = "or_empty")]
    pub how: Option<How>,
    /// Mean ns of a message: focus, reference.
    #[serde(default)]
    pub mean_ns: [i64; 2],
    /// Inferred from counts, not measured.
    #[serde(default)]
    pub inferred: bool,
    /// The process that did it, where the cause is a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Who>,
    /// Of a gap: what ran last before it in the evidence, with how often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Of head-of-line blocking: the messages ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Ahead>,
    /// Of head-of-line blocking: what held the messages ahead, largest first. Empty when they were ordinary ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub root: Vec<Root>,
    /// Its deviation over what the messages in focus had beyond what an ideal server would also have given them, of the total leg
    /// (Tales of the Tail §3.2). Absent where no ideal fits, and where it gives them all that they had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_excess: Option<f64>,
    /// The percentiles of all complete messages had this cause been absent, keyed as `latency_ns`, as a replay predicts them: with
    /// `--more`, for the causes of the total leg that have 1 % of the deviation and can be taken out. [`Diagnosis::ideal`] has their intervals (docs/ideal.md).
    #[serde(default)]
    pub what_if: Option<BTreeMap<String, u64>>,
    /// Samples in its time: focus, reference. Absent where the run has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<[u64; 2]>,
    /// The functions that it was in, largest first; what they leave of it no function could be named for. Empty below the
    /// evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionPart>,
    /// The one call path through the first of them that most of its time was on, outermost function first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot_path: Vec<HotFrame>,
    /// Commands or steps that remove it, filled in with this run's pids.
    pub fix: Vec<String>,
    /// Those of them that `tailsight fix` can make and take back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// One sentence in words for the terminal and the page.
    pub explanation: String,
}

/// A function's part of a cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionPart {
    /// The function: the program's own where it called a library's.
    pub name: String,
    /// The library's function that the time was in, when `name` is its caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// Who called `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Of a function without a name, which `name` calls by its place: the functions that its file exports before and after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<[String; 2]>,
    /// The program or library.
    pub module: String,
    /// Its build id; empty without one.
    pub build_id: String,
    /// Source file and line, where debug information tells; else empty.
    pub source: String,
    /// Whether it is the kernel's.
    pub kernel: bool,
    /// Its part of the cause's deviation.
    pub share: f64,
    /// Its samples' share of the cause's time, focus less reference, ns.
    pub deviation_ns: i64,
    /// 95 % bootstrap interval of that, over messages.
    pub ci95_ns: [i64; 2],
    /// Samples in it, or sleeps: focus, reference.
    pub samples: [u64; 2],
    /// Whether it is where the thread slept; then the time is known to the ns, not from samples.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// Focus messages with a sample in it.
    pub messages: u64,
    /// Time of each focus message in it above the mean reference message's, ns: 5th, 25th, 50th, 75th and 95th percentile, and the
    /// most. From samples it is an estimate: the message's time in the cause, divided as its samples there are, or as those of all
    /// where it has none. Absent in diagnoses of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_ns: Option<[i64; 6]>,
    /// What is known of it against the reference.
    pub how: FunctionHow,
    /// What a runtime does there, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimePart>,
    /// The call path to it, outermost function first.
    pub path: Vec<String>,
}

/// NSight's third phase on functions. Whether a call took longer or was made more often samples do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionHow {
    /// More time in it than the reference.
    #[default]
    More,
    /// The reference never ran it, with samples enough to have met it (95 %).
    Unexpected,
}

/// What a runtime does in a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimePart {
    /// Always `runtime`.
    pub category: String,
    /// Of which runtime or server.
    pub of: String,
    /// What it does.
    pub does: String,
    /// What its documentation says to do about it.
    pub fix: String,
    /// Where that is written.
    pub documented: String,
    /// Nobody asked for it, as for a collection of garbage.
    #[serde(default)]
    pub on_its_own_account: bool,
}

/// A function of a hot path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotFrame {
    /// The function.
    pub name: String,
    /// The program or library; `[kernel]`.
    pub module: String,
    /// Source file and line, where known; else empty.
    pub source: String,
    /// Part of the cause's samples in the focus that were in it or in what it called.
    pub share: f64,
}

/// A process, or several of one name, with the threads that focus messages met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// The process; of several, the one with most of the deviation.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// How many processes.
    pub processes: u32,
    /// How many threads of them.
    pub threads: u32,
    /// The processes, most of the deviation first; at most 8.
    pub pids: Vec<u32>,
    /// Their threads by name, largest deviation first; at most 8.
    pub by_thread: Vec<ByThread>,
    /// The control group that all of them are in, when it is known.
    pub cgroup: Option<String>,
    /// The unit of systemd that this is.
    pub unit: Option<String>,
    /// The id of the container that it is.
    pub container: Option<String>,
}

/// Threads of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByThread {
    /// The name.
    pub name: String,
    /// How many.
    pub threads: u32,
    /// Their part of the cause's deviation, ns.
    pub deviation_ns: i64,
}

/// A fix that `tailsight fix` makes when it is told to, and takes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Action {
    /// Its number, from 1, in the order of the causes; fixes of several causes that change the same have the same.
    pub n: u32,
    /// What it is for, in a line.
    pub title: String,
    /// The command that shows it and asks.
    pub command: String,
    /// What it changes.
    pub changes: Vec<tailsight_fix::Change>,
    /// Each change in words.
    pub says: Vec<String>,
    /// What taking each change back does, in words.
    pub undo: Vec<String>,
    /// The lines of `fix` that do the same in a shell, by their place.
    pub shell: Vec<usize>,
}

/// A part of the deviation (NSight §6.3), from 0 to 1: of reported causes in `coverage`, of time with an owner in `owned`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

/// Messages of the same application that were served first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ahead {
    /// How many were ahead of a focus message, on average.
    pub focus: f64,
    /// Of a reference message.
    pub reference: f64,
    /// Which ones were ahead of each message of the evidence, the last before it first; at most 16.
    pub ids: Vec<(u32, Vec<u32>)>,
}

/// What held the messages that others waited behind: beyond what ordinary messages have of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Root {
    /// Its category.
    pub category: Category,
    /// The task, function or flow that did it.
    pub name: String,
    /// Who or what that is, as data. Absent in diagnoses of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// Whose side.
    #[serde(default = "application_core")]
    pub role: Role,
    /// How much longer it held one of the messages that it held, on average, ns.
    pub mean_ns: i64,
    /// Its part of all that held the messages ahead, 0 to 1.
    pub share: f64,
    /// How many messages it held.
    pub messages: u64,
    /// Samples in its time: of those messages, of the reference. Absent where the run has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<[u64; 2]>,
    /// The functions that it was in, as those of a cause; shares are of what the messages had more of it than the reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionPart>,
    /// The call path through the first of them, as that of a cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot_path: Vec<HotFrame>,
}

fn application_core() -> Role {
    Role::A
}

/// Focus messages with the same dominant cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The cause's rank in `causes`.
    pub rank: u32,
    /// Its category.
    pub category: Category,
    /// Its name.
    pub name: String,
    /// Who or what that is, as data. Absent in diagnoses of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// The frames that the nesting rule added to it, outermost first: what of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<NamedFrame>,
    /// Its role.
    pub role: Role,
    /// How many messages.
    pub messages: u64,
    /// Their mean latency.
    pub mean_ns: u64,
    /// The slowest of them.
    pub example: u32,
}

/// NSight §7.4: beyond the causes of one slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

impl Cause {
    /// A cause with no numbers yet.
    pub(crate) fn new(
        category: Category,
        name: String,
        subject: Subject,
        frames: Vec<NamedFrame>,
        role: Role,
    ) -> Cause {
        Cause {
            rank: 0,
            category,
            name,
            subject: Some(subject),
            frames,
            role,
            share: 0.0,
            deviation_ns: 0,
            ci95_ns: [0; 2],
            messages: 0,
            evidence: vec![],
            paths: vec![],
            times: [0.0; 2],
            phase: None,
            how: None,
            mean_ns: [0; 2],
            inferred: false,
            who: None,
            before: None,
            ahead: None,
            root: vec![],
            of_excess: None,
            what_if: None,
            samples: None,
            functions: vec![],
            hot_path: vec![],
            fix: vec![],
            actions: vec![],
            explanation: String::new(),
        }
    }
}

titled! {
    Cause: |cause| &cause.frames;
    Cluster: |cluster| &cluster.frames;
    Root: |_| &[];
    TypicalRow: |_| &[];
}
