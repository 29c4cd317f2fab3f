//! Functions that a core runs for another one. The C is beside this file, in `ipi.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Functions that a core runs for another one.
pub const PROBE: Probe = Probe {
    name: "ipi",
    on_demand: None,
    hooks: &[
        hook!(Optional, "csd_function_entry", "functions run for another core (6.5)"),
        hook!(Optional, "csd_function_exit", "functions run for another core (6.5)"),
    ],
};
