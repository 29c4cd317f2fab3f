//! Interrupts, softirqs and system vectors, as spans. The C is beside this file, in `interrupts.bpf.c`; its header lists hooks and events.

use super::{Probe, hook};

/// Interrupts, softirqs and system vectors, as spans.
pub const PROBE: Probe = Probe {
    name: "interrupts",
    on_demand: None,
    hooks: &[
        hook!(Default, "softirq_entry", "softirqs"),
        hook!(Default, "softirq_exit", "softirqs"),
        hook!(Default, "irq_handler_entry", "device interrupts"),
        hook!(Default, "irq_handler_exit", "device interrupts"),
        hook!(Default, "local_timer_entry", "the local_timer vector (x86)"),
        hook!(Default, "local_timer_exit", "the local_timer vector (x86)"),
        hook!(Default, "reschedule_entry", "the reschedule vector (x86)"),
        hook!(Default, "reschedule_exit", "the reschedule vector (x86)"),
        hook!(Default, "call_function_entry", "the call_function vector (x86)"),
        hook!(Default, "call_function_exit", "the call_function vector (x86)"),
        hook!(Default, "call_function_single_entry", "the call_function_single vector (x86)"),
        hook!(Default, "call_function_single_exit", "the call_function_single vector (x86)"),
        hook!(Default, "irq_work_entry", "the irq_work vector (x86)"),
        hook!(Default, "irq_work_exit", "the irq_work vector (x86)"),
        hook!(Default, "x86_platform_ipi_entry", "the x86_platform_ipi vector (x86)"),
        hook!(Default, "x86_platform_ipi_exit", "the x86_platform_ipi vector (x86)"),
        hook!(Default, "error_apic_entry", "the error_apic vector (x86)"),
        hook!(Default, "error_apic_exit", "the error_apic vector (x86)"),
        hook!(Default, "spurious_apic_entry", "the spurious_apic vector (x86)"),
        hook!(Default, "spurious_apic_exit", "the spurious_apic vector (x86)"),
        hook!(Default, "thermal_apic_entry", "the thermal_apic vector (x86)"),
        hook!(Default, "thermal_apic_exit", "the thermal_apic vector (x86)"),
        hook!(Default, "deferred_error_apic_entry", "the deferred_error_apic vector (x86)"),
        hook!(Default, "deferred_error_apic_exit", "the deferred_error_apic vector (x86)"),
        hook!(Default, "threshold_apic_entry", "the threshold_apic vector (x86)"),
        hook!(Default, "threshold_apic_exit", "the threshold_apic vector (x86)"),
    ],
};
