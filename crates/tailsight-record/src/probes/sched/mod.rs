//! Who runs on each core, who made whom runnable, who moved. The C is beside this file, in `sched.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// Who runs on each core, who made whom runnable, who moved.
pub const PROBE: Probe = Probe {
    name: "sched",
    hooks: &[
        Hook {
            name: "sched_switch",
            need: Need::Required,
            tells: "what ran on each core",
            programs: &[tp_btf("sched_switch")],
        },
        Hook {
            name: "sched_waking",
            need: Need::Default,
            tells: "who woke the thread, and when",
            programs: &[tp_btf("sched_waking")],
        },
        Hook {
            name: "sched_wakeup",
            need: Need::Optional,
            tells: "on which core it became runnable (sched_waking and the next switch tell the same)",
            programs: &[tp_btf("sched_wakeup")],
        },
        Hook {
            name: "sched_migrate_task",
            need: Need::Default,
            tells: "moves between cores",
            programs: &[tp_btf("sched_migrate_task")],
        },
    ],
};
