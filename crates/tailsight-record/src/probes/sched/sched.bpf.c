// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Who runs on each core, who made whom runnable, who moved. Every task of the host: a lifetime needs the names of
 * those that ran in the target's place.
 * hooks: sched_switch, sched_waking, sched_wakeup, sched_migrate_task
 * events: SchedSwitch, SchedWaking, SchedWakeup, SchedMigrate, Steal */

/* Kernel stacks with which the target's threads sleep, where the system call alone does not say why. */
#define STACK_DEPTH 32
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 8192);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, STACK_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

/* A bit a system call in which a sleep needs no stack to be understood (waits for work, futex). */
__u64 plain_sleeps[16];

static __always_inline bool is_throttled(struct task_struct *task)
{
	if (bpf_core_field_exists(task->throttled))
		return task->throttled;
	if (bpf_core_field_exists(((struct cfs_rq *)0)->throttle_count) &&
	    bpf_core_field_exists(((struct sched_entity *)0)->cfs_rq))
		return task->se.cfs_rq->throttle_count > 0;
	return false;
}

/* What a thread of the target sleeps in: system call + 1, and its kernel stack + 1 << 32 where that tells more. */
static __always_inline __u64 sleep_of(void *ctx, const struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_arm64)
	__u32 nr = regs->syscallno;
#else
	__u32 nr = regs->orig_ax;
#endif
	if ((__s32)nr >= 0 && plain_sleeps[(nr >> 6) & 15] >> (nr & 63) & 1 && nr < 1024)
		return nr + 1;
	__s64 id = bpf_get_stackid(ctx, &stacks, 0);
	/* In no system call: an exception, such as a page fault. */
	return pair((__s32)nr < 0 ? 0xffffffff : nr + 1, id < 0 ? 0 : id + 1);
}

static __always_inline void tell_switch(void *ctx, bool preempt, struct task_struct *prev, struct task_struct *next,
					unsigned int prev_state)
{
	__u16 flags = preempt ? TS_SWITCH_PREEMPTED : 0;
	__u64 how = 0;

	tell_steal(prev);
	if (is_target_tgid(prev->tgid)) {
		if (is_throttled(prev))
			flags |= TS_SWITCH_THROTTLED;
		if (!preempt && prev_state) {
			/* Not as an ordinary field: libbpf would relocate the byte but not the bit in it, and read
			 * another flag (sched_remote_wakeup). */
			if (BPF_CORE_READ_BITFIELD(prev, in_iowait))
				flags |= TS_SWITCH_IO_WAIT;
			struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(prev);
			if (regs) {
				how = sleep_of(ctx, regs);
				flags |= place_of_sleep(regs, pair(prev->pid, prev->tgid)) << TS_SWITCH_PLACE_SHIFT;
			}
		}
	}
	emit_of(pair(prev->pid, prev->tgid), TS_SCHED_SWITCH, flags, pair(prev->pid, next->pid), pair(prev_state, next->prio), how);
}

SEC("tp_btf/sched_switch")
int HOOK(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	if (recording)
		tell_switch(ctx, preempt, prev, next, prev_state);
	__u32 left = prev->pid;
	if (!leaves_seen(left))
		seen_leaving[left & 1023] = left;
	remember_running(pair(next->pid, next->tgid) | RUNNING_KNOWN);
	return 0;
}

SEC("tp_btf/sched_waking")
int HOOK(sched_waking, struct task_struct *p)
{
	emit(TS_SCHED_WAKING, 0, pair(p->pid, p->thread_info.cpu), p->tgid, 0);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int HOOK(sched_wakeup, struct task_struct *p)
{
	if (is_target_tgid(p->tgid))
		emit(TS_SCHED_WAKEUP, 0, pair(p->pid, p->thread_info.cpu), 0, 0);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int HOOK(sched_migrate_task, struct task_struct *p, int to)
{
	emit(TS_SCHED_MIGRATE, 0, p->pid, pair(p->thread_info.cpu, to), 0);
	return 0;
}
