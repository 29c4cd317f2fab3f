//! Names of tasks born or renamed while recording. The C is beside this file, in `tasks.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Names of tasks born or renamed while recording.
pub const PROBE: Probe = Probe {
    name: "tasks",
    on_demand: None,
    hooks: &[
        hook!(Default, "sched_process_fork", "names of tasks created while recording"),
        hook!(Default, "sched_process_exec", "names of programs started while recording"),
        hook!(Default, "sched_process_exit", "ends of processes, whose numbers may be given again"),
        hook!(Default, "task_rename", "names changed while recording"),
    ],
};
