// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What kernel workers do. The function's address becomes a name before anything is written.
 * hooks: workqueue_execute_start, workqueue_execute_end
 * events: WorkStart, WorkEnd */

SEC("tp_btf/workqueue_execute_start")
int HOOK(workqueue_execute_start, struct work_struct *work)
{
	emit(TS_WORK_START, 0, (__u64)work->func, 0, 0);
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int HOOK(workqueue_execute_end)
{
	emit(TS_WORK_END, 0, 0, 0, 0);
	return 0;
}
