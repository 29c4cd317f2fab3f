//! What `tailsight fix` can make: fixes as changes, each in words and with its number.
//!
//! In: a fix with its values, and the causes with all of theirs. Out: [`Action`]s.

use tailsight_diagnose::Options;
use tailsight_diagnose::cohorts::focus::percent;
use tailsight_diagnose::model::{Action, Cause, Change, Limit};

use crate::data::Template;
use crate::placeholders;

/// A fix as data, when every value that it needs is known.
pub fn action(template: &Template, fill: &placeholders::Fill<'_>) -> Option<Action> {
    let changes = template.change.as_ref()?.structured(fill)?;
    Some(Action {
        n: 0,
        title: fill.raw(template.why.as_ref()?)?,
        command: String::new(),
        says: changes.iter().map(says).collect(),
        undo: changes.iter().map(|change| undo_says(change).to_owned()).collect(),
        changes,
        shell: vec![],
    })
}

/// Numbers what `tailsight fix` can make, in the order of the causes, those last that give the application a real-time priority: a thread of
/// it that spins then starves all others on its core. The same changes have the same number. `question`: the options of this diagnosis, with
/// which `tailsight fix` finds the same numbers.
pub fn number(causes: &mut [Cause], run: &str, question: &str) {
    let is_real_time = |changes: &Vec<Change>| changes.iter().any(|change| matches!(change, Change::RealTime { .. }));
    let mut known: Vec<Vec<Change>> = vec![];
    for action in causes.iter().flat_map(|cause| &cause.actions) {
        if !known.contains(&action.changes) {
            known.push(action.changes.clone());
        }
    }
    known.sort_by_key(is_real_time);
    for action in causes.iter_mut().flat_map(|c| &mut c.actions) {
        let at = known.iter().position(|changes| *changes == action.changes);
        action.n = at.map_or(0, |at| at as u32 + 1);
        action.command = format!("tailsight fix {} {}{question}", placeholders::quote(run), action.n);
    }
}

/// The question of a diagnosis as options of the command line, each with a blank before it.
pub fn question(options: &Options, against: Option<&str>) -> String {
    let default = Options::default();
    let slice = |(from, to)| format!("{}..{}", percent(from), percent(to));
    let mut out = format!(" --leg {}", options.leg.name());
    if let Some(class) = &options.class {
        out += &format!(" --class {}", placeholders::quote(&class.name));
    }
    if options.focus != default.focus {
        out += &format!(" --focus {}", slice(options.focus));
    }
    match against {
        Some(run) => out += &format!(" --against {}", placeholders::quote(run)),
        None if options.reference != default.reference => out += &format!(" --reference {}", slice(options.reference)),
        None => {}
    }
    if options.nesting != default.nesting {
        out += &format!(" --nest {}", options.nesting);
    }
    if options.granularity_ns != default.granularity_ns {
        out += &format!(" --granularity {}ns", options.granularity_ns);
    }
    out
}

/// The change in a few words.
fn says(change: &Change) -> String {
    let inside = |netns: &Option<u32>| match netns {
        Some(pid) => format!(", in the network namespace of process {pid}"),
        None => String::new(),
    };
    match change {
        Change::Sysctl { key, value, netns } => format!("kernel parameter {key} = {value}{}", inside(netns)),
        Change::File { path, value } => format!("{path}: {value}"),
        Change::Queues { device, direction, file, value, netns } => {
            format!("{file} of every {direction} queue of {device}: {value}{}", inside(netns))
        }
        Change::Interrupts { irqs, cpus } => format!("interrupts {} on cores {cpus}", numbers(irqs)),
        Change::Pin { pids, cpus } => format!("every thread of {} on cores {cpus}", processes(pids)),
        Change::PinNamed { comm, seen, cpus } if seen.is_empty() => {
            format!("every thread of {comm} on cores {cpus}")
        }
        Change::PinNamed { comm, seen, cpus } => {
            format!("every thread of {comm} ({}) on cores {cpus}", processes(seen))
        }
        Change::RealTime { pids } => format!("every thread of {}: SCHED_FIFO, priority 1", processes(pids)),
        Change::DiskFirst { pids } => format!("every thread of {}: real-time disk priority 4", processes(pids)),
        Change::IdleStates { slower_than_us } => {
            format!("idle states with an exit latency above {slower_than_us} us: off, on every core")
        }
        Change::Coalescing { device, netns } => {
            format!("receive interrupts of {device}: no coalescing{}", inside(netns))
        }
        Change::NoLimit { pids, limit } => {
            let file = match limit {
                Limit::MemoryHigh => "memory.high",
                Limit::CpuQuota => "the CPU quota",
            };
            format!("{file} of the control groups of {}, and of those above: no limit", processes(pids))
        }
        Change::Thaw { pids } => format!("the control groups of {}: thawed", processes(pids)),
        Change::Continue { pids } => format!("{}: continued if stopped", processes(pids)),
    }
}

/// What taking it back does, in a few words.
fn undo_says(change: &Change) -> &'static str {
    match change {
        Change::Sysctl { .. } => "the parameter's earlier value",
        Change::File { .. } => "the file's earlier content",
        Change::Queues { .. } => "the earlier content of each queue's file",
        Change::Interrupts { .. } => "the earlier cores of each interrupt",
        Change::Pin { .. } | Change::PinNamed { .. } => "the earlier cores of each thread",
        Change::RealTime { .. } => "the earlier policy and priority of each thread",
        Change::DiskFirst { .. } => "the earlier disk priority of each thread",
        Change::IdleStates { .. } => "states that were on are turned on again",
        Change::Coalescing { .. } => "the earlier coalescing",
        Change::NoLimit { .. } => "the earlier limit of each control group",
        Change::Thaw { .. } => "groups that were frozen are frozen again",
        Change::Continue { .. } => "processes that were stopped are stopped again",
    }
}

fn processes(pids: &[u32]) -> String {
    format!("process{} {}", if pids.len() == 1 { "" } else { "es" }, numbers(pids))
}

fn numbers(all: &[u32]) -> String {
    all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_another_network_namespace_says_so() {
        let queues = Change::Queues {
            device: "eth0".into(),
            direction: "rx".into(),
            file: "rps_cpus".into(),
            value: "2".into(),
            netns: Some(41),
        };
        assert_eq!(says(&queues), "rps_cpus of every rx queue of eth0: 2, in the network namespace of process 41");
    }
}
