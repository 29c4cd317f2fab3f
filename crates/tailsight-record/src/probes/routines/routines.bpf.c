// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Which task of its runtime a thread of the target is in where it receives and sends, and where a message waits that was not answered
 * yet: a goroutine of Go, a task of asyncio. Of tokio each run of a task, and who made it ready.
 * hooks: none of their own; the receive and send hooks of ../socket call it, and of tokio and Go breakpoints (uprobes) that mod.rs sets
 * events: RoutineSeen, RoutineRun, RoutineWoken, RoutineAsks, RoutineWaited, RoutineMade
 *
 * Of Go and asyncio no breakpoint is needed to know that; of Go one tells who ended a wait, and one who made a goroutine. Go keeps the address of the running goroutine in
 * a register (R14, on arm64 R28) from 1.17 on, also when it enters the kernel. Code that is not Go's (cgo) has anything in that register;
 * such a number meets no goroutine when the recorder reads it. asyncio keeps the task that a loop runs in a dictionary
 * (`_asyncio._current_tasks`), from which it is read: only where the thread calls that received last from a client, the loop's, and while
 * one loop runs a task. Only processes that the recorder has told of are asked. tokio's tasks are in no register and in no dictionary; but it
 * begins to run each in one function of its own, makes it ready in two others, and keeps it for what is to make it ready in a fourth:
 * their first argument is the task. */

const volatile __u32 routines_on = 0;

/* Where the running task of a process is. */
struct routine_process {
	__u64 dictionary; /* the address of asyncio's; 0: in the register of Go */
	__u32 loop;	  /* the thread that received last from a client */
	__u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct routine_process);
} routine_processes SEC(".maps");
__u32 routine_processes_told;

/* Goroutines that received data from a client and did not answer since, by some bits of their address; a later one replaces an earlier
 * one with the same. Of asyncio, whose loop receives, the sockets. The recorder looks at the tasks from outside. So it does at the goroutines
 * that those make: of a connection that requests share (HTTP/2, gRPC) one receives, and makes one for each request. */
#define OPEN_ROUTINES 4096
struct open_routine {
	__u64 address; /* of its `runtime.g`, or a number of the connection; 0: none */
	__u64 since;   /* when it received, or was made */
	__u64 routine; /* as events have it */
	__u32 tgid;
	__u16 was_made; /* it did not receive itself */
	__u16 gives;	/* it made others for what it received: those have the messages */
} open_routines[OPEN_ROUTINES];
/* A bit for each entry that may have one: the recorder looks some hundred times a second. */
__u64 open_bits[OPEN_ROUTINES / 64];

/* Goroutines that one of those that received made ready, by some bits of their address: in net/http one reads the frames of a connection, and
 * another one makes the goroutines for its requests. */
#define GO_GIVEN 64
struct go_given {
	__u64 address;
	__u64 by; /* which one */
	__u64 tgid;
} go_given[GO_GIVEN];

/* Goroutines that made one of those ready and never received from a client themselves: a job of the program's own that had a lock, a worker.
 * By some bits of their address, as above. The recorder looks at them, too. `since`: when one last did so. */
#define GO_WAKERS 64
struct open_routine go_wakers[GO_WAKERS];

/* What each thread was last in, by the low bits of its id: only a change is an event. */
struct last_routine {
	__u64 routine;
	__u32 tid;
	__u32 pad;
} last_routines[UNDER_WAY];

enum routine_call { ROUTINE_ASKS, ROUTINE_TAKES, ROUTINE_ANSWERS };

/* The task that a dictionary of asyncio has. It has one entry while a loop runs a task. CPython 3.11 to 3.13. */
static __always_inline __u64 running_task(__u64 dictionary)
{
	struct {
		__u64 used, version, keys;
	} dict;
	struct {
		__u64 references;
		__u8 size, index, kind, pad;
		__u32 version;
		__u64 usable, entries;
	} keys;
	__u64 task = 0;
	if (bpf_probe_read_user(&dict, sizeof(dict), (void *)(dictionary + 16)) || dict.used != 1 ||
	    bpf_probe_read_user(&keys, sizeof(keys), (void *)dict.keys) || !keys.entries || keys.index > 24)
		return 0;
	/* Behind the index: hash, key and value of each; of texts the hash is elsewhere. The last is the one that is not removed. */
	__u64 bytes = keys.kind ? 16 : 24;
	__u64 behind = dict.keys + sizeof(keys) + (1ULL << keys.index) + keys.entries * bytes;
	return bpf_probe_read_user(&task, sizeof(task), (void *)(behind - 8)) ? 0 : task;
}

/* A thread is in a task. */
static __always_inline void see_routine(__u64 who, __u64 routine)
{
	struct last_routine *last = &last_routines[(__u32)who & (UNDER_WAY - 1)];
	if (last->routine != routine || last->tid != (__u32)who) {
		last->routine = routine;
		last->tid = who;
		emit_of(who, ts_routine_seen(.goroutine = routine_of(routine)));
	}
}

