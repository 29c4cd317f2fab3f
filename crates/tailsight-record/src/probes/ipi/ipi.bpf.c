// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Interrupts and functions that one core sends to another.
 * hooks: ipi_send_cpu, ipi_send_cpumask, csd_queue_cpu, csd_function_entry/exit
 * events: IpiSend, CsdQueue, CsdEntry, CsdExit */

SEC("tp_btf/ipi_send_cpu")
int HOOK(ipi_send_cpu, unsigned int cpu)
{
	emit(TS_IPI_SEND, 0, cpu, 0, 0);
	return 0;
}

SEC("tp_btf/ipi_send_cpumask")
int HOOK(ipi_send_cpumask)
{
	emit(TS_IPI_SEND, 0, 0xffffffff, 0, 0);
	return 0;
}

SEC("tp_btf/csd_queue_cpu")
int HOOK(csd_queue_cpu, unsigned int cpu)
{
	emit(TS_CSD_QUEUE, 0, cpu, 0, 0);
	return 0;
}

SEC("tp_btf/csd_function_entry")
int HOOK(csd_function_entry)
{
	emit(TS_CSD_ENTRY, 0, 0, 0, 0);
	return 0;
}

SEC("tp_btf/csd_function_exit")
int HOOK(csd_function_exit)
{
	emit(TS_CSD_EXIT, 0, 0, 0, 0);
	return 0;
}
