//! Kernel locks that the target waits for. The C is beside this file, in `locks.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Kernel locks that the target waits for.
pub const PROBE: Probe = Probe {
    name: "locks",
    on_demand: None,
    hooks: &[
        hook!(Default, "contention_begin", "waits for kernel locks (5.19)"),
        hook!(Default, "contention_end", "waits for kernel locks (5.19)"),
    ],
};
