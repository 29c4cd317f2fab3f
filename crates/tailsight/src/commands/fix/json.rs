//! `tailsight fix --json`: the list, a plan, what was made and what was put back as data.
//!
//! Every document has `schema` (1). Times are text (UTC), values are as the kernel's files have them.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use tailsight_diagnose::model::{Action, Cause, Fix};
use tailsight_diagnose::{Category, Diagnosis};
use tailsight_fix::{Change, Entry, Place, UndoResult};

use super::Here;
use crate::terminal;

/// tailsight fix RUN --json
#[derive(Serialize, JsonSchema)]
pub struct List {
    /// Always 1.
    #[schemars(extend("const" = 1))]
    schema: u32,
    /// The run's directory as the user gave it.
    run: String,
    /// Fixes that `tailsight fix` can make.
    fixes: Vec<ByTailsight>,
    /// What only a person can do.
    by_hand: Vec<ByHand>,
}

/// The cause that a fix is against.
#[derive(Serialize, JsonSchema)]
struct CauseRef {
    /// Its rank in the diagnosis, from 1.
    rank: u32,
    /// Its category.
    category: Category,
    /// Its name.
    name: String,
    /// Its share of the deviation of the focus.
    share: f64,
}

/// A fix that can be made.
#[derive(Serialize, JsonSchema)]
struct ByTailsight {
    /// Its number, for tailsight fix RUN N.
    n: u32,
    /// What it is for, in a line.
    title: String,
    /// What it is against.
    cause: CauseRef,
    /// What it changes.
    changes: Vec<Change>,
    /// Each change in words.
    says: Vec<String>,
    /// What taking each back does, in words.
    undo: Vec<String>,
    /// The command that shows it and asks.
    command: String,
    /// The same for a shell: each of `steps` in a line.
    shell: Vec<String>,
    /// Those as data.
    steps: Vec<Fix>,
    /// What it would do on this host.
    here: Here,
}

/// What only a person can do.
#[derive(Serialize, JsonSchema)]
struct ByHand {
    /// What it is against.
    cause: CauseRef,
    /// What to do: `fix` in a line.
    step: String,
    /// That as data.
    fix: Fix,
}

/// tailsight fix RUN N --json: what a fix would change, or with --yes what it changed.
#[derive(Serialize, JsonSchema)]
pub struct Made {
    /// Always 1.
    #[schemars(extend("const" = 1))]
    schema: u32,
    /// The run's directory as the user gave it.
    run: String,
    /// The fix's number.
    n: u32,
    /// What it is for, in a line.
    title: String,
    /// What it is against.
    cause: CauseRef,
    /// The values that it changes.
    values: Vec<Step>,
    /// What is left out, and why.
    left_out: Vec<String>,
    /// That processes which the run did not see have the name of those that it saw and that have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    others_of_name: Option<String>,
    /// Whether it was made, or would be.
    made: bool,
    /// Values changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<usize>,
    /// Threads that ended before their turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<usize>,
    /// The file that remembers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
}

/// One value, now and to come.
#[derive(Serialize, JsonSchema)]
struct Step {
    /// Where it is.
    place: Place,
    /// The place in words.
    says: String,
    /// What is there.
    was: String,
    /// What is to be there.
    new: String,
}

/// tailsight fix --undo --json
#[derive(Serialize, JsonSchema)]
pub struct Undone {
    /// Always 1.
    #[schemars(extend("const" = 1))]
    schema: u32,
    /// The values that were changed.
    values: Vec<PutBack>,
    /// Values that are still changed.
    left: usize,
}

/// A value that was put back, or why not.
#[derive(Serialize, JsonSchema)]
struct PutBack {
    /// The fix.
    title: String,
    /// Where it is.
    place: Place,
    /// The place in words.
    says: String,
    /// What was there before the fix.
    was: String,
    /// What the fix set.
    now: String,
    /// What became of it.
    outcome: Outcome,
    /// What is there instead, or what failed.
    why: Option<String>,
}

/// What became of a value that a fix had changed.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// It is what it was.
    Back,
    /// It was that already.
    Already,
    /// The thread began after the fix and had it from another.
    Inherited,
    /// What had it is gone.
    Gone,
    /// The host has booted since.
    Booted,
    /// Somebody else has changed it.
    Others,
    /// It could not be put back.
    Failed,
    /// Something else.
    Unknown,
}

/// tailsight fix --status --json: what is still changed.
#[derive(Serialize, JsonSchema)]
pub struct Status {
    /// Always 1.
    #[schemars(extend("const" = 1))]
    schema: u32,
    /// Fixes that are still made.
    fixes: Vec<Changed>,
    /// The file that remembers it.
    state: String,
}

/// A fix that is still made.
#[derive(Serialize, JsonSchema)]
struct Changed {
    /// What it is for.
    title: String,
    /// The run that asked for it.
    run: String,
    /// When it was made, UTC.
    when: String,
    /// Whether it was made since the host booted.
    this_boot: bool,
    /// What it changed.
    values: Vec<Value>,
}

