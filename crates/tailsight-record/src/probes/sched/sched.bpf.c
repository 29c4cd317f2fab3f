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

/* What a thread of the target sleeps in: its system call, and its kernel stack where that tells more. */
static __always_inline void tell_sleep(void *ctx, const struct pt_regs *regs, struct ts_fields_switch *fields)
{
#if defined(__TARGET_ARCH_arm64)
	__u32 nr = regs->syscallno;
#else
	__u32 nr = regs->orig_ax;
#endif
	if ((__s32)nr >= 0 && plain_sleeps[(nr >> 6) & 15] >> (nr & 63) & 1 && nr < 1024)
		goto call;
	__s64 id = bpf_get_stackid(ctx, &stacks, 0);
	fields->stack = id < 0 ? 0 : id + 1;
call:
	/* In no system call: an exception, such as a page fault. */
	fields->call = (__s32)nr < 0 ? 0xffffffff : nr + 1;
}

static __always_inline void tell_switch(void *ctx, bool preempt, struct task_struct *prev, struct task_struct *next,
					unsigned int prev_state)
{
	struct ts_fields_switch fields = { .flags = preempt ? TS_SWITCH_PREEMPTED : 0,
					   .previous_tid = prev->pid,
					   .next_tid = next->pid,
					   .state = prev_state,
					   .next_priority = next->prio };

	tell_steal(prev);
	if (is_target_tgid(prev->tgid)) {
		if (is_throttled(prev))
			fields.flags |= TS_SWITCH_THROTTLED;
		if (!preempt && prev_state) {
			/* Not as an ordinary field: libbpf would relocate the byte but not the bit in it, and read
			 * another flag (sched_remote_wakeup). */
			if (BPF_CORE_READ_BITFIELD(prev, in_iowait))
				fields.flags |= TS_SWITCH_IO_WAIT;
			struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(prev);
			if (regs) {
				tell_sleep(ctx, regs, &fields);
				fields.place = place_of_sleep(regs, pair(prev->pid, prev->tgid));
			}
		}
	}
	emit_of(pair(prev->pid, prev->tgid), ts_pack_switch(TS_SCHED_SWITCH, fields));
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
	emit(ts_sched_waking(.woken_tid = p->pid, .last_cpu = p->thread_info.cpu, .woken_tgid = p->tgid));
	return 0;
}

SEC("tp_btf/sched_wakeup")
int HOOK(sched_wakeup, struct task_struct *p)
{
	if (is_target_tgid(p->tgid))
		emit(ts_sched_wakeup(.woken_tid = p->pid, .target_cpu = p->thread_info.cpu));
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int HOOK(sched_migrate_task, struct task_struct *p, int to)
{
	emit(ts_sched_migrate(.moved_tid = p->pid, .from_cpu = p->thread_info.cpu, .to_cpu = to));
	return 0;
}
