// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What the target's threads run: a clock on each core (a software event of perf) takes the stack of the thread that it finds there
 * when that is one of the target's. In a message that already took longer than usual each tick takes one; elsewhere one tick in
 * `sample_one_in` does, and that sample counts as many. The kernel's part as addresses; of the user's part the registers and the stack's bytes, for
 * programs come without frame pointers: the recorder unwinds them and forgets them.
 * Off unless the loader gives a ring: then nothing of this is loaded. */

enum { SAMPLE_CLOCK = 0, SAMPLE_SLEEP = 1, SAMPLE_SKIPPED = 2 };
#define KERNEL_FRAMES 48
/* The stack is copied in pieces: one that reaches the end of the mapping fails alone. */
#define STACK_PIECE 1024
#define STACK_PIECES 8

struct sample {
	__u64 ts;
	__u32 tid, tgid;
	__u32 cpu;
	__u16 kind;
	__u16 weight;       /* ticks of the clock that it stands for */
	__u32 kernel_bytes; /* of `kernel` that hold addresses */
	__u32 stack_bytes;  /* of `stack` that were copied */
	__u64 ip, sp, fp, lr;
	__u32 place; /* of a sleep: its number */
	__u32 like;  /* a process with the same program at the same addresses; 0: not known */
	__u32 python_met; /* of `python` */
	__u32 pad;
	/* A skipped tick ends here. */
	__u64 kernel[KERNEL_FRAMES];
	struct python_frame python[PYTHON_FRAMES]; /* innermost first */
	__u8 stack[STACK_PIECE * STACK_PIECES];
};

/* mod.rs reads it by these places. */
_Static_assert(sizeof(struct sample) == 9040, "as in mod.rs");
_Static_assert(__builtin_offsetof(struct sample, kernel) == 80, "as in mod.rs");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set by the loader */
} samples SEC(".maps");

__u64 samples_lost; /* found no room in the ring */

/* Where a process has code, and the process of which that was read: a child of fork has what its parent has. */
#define CODE_RANGES 4
struct code {
	__u64 start[CODE_RANGES], bytes[CODE_RANGES];
	__u64 like;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct code);
} code_of SEC(".maps");

/* The bytes above the stack pointer of a sample. */
static __always_inline void copy_stack(struct sample *s)
{
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
	copy_stack(s);
}

static __always_inline struct sample *begin_record(__u64 bytes, __u64 who, __u16 kind, __u16 weight)
{
	struct sample *s = bpf_ringbuf_reserve(&samples, bytes, 0);
	if (!s) {
		__sync_fetch_and_add(&samples_lost, 1);
		return 0;
	}
	s->ts = bpf_ktime_get_ns();
	s->tid = who;
	s->tgid = who >> 32;
	s->cpu = bpf_get_smp_processor_id();
	s->kind = kind;
	s->weight = weight;
	s->kernel_bytes = s->stack_bytes = s->python_met = 0;
	s->place = 0;
	__u32 tgid = s->tgid;
	struct code *code = bpf_map_lookup_elem(&code_of, &tgid);
	s->like = code ? code->like : 0;
	return s;
}

static __always_inline struct sample *begin_sample(__u64 who, __u16 kind, __u16 weight)
{
	return begin_record(sizeof(struct sample), who, kind, weight);
}

/* Places in the program where threads of the target sleep. Each distinct place has a number, which the event of the
 * context switch carries, and its stack is copied once. Places are told apart by the words of the stack that point into the
 * program's code, which include the return addresses: those among the first 64 words, and, where these are fewer than
 * MOST_CODE_WORDS, on to as many, for a function with a large buffer hides its callers. A word left over from an earlier call
 * gives one place two numbers; the recorder merges them. Processes with the same program at the same addresses share numbers.
 * Where it is not known where the program's code is, nothing tells two places apart: such a sleep has none. */
const volatile __u32 sleep_places = 0;
/* One bit for each system call in which servers wait for work. Such a sleep has no place, unless the thread has a message
 * that it did not answer yet. */
__u64 work_waits[16];
__u32 places_known;
__u64 places_full;    /* sleeps at places beyond the last number */
__u64 places_unread;  /* sleeps whose stack could not be read, or of programs whose code is not known */
__u32 execs;          /* programs that processes of the target became: their code is another */

#define PLACE_WORDS 64
#define PLACE_PIECES 4
#define MOST_CODE_WORDS 16

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u32);
} place_of SEC(".maps");

struct words {
	__u64 word[PLACE_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct words);
} stack_words SEC(".maps");

/* 1 where a < b, else 0: a branch for each word and range would be too many ways for the verifier to walk. */
static __always_inline __u64 is_below(__u64 a, __u64 b)
{
	return ((~a & b) | (~(a ^ b) & (a - b))) >> 63;
}

/* Mixes the words that point into the code into the key; how many these were. */
static __noinline __u32 mix_words(struct words *words, const struct code *code, __u64 *key)
{
	__u64 mixed = 0, met = 0;

	if (!words || !code || !key)
		return 0;
	for (int i = 0; i < PLACE_WORDS; i++) {
		__u64 word = words->word[i], hit = 0;
		for (int r = 0; r < CODE_RANGES; r++)
			hit += is_below(word - code->start[r], code->bytes[r]);
		/* As a number of its own: of a shift that keeps the sign the verifier of 6.18 walks both results. */
		asm volatile("" : "+r"(hit));
		/* A hit is mixed in; another word leaves all as it is. */
		mixed = (mixed ^ (word & -hit)) * (1 + (TS_MIX_K2 - 1) * hit);
		met += hit;
	}
	*key = (*key ^ mixed) * TS_MIX_K1;
	return met;
}