/* A thread is in a goroutine, of a process whose goroutines are known. */
static __always_inline void see_goroutine(__u64 who, __u64 goroutine)
{
	__u32 tgid = who >> 32;
	if (!routines_on || !routine_processes_told)
		return;
	struct routine_process *process = bpf_map_lookup_elem(&routine_processes, &tgid);
	if (process && !process->dictionary)
		see_routine(who, goroutine);
}

/* Where a goroutine or connection of this address is in the table. */
static __always_inline __u32 place_in_open(__u64 address)
{
	return address * TS_MIX_K1 >> 52 & (OPEN_ROUTINES - 1);
}

/* Fills an entry. The address last: who finds it finds the rest. */
static __always_inline void fill_open(struct open_routine *entry, __u64 address, __u64 routine, __u32 tgid, __u16 was_made)
{
	if (was_made || entry->address != address || entry->tgid != tgid)
		entry->gives = 0;
	entry->address = 0;
	entry->since = bpf_ktime_get_ns();
	entry->routine = routine_of(routine);
	entry->tgid = tgid;
	entry->was_made = was_made;
	barrier();
	*(volatile __u64 *)&entry->address = address;
}

static __always_inline void open_routine(__u64 address, __u64 routine, __u32 tgid, __u16 was_made)
{
	__u32 at = place_in_open(address);
	fill_open(&open_routines[at], address, routine, tgid, was_made);
	__sync_fetch_and_or(&open_bits[at >> 6], 1ULL << (at & 63));
}

static __always_inline void note_routine(__u64 who, const struct flow *flow, enum routine_call call)
{
	if (!routines_on || !routine_processes_told)
		return;
	__u32 tgid = who >> 32;
	struct routine_process *process = bpf_map_lookup_elem(&routine_processes, &tgid);
	if (!process)
		return;
	__u64 routine, opens;
	if (process->dictionary) {
		if (call == ROUTINE_TAKES)
			process->loop = who;
		routine = process->loop == (__u32)who ? running_task(process->dictionary) : 0;
		opens = flow->addrs ^ flow->ports;
	} else {
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
		opens = routine = regs ? GOROUTINE(regs) : 0;
		if (!routine)
			return;
	}
	see_routine(who, routine);
	__u32 at = place_in_open(opens);
	struct open_routine *open = &open_routines[at];
	if (call == ROUTINE_TAKES) {
		open_routine(opens, routine, tgid, 0);
	} else if (call == ROUTINE_ANSWERS && open->address == opens && open->tgid == tgid) {
		open->address = 0;
		__sync_fetch_and_and(&open_bits[at >> 6], ~(1ULL << (at & 63)));
	}
}

/* As functions of ../functions: how often a breakpoint is hit, and whether it is off because that was too often. */
struct function task_hits;
__u32 task_hit_limit; /* in a tenth of a second */

#if defined(__TARGET_ARCH_arm64)
#define TASK_ARGUMENT(regs) ((regs)->regs[0])
#define GO_ARGUMENT(regs) ((regs)->regs[0])
#define GO_SECOND_ARGUMENT(regs) ((regs)->regs[1])
#define USER_IP(regs) ((regs)->pc)
#else
#define TASK_ARGUMENT(regs) ((regs)->di)
#define GO_ARGUMENT(regs) ((regs)->ax)
#define GO_SECOND_ARGUMENT(regs) ((regs)->bx)
#define USER_IP(regs) ((regs)->ip)
#endif

/* The cookies of breakpoints: where a task begins to run, where one is made ready, where one asks to be made ready. mod.rs has the same. */
#define COOKIE_RUNS 0
#define COOKIE_WOKEN 1
#define COOKIE_ASKS 2
/* Where Go makes a goroutine ready, and where it gives a new one to its scheduler. The other bits: where a goroutine has its saved frame
 * pointer. */
#define COOKIE_GO_READY 3
#define COOKIE_GO_MADE 4
#define COOKIE_BITS 8

/* ../samples has it. */
#define NOT_LEFT 1
static __noinline __u32 place_of_stack(__u64 who, __u64 ip, __u64 sp, __u64 saved_fp);

/* Where things are in Go's `runtime.g` and `runtime.m`, as tailsight-tasks has it; the saved frame pointer and what is behind it depend on
 * the version. */
#define GO_G_M 48
#define GO_G_SP 56
#define GO_M_CURG_BEHIND_FP 88

/* Where a goroutine is that no thread runs now; 0: it cannot be read. */
static __noinline __u32 place_of_goroutine(__u64 who, __u64 g, __u64 saved_fp_at)
{
	__u64 fp = 0;
	struct {
		__u64 sp, pc;
	} saved;
	if (bpf_probe_read_user(&saved, sizeof(saved), (void *)(g + GO_G_SP)) ||
	    bpf_probe_read_user(&fp, sizeof(fp), (void *)(g + saved_fp_at)))
		return 0;
	return place_of_stack(who, saved.pc, saved.sp, fp);
}

