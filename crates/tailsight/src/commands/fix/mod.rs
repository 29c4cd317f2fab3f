//! `tailsight fix`: lists the fixes of a run, makes one when told to, and puts everything back.
//!
//! In: a run and a number, or nothing. Out: what is changed, from what to what, before it is; exit 0 done, 1 failed, 2 no fix
//! has that number, or nobody could be asked, 3 nothing that can be done here.

use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal};

use schemars::JsonSchema;
use serde::Serialize;
use tailsight_diagnose::model::{self, Action, Cause};
use tailsight_diagnose::{Diagnosis, Titled};
use tailsight_fix::{
    About, Applied, Error, FileStore, Identity, Live, Origin, Place, Plan, Put, System, UndoResult, default_folder,
};
use tailsight_trace::RunMeta;
use tailsight_units::Untrusted;

pub mod json;

use crate::cli_fix::Fix;
use crate::commands::diagnose::not_available_or;
use crate::{Exit, pipeline, terminal};

/// The list has nothing against a cause that is less than this share of the deviation: it would change a host for nothing.
pub const FLOOR: f64 = 0.01;

/// Lists, makes, or puts back.
pub fn run(args: &Fix) -> anyhow::Result<Exit> {
    match &args.run {
        Some(_) => of_run(args),
        None if args.undo => undo(args.force, args.json),
        None => status(args.json),
    }
}

fn of_run(args: &Fix) -> anyhow::Result<Exit> {
    let Some(path) = &args.run else { return Ok(Exit::Failed) };
    let options = match pipeline::options(&args.question) {
        Ok(options) => options,
        Err(error) => return not_available_or(error),
    };
    let opened = pipeline::open(path)?;
    let against = args.against.as_deref().map(pipeline::open).transpose()?;
    let options = match pipeline::asked(options, &args.question, &opened, against.as_ref()) {
        Ok((options, _)) => options,
        Err(error) => return not_available_or(error.into()),
    };
    let diagnosis = match pipeline::diagnose_against(&opened, &options, against.as_ref()) {
        Ok((diagnosis, _)) => diagnosis,
        Err(error) => return not_available_or(error),
    };
    if diagnosis.not_available.is_some() {
        return Ok(pipeline::verdict(&diagnosis));
    }
    let origin = origin(&opened.run.meta);
    let Some(number) = args.number else { return list(&diagnosis, &origin, args.json) };
    let Some((cause, action)) = find(&diagnosis, number) else {
        say!(
            "tailsight: no fix has number {number}: this run has {}; tailsight fix {} lists them",
            fixes(&diagnosis),
            path.display()
        );
        return Ok(Exit::Usage);
    };
    if args.shell {
        // One command a process.
        for line in action.shell.iter().filter_map(|&i| cause.fix.get(i)) {
            terminal::print(&format!("{line}\n"))?;
        }
        return Ok(Exit::Done);
    }
    make(&diagnosis, cause, action, &origin, args)
}

/// What the run knows of where it was recorded.
pub fn origin(meta: &RunMeta) -> Origin {
    let identity =
        |p: &tailsight_trace::meta::Process| Identity { pid: p.pid, started: p.started, comm: p.comm.clone() };
    Origin { boot_id: meta.host.boot_id.clone(), processes: meta.target.processes.iter().map(identity).collect() }
}

/// The fixes with the cause that each is first named for, by their numbers.
fn numbered(d: &Diagnosis) -> Vec<(&Cause, &Action)> {
    let mut actions: Vec<(&Cause, &Action)> = vec![];
    for (cause, action) in d.causes.iter().flat_map(|c| c.actions.iter().map(move |a| (c, a))) {
        if !actions.iter().any(|(_, listed)| listed.n == action.n) {
            actions.push((cause, action));
        }
    }
    actions
}

fn find(d: &Diagnosis, number: u32) -> Option<(&Cause, &Action)> {
    numbered(d).into_iter().find(|(_, action)| action.n == number)
}

fn fixes(d: &Diagnosis) -> String {
    match numbered(d).len() {
        0 => "no fix that Tailsight can apply".into(),
        1 => "one fix, number 1".into(),
        n => format!("{n} fixes, 1 to {n}"),
    }
}

/// The cause's name in words, with its category.
fn name(cause: &Cause) -> String {
    let title = cause.title();
    if title == cause.category.as_str() { title } else { format!("{title} ({})", cause.category) }
}

