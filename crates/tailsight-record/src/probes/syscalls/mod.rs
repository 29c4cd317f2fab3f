//! System calls of the target's threads. The C is beside this file, in `syscalls.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// System calls of the target's threads.
pub const PROBE: Probe = Probe {
    name: "syscalls",
    hooks: &[
        hook!(
            Optional,
            "sys_enter",
            "the borders of the target's system calls; it slows every system call of the host (what a thread sleeps in is known without)"
        ),
        hook!(
            Optional,
            "sys_exit",
            "the borders of the target's system calls; it slows every system call of the host (what a thread sleeps in is known without)"
        ),
    ],
};
