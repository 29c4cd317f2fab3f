// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Births, names and deaths of tasks, so that every thread id has a name; children of the target become the target, and have
 * their code where the parent has it until they become another program.
 * hooks: sched_process_fork, sched_process_exec, sched_process_exit, task_rename
 * events: TaskFork, TaskExec, TaskRename */

SEC("tp_btf/sched_process_fork")
int HOOK(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct text comm;
	__u32 tgid = child->tgid;
	if (follow_children && is_target_tgid(parent->tgid)) {
		__u32 of_parent = parent->tgid;
		__sync_fetch_and_or(&target_tgids[(tgid >> 6) & 0xffff], 1ULL << (tgid & 63));
		struct code *code = sleep_places && of_parent != tgid ? bpf_map_lookup_elem(&code_of, &of_parent) : 0;
		if (code) {
			struct code same = *code;
			bpf_map_update_elem(&code_of, &tgid, &same, 0);
		}
	}
	bpf_probe_read_kernel(&comm, sizeof(comm), child->comm);
	emit(ts_task_fork(.task_tid = child->pid, .task_tgid = tgid, .comm = { comm.first, comm.second }));
	return 0;
}

SEC("tp_btf/sched_process_exec")
int HOOK(sched_process_exec, struct task_struct *p)
{
	struct text comm;
	__u32 tgid = p->tgid;
	if (sleep_places && is_target_tgid(tgid)) {
		bpf_map_delete_elem(&code_of, &tgid);
		__sync_fetch_and_add(&execs, 1);
	}
	/* A thread that is not its process' first takes that one's number. */
	remember_running(0);
	bpf_probe_read_kernel(&comm, sizeof(comm), p->comm);
	emit(ts_task_exec(.task_tid = p->pid, .task_tgid = p->tgid, .comm = { comm.first, comm.second }));
	return 0;
}

SEC("tp_btf/sched_process_exit")
int HOOK(sched_process_exit, struct task_struct *p)
{
	__u32 tgid = p->tgid;
	/* Its first thread ends; its number may be another process' soon. */
	if (sleep_places && p->pid == (int)tgid && is_target_tgid(tgid))
		bpf_map_delete_elem(&code_of, &tgid);
	return 0;
}

/* A thread may rename itself half a million times a second, and each name becomes a row that the recorder keeps. What is more than a
 * program that names its threads needs is counted only. */
#define RENAMES_A_SECOND 1000 /* of 2^30 ns */
__u64 renames_second, renames_in_second;
__u64 renames_left_out;

SEC("tp_btf/task_rename")
int HOOK(task_rename, struct task_struct *p, const char *name)
{
	struct text comm = {};
	__u64 second = bpf_ktime_get_ns() >> 30;
	if (!recording && !naming)
		return 0;
	if (second != renames_second) {
		renames_second = second;
		renames_in_second = 0;
	}
	if (__sync_fetch_and_add(&renames_in_second, 1) >= RENAMES_A_SECOND) {
		__sync_fetch_and_add(&renames_left_out, 1);
		return 0;
	}
	bpf_probe_read_kernel_str(&comm, sizeof(comm), name);
	emit(ts_task_rename(.task_tid = p->pid, .task_tgid = p->tgid, .comm = { comm.first, comm.second }));
	return 0;
}
