// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Functions that a core runs for another one.
 * hooks: csd_function_entry, csd_function_exit
 * events: CsdEntry, CsdExit */

SEC("tp_btf/csd_function_entry")
int HOOK(csd_function_entry)
{
	emit(ts_csd_entry());
	return 0;
}

SEC("tp_btf/csd_function_exit")
int HOOK(csd_function_exit)
{
	emit(ts_csd_exit());
	return 0;
}