fn list(d: &Diagnosis, origin: &Origin, as_json: bool) -> anyhow::Result<Exit> {
    let numbered = numbered(d);
    if as_json {
        json::list(d, &numbered, &by_hand(d), |action| here(action, origin))?;
        return Ok(if numbered.is_empty() { Exit::NotAvailable } else { Exit::Done });
    }
    let by_hand = by_hand(d);
    let (shown, by_hand_shown): (Vec<_>, Vec<_>) = (
        numbered.iter().filter(|(cause, _)| cause.share >= FLOOR).collect(),
        by_hand.iter().filter(|(cause, _)| cause.share >= FLOOR).collect(),
    );
    let mut out = String::new();
    for (cause, action) in &shown {
        writeln!(out, "{:>2}  {}", action.n, clean(&action.title))?;
        writeln!(out, "    against  {}, {:.1} % of the deviation", clean(&name(cause)), 100.0 * cause.share)?;
        for says in &action.says {
            writeln!(out, "    changes  {}", clean(says))?;
        }
        writeln!(out, "    here     {}", here(action, origin).text)?;
    }
    if !by_hand_shown.is_empty() {
        writeln!(out, "{}By hand:", if shown.is_empty() { "" } else { "\n" })?;
    }
    for (cause, fix) in &by_hand_shown {
        writeln!(out, "  - {}: {}", clean(&name(cause)), clean(&fix.to_string()))?;
    }
    let left_out = (numbered.len() - shown.len(), by_hand.len() - by_hand_shown.len());
    if left_out != (0, 0) {
        writeln!(out, "{}{}", if out.is_empty() { "" } else { "\n" }, below_floor(left_out))?;
    }
    if let Some((_, first)) = shown.first() {
        writeln!(out, "\nNothing is changed yet. To apply one: sudo {}", clean(&first.command))?;
    }
    terminal::print(&out)?;
    if numbered.is_empty() {
        say!("tailsight: this run has {}", fixes(d));
        return Ok(Exit::NotAvailable);
    }
    Ok(Exit::Done)
}

/// How many lines of the list are left out.
fn below_floor((fixes, by_hand): (usize, usize)) -> String {
    let some = |n: usize, singular: &str, plural: &str| {
        (n > 0).then(|| format!("{n} {}", if n == 1 { singular } else { plural }))
    };
    let what: Vec<String> =
        [some(fixes, "fix", "fixes"), some(by_hand, "line by hand", "lines by hand")].into_iter().flatten().collect();
    format!(
        "Left out: {}, against causes of less than {:.0} % of the deviation each; --json lists all",
        what.join(" and "),
        100.0 * FLOOR
    )
}

/// What only a person can do, each line with the cause that it is first named for.
pub fn by_hand(d: &Diagnosis) -> Vec<(&Cause, &model::Fix)> {
    let mut by_hand: Vec<(&Cause, &model::Fix)> = vec![];
    for cause in &d.causes {
        let is_action = |i: usize| cause.actions.iter().any(|a| a.shell.contains(&i));
        for (_, fix) in cause.steps.iter().enumerate().filter(|(i, _)| !is_action(*i)) {
            if !by_hand.iter().any(|(_, listed)| *listed == fix) {
                by_hand.push((cause, fix));
            }
        }
    }
    by_hand
}

/// Whether a fix can be made here and now.
#[derive(Serialize, JsonSchema)]
pub struct Here {
    /// The values that it would change; null: it cannot be made.
    values: Option<usize>,
    /// Only root may.
    root: bool,
    /// That in words.
    text: String,
}

fn here(action: &Action, origin: &Origin) -> Here {
    match tailsight_fix::plan(&Live, &action.changes, origin) {
        Ok(plan) => {
            let n = plan.writes().count();
            let root = !plan.writes().all(|step| Live.may_write(&step.place));
            let when = if root { "by root" } else { "now" };
            let others = plan.others_of_name.as_ref().map_or_else(String::new, |others| format!("; {}", clean(others)));
            Here { values: Some(n), root, text: format!("can be applied {when}: {}{others}", values(n)) }
        }
        Err(Error::AlreadySo) => Here { values: Some(0), root: false, text: "is so already".into() },
        Err(error) => Here {
            values: None,
            root: false,
            text: format!("cannot be applied: {}", clean(&tailsight_units::chain(&error))),
        },
    }
}

