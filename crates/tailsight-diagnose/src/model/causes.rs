//! A cause as data, with what belongs to it: functions, the hot path, who it was, what it waited behind, what to do.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_kernel::cgroup;
use tailsight_lifetime::{Doing, NamedFrame, Role, Threshold};

use crate::cause::names::titled;
use crate::cause::phase::or_empty;
use crate::cause::{Category, How, Phase, Subject};
use crate::model::changes::Change;
use crate::model::fixes::Fix;

/// One named cause.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
    /// Of another program or a kernel thread: the cores on which it had the evidence's time. Empty: not known. Not in the JSON.
    #[serde(skip)]
    pub cores: Vec<u32>,
    /// The owner paths in it with their deviations, largest first (at most 8).
    pub paths: Vec<(String, i64)>,
    /// How often it began (or was met running) in a message, on average: focus, reference. Tells more often from slower.
    #[serde(default)]
    pub times: [f64; 2],
    /// The phase of NSight §5.2 that found it; none of the row that sums up what is no cause.
    #[serde(default, with = "or_empty")]
    #[schemars(schema_with = "or_empty::schema::<Phase>")]
    pub phase: Option<Phase>,
    /// How.
    #[serde(default, with = "or_empty")]
    #[schemars(schema_with = "or_empty::schema::<How>")]
    pub how: Option<How>,
    /// Mean ns of a message: focus, reference.
    #[serde(default)]
    pub mean_ns: [i64; 2],
    /// Inferred from counts, not measured.
    #[serde(default)]
    pub inferred: bool,
    /// The part of its time in the focus of which the order of calls alone says that it is this message's: its thread had several requests, and
    /// nothing tells which of them asked the other server. Absent below 5 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guessed: Option<f64>,
    /// The process that did it, where the cause is a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<Who>,
    /// Of a gap: what ran last before it in the evidence, with how often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Of head-of-line blocking: the messages ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Ahead>,
    /// Of head-of-line blocking: what held the messages ahead, largest first. Empty when they were ordinary ones, and where the messages had been
    /// received and it explains little of what their thread did then.
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
    /// Of a wait that another task ended: what that one did meanwhile, largest first. Empty where that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meanwhile: Vec<MeanwhilePart>,
    /// The one call path through the first of them that most of its time was on, outermost function first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot_path: Vec<HotFrame>,
    /// Commands or steps that remove it, filled in with this run's pids: each of `steps` in a line.
    pub fix: Vec<String>,
    /// Those as data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Fix>,
    /// Those of them that `tailsight fix` can make and take back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// One sentence in words for the terminal and the page.
    pub explanation: String,
    /// The frames of each of `paths`, outermost first. Not in the JSON, as all that follows: sentences and fixes rest on it.
    #[serde(skip)]
    pub path_frames: Vec<Vec<NamedFrame>>,
    /// The part of its time that was before the receive call, 0 to 1; known of a row of the comparison alone.
    #[serde(skip)]
    pub before_receive: Option<f64>,
    /// The row in whose place it is reported, where the functions of that row made it a runtime's.
    #[serde(skip)]
    pub in_place_of: Option<InPlaceOf>,
}

/// A row whose functions say that the time was a runtime's.
#[derive(Clone, Debug, PartialEq)]
pub struct InPlaceOf {
    /// The row's category.
    pub category: Category,
    /// Its name.
    pub name: String,
    /// Who or what that is.
    pub subject: Option<Subject>,
    /// What of it.
    pub frames: Vec<NamedFrame>,
    /// What the runtime did.
    pub runtime: RuntimePart,
}

/// What was done while messages waited for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeanwhilePart {
    /// What the other task did.
    pub doing: Doing,
    /// In which function of the program; empty where that is not known.
    pub function: String,
    /// What its runtime did for it there, where it waited: `Go sleeping until a time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The server whose answer it waited for, where it waited for one and it is known which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Its part of the cause in the focus.
    pub share: f64,
}

/// A function's part of a cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionPart {
    /// The function: the innermost one of the program itself, where it called a library's.
    pub name: String,
    /// The library's function that the time was in, when `name` is its caller. None where a runtime waited there for any of its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// Who called `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Those that called it, each with its part of the cause, where several did: the largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<CallerPart>,
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
    /// Its part of the cause's deviation. Functions that it called and that are parts of their own are not in it.
    pub share: f64,
    /// Its part with all that it called. Absent in diagnoses of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_with_callees: Option<f64>,
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
    /// Where the reference has no sample of it: how likely that is by chance, if it had as much of it as the focus. Absent in diagnoses of
    /// older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance: Option<f64>,
    /// The interpreter that ran some function of the program there, which was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    /// How that interpreter is made to tell its functions, where it can be. Not in the JSON.
    #[serde(skip)]
    pub interpreter_tells_when: Option<String>,
    /// Whether a runtime waits there for whatever comes for any of its tasks. Not in the JSON.
    #[serde(skip)]
    pub waits_for_any: bool,
    /// What a runtime does there, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimePart>,
    /// The call path to it, outermost function first.
    pub path: Vec<String>,
}

