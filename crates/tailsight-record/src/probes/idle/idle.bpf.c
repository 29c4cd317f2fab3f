// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Idle states: how deep a core slept, and when it left.
 * hooks: cpu_idle
 * events: CpuIdle */

SEC("tp_btf/cpu_idle")
int HOOK(cpu_idle, unsigned int state, unsigned int cpu)
{
	emit(ts_cpu_idle(.state = state));
	return 0;
}
