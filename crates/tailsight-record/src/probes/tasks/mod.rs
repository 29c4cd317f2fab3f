//! Names of tasks born or renamed while recording. The C is beside this file, in `tasks.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// Names of tasks born or renamed while recording.
pub const PROBE: Probe = Probe {
    name: "tasks",
    hooks: &[
        Hook {
            name: "sched_process_fork",
            need: Need::Default,
            tells: "names of tasks born while recording",
            programs: &[tp_btf("sched_process_fork")],
        },
        Hook {
            name: "sched_process_exec",
            need: Need::Default,
            tells: "names of programs started while recording",
            programs: &[tp_btf("sched_process_exec")],
        },
        Hook {
            name: "sched_process_exit",
            need: Need::Default,
            tells: "ends of tasks",
            programs: &[tp_btf("sched_process_exit")],
        },
        Hook {
            name: "task_rename",
            need: Need::Default,
            tells: "names changed while recording",
            programs: &[tp_btf("task_rename")],
        },
    ],
};
