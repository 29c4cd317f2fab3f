//! Performance monitoring units: hardware counters and Intel PT.
//!
//! In: `/sys/bus/event_source/devices`, and on the live host one `perf_event_open`. Out: [`Pmus`].

use crate::rights::Attempt;
use crate::{Fact, HostError, Root, syscall};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

const DEVICES: &str = "/sys/bus/event_source/devices";

/// One performance monitoring unit with its abilities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pmu {
    /// Its name under `/sys/bus/event_source/devices`.
    pub name: String,
    /// The files of its `caps` folder, such as `max_precise` or `psb_cyc`.
    pub caps: BTreeMap<String, String>,
}

/// The units of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pmus {
    /// All names.
    pub names: Vec<String>,
    /// The core's own counters: `cpu`, `cpu_core`, `cpu_atom`, or an ARM name.
    pub cpu: Vec<Pmu>,
    /// Intel Processor Trace, if the kernel shows it.
    pub intel_pt: Option<Pmu>,
    /// Whether the cycle counter opens and counts; a virtual machine often has none.
    pub cycles: Fact<Attempt>,
}

impl Pmus {
    /// Lists the units, and on the live host tries the cycle counter.
    pub fn collect(root: &Root) -> Self {
        let names = root.names(DEVICES);
        let pmu = |name: &String| {
            let dir = format!("{DEVICES}/{name}/caps");
            let caps = root.names(&dir).into_iter().filter_map(|c| {
                let value = root.text(&format!("{dir}/{c}")).ok()?;
                Some((c, value))
            });
            Pmu { name: name.clone(), caps: caps.collect() }
        };
        Pmus {
            cpu: names.iter().filter(|n| is_core_pmu(n)).map(pmu).collect(),
            intel_pt: names.iter().find(|n| *n == "intel_pt").map(pmu),
            cycles: if root.is_live() {
                Fact::Known(cycles())
            } else {
                Err(HostError::NotLive { call: "perf_event_open" }).into()
            },
            names,
        }
    }
}

fn is_core_pmu(name: &str) -> bool {
    matches!(name, "cpu" | "cpu_core" | "cpu_atom") || name.starts_with("armv") || name.starts_with("apple_")
}

fn cycles() -> Attempt {
    match syscall::perf_cycles() {
        Ok(0) => Attempt {
            allowed: false,
            errno: None,
            meaning: "the cycle counter opens but does not count: the hypervisor gives this guest no counters".into(),
        },
        other => Attempt::of(other.map(drop), |errno| explain(errno).to_owned()),
    }
}

fn explain(errno: i32) -> &'static str {
    match errno {
        libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV => {
            "no hardware counters, as in most virtual machines; Tailsight does not need them"
        }
        libc::EPERM | libc::EACCES => "perf events are forbidden: run as root, or lower kernel.perf_event_paranoid",
        libc::ENOSYS => "perf events are hidden by a seccomp filter, or the kernel lacks CONFIG_PERF_EVENTS",
        _ => "the counter could not be opened",
    }
}

/// The sentence for a failed attempt; for tests and for callers that opened a counter themselves.
pub fn explain_perf(error: &io::Error) -> &'static str {
    explain(error.raw_os_error().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn lists_units_and_their_abilities() {
        let tree = Tree::new(&[
            ("/sys/bus/event_source/devices/cpu/caps/max_precise", "3"),
            ("/sys/bus/event_source/devices/intel_pt/caps/psb_cyc", "1"),
            ("/sys/bus/event_source/devices/intel_pt/type", "8"),
            ("/sys/bus/event_source/devices/software/type", "1"),
        ]);
        let p = Pmus::collect(&tree.root());
        assert_eq!(p.names, ["cpu", "intel_pt", "software"]);
        assert_eq!(p.cpu[0].caps["max_precise"], "3");
        assert_eq!(p.intel_pt.unwrap().caps["psb_cyc"], "1");
        assert!(p.cycles.reason().unwrap().contains("perf_event_open was not tried"));
        assert!(Pmus::collect(&Tree::new(&[]).root()).cpu.is_empty());
        assert!(explain_perf(&io::Error::from_raw_os_error(libc::ENOENT)).contains("virtual machines"));
    }
}
