/* Two threads and their maker, without a C library: calls, recursion, calls through pointers, jumps into other functions, a
 * jump table. What it does is of no use; that each instruction of it can be stepped is. Nothing in it waits: a thread that
 * waits would keep the stepper waiting. */
typedef unsigned long u64;

#define WORKERS 2
#ifndef ROUNDS
#define ROUNDS 20
#endif
/* In each round. */
#ifndef REQUESTS
#define REQUESTS 1
#endif
#define NOT_INLINED __attribute__((noinline, noclone))

static volatile int done;
static volatile u64 sink;
static u64 stacks[WORKERS][2048] __attribute__((aligned(16)));

static inline long system_call(long nr, long a)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(nr), "D"(a) : "rcx", "r11", "memory");
	return result;
}

#define SYS_SCHED_YIELD 24
#define SYS_EXIT_GROUP 231

/* A thread on a stack of its own: clone(VM | FS | FILES | SIGHAND | THREAD | SYSVSEM), then the function, then exit. */
void spawn(void (*function)(void), u64 *top);
__asm__(".globl spawn\n.type spawn,@function\nspawn:\n"
	"sub $8,%rsi\n mov %rdi,(%rsi)\n mov $0x50f00,%edi\n xor %edx,%edx\n xor %r10d,%r10d\n xor %r8d,%r8d\n"
	"mov $56,%eax\n syscall\n test %eax,%eax\n jz 1f\n ret\n"
	"1: pop %rax\n and $-16,%rsp\n call *%rax\n xor %edi,%edi\n mov $60,%eax\n syscall\n.size spawn,.-spawn\n");

NOT_INLINED static u64 fibonacci(u64 n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

NOT_INLINED static u64 odd(u64 n);
NOT_INLINED static u64 even(u64 n)
{
	return n == 0 ? 1 : odd(n - 1); /* a tail call with optimisation */
}
NOT_INLINED static u64 odd(u64 n)
{
	return n == 0 ? 0 : even(n - 1);
}

typedef int (*order)(u64, u64);
NOT_INLINED static int up(u64 a, u64 b)
{
	return a > b;
}
NOT_INLINED static int down(u64 a, u64 b)
{
	return a < b;
}

NOT_INLINED static void sort(u64 *of, int n, order wrong)
{
	for (int i = 1; i < n; i++)
		for (int j = i; j > 0 && wrong(of[j - 1], of[j]); j--) {
			u64 t = of[j];
			of[j] = of[j - 1];
			of[j - 1] = t;
		}
}

NOT_INLINED static u64 slow_path(u64 seed)
{
	for (int i = 0; i < 200; i++)
		seed = seed * 6364136223846793005UL + 1442695040888963407UL;
	return seed;
}

NOT_INLINED static u64 handle(u64 request)
{
	u64 values[8];
	for (int i = 0; i < 8; i++)
		values[i] = (request * 2654435761UL + i * 40503UL) >> 7 & 0xff;
	switch (request % 6) {
	case 0:
		sort(values, 8, up);
		break;
	case 1:
		sort(values, 8, down);
		break;
	case 2:
		return fibonacci(5);
	case 3:
		return even(9);
	case 4:
		return slow_path(request);
	default:
		values[0] = odd(4) + fibonacci(3);
	}
	return values[0];
}

static void worker(void)
{
	for (u64 i = 0; i < ROUNDS; i++) {
		for (u64 j = 0; j < REQUESTS; j++)
			sink += handle(i * REQUESTS + j);
		system_call(SYS_SCHED_YIELD, 0);
	}
	__atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
}

__attribute__((used)) static void begin(void)
{
	for (int i = 0; i < WORKERS; i++)
		spawn(worker, &stacks[i][2048]);
	while (done < WORKERS) {
		sink += handle(done + 2);
		system_call(SYS_SCHED_YIELD, 0);
	}
	system_call(SYS_EXIT_GROUP, 0);
}

__asm__(".globl _start\n.type _start,@function\n_start: xor %ebp,%ebp\n and $-16,%rsp\n call begin\n hlt\n.size _start,.-_start\n");
