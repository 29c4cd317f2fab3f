//! Changes of the host that a fix is made of, as data: what is to become what, before the host was looked at.
//!
//! tailsight-fix makes them. Where one names no process, it is the host's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is to become what. `netns`: a process in the network namespace that is meant, when that is another one than the
/// caller's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
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
