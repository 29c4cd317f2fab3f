//! Idle states. The C is beside this file, in `idle.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Idle states.
pub const PROBE: Probe = Probe {
    name: "idle",
    hooks: &[hook!(Optional, "cpu_idle", "how deep an idle core slept (that it was idle, sched_switch tells)")],
};
