//! System calls of the target's threads. The C is beside this file, in `syscalls.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// System calls of the target's threads.
pub const PROBE: Probe = Probe {
    name: "syscalls",
    hooks: &[
        Hook {
            name: "sys_enter",
            need: Need::Optional,
            tells: "the borders of the target's system calls; it slows every system call of the host (what a thread sleeps in is known without)",
            programs: &[tp_btf("sys_enter")],
        },
        Hook {
            name: "sys_exit",
            need: Need::Optional,
            tells: "the borders of the target's system calls; it slows every system call of the host (what a thread sleeps in is known without)",
            programs: &[tp_btf("sys_exit")],
        },
    ],
};
