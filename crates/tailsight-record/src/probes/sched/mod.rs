//! Who runs on each core, who made whom runnable, who moved. The C is beside this file, in `sched.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Who runs on each core, who made whom runnable, who moved.
pub const PROBE: Probe = Probe {
    name: "sched",
    on_demand: None,
    hooks: &[
        hook!(Required, "sched_switch", "what ran on each core"),
        hook!(Default, "sched_waking", "which thread woke another, and when"),
        hook!(
            Optional,
            "sched_wakeup",
            "on which core a thread became runnable (sched_waking and the next switch give the same)"
        ),
        hook!(Default, "sched_migrate_task", "moves between cores"),
    ],
};
