/* A server one of whose functions makes 3 % of requests slow. MODE: `slow`, a function that only these requests call; `calls`, one
 * that every request calls, and these sixteen times as often. See echo.h. */
#include "echo.h"

static volatile uint64_t table[4096];

static __attribute__((noinline)) void look_up(unsigned long key)
{
	for (int i = 0; i < 90000; i++)
		table[(key + i * 61) & 4095] += i;
}

static __attribute__((noinline)) void rebuild_index(unsigned long key)
{
	for (int i = 0; i < 1800000; i++)
		table[(key * 31 + i) & 4095] ^= i;
}

static int more_calls;

static __attribute__((noinline)) void handle(unsigned long request)
{
	int slow = request % 33 == 7;
	look_up(request);
	if (!slow)
		return;
	uint64_t begin = now_ns();
	if (more_calls)
		for (int i = 0; i < 15; i++)
			look_up(request + i);
	else
		rebuild_index(request);
	log_stretch(begin, now_ns());
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	more_calls = !strcmp(argv[3], "calls");
	open_log(argv[2]);
	serve_on_one_thread(listen_on(atoi(argv[1])), handle);
}
