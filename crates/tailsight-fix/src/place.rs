//! Where a value is, exactly: this thread's policy, this file, this device's setting.
//!
//! In: a plan or the state file. Out: words, and whether two values of it are the same to the kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cpus;

/// One value of the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Place {
    /// An attribute of a thread.
    Thread {
        /// Which.
        attribute: Attribute,
        /// Its process.
        pid: u32,
        /// When the process started, clock ticks after the boot.
        process_started: u64,
        /// The thread.
        thread: u32,
        /// When the thread started.
        started: u64,
        /// Its name, for the reader.
        comm: String,
    },
    /// A file.
    File {
        /// Its path.
        path: String,
        /// The inode of the network namespace in which it is meant, where that makes a difference.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        netns: Option<u64>,
    },
    /// A setting of a network device.
    Device {
        /// The device.
        device: String,
        /// Which setting.
        setting: Setting,
        /// The inode of its network namespace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        netns: Option<u64>,
    },
}

/// An attribute of a thread. The values in words: `other 0`, `fifo 1`; `0,2-3`; `none`, `realtime 4`; `running`, `stopped`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Attribute {
    /// Scheduling policy and real-time priority.
    Policy,
    /// The cores that it may use.
    Cores,
    /// Its priority at the disk.
    DiskPriority,
    /// Whether its process is stopped by a signal.
    RunState,
}

impl Attribute {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Attribute::Policy => "scheduling policy",
            Attribute::Cores => "cores",
            Attribute::DiskPriority => "disk priority",
            Attribute::RunState => "run state",
        }
    }
}

/// A setting of a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// Microseconds that a receive interrupt may be held back.
    RxUsecs,
    /// Whether the device adapts that itself: `on`, `off`.
    AdaptiveRx,
}

impl Setting {
    /// As ethtool calls it.
    pub fn name(self) -> &'static str {
        match self {
            Setting::RxUsecs => "rx-usecs",
            Setting::AdaptiveRx => "adaptive-rx",
        }
    }
}

impl Place {
    /// Whether two values are the same: the kernel writes a mask with zeros and commas that nobody gave it.
    pub fn same(&self, a: &str, b: &str) -> bool {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        if words(a) == words(b) {
            return true;
        }
        let equal = |a: Option<_>, b: Option<_>| a.is_some() && a == b;
        match self {
            Place::Thread { attribute: Attribute::Cores, .. } => equal(cpus::list(a), cpus::list(b)),
            Place::File { path, .. } => match path.rsplit('/').next().unwrap_or("") {
                "smp_affinity_list" => equal(cpus::list(a), cpus::list(b)),
                "rps_cpus" | "xps_cpus" | "cpumask" | "smp_affinity" => {
                    let (a, b) = (cpus::mask(a), cpus::mask(b));
                    a.is_some() && a == b
                }
                _ => false,
            },
            _ => false,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Thread { attribute, pid, thread, comm, .. } if pid == thread => {
                write!(f, "the {} of {comm} ({pid})", attribute.name())
            }
            Place::Thread { attribute, pid, thread, comm, .. } => {
                write!(f, "the {} of {comm} (thread {thread} of process {pid})", attribute.name())
            }
            Place::File { path, .. } => f.write_str(path),
            Place::Device { device, setting, .. } => write!(f, "{} of {device}", setting.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Place {
        Place::File { path: path.into(), netns: None }
    }

    #[test]
    fn values_are_the_same_as_the_kernel_sees_them() {
        assert!(file("/sys/class/net/a/queues/rx-0/rps_cpus").same("2", "00000000,00000002"));
        assert!(!file("/sys/class/net/a/queues/rx-0/rps_cpus").same("2", "3"));
        assert!(file("/proc/irq/4/smp_affinity_list").same("0,1,2", "0-2"));
        assert!(!file("/proc/sys/vm/swappiness").same("1", "01"), "no core mask");
        assert!(file("/sys/fs/cgroup/a/cpu.max").same("max 100000", "max\t100000\n"));
    }
}
