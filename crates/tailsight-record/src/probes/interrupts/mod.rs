//! Interrupts, softirqs and system vectors, as spans. The C is beside this file, in `interrupts.bpf.c`; its header lists hooks and events.

use super::{Hook, Need, Probe, tp_btf};

/// Interrupts, softirqs and system vectors, as spans.
pub const PROBE: Probe = Probe {
    name: "interrupts",
    hooks: &[
        Hook { name: "softirq_entry", need: Need::Default, tells: "softirqs", programs: &[tp_btf("softirq_entry")] },
        Hook { name: "softirq_exit", need: Need::Default, tells: "softirqs", programs: &[tp_btf("softirq_exit")] },
        Hook {
            name: "irq_handler_entry",
            need: Need::Default,
            tells: "device interrupts",
            programs: &[tp_btf("irq_handler_entry")],
        },
        Hook {
            name: "irq_handler_exit",
            need: Need::Default,
            tells: "device interrupts",
            programs: &[tp_btf("irq_handler_exit")],
        },
        Hook {
            name: "local_timer_entry",
            need: Need::Default,
            tells: "the local_timer vector (x86)",
            programs: &[tp_btf("local_timer_entry")],
        },
        Hook {
            name: "local_timer_exit",
            need: Need::Default,
            tells: "the local_timer vector (x86)",
            programs: &[tp_btf("local_timer_exit")],
        },
        Hook {
            name: "reschedule_entry",
            need: Need::Default,
            tells: "the reschedule vector (x86)",
            programs: &[tp_btf("reschedule_entry")],
        },
        Hook {
            name: "reschedule_exit",
            need: Need::Default,
            tells: "the reschedule vector (x86)",
            programs: &[tp_btf("reschedule_exit")],
        },
        Hook {
            name: "call_function_entry",
            need: Need::Default,
            tells: "the call_function vector (x86)",
            programs: &[tp_btf("call_function_entry")],
        },
        Hook {
            name: "call_function_exit",
            need: Need::Default,
            tells: "the call_function vector (x86)",
            programs: &[tp_btf("call_function_exit")],
        },
        Hook {
            name: "call_function_single_entry",
            need: Need::Default,
            tells: "the call_function_single vector (x86)",
            programs: &[tp_btf("call_function_single_entry")],
        },
        Hook {
            name: "call_function_single_exit",
            need: Need::Default,
            tells: "the call_function_single vector (x86)",
            programs: &[tp_btf("call_function_single_exit")],
        },
        Hook {
            name: "irq_work_entry",
            need: Need::Default,
            tells: "the irq_work vector (x86)",
            programs: &[tp_btf("irq_work_entry")],
        },
        Hook {
            name: "irq_work_exit",
            need: Need::Default,
            tells: "the irq_work vector (x86)",
            programs: &[tp_btf("irq_work_exit")],
        },
        Hook {
            name: "x86_platform_ipi_entry",
            need: Need::Default,
            tells: "the x86_platform_ipi vector (x86)",
            programs: &[tp_btf("x86_platform_ipi_entry")],
        },
        Hook {
            name: "x86_platform_ipi_exit",
            need: Need::Default,
            tells: "the x86_platform_ipi vector (x86)",
            programs: &[tp_btf("x86_platform_ipi_exit")],
        },
        Hook {
            name: "error_apic_entry",
            need: Need::Default,
            tells: "the error_apic vector (x86)",
            programs: &[tp_btf("error_apic_entry")],
        },
        Hook {
            name: "error_apic_exit",
            need: Need::Default,
            tells: "the error_apic vector (x86)",
            programs: &[tp_btf("error_apic_exit")],
        },
        Hook {
            name: "spurious_apic_entry",
            need: Need::Default,
            tells: "the spurious_apic vector (x86)",
            programs: &[tp_btf("spurious_apic_entry")],
        },
        Hook {
            name: "spurious_apic_exit",
            need: Need::Default,
            tells: "the spurious_apic vector (x86)",
            programs: &[tp_btf("spurious_apic_exit")],
        },
        Hook {
            name: "thermal_apic_entry",
            need: Need::Default,
            tells: "the thermal_apic vector (x86)",
            programs: &[tp_btf("thermal_apic_entry")],
        },
        Hook {
            name: "thermal_apic_exit",
            need: Need::Default,
            tells: "the thermal_apic vector (x86)",
            programs: &[tp_btf("thermal_apic_exit")],
        },
        Hook {
            name: "deferred_error_apic_entry",
            need: Need::Default,
            tells: "the deferred_error_apic vector (x86)",
            programs: &[tp_btf("deferred_error_apic_entry")],
        },
        Hook {
            name: "deferred_error_apic_exit",
            need: Need::Default,
            tells: "the deferred_error_apic vector (x86)",
            programs: &[tp_btf("deferred_error_apic_exit")],
        },
        Hook {
            name: "threshold_apic_entry",
            need: Need::Default,
            tells: "the threshold_apic vector (x86)",
            programs: &[tp_btf("threshold_apic_entry")],
        },
        Hook {
            name: "threshold_apic_exit",
            need: Need::Default,
            tells: "the threshold_apic vector (x86)",
            programs: &[tp_btf("threshold_apic_exit")],
        },
    ],
};
