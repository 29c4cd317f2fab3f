//! Makes the changes of a plan: all of them, or none.
//!
//! In: a [`Plan`] that was shown. The order that lets a kill at any point be taken back: the state with every value of before
//! is on disk → the first write. A write that fails takes back those before it.

use crate::plan::{self, key};
use crate::undo::put_back;
use crate::{Change, Entry, Error, Journal, Origin, Plan, Record, Step, Store, System};

/// What the state file says of a fix beside its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What it is for.
    pub title: String,
    /// The run that asked for it.
    pub run: String,
    /// When.
    pub when: String,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Values that were changed.
    pub changed: usize,
    /// Threads that ended before it was their turn.
    pub ended: usize,
}

/// How often threads that began while the fix was made are looked for.
const ROUNDS: usize = 3;

/// Makes them. `changes` and `origin` are those of the plan: threads that began since are found by them.
///
/// # Errors
/// [`Error::RolledBack`] with the reason when a change could not be made; [`Error::State`] when nothing was begun because the
/// state could not be kept.
pub fn apply<S: Store>(
    system: &mut dyn System,
    journal: &mut Journal<S>,
    plan: &Plan,
    (changes, origin): (&[Change], &Origin),
    about: About,
) -> Result<Applied, Error> {
    let About { title, run, when } = about;
    let (boot_id, began) = (system.boot_id(), system.ticks());
    journal.state.fixes.push(Record { title, run, when, boot_id, began, changes: vec![] });
    let at = journal.state.fixes.len() - 1;
    let mut applied = Applied::default();
    let mut steps = plan.steps.clone();
    for _ in 0..ROUNDS {
        if let Err(cause) = round(system, journal, at, &steps, &mut applied) {
            return Err(roll_back(system, journal, at, cause));
        }
        // Threads inherit, but one that was being made by a thread whose turn had not come did not.
        let done = &journal.state.fixes[at].changes;
        let is_new = |s: &Step| !done.iter().any(|e| key(&e.place) == key(&s.place));
        steps = match plan::look(system, changes, origin) {
            Ok(now) => now.steps.into_iter().filter(|s| is_new(s) && !s.is_so()).collect(),
            // The processes ended meanwhile.
            Err(_) => vec![],
        };
        if steps.is_empty() {
            break;
        }
    }
    Ok(applied)
}

fn round<S: Store>(
    system: &mut dyn System,
    journal: &mut Journal<S>,
    at: usize,
    steps: &[Step],
    applied: &mut Applied,
) -> Result<(), Error> {
    let first = journal.state.fixes[at].changes.len();
    let entry = |s: &Step| Entry { place: s.place.clone(), was: s.was.clone(), now: s.new.clone() };
    journal.state.fixes[at].changes.extend(steps.iter().map(entry));
    journal.save()?;
    let mut differs = false;
    for (step, i) in steps.iter().zip(first..).filter(|(s, _)| !s.is_so()) {
        let (tried, result) = make(system, step);
        let entry = &mut journal.state.fixes[at].changes[i];
        let failed = match result {
            Ok(None) => {
                applied.ended += 1;
                continue;
            }
            Ok(Some(found)) => {
                differs |= entry.now != found;
                entry.now = found.clone();
                if step.place.same(&found, &step.new) {
                    applied.changed += 1;
                    continue;
                }
                Error::NotTaken { place: step.place.to_string(), value: step.new.clone(), found }
            }
            Err(error) => error,
        };
        // What was not reached is not ours to be taken back.
        let reached = i + usize::from(tried);
        let mut index = 0..;
        journal.state.fixes[at]
            .changes
            .retain(|e| index.next().is_some_and(|n| n < reached) || e.place.same(&e.was, &e.now));
        return Err(failed);
    }
    if differs { journal.save() } else { Ok(()) }
}

/// Sets one value: whether a write was tried, and what the place holds then; `None` when it is gone.
fn make(system: &mut dyn System, step: &Step) -> (bool, Result<Option<String>, Error>) {
    match system.read(&step.place) {
        Ok(Some(now)) if !step.place.same(&now, &step.was) => {
            let (place, shown) = (step.place.to_string(), step.was.clone());
            return (false, Err(Error::Moved { place, shown, now }));
        }
        Ok(Some(_)) => {}
        other => return (false, other),
    }
    match system.write(&step.place, &step.new) {
        Ok(()) => (true, system.read(&step.place)),
        // A thread may end at any time.
        Err(error) => match system.read(&step.place) {
            Ok(None) => (true, Ok(None)),
            _ => (true, Err(error)),
        },
    }
}

/// Takes back what this fix has done so far.
fn roll_back<S: Store>(system: &mut dyn System, journal: &mut Journal<S>, at: usize, cause: Error) -> Error {
    // Whatever cannot be put back stays in the state.
    let record = &mut journal.state.fixes[at];
    put_back(system, record, false);
    let left = record.changes.len();
    if left == 0 {
        journal.state.fixes.remove(at);
    }
    // When it cannot be kept, the file still has every value of before: an undo finds that it is so already.
    let _ = journal.save();
    Error::RolledBack { cause: Box::new(cause), left }
}