fn values(n: usize) -> String {
    format!("{n} value{}", if n == 1 { "" } else { "s" })
}

fn make(d: &Diagnosis, cause: &Cause, action: &Action, origin: &Origin, args: &Fix) -> anyhow::Result<Exit> {
    let say = |text: &str| if args.json { Ok(()) } else { terminal::print(text) };
    let plan = match tailsight_fix::plan(&Live, &action.changes, origin) {
        Ok(plan) => plan,
        Err(error) => {
            say!("tailsight: {}", tailsight_units::chain(&error));
            return Ok(Exit::NotAvailable);
        }
    };
    say(&format!("{}. {}\n   against {}\n\n{}", action.n, clean(&action.title), clean(&name(cause)), table(&plan)))?;
    if args.json && !args.yes {
        json::plan(d, cause, action, &plan)?;
        return Ok(Exit::Done);
    }
    if let Some(step) = plan.writes().find(|step| !Live.may_write(&step.place)) {
        anyhow::bail!("only root can set {}: sudo {}", step.place, action.command);
    }
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            // As other wrong usage: what was asked for cannot be meant.
            say!(
                "tailsight: cannot ask for confirmation (standard input is not a terminal); give --yes to apply the \
             fix"
            );
            return Ok(Exit::Usage);
        }
        terminal::say("\nApply? [y/N] ");
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            say!("nothing is changed");
            return Ok(Exit::Done);
        }
    }
    let mut journal = FileStore::open(&default_folder())?;
    let about = About { title: action.title.clone(), run: d.run.clone(), when: now() };
    let Applied { changed, ended } =
        tailsight_fix::apply(&mut Live, &mut journal, &plan, (&action.changes, origin), about)?;
    if args.json {
        json::made(d, (cause, action), &plan, (changed, ended), journal.store.path())?;
        return Ok(Exit::Done);
    }
    let ended = match ended {
        0 => String::new(),
        n => format!("; {n} skipped, their threads had ended"),
    };
    terminal::print(&format!(
        "\n{} changed{ended}. Record again to see the effect; to undo: sudo tailsight fix --undo\n(saved in {})\n",
        values(changed),
        journal.store.path().display()
    ))?;
    Ok(Exit::Done)
}

/// Each value, now and to come; threads of a process with the same values are one line.
pub fn table(plan: &Plan) -> String {
    let mut rows: Vec<(String, usize, &str, &str)> = vec![];
    for step in plan.writes() {
        let place = match &step.place {
            Place::Thread { attribute, pid, .. } => format!("{} of process {pid}", attribute.name()),
            other => other.to_string(),
        };
        match rows.iter_mut().find(|(p, _, was, new)| (p.as_str(), *was, *new) == (&place, &step.was, &step.new)) {
            Some((_, n, ..)) => *n += 1,
            None => rows.push((place, 1, &step.was, &step.new)),
        }
    }
    let threads = |place: &str, n: usize| match (n, place.contains(" of process ")) {
        (_, false) => String::new(),
        (1, true) => ", 1 thread".into(),
        (n, true) => format!(", {n} threads"),
    };
    let mut out = String::new();
    for (place, n, was, new) in rows {
        out += &format!("   {}{}: {} -> {}\n", clean(&place), threads(&place, n), clean(was), clean(new));
    }
    if let Some(others) = &plan.others_of_name {
        out += &format!("   note: {}\n", clean(others));
    }
    for note in &plan.notes {
        out += &format!("   left out: {}\n", clean(note));
    }
    out
}

fn undo(force: bool, as_json: bool) -> anyhow::Result<Exit> {
    let folder = default_folder();
    if FileStore::look(&folder)?.fixes.is_empty() {
        if as_json {
            json::undone(&[], 0)?;
        }
        say!(
            "tailsight: no change of tailsight fix is in effect (according to {})",
            folder.join("fixes.toml").display()
        );
        return Ok(Exit::NotAvailable);
    }
    let mut journal = FileStore::open(&folder)?;
    let puts = tailsight_fix::undo(&mut Live, &mut journal, force)?;
    let failed = puts.iter().filter(|p| matches!(p.outcome, UndoResult::Failed(_) | UndoResult::Others(_))).count();
    let left = journal.state.changed();
    let verdict = if failed == 0 { Exit::Done } else { Exit::Failed };
    if as_json {
        json::undone(&puts, left)?;
        return Ok(verdict);
    }
    let mut out = String::new();
    let mut title = "";
    for (line, n) in lines(&puts) {
        if let Some(put) = puts.iter().find(|p| said(p) == line)
            && put.title != title
        {
            title = &put.title;
            writeln!(out, "{}:", clean(title))?;
        }
        let times = if n > 1 { format!(" ({n} threads)") } else { String::new() };
        writeln!(out, "  {}{times}", clean(&line))?;
    }
    let end = if left == 0 { "all changes are undone".to_owned() } else { format!("{} still changed", values(left)) };
    writeln!(out, "{end}")?;
    terminal::print(&out)?;
    Ok(verdict)
}

