//! The families of fixes that `--only` chooses from, by what a fix changes.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_diagnose::model::{Change, Limit};

/// A family of fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Where and with which priority the server's threads run: affinity, policy, quota, stopped and frozen processes.
    Cpu,
    /// The cores of other programs.
    Neighbours,
    /// Which cores take interrupts and packets: affinity of interrupts, steering, coalescing.
    Irq,
    /// Memory: `vm.*`, huge pages, ksm, `memory.high`.
    Memory,
    /// The network stack: `net.*`.
    Net,
    /// Disks: I/O priority.
    Disk,
    /// Idle states of cores.
    Idle,
    /// Other parameters of the kernel, for all of the host: its scheduler, work queues, RCU.
    Kernel,
}

impl Family {
    /// Each family, in the order of the help.
    pub const ALL: [Family; 8] = [
        Family::Cpu,
        Family::Neighbours,
        Family::Irq,
        Family::Memory,
        Family::Net,
        Family::Disk,
        Family::Idle,
        Family::Kernel,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Family::Cpu => "cpu",
            Family::Neighbours => "neighbours",
            Family::Irq => "irq",
            Family::Memory => "memory",
            Family::Net => "net",
            Family::Disk => "disk",
            Family::Idle => "idle",
            Family::Kernel => "kernel",
        }
    }

    /// The family of a change.
    #[must_use]
    pub fn of(change: &Change) -> Family {
        match change {
            Change::PinNamed { .. } => Family::Neighbours,
            Change::Pin { .. }
            | Change::RealTime { .. }
            | Change::NoLimit { limit: Limit::CpuQuota, .. }
            | Change::Thaw { .. }
            | Change::Continue { .. } => Family::Cpu,
            Change::Queues { .. } | Change::Interrupts { .. } | Change::Coalescing { .. } => Family::Irq,
            Change::NoLimit { limit: Limit::MemoryHigh, .. } => Family::Memory,
            Change::DiskFirst { .. } => Family::Disk,
            Change::IdleStates { .. } => Family::Idle,
            Change::Sysctl { key, .. } => Family::of_key(key),
            Change::File { path, .. } => Family::of_path(path),
        }
    }

    fn of_key(key: &str) -> Family {
        match key.split('.').next() {
            Some("net") => Family::Net,
            Some("vm") => Family::Memory,
            _ => Family::Kernel,
        }
    }

    fn of_path(path: &str) -> Family {
        match path {
            _ if path.starts_with("/proc/irq/") => Family::Irq,
            _ if path.starts_with("/sys/kernel/mm/") => Family::Memory,
            _ => Family::Kernel,
        }
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(text: &str) -> Result<Family, String> {
        let names = Family::ALL.map(Family::name).join(", ");
        let family = Family::ALL.into_iter().find(|family| family.name() == text);
        family.ok_or_else(|| format!("`{text}` is not a family of fixes; the families are {names}"))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_reads_back_and_each_change_has_one() {
        for family in Family::ALL {
            assert_eq!(family.name().parse(), Ok(family));
        }
        assert!("cpus".parse::<Family>().unwrap_err().contains("cpu, neighbours, irq, memory"));
        let sysctl = |key: &str| Family::of(&Change::Sysctl { key: key.into(), value: "1".into(), netns: None });
        assert_eq!(
            ["net.core.busy_poll", "vm.swappiness", "kernel.sched_rt_runtime_us", "kernel.x"].map(sysctl),
            [Family::Net, Family::Memory, Family::Kernel, Family::Kernel]
        );
        let file = |path: &str| Family::of(&Change::File { path: path.into(), value: "1".into() });
        assert_eq!(
            ["/proc/irq/7/smp_affinity_list", "/sys/kernel/mm/ksm/run", "/sys/kernel/rcu_expedited"].map(file),
            [Family::Irq, Family::Memory, Family::Kernel]
        );
        let named = Change::PinNamed { comm: "nginx".into(), seen: vec![7], cpus: "1".into() };
        let own = Change::Pin { pids: vec![7], cpus: "1".into() };
        assert_eq!([Family::of(&named), Family::of(&own)], [Family::Neighbours, Family::Cpu]);
    }
}
