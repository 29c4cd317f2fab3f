//! A change in the words of the diagnosis: what is to become what, before the host was looked at.
//!
//! In: the diagnosis, which knows processes, cores and devices of a run. Out: data for JSON, sentences for people, and the
//! input of [`crate::plan()`]. Where a change names no process, it is the host's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is to become what. `netns`: a process in the network namespace that is meant, when that is another one than the
/// caller's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Change {
    /// A kernel parameter.
    Sysctl {
        /// As `net.ipv4.tcp_fastopen`.
        key: String,
        /// Its value to be.
        value: String,
        /// The network namespace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        netns: Option<u32>,
    },
    /// A file of /sys or /proc.
    File {
        /// Its path.
        path: String,
        /// What it is to hold.
        value: String,
    },
    /// A file of each queue of a network device.
    Queues {
        /// The device.
        device: String,
        /// `rx` or `tx`.
        direction: String,
        /// As `rps_cpus`.
        file: String,
        /// What it is to hold.
        value: String,
        /// The network namespace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        netns: Option<u32>,
    },
    /// The cores that take interrupts.
    Interrupts {
        /// Their numbers.
        irqs: Vec<u32>,
        /// The cores, as `0,2-3`.
        cpus: String,
    },
    /// The cores of every thread of processes.
    Pin {
        /// The processes.
        pids: Vec<u32>,
        /// The cores, as `0,2-3`.
        cpus: String,
    },
    /// The cores of every thread of the processes of a name, and of threads that are called so in others.
    PinNamed {
        /// The name.
        comm: String,
        /// The processes of that name that the run saw. While one of them is there and still has the name, only they are meant;
        /// else every process of the name, for what comes and goes has a new id each time.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        seen: Vec<u32>,
        /// The cores, as `0,2-3`.
        cpus: String,
    },
    /// Every thread of processes becomes real-time (SCHED_FIFO) at the lowest priority; those that are real-time stay.
    RealTime {
        /// The processes.
        pids: Vec<u32>,
    },
    /// Every thread of processes goes before others at the disk.
    DiskFirst {
        /// The processes.
        pids: Vec<u32>,
    },
    /// No idle state that takes longer to leave.
    IdleStates {
        /// Microseconds.
        slower_than_us: u64,
    },
    /// No interrupt coalescing on receive.
    Coalescing {
        /// The network device.
        device: String,
        /// The network namespace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        netns: Option<u32>,
    },
    /// No limit of this kind for the control groups of processes and those above.
    NoLimit {
        /// The processes.
        pids: Vec<u32>,
        /// The limit.
        limit: Limit,
    },
    /// The control groups of processes are thawed.
    Thaw {
        /// The processes.
        pids: Vec<u32>,
    },
    /// Stopped processes go on.
    Continue {
        /// The processes.
        pids: Vec<u32>,
    },
}

/// A limit of a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// `memory.high`: above it, allocations are slowed down.
    MemoryHigh,
    /// `cpu.max`, in version 1 `cpu.cfs_quota_us`.
    CpuQuota,
}

impl Change {
    /// The change in a few words.
    pub fn says(&self) -> String {
        let inside = |netns: &Option<u32>| match netns {
            Some(pid) => format!(", in the network namespace of process {pid}"),
            None => String::new(),
        };
        match self {
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
    pub fn undo_says(&self) -> &'static str {
        match self {
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

    /// The processes that are meant by their ids, those that name a network namespace too.
    pub fn pids(&self) -> Vec<u32> {
        match self {
            Change::Pin { pids, .. }
            | Change::RealTime { pids }
            | Change::DiskFirst { pids }
            | Change::NoLimit { pids, .. }
            | Change::Thaw { pids }
            | Change::Continue { pids } => pids.clone(),
            Change::Sysctl { netns, .. } | Change::Queues { netns, .. } | Change::Coalescing { netns, .. } => {
                netns.iter().copied().collect()
            }
            _ => vec![],
        }
    }
}

fn processes(pids: &[u32]) -> String {
    format!("process{} {}", if pids.len() == 1 { "" } else { "es" }, numbers(pids))
}

fn numbers(all: &[u32]) -> String {
    all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
