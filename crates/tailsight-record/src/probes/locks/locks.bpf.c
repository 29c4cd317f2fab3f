// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Kernel locks that the target waits for; the tracepoints fire on the slow path only.
 * hooks: contention_begin, contention_end
 * events: ContentionBegin, ContentionEnd */

SEC("tp_btf/contention_begin")
int HOOK(contention_begin, void *lock, unsigned int flags)
{
	emit_if_target(ts_contention_begin(.lock_flags = flags));
	return 0;
}

SEC("tp_btf/contention_end")
int HOOK(contention_end, void *lock, int ret)
{
	emit_if_target(ts_contention_end(.value = ret));
	return 0;
}