/* What tells a place from others; 0: nothing does. Not static: the verifier walks its loops once, not for each of its callers. */
__noinline __u64 place_key(__u64 who, __u64 ip, __u64 sp)
{
	__u32 zero = 0, tgid = who >> 32, met = 0;
	struct words *words = bpf_map_lookup_elem(&stack_words, &zero);
	struct code *code = bpf_map_lookup_elem(&code_of, &tgid);

	if (!words || !code || bpf_probe_read_user(words, sizeof(*words), (void *)sp))
		return 0;
	__u64 key = (ip ^ code->like * TS_MIX_K2 ^ python_key(who)) * TS_MIX_K1;
	for (int piece = 1; piece <= PLACE_PIECES; piece++) {
		met += mix_words(words, code, &key);
		if (met >= MOST_CODE_WORDS || piece == PLACE_PIECES)
			break;
		if (bpf_probe_read_user(words, sizeof(*words), (void *)(sp + piece * sizeof(*words))))
			break;
	}
	return key ? key : 1;
}

/* The place as a number that a switch event can carry; 0: none. `saved_fp`: the frame pointer of a stack that the thread left, as Go leaves a
 * goroutine's for its own; NOT_LEFT: it is the one that the thread is on. */
#define NOT_LEFT 1
static __noinline __u32 place_of_stack(__u64 who, __u64 ip, __u64 sp, __u64 saved_fp)
{
	__u64 key = place_key(who, ip, sp);

	if (!key) {
		__sync_fetch_and_add(&places_unread, 1);
		return 0;
	}
	__u32 *known = bpf_map_lookup_elem(&place_of, &key);
	if (known)
		return *known;
	if (places_known >= TS_SWITCH_MOST_PLACES) {
		__sync_fetch_and_add(&places_full, 1);
		return 0;
	}
	struct sample *s = begin_sample(who, SAMPLE_SLEEP, 1);
	if (!s)
		return 0;
	__u32 place = __sync_fetch_and_add(&places_known, 1) + 1;
	if (place > TS_SWITCH_MOST_PLACES || bpf_map_update_elem(&place_of, &key, &place, 0)) {
		bpf_ringbuf_discard(s, 1);
		return 0;
	}
	s->place = place;
	if (saved_fp == NOT_LEFT) {
		s->python_met = python_frames(who, s->python);
		copy_user(s);
	} else {
		s->ip = ip;
		s->sp = sp;
		s->fp = saved_fp;
		s->lr = 0;
		copy_stack(s);
	}
	bpf_ringbuf_submit(s, 1);
	return place;
}

static __always_inline __u32 sleep_place(__u64 who, __u64 ip, __u64 sp)
{
	return place_of_stack(who, ip, sp, NOT_LEFT);
}

/* Of the task that leaves its core, which is the current one; its registers in user space. */
static __always_inline __u32 place_of_sleep(const struct pt_regs *regs, __u64 who)
{
	if (!sleep_places)
		return 0;
#if defined(__TARGET_ARCH_arm64)
	__u32 nr = regs->syscallno;
	__u64 ip = regs->pc;
#else
	__u32 nr = regs->orig_ax;
	__u64 ip = regs->ip;
#endif
	__u64 sp = regs->sp;
	if (!sp || (nr < 1024 && work_waits[(nr >> 6) & 15] >> (nr & 63) & 1 && !has_message(who)))
		return 0;
	return sleep_place(who, ip, sp);
}

/* Whether this thread is in a message that already took longer than usual. */
static __always_inline bool in_slow_message(__u32 tid, struct head *head)
{
	return has_message(tid) && bpf_ktime_get_ns() - message_of(tid)->since > head->usual_ns;
}

/* The ticks that a sample taken now stands for; 0: this one is skipped. */
static __always_inline __u16 weight_here(__u32 tid)
{
	__u32 cpu = bpf_get_smp_processor_id();
	if (cpu >= MAX_CPUS)
		return 1;
	struct head *head = &heads[cpu];
	head->target_ticks++;
	if (message_of(tid)->served != tid)
		head->apart_ticks++;
	if (in_slow_message(tid, head)) {
		head->slow_ticks++;
		return 1;
	}
	if (sample_one_in <= 1)
		return 1;
	return head->ticks++ % sample_one_in ? 0 : sample_one_in;
}

SEC("perf_event")
int sample_clock(void *ctx)
{
	if (!recording)
		return 0;
	/* Asked: the clock of some processors is no interrupt that a context switch keeps off. */
	__u64 who = bpf_get_current_pid_tgid();
	if (!is_target_tgid(who >> 32))
		return 0;
	__u16 weight = weight_here(who);
	if (!weight) {
		/* Told, for the clock's interrupt is the recorder's doing all the same. */
		struct sample *skipped =
			begin_record(__builtin_offsetof(struct sample, kernel), who, SAMPLE_SKIPPED, 0);
		if (skipped)
			bpf_ringbuf_submit(skipped, 1);
		return 0;
	}
	struct sample *s = begin_sample(who, SAMPLE_CLOCK, weight);
	if (!s)
		return 0;
	long bytes = bpf_get_stack(ctx, s->kernel, sizeof(s->kernel), 0);
	s->kernel_bytes = bytes > 0 ? bytes : 0;
	s->python_met = python_frames(who, s->python);
	copy_user(s);
	/* No wake-up: the recorder polls. */
	bpf_ringbuf_submit(s, 1);
	return 0;
}