/// Who called a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallerPart {
    /// Its name.
    pub name: String,
    /// The part of the cause's deviation that is in the function called from there.
    pub share: f64,
}

impl FunctionPart {
    /// What a reader takes its part for: with all that it called, where that is known.
    pub fn inclusive(&self) -> f64 {
        self.share_with_callees.unwrap_or(self.share)
    }
}

/// NSight's third phase on functions. Whether a call took longer or was made more often samples do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FunctionHow {
    /// More time in it than the reference.
    #[default]
    More,
    /// No sample of the reference was in it, with samples enough to have met it (95 %).
    Unexpected,
}

/// What a runtime does in a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotFrame {
    /// The function.
    pub name: String,
    /// The program or library; `[kernel]`.
    pub module: String,
    /// Source file and line, where known; else empty.
    pub source: String,
    /// Part of the cause's samples in the focus that were in it or in what it called.
    pub share: f64,
    /// Whether it is of the program itself and not of a library.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
}

/// A process, or several of one name, with the threads that focus messages met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// That container's name, where the state files of its engine tell it; in a pod it is unique in the pod only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// Its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The pod that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The namespace of that pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl Who {
    /// What its container is called: `NAMESPACE/POD/NAME` as far as they are known, or the beginning of its id; none of what is in none.
    pub fn container_title(&self) -> Option<String> {
        let names = [&self.namespace, &self.pod, &self.container_name].map(Option::as_deref);
        Some(cgroup::container_title(self.container.as_ref()?, names))
    }
}

/// Threads of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ByThread {
    /// The name.
    pub name: String,
    /// How many.
    pub threads: u32,
    /// Their part of the cause's deviation, ns.
    pub deviation_ns: i64,
}

/// A fix that `tailsight fix` makes when it is told to, and takes back.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Action {
    /// Its number, from 1, in the order of the causes; fixes of several causes that change the same have the same.
    pub n: u32,
    /// What it is for, in a line.
    pub title: String,
    /// The command that shows it and asks.
    pub command: String,
    /// What it changes.
    pub changes: Vec<Change>,
    /// Each change in words.
    pub says: Vec<String>,
    /// What taking each change back does, in words.
    pub undo: Vec<String>,
    /// The lines of `fix` that do the same in a shell, by their place.
    pub shell: Vec<usize>,
}

/// Messages of the same application that were served first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ahead {
    /// How many were ahead of a focus message, on average.
    pub focus: f64,
    /// Of a reference message.
    pub reference: f64,
    /// Which ones were ahead of each message of the evidence, the last before it first; at most 16.
    pub ids: Vec<(u32, Vec<u32>)>,
}

/// What held the messages that others waited behind: beyond what ordinary messages have of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Its part of what the focus waited behind others. In older versions more than 1 where messages arrived while it lasted; absent in
    /// diagnoses of those before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_wait: Option<f64>,
    /// How many messages it held.
    pub messages: u64,
    /// How many messages of the focus waited behind these. Absent in diagnoses of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiters: Option<u64>,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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

impl Cause {
    /// A cause with no numbers yet.
    pub fn new(category: Category, name: String, subject: Subject, frames: Vec<NamedFrame>, role: Role) -> Cause {
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
            cores: vec![],
            paths: vec![],
            times: [0.0; 2],
            phase: None,
            how: None,
            mean_ns: [0; 2],
            inferred: false,
            guessed: None,
            who: None,
            before: None,
            ahead: None,
            root: vec![],
            of_excess: None,
            what_if: None,
            samples: None,
            functions: vec![],
            meanwhile: vec![],
            hot_path: vec![],
            fix: vec![],
            steps: vec![],
            actions: vec![],
            explanation: String::new(),
            path_frames: vec![],
            before_receive: None,
            in_place_of: None,
        }
    }

    /// Whether most of its time was before the receive call.
    pub fn is_before_receive(&self) -> bool {
        self.before_receive.is_some_and(|before| before >= Threshold::BeforeReceive.share())
    }

    /// Whether most of it was after that.
    pub fn is_received(&self) -> bool {
        self.before_receive.is_some_and(|before| before <= 1.0 - Threshold::BeforeReceive.share())
    }
}

titled! {
    Cause: |cause| &cause.frames;
    Cluster: |cluster| &cluster.frames;
    Root: |_| &[];
}
