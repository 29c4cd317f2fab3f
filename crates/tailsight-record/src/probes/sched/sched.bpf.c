// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Who runs on each core, who made whom runnable, who moved. Every task of the host: a lifetime needs the names of
 * those that ran in the target's place.
 * hooks: sched_switch, sched_waking, sched_wakeup, sched_migrate_task
 * events: SchedSwitch, SchedWaking, SchedWakeup, SchedMigrate */

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	emit(TS_SCHED_SWITCH, preempt, pair(prev->pid, next->pid), pair(prev_state, next->prio), 0);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	emit(TS_SCHED_WAKING, 0, pair(p->pid, p->thread_info.cpu), p->tgid, 0);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *p)
{
	if (is_target_tgid(p->tgid))
		emit(TS_SCHED_WAKEUP, 0, pair(p->pid, p->thread_info.cpu), 0, 0);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *p, int to)
{
	emit(TS_SCHED_MIGRATE, 0, p->pid, pair(p->thread_info.cpu, to), 0);
	return 0;
}
