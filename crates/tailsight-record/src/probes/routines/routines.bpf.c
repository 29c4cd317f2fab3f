// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Which goroutine a thread of the target is in where it receives and sends, and which of them have a message that they did not
 * answer yet.
 * hooks: none of their own; the receive and send hooks of ../socket call it
 * events: RoutineSeen
 *
 * Go keeps the address of the running goroutine in a register (R14, on arm64 R28) from 1.17 on, also when it enters the kernel: no
 * breakpoint is needed. Only processes that the recorder has told of are asked. Code that is not Go's (cgo) has anything in that
 * register; such a number meets no goroutine when the recorder reads it. */

const volatile __u32 routines_on = 0;

/* Processes that run a Go program. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u8);
} go_processes SEC(".maps");
__u32 go_processes_told;

/* Goroutines that received data from a client and did not answer since, by some bits of their address; a later one replaces an earlier
 * one with the same. The recorder looks at them from outside. */
#define OPEN_ROUTINES 4096
struct open_routine {
	__u64 address; /* of its `runtime.g`; 0: none */
	__u64 since;   /* when it received */
	__u64 routine; /* as events have it */
	__u64 tgid;
} open_routines[OPEN_ROUTINES];
/* A bit for each entry that may have one: the recorder looks some hundred times a second. */
__u64 open_bits[OPEN_ROUTINES / 64];

/* What each thread was last in, by the low bits of its id: only a change is an event. */
struct last_routine {
	__u64 routine;
	__u32 tid;
	__u32 pad;
} last_routines[UNDER_WAY];

enum routine_call { ROUTINE_ASKS, ROUTINE_TAKES, ROUTINE_ANSWERS };

static __always_inline void note_routine(__u64 who, enum routine_call call)
{
	if (!routines_on)
		return;
	__u32 tgid = who >> 32;
	if (!go_processes_told || !bpf_map_lookup_elem(&go_processes, &tgid))
		return;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u64 g = regs ? GOROUTINE(regs) : 0;
	if (!g)
		return;
	struct last_routine *last = &last_routines[(__u32)who & (UNDER_WAY - 1)];
	if (last->routine != g || last->tid != (__u32)who) {
		last->routine = g;
		last->tid = who;
		emit_of(who, ts_routine_seen(.goroutine = routine_of(g)));
	}
	__u32 at = g * TS_MIX_K1 >> 52 & (OPEN_ROUTINES - 1);
	struct open_routine *open = &open_routines[at];
	if (call == ROUTINE_TAKES) {
		/* The address last: who finds it finds the rest. */
		open->address = 0;
		open->since = bpf_ktime_get_ns();
		open->routine = routine_of(g);
		open->tgid = tgid;
		barrier();
		*(volatile __u64 *)&open->address = g;
		__sync_fetch_and_or(&open_bits[at >> 6], 1ULL << (at & 63));
	} else if (call == ROUTINE_ANSWERS && open->address == g && open->tgid == tgid) {
		open->address = 0;
		__sync_fetch_and_and(&open_bits[at >> 6], ~(1ULL << (at & 63)));
	}
}
