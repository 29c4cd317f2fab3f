//! Idle states. The C is beside this file, in `idle.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Idle states.
pub const PROBE: Probe = Probe {
    name: "idle",
    on_demand: None,
    hooks: &[hook!(Optional, "cpu_idle", "the idle state of a core (sched_switch shows only that it was idle)")],
};
