//! The category of each owner, looked up once for each leg and role, before anything is estimated.
//!
//! In: lifetimes, the category table. Out: a [`CategoryMatch`] by slot (as in [`super::profile`]). A run has tens of thousands of
//! slots, of which its cohorts use a part, so each is looked up on first use.

use std::sync::OnceLock;

use tailsight_lifetime::{LEGS, Lifetimes, Role};

use super::profile::{Slot, owner_of, slot_of};
use super::who::TaskNames;
use crate::categories::{CategoryMatch, CategoryTable};

/// The category matches of one run.
pub struct Classification<'a> {
    lifetimes: &'a Lifetimes,
    table: &'a CategoryTable,
    tasks: TaskNames<'a>,
    verdicts: Vec<OnceLock<CategoryMatch>>,
}

impl<'a> Classification<'a> {
    /// Every owner of the run, tasks by the names of their processes.
    pub fn new(lifetimes: &'a Lifetimes, table: &'a CategoryTable) -> Classification<'a> {
        let verdicts = vec![OnceLock::new(); LEGS.len() * 2 * lifetimes.owners.len()];
        Classification { lifetimes, table, tasks: TaskNames::new(lifetimes), verdicts }
    }

    /// The match of an owner's slot.
    pub fn of(&self, slot: Slot) -> &CategoryMatch {
        self.verdicts[slot].get_or_init(|| {
            let (leg, role, owner) = owner_of(self.lifetimes.owners.len(), slot);
            let (owner, task) = (&self.lifetimes.owners[owner], self.tasks.of(owner));
            let (app, symbols) = (&self.lifetimes.app, &self.lifetimes.symbols);
            self.table.classify(owner, &task, leg, role, app, symbols)
        })
    }

    /// The match of an owner in the leg `LEGS[segment]`.
    pub fn at(&self, segment: usize, role: Role, owner: u32) -> &CategoryMatch {
        self.of(slot_of(self.lifetimes.owners.len(), segment, role, owner))
    }
}