/* Keeps who made a goroutine ready that has a message, and whom the one made ready that received it. */
static __always_inline void note_waker(__u32 tgid, __u64 waits, __u64 waker)
{
	const struct open_routine *waiting = &open_routines[place_in_open(waits)];
	const struct open_routine *waking = &open_routines[place_in_open(waker)];
	/* An entry keeps its number when its message is answered. */
	if (waiting->address == waits && waiting->tgid == tgid) {
		if (waking->routine != routine_of(waker))
			fill_open(&go_wakers[waker * TS_MIX_K1 >> 58 & (GO_WAKERS - 1)], waker, waker, tgid, 0);
	} else if (waking->address == waker && waking->tgid == tgid && !waking->was_made) {
		struct go_given *given = &go_given[waits * TS_MIX_K1 >> 58 & (GO_GIVEN - 1)];
		given->address = waits;
		given->by = waker;
		given->tgid = tgid;
	}
}

/* The goroutine that runs on this thread, whose register has that of the scheduler's stack; 0: none, or it cannot be read. */
static __always_inline __u64 running_goroutine(struct pt_regs *regs, __u64 saved_fp_at)
{
	__u64 m = 0, running = 0;
	if (bpf_probe_read_user(&m, sizeof(m), (void *)(GOROUTINE(regs) + GO_G_M)) ||
	    bpf_probe_read_user(&running, sizeof(running), (void *)(m + saved_fp_at + GO_M_CURG_BEHIND_FP)))
		return 0;
	return running;
}

/* A goroutine, which waits, is made ready by the one whose thread this is. Go does that on a stack of the thread's own, and has saved the
 * registers of both. Its scheduler, timers and poller are in none. */
static __always_inline void goroutine_ready(__u64 who, struct pt_regs *regs, __u64 saved_fp_at)
{
	__u64 waits = GO_ARGUMENT(regs), waker = running_goroutine(regs, saved_fp_at);
	struct ts_fields_woken fields = { .goroutine = routine_of(waits) };
	see_routine(who, waker);
	if (waker)
		note_waker(who >> 32, waits, waker);
	fields.place = place_of_goroutine(who, waits, saved_fp_at);
	emit_of(who, ts_pack_woken(TS_ROUTINE_WAITED, fields));
	fields.place = 0;
	if (waker == GOROUTINE(regs))
		fields.place = place_of_stack(who, USER_IP(regs), USER_SP(regs), NOT_LEFT);
	else if (waker)
		fields.place = place_of_goroutine(who, waker, saved_fp_at);
	emit_of(who, ts_pack_woken(TS_ROUTINE_WOKEN, fields));
}

/* A goroutine is made by the one whose thread this is. */
static __always_inline void goroutine_made(__u64 who, struct pt_regs *regs, __u64 saved_fp_at)
{
	__u64 made = GO_SECOND_ARGUMENT(regs), maker = running_goroutine(regs, saved_fp_at);
	__u32 tgid = who >> 32;
	if (!maker)
		return;
	see_routine(who, maker);
	const struct go_given *given = &go_given[maker * TS_MIX_K1 >> 58 & (GO_GIVEN - 1)];
	__u64 receiver = given->address == maker && given->tgid == tgid ? given->by : maker;
	struct open_routine *receives = &open_routines[place_in_open(receiver)];
	if (receives->address == receiver && receives->tgid == tgid && !receives->was_made) {
		receives->gives = 1;
		open_routine(made, made, tgid, 1);
	}
	struct ts_fields_woken fields = { .goroutine = routine_of(made), .place = place_of_goroutine(who, maker, saved_fp_at) };
	emit_of(who, ts_pack_woken(TS_ROUTINE_MADE, fields));
}

static __always_inline int task_hit(struct pt_regs *regs)
{
	__u64 who;
	if (!recording || !(who = target_here()) || task_hits.off_ns || !function_begins(&task_hits, task_hit_limit))
		return 0;
	__u64 task = routine_of(TASK_ARGUMENT(regs)), cookie = bpf_get_attach_cookie(regs);
	__u64 what = cookie & ((1 << COOKIE_BITS) - 1);
	if (what == COOKIE_GO_READY || what == COOKIE_GO_MADE) {
		if (what == COOKIE_GO_READY)
			goroutine_ready(who, regs, cookie >> COOKIE_BITS);
		else
			goroutine_made(who, regs, cookie >> COOKIE_BITS);
		return 0;
	}
	if (cookie == COOKIE_RUNS) {
		emit_of(who, ts_routine_run(.goroutine = task));
		return 0;
	}
	struct ts_fields_woken fields = { .goroutine = task, .place = place_of_stack(who, USER_IP(regs), USER_SP(regs), NOT_LEFT) };
	emit_of(who, ts_pack_woken(cookie == COOKIE_ASKS ? TS_ROUTINE_ASKS : TS_ROUTINE_WOKEN, fields));
	return 0;
}

SEC("uprobe")
int runtime_task(struct pt_regs *regs)
{
	return task_hit(regs);
}

/* The same for kernels from 6.6 on, which set and take away all breakpoints of a file at once: one by one each takes a tenth of a second. */
SEC("uprobe.multi")
int runtime_tasks(struct pt_regs *regs)
{
	return task_hit(regs);
}
