//! What was done meanwhile by who ended a wait: by the task that had the lock, the place or the other end of the channel.
//!
//! In: the owners of a cause's time in the messages in focus. Out: [`MeanwhilePart`]s, largest first, and their clause. Nothing is said of a cause
//! of which it is known for less than a part.

use std::collections::BTreeMap;

use tailsight_lifetime::Doing;
use tailsight_lifetime::input::wakes::runs_tasks;

use super::Search;
use crate::model::MeanwhilePart;

/// The least part of a cause that is said.
const LEAST_SHARE: f64 = 0.05;
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
            .filter(|part| part.share >= LEAST_SHARE)
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

/// The clause of a cause's sentence.
pub(super) fn clause(parts: &[MeanwhilePart]) -> String {
    let share = |part: &MeanwhilePart| format!("{:.0} %", part.share * 100.0);
    if parts.iter().all(|part| part.doing == Doing::TimeCame) {
        let percent = parts.iter().map(|part| part.share).sum::<f64>() * 100.0;
        return format!("no task ended the wait: the time had come until which it was to last ({percent:.0} %)");
    }
    // Of goroutines only the end of a wait is told.
    if parts.iter().all(|part| part.doing == Doing::NotKnown) {
        let ended = |part: &MeanwhilePart| format!("{} ({})", part.function, share(part));
        let places: Vec<String> = parts.iter().filter(|part| !part.function.is_empty()).map(ended).collect();
        return format!("the task that was waited for ended the wait in {}", places.join(", "));
    }
    let did = |doing: Doing| match doing {
        Doing::Runs => "ran",
        Doing::HasNoCore => "was stopped in the middle of its work, because its thread had no core,",
        Doing::SleepsInCall => "slept in a system call",
        Doing::IsReady => "was ready to run, and no thread ran it",
        Doing::Sleeps => "slept until a time",
        Doing::Waits => "waited",
        Doing::WaitsOutside => "waited for what came from outside (a socket, or a thread that runs no tasks)",
        Doing::TimeCame => "was not there, and the wait lasted until a time",
        Doing::NotKnown => "did something that was not recorded",
    };
    let said = |part: &MeanwhilePart| {
        let place = match (&part.function, part.doing) {
            (function, _) if function.is_empty() => String::new(),
            (function, Doing::NotKnown) => format!(" before it ended the wait in {function}"),
            (function, _) => format!(" in {function}"),
        };
        let did = match (&part.server, &part.runtime) {
            (Some(server), _) => format!("waited for {server}"),
            (None, Some(runtime)) => format!("waited ({runtime})"),
            (None, None) => did(part.doing).to_owned(),
        };
        format!("{did}{place} ({})", share(part))
    };
    format!("the task that ended the wait meanwhile {}", parts.iter().map(said).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clause_says_what_was_done_where_and_for_how_much() {
        let part = |doing, function: &str, share| MeanwhilePart {
            doing,
            function: function.into(),
            runtime: None,
            server: None,
            share,
        };
        let parts = [part(Doing::Sleeps, "shop::compact", 0.79), part(Doing::Runs, "", 0.2)];
        assert_eq!(
            clause(&parts),
            "the task that ended the wait meanwhile slept until a time in shop::compact (79 %), ran (20 %)"
        );
        let ended = [part(Doing::NotKnown, "main.refresh", 0.97), part(Doing::NotKnown, "", 0.03)];
        assert_eq!(clause(&ended), "the task that was waited for ended the wait in main.refresh (97 %)");
        let until = "no task ended the wait: the time had come until which it was to last (98 %)";
        assert_eq!(clause(&[part(Doing::TimeCame, "", 0.98)]), until);
        let server = Some("ledger (10.0.0.7:9000)".to_owned());
        let asked = [MeanwhilePart { server, ..part(Doing::WaitsOutside, "shop::charge", 0.9) }];
        assert_eq!(
            clause(&asked),
            "the task that ended the wait meanwhile waited for ledger (10.0.0.7:9000) in shop::charge (90 %)"
        );
    }
}
