//! Kernel locks that the target waits for. The C is beside this file, in `locks.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// Kernel locks that the target waits for.
pub const PROBE: Probe = Probe {
    name: "locks",
    hooks: &[
        Hook {
            name: "contention_begin",
            need: Need::Default,
            tells: "waits for kernel locks (5.19)",
            programs: &[tp_btf("contention_begin")],
        },
        Hook {
            name: "contention_end",
            need: Need::Default,
            tells: "waits for kernel locks (5.19)",
            programs: &[tp_btf("contention_end")],
        },
    ],
};
