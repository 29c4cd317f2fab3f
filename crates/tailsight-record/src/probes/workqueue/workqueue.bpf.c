// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What kernel workers do. The function's address becomes a name before anything is written.
 * hooks: workqueue_execute_start, workqueue_execute_end
 * events: WorkStart, WorkEnd */

SEC("tp_btf/workqueue_execute_start")
int HOOK(workqueue_execute_start, struct work_struct *work)
{
	emit(ts_work_start(.function = (__u64)work->func));
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int HOOK(workqueue_execute_end)
{
	emit(ts_work_end());
	return 0;
}
