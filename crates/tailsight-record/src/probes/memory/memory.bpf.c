// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Page faults of the target (never an address), page migration, NUMA moves, and memory that the target's threads
 * reclaim themselves.
 * hooks: page_fault_user, page_fault_kernel, mm_migrate_pages_start, mm_migrate_pages, sched_move_numa, mm_vmscan_direct_reclaim_begin/end,
 * mm_vmscan_memcg_reclaim_begin/end, mm_compaction_begin/end
 * events: FaultUser, FaultKernel, MigrateBegin, MigratePages, NumaMove, ReclaimBegin, ReclaimEnd */

SEC("tp_btf/page_fault_user")
int HOOK(page_fault_user, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	emit_if_target(ts_fault_user(.error = error));
	return 0;
}

SEC("tp_btf/page_fault_kernel")
int HOOK(page_fault_kernel, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	emit_if_target(ts_fault_kernel(.error = error));
	return 0;
}

SEC("tp_btf/mm_migrate_pages_start")
int HOOK(mm_migrate_pages_start, int mode, int reason)
{
	emit_if_target(ts_migrate_begin(.reason = (__u32)reason));
	return 0;
}

SEC("tp_btf/mm_migrate_pages")
int HOOK(mm_migrate_pages, unsigned long moved, unsigned long failed)
{
	emit_if_target(ts_migrate_pages(.pages_moved = moved, .pages_failed = failed));
	return 0;
}

SEC("tp_btf/sched_move_numa")
int HOOK(sched_move_numa, struct task_struct *p, int from, int to)
{
	if (is_target_tgid(p->tgid))
		emit(ts_numa_move(.moved_tid = p->pid, .from_cpu = from, .to_cpu = to));
	return 0;
}

/* One pair of programs a kind of reclaim. */
#define RECLAIM(begin, end, of)                                                                                        \
	SEC("tp_btf/" #begin)                                                                                          \
	int HOOK(begin)                                                                                                \
	{                                                                                                              \
		emit_if_target(ts_reclaim_begin(.which = of));                                                         \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC("tp_btf/" #end)                                                                                            \
	int HOOK(end)                                                                                                  \
	{                                                                                                              \
		emit_if_target(ts_reclaim_end(.which = of));                                                           \
		return 0;                                                                                              \
	}

RECLAIM(mm_vmscan_direct_reclaim_begin, mm_vmscan_direct_reclaim_end, 0)
RECLAIM(mm_vmscan_memcg_reclaim_begin, mm_vmscan_memcg_reclaim_end, 1)
RECLAIM(mm_compaction_begin, mm_compaction_end, 2)
