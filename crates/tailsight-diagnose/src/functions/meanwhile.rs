//! What was done meanwhile by who ended a wait: by the task that had the lock, the place or the other end of the channel.
//!
//! In: the owners of a cause's time in the messages in focus. Out: [`MeanwhilePart`]s, largest first. Nothing is said of a cause
//! of which it is known for less than a part.

use std::collections::BTreeMap;

use tailsight_lifetime::input::wakes::runs_tasks;
use tailsight_lifetime::{Doing, Threshold};

use super::Search;
use crate::model::MeanwhilePart;

/// Parts that are said.
const MOST_PARTS: usize = 3;

/// What a task did, as a frame says it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Did {
    pub doing: Doing,
    /// Its place in the program: a call stack's number plus 1; 0: not known.
    pub stack: u32,
    /// The server whose answer it waited for: index into the symbols; 0: none known.
    pub server: u32,
}

impl Search<'_> {
    /// The parts. `spans`: what was done, ns. `all_ns`: of the cause.
    pub(super) fn meanwhile(&self, spans: impl Iterator<Item = (Did, u64)>, all_ns: f64) -> Vec<MeanwhilePart> {
        let mut by: BTreeMap<(Doing, String, Option<String>, u32), u64> = BTreeMap::new();
        for (Did { doing, stack, server }, ns) in spans {
            let runtime = self.runtime_at(stack).filter(|_| doing == Doing::Waits);
            *by.entry((doing, self.own_function(stack), runtime, server)).or_default() += ns;
        }
        let named = |server: u32| self.lifetimes.symbols.get(server as usize).filter(|_| server != 0).cloned();
        let mut parts: Vec<MeanwhilePart> = by
            .into_iter()
            .map(|((doing, function, runtime, server), ns)| {
                let share = ns as f64 / all_ns.max(1.0);
                MeanwhilePart { doing, function, runtime, server: named(server), share }
            })
            .filter(|part| part.share >= Threshold::MeanwhilePart.share())
            .collect();
        parts.sort_by(|a, b| b.share.total_cmp(&a.share));
        parts.truncate(MOST_PARTS);
        let says_nothing = |part: &MeanwhilePart| part.doing == Doing::NotKnown && part.function.is_empty();
        if parts.iter().all(says_nothing) { vec![] } else { parts }
    }

    /// What a runtime does for a task at a place, where that is known.
    fn runtime_at(&self, stack: u32) -> Option<String> {
        let frames: Vec<_> = self.sampled.samples.stack(stack.checked_sub(1)?).collect();
        let runtime = frames.into_iter().rev().find_map(|frame| self.options.runtimes.known(frame))?;
        Some(format!("{} {}", runtime.of, runtime.does))
    }

    /// The innermost function of the program itself that a task was in at a place; empty where it was in none.
    fn own_function(&self, stack: u32) -> String {
        let Some(number) = stack.checked_sub(1) else { return String::new() };
        // What called those that run tasks is no task's.
        let of_task = self.sampled.samples.stack(number).take_while(|frame| !runs_tasks(&frame.function));
        let own = of_task.into_iter().find(|frame| self.is_program_s(frame));
        own.map_or_else(String::new, |frame| super::without_arguments(&frame.name()).to_owned())
    }
}
