//! A fix that is applied and undone again and again. In: the changes of a trial, the state file. Out: a host with or without them.
//!
//! The state file has what was there before, so that a killed `tune` is undone by `tailsight fix --undo`. When a [`Switch`] is dropped, by an
//! error or a panic too, what it applied is undone, unless it was released.

use anyhow::bail;
use tailsight_diagnose::model::Change;
use tailsight_fix::{About, FileStore, Journal, Live, Origin, Place, Plan, Put, System, UndoResult, default_folder};

/// The fixes of a session.
pub struct Switch {
    journal: Journal<FileStore>,
    /// Fixes that were applied before the session.
    first: usize,
    /// Fixes that were applied before the trial.
    base: usize,
    trial: Option<Trial>,
}

/// A trial's fix.
pub struct Trial {
    /// What it changes.
    pub changes: Vec<Change>,
    /// The recording that asked for it.
    pub origin: Origin,
    /// What the state file says of it.
    pub about: About,
}

impl Switch {
    /// Takes the lock of the state file.
    ///
    /// # Errors
    /// Another `fix` or `tune` is at work, or the file cannot be used.
    pub fn open() -> anyhow::Result<Switch> {
        let journal = FileStore::open(&default_folder())?;
        let first = journal.state.fixes.len();
        Ok(Switch { journal, first, base: first, trial: None })
    }

    /// How many fixes were applied before the session, and stay.
    pub fn earlier(&self) -> usize {
        self.first
    }

    /// Begins a trial, and says what it changes. Nothing is applied yet.
    ///
    /// # Errors
    /// Why it cannot be applied here and now.
    pub fn begin(&mut self, trial: Trial) -> anyhow::Result<Plan> {
        let plan = tailsight_fix::plan(&Live, &trial.changes, &trial.origin)?;
        let own = std::process::id();
        if plan.writes().any(|step| matches!(step.place, Place::Thread { pid, .. } if pid == own)) {
            bail!("it would change the load that is sent: give that cores of its own, --load '… --cpus LIST'");
        }
        // A person may confirm it for `tailsight fix`. What is tried again and again must be what was recorded.
        if let Some(others) = &plan.others_of_name {
            bail!("{others}: it is not tried");
        }
        if let Some(step) = plan.writes().find(|step| !Live.may_write(&step.place)) {
            bail!("only root can set {}", step.place);
        }
        self.base = self.journal.state.fixes.len();
        self.trial = Some(trial);
        Ok(plan)
    }

    /// Applies the trial's fix, or undoes it. Nothing happens where that is so already.
    ///
    /// # Errors
    /// It cannot be applied any more, or somebody else has changed what it changed.
    pub fn set(&mut self, on: bool) -> anyhow::Result<()> {
        let is_on = self.journal.state.fixes.len() > self.base;
        match (&self.trial, is_on) {
            (Some(trial), false) if on => {
                let Trial { changes, origin, about } = trial;
                let plan = tailsight_fix::plan(&Live, changes, origin)?;
                tailsight_fix::apply(&mut Live, &mut self.journal, &plan, (changes, origin), about.clone())?;
                Ok(())
            }
            (_, true) if !on => self.undo_from(self.base),
            _ => Ok(()),
        }
    }

    /// Ends the trial. Kept, its fix is applied and stays; else it is undone.
    ///
    /// # Errors
    /// As [`Switch::set`].
    pub fn end(&mut self, kept: bool) -> anyhow::Result<()> {
        let set = self.set(kept);
        self.trial = None;
        self.base = self.journal.state.fixes.len();
        set
    }

    /// Undoes everything of this session.
    ///
    /// # Errors
    /// What could not be undone; it stays in the state file.
    pub fn undo_all(&mut self) -> anyhow::Result<()> {
        self.trial = None;
        self.undo_from(self.first)
    }

    fn undo_from(&mut self, first: usize) -> anyhow::Result<()> {
        let puts = tailsight_fix::undo_since(&mut Live, &mut self.journal, first, false)?;
        let left: Vec<String> = puts.iter().filter_map(left).collect();
        match left.first() {
            None => Ok(()),
            Some(first) => bail!("{} not undone: {first}; tailsight fix --status lists it", values(left.len())),
        }
    }

    /// Ends the session: nothing is undone when this is dropped.
    pub fn release(mut self) {
        self.first = usize::MAX;
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if self.journal.state.fixes.len() > self.first
            && let Err(error) = self.undo_all()
        {
            say!("tailsight: {error:#}");
        }
    }
}

fn values(n: usize) -> String {
    if n == 1 { "one value is".into() } else { format!("{n} values are") }
}

/// Why a value is still changed.
fn left(put: &Put) -> Option<String> {
    match &put.outcome {
        UndoResult::Others(value) => Some(format!("{} was changed to {value} by another program", put.entry.place)),
        UndoResult::Failed(error) => Some(tailsight_units::chain(error)),
        _ => None,
    }
}
