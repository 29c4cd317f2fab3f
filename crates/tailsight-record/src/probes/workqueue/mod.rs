//! What kernel workers do. The C is beside this file, in `workqueue.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// What kernel workers do.
pub const PROBE: Probe = Probe {
    name: "workqueue",
    hooks: &[
        Hook {
            name: "workqueue_execute_start",
            need: Need::Default,
            tells: "work items",
            programs: &[tp_btf("workqueue_execute_start")],
        },
        Hook {
            name: "workqueue_execute_end",
            need: Need::Default,
            tells: "work items",
            programs: &[tp_btf("workqueue_execute_end")],
        },
    ],
};
