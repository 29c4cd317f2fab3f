// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The functions of Python that a thread of the target is in. The stack of the thread has the interpreter's functions only; CPython keeps
 * its own, in frames that it chains.
 * hooks: none of their own; samples, and sleeps that have a place in the program, ask (../samples)
 *
 * Only processes that the recorder has told of are asked: it knows their version, and so where things are. CPython 3.11 to 3.13. */

/* Functions of a sample at most, the innermost ones. */
#define PYTHON_FRAMES 24
/* Of these as many tell places of sleeps apart. */
#define PYTHON_PLACE_FRAMES 4
/* Threads of a process that are looked through for one that is met for the first time. */
#define PYTHON_THREADS 128

/* Where CPython keeps its threads and frames. */
struct python_process {
	__u64 threads;	 /* the address of the first thread's state is here */
	__u32 native_id; /* in the state of a thread: its number */
	__u32 frame;	 /* and its innermost frame, or what has that */
	__u32 behind;	 /* where in that it is, plus 1; 0: it is there itself */
	__u32 minor;	 /* 3.`minor` */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct python_process);
} python_processes SEC(".maps");
__u32 python_processes_told;

/* Of threads: where the interpreter keeps their state, and the number that it has there. */
struct python_thread {
	__u64 state, number;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct python_thread);
} python_threads SEC(".maps");

/* A function that runs: its code object, and where in it. */
struct python_frame {
	__u64 code; /* 0: none, only a mark */
	__u64 instruction;
};
/* In `code`: the function was called by the interpreter's C, so that its callers are behind that on the thread's stack. */
#define PYTHON_ENTERED (1ULL << 63)

/* The number of the current thread in its own namespace, which is the one that it knows. */
static __always_inline __u64 own_number(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	int nr = 0;

	if (level > 32)
		return 0;
	void *own = (void *)pid + bpf_core_field_offset(struct pid, numbers) + level * bpf_core_type_size(struct upid);
	bpf_probe_read_kernel(&nr, sizeof(nr), own + bpf_core_field_offset(struct upid, nr));
	return nr;
}

/* Where the state of the current thread is; 0: not known. */
static __noinline __u64 python_state(const struct python_process *python, __u32 tid)
{
	struct python_thread *last = bpf_map_lookup_elem(&python_threads, &tid);
	__u64 id = 0, state = 0;

	if (!python)
		return 0;
	/* Another thread may have had the number before. */
	if (last && !bpf_probe_read_user(&id, sizeof(id), (void *)(last->state + python->native_id)) &&
	    id == last->number)
		return last->state;
	__u64 number = own_number();
	if (!number || bpf_probe_read_user(&state, sizeof(state), (void *)python->threads))
		return 0;
	for (int i = 0; i < PYTHON_THREADS && state; i++) {
		if (bpf_probe_read_user(&id, sizeof(id), (void *)(state + python->native_id)))
			return 0;
		if (id == number) {
			struct python_thread met = { .state = state, .number = number };
			bpf_map_update_elem(&python_threads, &tid, &met, 0);
			return state;
		}
		/* `prev`, `next`. */
		if (bpf_probe_read_user(&state, sizeof(state), (void *)(state + 8)))
			return 0;
	}
	return 0;
}

/* The innermost frame of the current thread; 0: none, or not known. */
static __always_inline __u64 python_innermost(const struct python_process *python, __u32 tid)
{
	__u64 state = python_state(python, tid), frame = 0;

	if (!state || bpf_probe_read_user(&frame, sizeof(frame), (void *)(state + python->frame)))
		return 0;
	if (python->behind &&
	    bpf_probe_read_user(&frame, sizeof(frame), (void *)(frame + python->behind - 1)))
		return 0;
	return frame;
}

/* Reads a frame; gives the one that called it, 0: none. */
static __always_inline __u64 python_frame(__u32 minor, __u64 at, struct python_frame *out)
{
	__u64 words[9];

	out->code = out->instruction = 0;
	if (bpf_probe_read_user(words, sizeof(words), (void *)at))
		return 0;
	out->instruction = words[7];
	if (minor == 11) {
		/* `is_entry` */
		out->code = words[4] | (words[8] >> 32 & 0xff ? PYTHON_ENTERED : 0);
		return words[6];
	}
	/* `owner`: that of C has no function of its own */
	out->code = (words[8] >> 48 & 0xff) == 3 ? PYTHON_ENTERED : words[0];
	return words[1];
}

/* What the programs are told of a process; 0: nothing. */
static __always_inline struct python_process *python_of(__u64 who)
{
	__u32 tgid = who >> 32;
	return python_processes_told ? bpf_map_lookup_elem(&python_processes, &tgid) : 0;
}

/* The functions that the current thread is in, innermost first; how many. */
static __noinline __u32 python_frames(__u64 who, struct python_frame *frames)
{
	struct python_process *python = python_of(who);

	if (!python || !frames)
		return 0;
	__u64 at = python_innermost(python, who);
	__u32 met = 0;
	for (int i = 0; i < PYTHON_FRAMES; i++) {
		if (!at)
			break;
		at = python_frame(python->minor, at, &frames[i]);
		met = i + 1;
	}
	return met;
}

/* What tells apart places of the current thread that look the same on its stack; 0: nothing. */
static __noinline __u64 python_key(__u64 who)
{
	struct python_process *python = python_of(who);
	struct python_frame frame;
	__u64 key = 0;

	if (!python)
		return 0;
	__u64 at = python_innermost(python, who);
	for (int i = 0; i < PYTHON_PLACE_FRAMES; i++) {
		if (!at)
			break;
		at = python_frame(python->minor, at, &frame);
		key = (key ^ frame.code ^ frame.instruction) * TS_MIX_K2;
	}
	return key;
}
