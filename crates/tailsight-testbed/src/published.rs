//! What of a recording may be shown to others: the application's names, ours, and those of threads that every kernel has.
//!
//! In: a run. Out: [`PublicNames`], which give each other name a word of its own, and the run's description without what is this machine's.

use std::collections::BTreeMap;

use tailsight_trace::event::Kind;
use tailsight_trace::fields::{Task, Text};
use tailsight_trace::meta::RunMeta;
use tailsight_trace::{Event, Run};

/// Ours, and servers that anybody has.
const NAMES: [&str; 15] = [
    "memcached",
    "nginx",
    "redis-server",
    "postgres",
    "haproxy",
    "java",
    "node",
    "python3",
    "jemalloc_bg_thd",
    "lab",
    "golden",
    "tailsight",
    "swapper",
    "kthreadd",
    "oom_reaper",
];
/// How names begin of their threads, and of threads that every kernel has.
const FAMILIES: [&str; 17] = [
    "lab-",
    "tailsight-",
    "mc-",
    "bio_",
    "io_thd_",
    "swapper/",
    "ksoftirqd/",
    "kworker/",
    "rcu",
    "migration/",
    "cpuhp/",
    "idle_inject/",
    "kcompactd",
    "khugepaged",
    "kswapd",
    "kauditd",
    "khungtaskd",
];

/// Names that may be shown, and words for the others.
#[derive(Debug)]
pub struct PublicNames {
    application: Vec<String>,
    others: BTreeMap<String, String>,
}

impl PublicNames {
    /// The application's tasks have their names.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        let application = run.tasks.iter().filter(|task| task.target).map(|task| task.comm.clone()).collect();
        Self { application, others: BTreeMap::new() }
    }

    fn is_public(&self, comm: &str) -> bool {
        comm.is_empty()
            || self.application.iter().any(|own| own == comm)
            || NAMES.contains(&comm)
            || FAMILIES.iter().any(|family| comm.starts_with(family))
    }

    /// A name as it may be shown: `task-1`, for one that may not be, always the same.
    pub fn shown(&mut self, comm: &str) -> String {
        if self.is_public(comm) {
            return comm.to_owned();
        }
        let number = self.others.len() + 1;
        self.others.entry(comm.to_owned()).or_insert_with(|| format!("task-{number}")).clone()
    }

    /// An event with the name that it holds, if it does, as it may be shown.
    pub fn in_event(&mut self, event: &Event) -> Event {
        if !matches!(event.kind(), Some(Kind::TaskFork | Kind::TaskExec | Kind::TaskRename)) {
            return *event;
        }
        let mut shown = *event;
        let task = Task::of(event);
        Task { comm: Text::new(&self.shown(&task.comm.to_string())), ..task }.write(&mut shown);
        shown
    }
}

/// A run's description without what is this machine's alone.
#[must_use]
pub fn description(run: &Run) -> RunMeta {
    let mut meta = run.meta.clone();
    meta.target.selector = "-p PID".into();
    meta.warnings.clear();
    meta.host.boot_id.clear();
    // The version, without the name of the build.
    meta.host.kernel.truncate(meta.host.kernel.find('-').unwrap_or(meta.host.kernel.len()));
    meta
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_has_one_word_wherever_its_name_stands() {
        let mut names = PublicNames { application: vec!["gosrv".into()], others: BTreeMap::new() };
        let shown: Vec<String> =
            ["gosrv", "lab-hog", "kworker/0:1", "secret", "", "other", "secret"].map(|name| names.shown(name)).into();
        assert_eq!(shown, ["gosrv", "lab-hog", "kworker/0:1", "task-1", "", "task-2", "task-1"]);
        let other = Task { comm: Text::new("other"), ..Task::default() }.event(Kind::TaskRename, 0, 0);
        assert_eq!(Task::of(&names.in_event(&other)).comm.to_string(), "task-2");
        // What is no name stays.
        let send = Event { kind: Kind::Send as u8, ..other };
        assert_eq!(names.in_event(&send), send);
    }
}
