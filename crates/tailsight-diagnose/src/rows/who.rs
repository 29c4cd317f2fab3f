//! The process that a cause is, with its threads and where it belongs.
//!
//! In: the slots of a row, and the task of each of their owners. Out: [`model::Who`](crate::model::Who): numbers of processes and
//! threads, threads by name, the cgroup with the systemd unit and the container in it. Threads of an application whose names differ
//! only in a number get one name. All times in ns.

use std::collections::{BTreeMap, BTreeSet};

use tailsight_kernel::cgroup;
use tailsight_lifetime::{Context, Lifetimes, Threshold};

use tailsight_trace::meta::Container;

use crate::categories::{Task, shown};
use crate::model::{ByThread, Who};
use crate::rows::profile::{Profile, Slot};

/// Most names of threads of a cause, and most processes.
const MOST_SHOWN: usize = 8;

/// The part of one process or thread name in a row.
#[derive(Default)]
struct Part {
    tids: BTreeSet<u32>,
    deviation: f64,
    focus_ns: i64,
}

/// Who the tasks of a row's slots were; `None` when none is known. `cohorts`: messages of the focus and the reference.
pub fn of(lifetimes: &Lifetimes, profile: &Profile, slots: &[Slot], cohorts: (f64, f64)) -> Option<Who> {
    let mut processes: BTreeMap<u32, Part> = BTreeMap::new();
    let mut threads: BTreeMap<&str, Part> = BTreeMap::new();
    let mut names: BTreeMap<u32, &str> = BTreeMap::new();
    for &slot in slots {
        let Some(owner) = profile.owner_of(slot) else { continue };
        let (Context::Foreign { comm, .. } | Context::Sibling { comm }) = &lifetimes.owners[owner].context else {
            continue;
        };
        let who = lifetimes.who(owner);
        if who.pid == 0 {
            continue;
        }
        let (focus, reference) = (profile.focus[slot].ns, profile.reference[slot].ns);
        for part in [processes.entry(who.pid).or_default(), threads.entry(comm).or_default()] {
            part.deviation += focus as f64 / cohorts.0 - reference as f64 / cohorts.1;
            part.focus_ns += focus;
            // A task that no focus message met did not delay any.
            if focus > 0 {
                part.tids.insert(who.tid);
            }
        }
        names.insert(who.pid, &who.process);
    }
    processes.retain(|_, p| p.focus_ns > 0);
    let most = |p: &Part| p.deviation;
    // If equal, the first.
    let (&pid, largest) = processes.iter().rev().max_by(|a, b| most(a.1).total_cmp(&most(b.1)))?;
    let least = Threshold::FoldedProcess.share() * largest.deviation.abs();
    processes.retain(|other, p| names[other] == names[&pid] || p.deviation.abs() >= least);
    let of_them: BTreeSet<u32> = processes.values().flat_map(|p| p.tids.iter().copied()).collect();
    threads.retain(|_, p| p.focus_ns > 0 && p.tids.iter().any(|tid| of_them.contains(tid)));
    let mut by_thread: Vec<ByThread> = threads
        .iter()
        .map(|(name, p)| ByThread {
            name: shown(name),
            threads: p.tids.len() as u32,
            deviation_ns: p.deviation.round() as i64,
        })
        .collect();
    by_thread.sort_by(|a, b| b.deviation_ns.abs().cmp(&a.deviation_ns.abs()).then_with(|| a.name.cmp(&b.name)));
    by_thread.truncate(MOST_SHOWN);
    let mut pids: Vec<u32> = processes.keys().copied().collect();
    pids.sort_by(|a, b| processes[b].deviation.total_cmp(&processes[a].deviation).then(a.cmp(b)));
    // Only a cgroup that contains all of them is named.
    let groups: BTreeSet<Option<&String>> = pids.iter().map(|pid| lifetimes.cgroups.get(pid)).collect();
    let cgroup = match groups.first() {
        Some(Some(group)) if groups.len() == 1 => Some(shown(group)),
        _ => None,
    };
    let container = cgroup.as_deref().and_then(cgroup::container).map(str::to_owned);
    let named = container.as_ref().and_then(|id| lifetimes.containers.get(id));
    let word = |of: fn(&Container) -> &Option<String>| named.and_then(|named| of(named).as_deref()).map(shown);
    Some(Who {
        pid,
        comm: shown(names[&pid]),
        processes: pids.len() as u32,
        threads: processes.values().map(|p| p.tids.len() as u32).sum(),
        pids: pids.into_iter().take(MOST_SHOWN).collect(),
        by_thread,
        unit: cgroup.as_deref().and_then(cgroup::unit).map(str::to_owned),
        container,
        container_name: word(|named| &named.name),
        image: word(|named| &named.image),
        pod: word(|named| &named.pod),
        namespace: word(|named| &named.namespace),
        cgroup,
    })
}

/// The names of a run's tasks.
#[derive(Clone, Debug)]
pub struct TaskNames<'a> {
    lifetimes: &'a Lifetimes,
    alike: BTreeMap<&'a str, String>,
}

impl<'a> TaskNames<'a> {
    /// Reads every owner.
    pub fn new(lifetimes: &'a Lifetimes) -> TaskNames<'a> {
        TaskNames { lifetimes, alike: alike((0..lifetimes.owners.len()).filter_map(|owner| sibling(lifetimes, owner))) }
    }

    /// What an owner's task is called: its process; a thread of the application by its own name, or by that of its like.
    pub fn of(&self, owner: usize) -> Task<'_> {
        let who = self.lifetimes.who(owner);
        let process = Some(who.process.as_str()).filter(|name| !name.is_empty());
        let name = match sibling(self.lifetimes, owner) {
            Some(thread) => self.alike.get(thread).map(String::as_str),
            None => process,
        };
        Task { name, recorder: process.map(|_| who.recorder) }
    }
}

/// The name of another thread of the application.
fn sibling(lifetimes: &Lifetimes, owner: usize) -> Option<&str> {
    match &lifetimes.owners[owner].context {
        Context::Sibling { comm } => Some(comm),
        _ => None,
    }
}

/// One name for threads of the application whose names differ only in the number at the end, by their names; those that
/// have no like are absent.
pub fn alike<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, String> {
    let mut by_stem: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in names {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if stem.len() < name.len() && !stem.is_empty() {
            by_stem.entry(stem).or_default().insert(name);
        }
    }
    let several = by_stem.into_iter().filter(|(_, names)| names.len() > 1);
    several.flat_map(|(stem, names)| names.into_iter().map(move |name| (name, format!("{stem}*")))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_differ_in_a_number_have_one_name() {
        let names = ["pool-1-thread-1", "pool-1-thread-2", "io_thd_1", "bio_lazy_free", "gc7", "7", "8", "gc"];
        let alike = alike(names.into_iter());
        let expected = [("pool-1-thread-1", "pool-1-thread-*"), ("pool-1-thread-2", "pool-1-thread-*")];
        assert_eq!(alike, expected.into_iter().map(|(name, pattern)| (name, pattern.to_owned())).collect());
    }
}
