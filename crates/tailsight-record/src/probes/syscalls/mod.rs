//! System calls of the target's threads. The C is beside this file, in `syscalls.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// System calls of the target's threads.
pub const PROBE: Probe = Probe {
    name: "syscalls",
    hooks: &[
        Hook {
            name: "sys_enter",
            need: Need::Default,
            tells: "system calls of the target",
            programs: &[tp_btf("sys_enter")],
        },
        Hook {
            name: "sys_exit",
            need: Need::Default,
            tells: "system calls of the target",
            programs: &[tp_btf("sys_exit")],
        },
    ],
};
