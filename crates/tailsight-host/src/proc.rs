//! Files of `/proc` that several crates read, but for stat ([`crate::Stat`]) and control groups ([`crate::cgroup`]).
//!
//! In: the text of `/proc/PID/status`, `comm`, `meminfo`, `cpuinfo`, `stat`. Out: a field; a name; memory in bytes; CPU time in clock ticks.
//! Each is read from its own line: `procfs-core` refuses such a file whole when another line is missing or odd, and leaves out what follows
//! the cores in `cpuinfo` (Arm's model).

use crate::Root;

/// The value of the first line `key: value`.
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().filter_map(|line| line.split_once(':')).find(|(k, _)| k.trim() == key).map(|(_, value)| value.trim())
}

/// The name in a comm file, which ends with a line feed of the kernel's; as [`tailsight_units::name`] writes its bytes.
pub fn comm(bytes: &[u8]) -> String {
    tailsight_units::name::from_bytes(bytes.strip_suffix(b"\n").unwrap_or(bytes))
}

/// A line of `/proc/meminfo` such as `MemAvailable`, bytes.
pub fn memory(root: &Root, key: &str) -> Option<u64> {
    let text = root.text("/proc/meminfo").ok()?;
    field(&text, key)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// CPU time since boot, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTicks {
    /// In which something ran.
    pub busy: u64,
    /// In which nothing did, also while a task waited for a disk.
    pub idle: u64,
    /// That a hypervisor gave to others.
    pub stolen: u64,
}

impl CpuTicks {
    /// Of all cores together or of one, in the text of `/proc/stat`.
    pub fn parse(stat: &str, core: Option<usize>) -> Option<Self> {
        let name = core.map_or_else(|| "cpu".to_owned(), |core| format!("cpu{core}"));
        let line = stat.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
        // Guests' times come next; they are also in user and nice.
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, stolen] = ticks.try_into().ok()?;
        Some(Self { busy: user + nice + system + irq + softirq, idle: idle + iowait, stolen })
    }

    /// All of it.
    pub fn all(&self) -> u64 {
        self.busy + self.idle + self.stolen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn a_field_is_found_among_odd_lines() {
        let status = "Name:\tk: \u{fffd}:0\nno colon\nUid:\t5\t6\nNSpid:\t77\t7\n";
        assert_eq!((field(status, "Name"), field(status, "NSpid")), (Some("k: \u{fffd}:0"), Some("77\t7")));
        assert_eq!((field(status, "NS"), field("", "Name")), (None, None));
    }

    #[test]
    fn memory_is_read_in_bytes_or_not_known() {
        let tree = Tree::new(&[("/proc/meminfo", "MemTotal: 9 kB\nodd\nMemAvailable:    2048 kB\nHugePages_Total: 3")]);
        let bytes_of = |key| memory(&tree.root(), key);
        assert_eq!((bytes_of("MemAvailable"), bytes_of("MemTotal")), (Some(2 << 20), Some(9216)));
        assert_eq!((bytes_of("HugePages_Total"), bytes_of("MemFree")), (None, None), "no size; no such line");
        assert_eq!(memory(&Root::at("/nonexistent"), "MemTotal"), None);
    }

    #[test]
    fn cpu_time_is_of_all_cores_or_of_one() {
        let stat =
            "cpu  100 10 50 800 40 5 6 70 9 0\ncpu0 1 2 3 4\ncpu1 1 2 3 4 5 6 7 8\ncpu10 9 9 9 9 9 9 9 9\nlater x\n";
        let ticks = CpuTicks::parse(stat, None).unwrap();
        assert_eq!((ticks, ticks.all()), (CpuTicks { busy: 171, idle: 840, stolen: 70 }, 1081));
        assert_eq!(CpuTicks::parse(stat, Some(1)), Some(CpuTicks { busy: 19, idle: 9, stolen: 8 }));
        assert_eq!((CpuTicks::parse(stat, Some(0)), CpuTicks::parse(stat, Some(2))), (None, None), "cut; not there");
        assert_eq!(CpuTicks::parse("cpu0 1 2\n", None), None);
    }
}
