//! System calls of the target's threads. The C is beside this file, in `syscalls.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// System calls of the target's threads.
pub const PROBE: Probe = Probe {
    name: "syscalls",
    on_demand: None,
    hooks: &[
        hook!(
            Optional,
            "sys_enter",
            "begin and end of the target's system calls; slows every system call of the host (not needed for the call \
             that a thread sleeps in)"
        ),
        hook!(
            Optional,
            "sys_exit",
            "begin and end of the target's system calls; slows every system call of the host (not needed for the call \
             that a thread sleeps in)"
        ),
    ],
};
