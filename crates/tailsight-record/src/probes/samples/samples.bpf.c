// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What the target's threads run: a clock on each core (a software event of perf) takes the stack of the thread that it finds there
 * when that is one of the target's. The kernel's part as addresses; of the user's part the registers and the stack's bytes, for
 * programs come without frame pointers: the recorder unwinds them and forgets them.
 * Off unless the loader gives a ring: then nothing of this is loaded. */

enum { SAMPLE_CLOCK = 0, SAMPLE_SLEEP = 1 };
#define KERNEL_FRAMES 48
/* The stack is copied in pieces: one that reaches the end of the mapping fails alone. */
#define STACK_PIECE 1024
#define STACK_PIECES 8

struct sample {
	__u64 ts;
	__u32 tid, tgid;
	__u32 cpu;
	__u16 kind;
	__u16 in_user;      /* whether user code itself was interrupted */
	__u32 kernel_bytes; /* of `kernel` that hold addresses */
	__u32 stack_bytes;  /* of `stack` that were copied */
	__u64 ip, sp, fp, lr;
	__u64 unused;
	__u64 kernel[KERNEL_FRAMES];
	__u8 stack[STACK_PIECE * STACK_PIECES];
};

/* mod.rs reads it by these places. */
_Static_assert(sizeof(struct sample) == 8648, "as in mod.rs");
_Static_assert(__builtin_offsetof(struct sample, kernel) == 72, "as in mod.rs");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set by the loader */
} samples SEC(".maps");

__u64 samples_lost; /* found no room in the ring */

/* The registers with which the thread entered the kernel, and the bytes above its stack pointer. */
static __always_inline void copy_user(struct sample *s)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	s->ip = s->sp = s->fp = s->lr = 0;
	s->stack_bytes = 0;
	if (!regs)
		return;
#if defined(__TARGET_ARCH_arm64)
	s->ip = regs->pc;
	s->sp = regs->sp;
	s->fp = regs->regs[29];
	s->lr = regs->regs[30];
#else
	s->ip = regs->ip;
	s->sp = regs->sp;
	s->fp = regs->bp;
#endif
	__u64 sp = s->sp;
	/* A worker of the kernel's own (io_uring) has no user stack. */
	if (!sp)
		return;
	/* The first piece ends where a page may end, the others at ends of pieces: none spans a page that is not there. */
	__u32 first = STACK_PIECE - (sp & (STACK_PIECE - 1));
	if (first > STACK_PIECE || bpf_probe_read_user(s->stack, first, (void *)sp))
		return;
	s->stack_bytes = first;
	for (int i = 1; i < STACK_PIECES; i++) {
		__u32 at = s->stack_bytes;
		if (at > STACK_PIECE * (STACK_PIECES - 1))
			break;
		if (bpf_probe_read_user(s->stack + at, STACK_PIECE, (void *)(sp + at)))
			break;
		s->stack_bytes = at + STACK_PIECE;
	}
}

static __always_inline struct sample *begin_sample(__u64 who, __u16 kind)
{
	struct sample *s = bpf_ringbuf_reserve(&samples, sizeof(*s), 0);
	if (!s) {
		__sync_fetch_and_add(&samples_lost, 1);
		return 0;
	}
	s->ts = bpf_ktime_get_ns();
	s->tid = who;
	s->tgid = who >> 32;
	s->cpu = bpf_get_smp_processor_id();
	s->kind = kind;
	s->in_user = 0;
	return s;
}

SEC("perf_event")
int sample_clock(void *ctx)
{
	if (!recording)
		return 0;
	__u64 who = target_here();
	if (!who)
		return 0;
	struct sample *s = begin_sample(who, SAMPLE_CLOCK);
	if (!s)
		return 0;
	long bytes = bpf_get_stack(ctx, s->kernel, sizeof(s->kernel), 0);
	s->kernel_bytes = bytes > 0 ? bytes : 0;
	s->in_user = bytes <= 0;
	copy_user(s);
	/* No wake-up: the recorder comes by itself. */
	bpf_ringbuf_submit(s, 1);
	return 0;
}
