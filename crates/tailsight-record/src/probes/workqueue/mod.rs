//! What kernel workers do. The C is beside this file, in `workqueue.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// What kernel workers do.
pub const PROBE: Probe = Probe {
    name: "workqueue",
    on_demand: None,
    hooks: &[
        hook!(Default, "workqueue_execute_start", "work items"),
        hook!(Default, "workqueue_execute_end", "work items"),
    ],
};
