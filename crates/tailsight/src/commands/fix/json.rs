//! `tailsight fix --json`: the list, a plan, what was made and what was put back as data.
//!
//! Every document has `schema` (1). Times are text (UTC), values are as the kernel's files have them.

use std::path::Path;

use serde_json::{Value, json};
use tailsight_diagnose::Diagnosis;
use tailsight_diagnose::model::{Action, Cause};
use tailsight_fix::{Plan, Put, State, UndoResult};

use super::Here;
use crate::terminal;

fn print(value: &Value) -> anyhow::Result<()> {
    terminal::print_json(value)
}

fn of(cause: &Cause) -> Value {
    json!({ "rank": cause.rank, "category": cause.category, "name": cause.name, "share": cause.share })
}

/// The fixes of a run, and what only a person can do.
pub(super) fn list(
    d: &Diagnosis,
    numbered: &[(&Cause, &Action)],
    by_hand: &[(&Cause, &str)],
    here: impl Fn(&Action) -> Here,
) -> anyhow::Result<()> {
    let fix = |(cause, action): &(&Cause, &Action)| {
        let Here { values, root, text } = here(action);
        json!({
            "n": action.n, "title": action.title, "cause": of(cause), "changes": action.changes, "says": action.says,
            "undo": action.undo, "command": action.command,
            "shell": action.shell.iter().filter_map(|&i| cause.fix.get(i)).collect::<Vec<_>>(),
            "here": { "values": values, "root": root, "text": text },
        })
    };
    let hand = |(cause, line): &(&Cause, &str)| json!({ "cause": of(cause), "step": line });
    print(&json!({
        "schema": 1, "run": d.run,
        "fixes": numbered.iter().map(fix).collect::<Vec<_>>(),
        "by_hand": by_hand.iter().map(hand).collect::<Vec<_>>(),
    }))
}

fn planned(d: &Diagnosis, cause: &Cause, action: &Action, plan: &Plan) -> Value {
    let value = |step: &tailsight_fix::Step| json!({ "place": step.place, "says": step.place.to_string(), "was": step.was, "new": step.new });
    json!({
        "schema": 1, "run": d.run, "n": action.n, "title": action.title, "cause": of(cause),
        "values": plan.writes().map(value).collect::<Vec<_>>(), "left_out": plan.notes,
    })
}

/// What a fix would change.
pub(super) fn plan(d: &Diagnosis, cause: &Cause, action: &Action, plan: &Plan) -> anyhow::Result<()> {
    let mut out = planned(d, cause, action, plan);
    out["made"] = false.into();
    print(&out)
}

/// What a fix changed; `ended`: threads that ended before their turn.
pub(super) fn made(
    d: &Diagnosis,
    (cause, action): (&Cause, &Action),
    plan: &Plan,
    (changed, ended): (usize, usize),
    state: &Path,
) -> anyhow::Result<()> {
    let mut out = planned(d, cause, action, plan);
    out["made"] = true.into();
    out["changed"] = changed.into();
    out["ended"] = ended.into();
    out["state"] = state.display().to_string().into();
    print(&out)
}

/// What was put back; `left`: values that are still changed.
pub(super) fn undone(puts: &[Put], left: usize) -> anyhow::Result<()> {
    let put = |p: &Put| {
        let (outcome, why) = match &p.outcome {
            UndoResult::Back => ("back", None),
            UndoResult::Already => ("already", None),
            UndoResult::Inherited => ("inherited", None),
            UndoResult::Gone => ("gone", None),
            UndoResult::Booted => ("booted", None),
            UndoResult::Others(value) => ("others", Some(value.clone())),
            UndoResult::Failed(error) => ("failed", Some(tailsight_units::chain(error))),
            _ => ("unknown", None),
        };
        json!({
            "title": p.title, "place": p.entry.place, "says": p.entry.place.to_string(), "was": p.entry.was,
            "now": p.entry.now, "outcome": outcome, "why": why,
        })
    };
    print(&json!({ "schema": 1, "values": puts.iter().map(put).collect::<Vec<_>>(), "left": left }))
}

/// What is still changed; after another boot it is gone.
pub(super) fn status(state: &State, boot: &str, file: &Path) -> anyhow::Result<()> {
    let fix = |fix: &tailsight_fix::Record| {
        let changed = fix.changes.iter().filter(|e| !e.place.same(&e.was, &e.now));
        let value = |e: &tailsight_fix::Entry| json!({ "place": e.place, "says": e.place.to_string(), "was": e.was, "now": e.now });
        json!({
            "title": fix.title, "run": fix.run, "when": fix.when, "this_boot": fix.boot_id == boot,
            "values": changed.map(value).collect::<Vec<_>>(),
        })
    };
    let fixes: Vec<Value> = state.fixes.iter().map(fix).collect();
    print(&json!({ "schema": 1, "fixes": fixes, "state": file.display().to_string() }))
}
