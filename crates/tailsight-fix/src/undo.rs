//! Puts back what is still changed, the last change first.
//!
//! In: the state, the host. Out: what became of each change. What is gone is dropped, what somebody else set since is left
//! alone unless told otherwise, and after a boot nothing of it is left to be put back.

use std::collections::BTreeMap;

use crate::plan::key;
use crate::{Attribute, Entry, Error, Journal, Place, Record, Store, System};

/// What became of a change.
#[derive(Debug)]
#[non_exhaustive]
pub enum UndoResult {
    /// Put back.
    Back,
    /// It was back already, or had never been made.
    Already,
    /// A thread that began while the fix was on, and had its value from another: it has that one's of before.
    Inherited,
    /// The place is gone: a thread that ended, a device that was removed.
    Gone,
    /// A boot came between.
    Booted,
    /// Somebody else set it since: left as it is.
    Others(String),
    /// It could not be read or set: it stays in the state.
    Failed(Error),
}

/// A change and what became of it.
#[derive(Debug)]
pub struct Put {
    /// The fix's title.
    pub title: String,
    /// The change.
    pub entry: Entry,
    /// What became of it.
    pub outcome: UndoResult,
}

/// Puts back everything; what is left is in the journal's state. `force`: also what somebody else set since.
///
/// # Errors
/// [`Error::State`] when the state could not be kept.
pub fn undo<S: Store>(system: &mut dyn System, journal: &mut Journal<S>, force: bool) -> Result<Vec<Put>, Error> {
    undo_since(system, journal, 0, force)
}

/// As [`undo`], of the fixes from the one at `first` on, in the order in which they were made: those before it stay.
///
/// # Errors
/// [`Error::State`] when the state could not be kept.
pub fn undo_since<S: Store>(
    system: &mut dyn System,
    journal: &mut Journal<S>,
    first: usize,
    force: bool,
) -> Result<Vec<Put>, Error> {
    let boot = system.boot_id();
    let mut undone = vec![];
    for at in (first..journal.state.fixes.len()).rev() {
        let record = &mut journal.state.fixes[at];
        if record.boot_id == boot {
            undone.extend(put_back(system, record, force));
        } else {
            let title = record.title.clone();
            let gone = |entry| Put { title: title.clone(), entry, outcome: UndoResult::Booted };
            undone.extend(record.changes.drain(..).map(gone));
        }
        if record.changes.is_empty() {
            journal.state.fixes.remove(at);
        }
        // Once a fix: until then an entry that is back already does no harm.
        journal.save()?;
    }
    Ok(undone)
}

/// Puts back one fix; what is left stays in the record.
pub(crate) fn put_back(system: &mut dyn System, record: &mut Record, force: bool) -> Vec<Put> {
    let title = record.title.clone();
    let mut puts = vec![];
    let mut left = vec![];
    let entries = std::mem::take(&mut record.changes);
    for entry in entries.iter().rev().cloned() {
        let outcome = one(system, &entry, force);
        match &outcome {
            UndoResult::Others(_) | UndoResult::Failed(_) => left.push(entry.clone()),
            // One that was as it should be is no news.
            UndoResult::Already if entry.place.same(&entry.was, &entry.now) => continue,
            _ => {}
        }
        puts.push(Put { title: title.clone(), entry, outcome });
    }
    left.reverse();
    record.changes = left;
    for entry in inherited(system, &entries, record.began) {
        let outcome = match system.write(&entry.place, &entry.was) {
            Ok(()) => UndoResult::Inherited,
            Err(error) => UndoResult::Failed(error),
        };
        if matches!(outcome, UndoResult::Failed(_)) {
            record.changes.push(entry.clone());
        }
        puts.push(Put { title: title.clone(), entry, outcome });
    }
    puts
}

fn one(system: &mut dyn System, entry: &Entry, force: bool) -> UndoResult {
    let Entry { place, was, now } = entry;
    match system.read(place) {
        Err(error) => return UndoResult::Failed(error),
        Ok(None) => return UndoResult::Gone,
        Ok(Some(found)) if place.same(&found, was) => return UndoResult::Already,
        Ok(Some(found)) if !place.same(&found, now) && !force => return UndoResult::Others(found),
        Ok(Some(_)) => {}
    }
    if let Err(error) = system.write(place, was) {
        return UndoResult::Failed(error);
    }
    match system.read(place) {
        Ok(Some(found)) if !place.same(&found, was) => {
            UndoResult::Failed(Error::NotTaken { place: place.to_string(), value: was.clone(), found })
        }
        Ok(None) => UndoResult::Gone,
        Ok(Some(_)) => UndoResult::Back,
        Err(error) => UndoResult::Failed(error),
    }
}

/// Threads that are in no record and have the value that their process was given: they began since, and inherited it. Each as
/// a change from what the process's main thread (else another of it) had before.
fn inherited(system: &dyn System, entries: &[Entry], began: u64) -> Vec<Entry> {
    // By attribute, process and its start.
    let mut processes: BTreeMap<(Attribute, u32, u64), &Entry> = BTreeMap::new();
    for entry in entries.iter().filter(|e| !e.place.same(&e.was, &e.now)) {
        let Place::Thread { attribute, pid, process_started, thread, .. } = &entry.place else { continue };
        let first = processes.entry((*attribute, *pid, *process_started)).or_insert(entry);
        if thread == pid {
            *first = entry;
        }
    }
    let mut out = vec![];
    for ((attribute, pid, process_started), model) in processes {
        if attribute == Attribute::RunState || system.task(pid, pid).is_none_or(|t| t.started != process_started) {
            continue;
        }
        for thread in system.threads(pid) {
            let Some(task) = system.task(pid, thread) else { continue };
            let (started, comm) = (task.started, task.comm);
            let place = Place::Thread { attribute, pid, process_started, thread, started, comm };
            let is_recorded = entries.iter().any(|e| key(&e.place) == key(&place));
            let has_ours = || matches!(system.read(&place), Ok(Some(v)) if place.same(&v, &model.now));
            if started >= began && !is_recorded && has_ours() {
                out.push(Entry { place, was: model.was.clone(), now: model.now.clone() });
            }
        }
    }
    out
}
