//! What machine this is: CPUs, NUMA nodes, and whether a hypervisor is below it.
//!
//! In: `/proc/cpuinfo`, `/sys/devices/system`. Out: [`Machine`].

use crate::proc::field;
use crate::root::cpu_list;
use crate::{Fact, Root};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The hardware as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The CPU's model name.
    pub cpu_model: Fact<String>,
    /// The CPUs that are online.
    pub cpus_online: Fact<Vec<u32>>,
    /// NUMA nodes that have CPUs or memory.
    pub numa_nodes: usize,
    /// True in a virtual machine, where the hypervisor can take the CPU away and decides how deeply it idles.
    pub virtual_machine: bool,
}

impl Machine {
    /// Reads the machine's description.
    pub fn collect(root: &Root) -> Self {
        let cpuinfo = root.text("/proc/cpuinfo").unwrap_or_default();
        let model = ["model name", "cpu model", "Model", "Hardware"].iter().find_map(|k| field(&cpuinfo, k));
        Machine {
            cpu_model: match model {
                Some(m) => Fact::Known(m.to_owned()),
                None => Fact::unknown("/proc/cpuinfo names no model"),
            },
            cpus_online: root.text("/sys/devices/system/cpu/online").map(|t| cpu_list(&t)).into(),
            numa_nodes: numa_nodes(root).len().max(1),
            virtual_machine: cpu_flags(&cpuinfo).any(|f| f == "hypervisor") || root.exists("/sys/hypervisor/type"),
        }
    }
}

/// The NUMA nodes with the CPUs of each.
pub(crate) fn numa_nodes(root: &Root) -> Vec<(u32, Vec<u32>)> {
    let base = "/sys/devices/system/node";
    let number = |n: String| n.strip_prefix("node").and_then(|d| d.parse().ok());
    let nodes = root.names(base).into_iter().filter_map(number);
    nodes.map(|n: u32| (n, cpu_list(&root.text(&format!("{base}/node{n}/cpulist")).unwrap_or_default()))).collect()
}

/// The feature flags of the first CPU.
pub(crate) fn cpu_flags(cpuinfo: &str) -> impl Iterator<Item = &str> {
    field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features")).unwrap_or("").split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn reads_a_virtual_machine_and_an_empty_tree() {
        let tree = Tree::new(&[
            ("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu tsc hypervisor"),
            ("/sys/devices/system/cpu/online", "0-3"),
            ("/sys/devices/system/node/node0/cpulist", "0-1"),
            ("/sys/devices/system/node/node1/cpulist", "2-3"),
            ("/sys/devices/system/node/has_cpu", "0-1"),
        ]);
        let m = Machine::collect(&tree.root());
        assert_eq!(m.cpu_model, Fact::Known("Some CPU".into()));
        assert_eq!(m.cpus_online, Fact::Known(vec![0, 1, 2, 3]));
        assert_eq!((m.numa_nodes, m.virtual_machine), (2, true));

        let m = Machine::collect(&Tree::new(&[]).root());
        assert!(m.cpus_online.reason().unwrap().contains("/sys/devices/system/cpu/online does not exist"));
        assert_eq!((m.numa_nodes, m.virtual_machine), (1, false));
    }
}
