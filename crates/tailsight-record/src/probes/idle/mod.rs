//! Idle states. The C is beside this file, in `idle.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// Idle states.
pub const PROBE: Probe = Probe {
    name: "idle",
    hooks: &[Hook {
        name: "cpu_idle",
        need: Need::Optional,
        tells: "how deep an idle core slept (that it was idle, sched_switch tells)",
        programs: &[tp_btf("cpu_idle")],
    }],
};
