//! Interrupts and functions that one core sends to another. The C is beside this file, in `ipi.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// Interrupts and functions that one core sends to another.
pub const PROBE: Probe = Probe {
    name: "ipi",
    hooks: &[
        Hook {
            name: "ipi_send_cpu",
            need: Need::Optional,
            tells: "inter-processor interrupts (6.4)",
            programs: &[tp_btf("ipi_send_cpu")],
        },
        Hook {
            name: "ipi_send_cpumask",
            need: Need::Optional,
            tells: "inter-processor interrupts (6.4)",
            programs: &[tp_btf("ipi_send_cpumask")],
        },
        Hook {
            name: "csd_queue_cpu",
            need: Need::Optional,
            tells: "functions queued for another core (6.5)",
            programs: &[tp_btf("csd_queue_cpu")],
        },
        Hook {
            name: "csd_function_entry",
            need: Need::Optional,
            tells: "functions run for another core (6.5)",
            programs: &[tp_btf("csd_function_entry")],
        },
        Hook {
            name: "csd_function_exit",
            need: Need::Optional,
            tells: "functions run for another core (6.5)",
            programs: &[tp_btf("csd_function_exit")],
        },
    ],
};