/// What became of each change in words; equal ones are counted.
fn lines(puts: &[Put]) -> Vec<(String, usize)> {
    let mut lines: Vec<(String, usize)> = vec![];
    for line in puts.iter().map(said) {
        match lines.iter_mut().find(|(listed, _)| *listed == line) {
            Some((_, n)) => *n += 1,
            None => lines.push((line, 1)),
        }
    }
    lines
}

fn said(put: &Put) -> String {
    let entry = &put.entry;
    let place = match &entry.place {
        Place::Thread { attribute, pid, comm, .. } => format!("{} of {comm}, process {pid}", attribute.name()),
        other => other.to_string(),
    };
    match &put.outcome {
        UndoResult::Back => format!("{place}: {} again", entry.was),
        UndoResult::Already => format!("{place}: already {}", entry.was),
        UndoResult::Inherited => {
            format!(
                "{place}: {}, as its process had before (the thread started while the fix was in effect)",
                entry.was
            )
        }
        UndoResult::Gone => format!("{place}: no longer exists; removed from the list"),
        UndoResult::Booted => format!("{place}: reset by a reboot; removed from the list"),
        UndoResult::Others(value) => format!(
            "{place}: changed to {value} by another program since; left as it is (before the fix: {}; --undo --force \
             restores it)",
            entry.was
        ),
        UndoResult::Failed(error) => format!("{}; still changed", tailsight_units::chain(error)),
        _ => place,
    }
}

fn status(as_json: bool) -> anyhow::Result<Exit> {
    let folder = default_folder();
    let state = FileStore::look(&folder)?;
    if as_json {
        json::status(&state, &Live.boot_id(), &folder.join("fixes.toml"))?;
        return Ok(Exit::Done);
    }
    if state.fixes.is_empty() {
        terminal::print("nothing is changed\n")?;
        return Ok(Exit::Done);
    }
    let boot = Live.boot_id();
    let mut out = String::new();
    for fix in &state.fixes {
        let gone = if fix.boot_id == boot { "" } else { "; reset by a reboot" };
        writeln!(out, "{} ({}, {}{gone})", clean(&fix.title), clean(&fix.run), fix.when)?;
        let mut rows: Vec<(String, usize)> = vec![];
        for entry in fix.changes.iter().filter(|e| !e.place.same(&e.was, &e.now)) {
            let place = match &entry.place {
                Place::Thread { attribute, pid, comm, .. } => format!("{} of {comm}, process {pid}", attribute.name()),
                other => other.to_string(),
            };
            let row = format!("{place}: {}, before {}", entry.now, entry.was);
            match rows.iter_mut().find(|(listed, _)| *listed == row) {
                Some((_, n)) => *n += 1,
                None => rows.push((row, 1)),
            }
        }
        for (row, n) in rows {
            let times = if n > 1 { format!(" ({n} threads)") } else { String::new() };
            writeln!(out, "  {}{times}", clean(&row))?;
        }
    }
    writeln!(out, "saved in {}; to undo: tailsight fix --undo", folder.join("fixes.toml").display())?;
    terminal::print(&out)?;
    Ok(Exit::Done)
}

/// The wall clock in words, for the reader of the state file.
pub fn now() -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    tailsight_units::format::utc(seconds)
}

/// Without what could move the cursor: a task may be called anything.
fn clean(text: &str) -> String {
    Untrusted(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        assert_eq!(
            below_floor((1, 0)),
            "Left out: 1 fix, against causes of less than 1 % of the deviation each; --json lists all"
        );
        assert!(below_floor((2, 3)).starts_with("Left out: 2 fixes and 3 lines by hand, against"));
        assert!(below_floor((0, 1)).starts_with("Left out: 1 line by hand, against"));
    }
}