/// One value, before and now.
#[derive(Serialize, JsonSchema)]
struct Value {
    /// Where it is.
    place: Place,
    /// The place in words.
    says: String,
    /// What was there before the fix.
    was: String,
    /// What the fix set.
    now: String,
}

impl CauseRef {
    fn of(cause: &Cause) -> CauseRef {
        CauseRef { rank: cause.rank, category: cause.category, name: cause.name.clone(), share: cause.share }
    }
}

/// The fixes of a run, and what only a person can do.
pub(super) fn list(
    d: &Diagnosis,
    numbered: &[(&Cause, &Action)],
    by_hand: &[(&Cause, &Fix)],
    here: impl Fn(&Action) -> Here,
) -> anyhow::Result<()> {
    let fix = |(cause, action): &(&Cause, &Action)| ByTailsight {
        n: action.n,
        title: action.title.clone(),
        cause: CauseRef::of(cause),
        changes: action.changes.clone(),
        says: action.says.clone(),
        undo: action.undo.clone(),
        command: action.command.clone(),
        shell: action.shell.iter().filter_map(|&i| cause.fix.get(i)).cloned().collect(),
        steps: action.shell.iter().filter_map(|&i| cause.steps.get(i)).cloned().collect(),
        here: here(action),
    };
    let hand = |(cause, fix): &(&Cause, &Fix)| ByHand {
        cause: CauseRef::of(cause),
        step: fix.to_string(),
        fix: (*fix).clone(),
    };
    let (fixes, by_hand) = (numbered.iter().map(fix).collect(), by_hand.iter().map(hand).collect());
    terminal::print_sorted(&List { schema: 1, run: d.run.clone(), fixes, by_hand })
}

fn planned(d: &Diagnosis, cause: &Cause, action: &Action, plan: &tailsight_fix::Plan) -> Made {
    let value = |step: &tailsight_fix::Step| Step {
        place: step.place.clone(),
        says: step.place.to_string(),
        was: step.was.clone(),
        new: step.new.clone(),
    };
    Made {
        schema: 1,
        run: d.run.clone(),
        n: action.n,
        title: action.title.clone(),
        cause: CauseRef::of(cause),
        values: plan.writes().map(value).collect(),
        left_out: plan.notes.clone(),
        others_of_name: plan.others_of_name.clone(),
        made: false,
        changed: None,
        ended: None,
        state: None,
    }
}

/// What a fix would change.
pub(super) fn plan(d: &Diagnosis, cause: &Cause, action: &Action, plan: &tailsight_fix::Plan) -> anyhow::Result<()> {
    terminal::print_sorted(&planned(d, cause, action, plan))
}

/// What a fix changed; `ended`: threads that ended before their turn.
pub(super) fn made(
    d: &Diagnosis,
    (cause, action): (&Cause, &Action),
    plan: &tailsight_fix::Plan,
    (changed, ended): (usize, usize),
    state: &Path,
) -> anyhow::Result<()> {
    let (changed, ended, state) = (Some(changed), Some(ended), Some(state.display().to_string()));
    terminal::print_sorted(&Made { made: true, changed, ended, state, ..planned(d, cause, action, plan) })
}

/// What was put back; `left`: values that are still changed.
pub(super) fn undone(puts: &[tailsight_fix::Put], left: usize) -> anyhow::Result<()> {
    let put = |p: &tailsight_fix::Put| {
        let (outcome, why) = match &p.outcome {
            UndoResult::Back => (Outcome::Back, None),
            UndoResult::Already => (Outcome::Already, None),
            UndoResult::Inherited => (Outcome::Inherited, None),
            UndoResult::Gone => (Outcome::Gone, None),
            UndoResult::Booted => (Outcome::Booted, None),
            UndoResult::Others(value) => (Outcome::Others, Some(value.clone())),
            UndoResult::Failed(error) => (Outcome::Failed, Some(tailsight_units::chain(error))),
            _ => (Outcome::Unknown, None),
        };
        let Value { place, says, was, now } = Value::of(&p.entry);
        PutBack { title: p.title.clone(), place, says, was, now, outcome, why }
    };
    terminal::print_sorted(&Undone { schema: 1, values: puts.iter().map(put).collect(), left })
}

impl Value {
    fn of(entry: &Entry) -> Value {
        Value {
            place: entry.place.clone(),
            says: entry.place.to_string(),
            was: entry.was.clone(),
            now: entry.now.clone(),
        }
    }
}

/// What is still changed; after another boot it is gone.
pub(super) fn status(state: &tailsight_fix::State, boot: &str, file: &Path) -> anyhow::Result<()> {
    let fix = |fix: &tailsight_fix::Record| Changed {
        title: fix.title.clone(),
        run: fix.run.clone(),
        when: fix.when.clone(),
        this_boot: fix.boot_id == boot,
        values: fix.changes.iter().filter(|e| !e.place.same(&e.was, &e.now)).map(Value::of).collect(),
    };
    let fixes = state.fixes.iter().map(fix).collect();
    terminal::print_sorted(&Status { schema: 1, fixes, state: file.display().to_string() })
}
