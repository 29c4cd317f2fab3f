//! Interrupts and functions that one core sends to another. The C is beside this file, in `ipi.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Interrupts and functions that one core sends to another.
pub const PROBE: Probe = Probe {
    name: "ipi",
    on_demand: None,
    hooks: &[
        hook!(Optional, "ipi_send_cpu", "inter-processor interrupts (6.4)"),
        hook!(Optional, "ipi_send_cpumask", "inter-processor interrupts (6.4)"),
        hook!(Optional, "csd_queue_cpu", "functions queued for another core (6.5)"),
        hook!(Optional, "csd_function_entry", "functions run for another core (6.5)"),
        hook!(Optional, "csd_function_exit", "functions run for another core (6.5)"),
    ],
};
