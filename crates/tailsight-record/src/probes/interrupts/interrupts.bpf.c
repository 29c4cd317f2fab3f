// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Interrupts, softirqs and system vectors, as spans.
 * hooks: irq_handler_entry/exit, softirq_entry/exit, irq_vectors:*
 * events: IrqEntry, IrqExit, SoftirqEntry, SoftirqExit, VectorEntry, VectorExit, Steal */

SEC("tp_btf/softirq_entry")
int HOOK(softirq_entry, unsigned int vec)
{
	emit(ts_softirq_entry(.vector = vec));
	return 0;
}

SEC("tp_btf/softirq_exit")
int HOOK(softirq_exit, unsigned int vec)
{
	emit(ts_softirq_exit(.vector = vec));
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int HOOK(irq_handler_entry, int irq, struct irqaction *action)
{
	struct text name = {};
	bpf_probe_read_kernel_str(&name, sizeof(name), action->name);
	emit(ts_irq_entry(.irq = irq, .handler = { name.first, name.second }));
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int HOOK(irq_handler_exit, int irq)
{
	emit(ts_irq_exit(.irq = irq));
	return 0;
}

/* The tick reads the core's steal clock, so the event comes at its end. */
SEC("tp_btf/local_timer_entry")
int HOOK(local_timer_entry, int vector)
{
	if (!recording)
		return 0;
	__u64 who = running_here();
	emit_of(leaves_seen((__u32)who) ? who : ask_who_runs(), ts_vector_entry(.vector = TS_VECTOR_LOCAL_TIMER));
	return 0;
}

SEC("tp_btf/local_timer_exit")
int HOOK(local_timer_exit, int vector)
{
	if (!recording)
		return 0;
	tell_steal(bpf_get_current_task_btf());
	emit(ts_vector_exit(.vector = TS_VECTOR_LOCAL_TIMER));
	return 0;
}

/* One pair of programs a system vector (x86). */
#define VECTOR(name, which)                                                                                            \
	SEC("tp_btf/" #name "_entry")                                                                                  \
	int HOOK(name##_entry, int vector)                                                                             \
	{                                                                                                              \
		emit(ts_vector_entry(.vector = which));                                                                \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC("tp_btf/" #name "_exit")                                                                                   \
	int HOOK(name##_exit, int vector)                                                                              \
	{                                                                                                              \
		emit(ts_vector_exit(.vector = which));                                                                 \
		return 0;                                                                                              \
	}

VECTOR(reschedule, TS_VECTOR_RESCHEDULE)
VECTOR(call_function, TS_VECTOR_CALL_FUNCTION)
VECTOR(call_function_single, TS_VECTOR_CALL_FUNCTION_SINGLE)
VECTOR(irq_work, TS_VECTOR_IRQ_WORK)
VECTOR(x86_platform_ipi, TS_VECTOR_X86_PLATFORM_IPI)
VECTOR(error_apic, TS_VECTOR_ERROR_APIC)
VECTOR(spurious_apic, TS_VECTOR_SPURIOUS_APIC)
VECTOR(thermal_apic, TS_VECTOR_THERMAL_APIC)
VECTOR(deferred_error_apic, TS_VECTOR_DEFERRED_ERROR_APIC)
VECTOR(threshold_apic, TS_VECTOR_THRESHOLD_APIC)
