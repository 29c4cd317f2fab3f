// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Functions that the user names, from their begin to each of their ends.
 * hooks: none of their own; uprobes at places in the target's files (--uprobe, --usdt), fentry and fexit (--function), attached by
 * mod.rs and only when asked for
 * events: FunctionBegin, FunctionEnd, RoutineSwitch
 *
 * Which function it is comes as the cookie of the attachment. Processes that are not the target's take the trap and nothing else. A
 * function that is called too often turns itself off; the recorder then takes its breakpoints away. */

#define MOST_FUNCTIONS 256

/* A cookie holds the function's number and facts about the place. mod.rs has the same layout. */
#define COOKIE_FUNCTION 0xff
#define COOKIE_END (1 << 8)        /* of the function; else its begin */
#define COOKIE_RETURNED (1 << 9)   /* the return address is off the stack already (uretprobe) */
#define COOKIE_GO (1 << 10)
#define COOKIE_SWITCH (1 << 11)    /* runtime.execute, runtime.schedule of Go */
#define COOKIE_NONE (1 << 12)      /* and that nobody runs */
#define COOKIE_CONDITION_SHIFT 16  /* of a conditional jump out of the function: its condition code + 1 */

struct function {
	__u64 calls;
	__u64 window;  /* which tenth of a second */
	__u64 in_window;
	__u64 off_ns;  /* since when it is off; 0: it is on */
};

struct function functions[MOST_FUNCTIONS];
__u32 function_limit; /* calls in a tenth of a second */
const volatile __u32 function_secret = 0; /* added to positions, so that they say nothing of the address space */

#define TENTH_NS 100000000ULL

/* Whether a begin counts: the function is on and was not called too often. `limit`: calls in a tenth of a second. */
static __always_inline bool function_begins(struct function *f, __u32 limit)
{
	__u64 now = bpf_ktime_get_ns(), window = now / TENTH_NS;
	if (f->window != window) {
		f->window = window;
		f->in_window = 0;
	}
	__u64 calls = __sync_fetch_and_add(&f->in_window, 1) + 1;
	__sync_fetch_and_add(&f->calls, 1);
	if (calls <= limit)
		return true;
	__sync_val_compare_and_swap(&f->off_ns, 0, now);
	return false;
}

static __always_inline int function_hit(__u64 who, __u32 index, bool end, __u16 flags, __u32 position, __u64 routine)
{
	struct function *f = &functions[index & COOKIE_FUNCTION];
	if (f->off_ns || (!end && !function_begins(f, function_limit)))
		return 0;
	emit_of(who, ts_pack_function(end ? TS_FUNCTION_END : TS_FUNCTION_BEGIN,
				      (struct ts_fields_function){ .flags = flags,
								   .function = index,
								   .position = position,
								   .goroutine = routine }));
	return 0;
}

#if defined(__TARGET_ARCH_arm64)
#define USER_SP(regs) ((regs)->sp)
#define GOROUTINE(regs) ((regs)->regs[28])
#define FIRST_ARGUMENT(regs) ((regs)->regs[0])
#else
#define USER_SP(regs) ((regs)->sp)
#define GOROUTINE(regs) ((regs)->r14)
#define FIRST_ARGUMENT(regs) ((regs)->ax)

/* Whether a conditional jump is taken (Intel SDM, appendix B: condition codes). */
static __always_inline bool jumps(__u64 flags, __u32 code)
{
	bool carry = flags & 1, parity = flags & 4, zero = flags & 0x40, sign = flags & 0x80, overflow = flags & 0x800;
	bool is = false;
	switch (code >> 1) {
	case 0: is = overflow; break;
	case 1: is = carry; break;
	case 2: is = zero; break;
	case 3: is = carry || zero; break;
	case 4: is = sign; break;
	case 5: is = parity; break;
	case 6: is = sign != overflow; break;
	case 7: is = zero || sign != overflow; break;
	}
	return is != (code & 1);
}
#endif

static __always_inline __u64 routine_of(__u64 g)
{
	return g ? (g >> 3) + function_secret : 0;
}

SEC("uprobe")
int traced_function(struct pt_regs *regs)
{
	__u64 who;
	if (!recording || !(who = target_here()))
		return 0;
	__u64 cookie = bpf_get_attach_cookie(regs);
	if (cookie & COOKIE_SWITCH) {
		emit_of(who, ts_routine_switch(.goroutine = cookie & COOKIE_NONE ? 0 : routine_of(FIRST_ARGUMENT(regs))));
		return 0;
	}
#if !defined(__TARGET_ARCH_arm64)
	__u32 condition = cookie >> COOKIE_CONDITION_SHIFT & 0x1f;
	if (condition && !jumps(regs->flags, condition - 1))
		return 0;
#endif
	__u32 position = USER_SP(regs) - (cookie & COOKIE_RETURNED ? 8 : 0) + function_secret;
	bool go = cookie & COOKIE_GO;
	return function_hit(who, cookie & COOKIE_FUNCTION, cookie & COOKIE_END, go ? TS_FUNCTION_GO : 0, position,
			    go ? routine_of(GOROUTINE(regs)) : 0);
}

/* Of the kernel: a pair of programs each, for a program at a function of the kernel has no cookie before 6.0. */
static __always_inline int kernel_function(__u32 index, bool end)
{
	__u64 who;
	if (!recording || !(who = target_here()))
		return 0;
	return function_hit(who, index, end, TS_FUNCTION_KERNEL, 0, 0);
}

#define KERNEL_FUNCTION(n)                                                                                             \
	const volatile __u32 kernel_function_##n = 0;                                                                  \
	SEC("?fentry")                                                                                                 \
	int kernel_begin_##n(void *ctx)                                                                                \
	{                                                                                                              \
		return kernel_function(kernel_function_##n, false);                                                    \
	}                                                                                                              \
	SEC("?fexit")                                                                                                  \
	int kernel_end_##n(void *ctx)                                                                                  \
	{                                                                                                              \
		return kernel_function(kernel_function_##n, true);                                                     \
	}
KERNEL_FUNCTION(0)
KERNEL_FUNCTION(1)
KERNEL_FUNCTION(2)
KERNEL_FUNCTION(3)
KERNEL_FUNCTION(4)
KERNEL_FUNCTION(5)
KERNEL_FUNCTION(6)
KERNEL_FUNCTION(7)
