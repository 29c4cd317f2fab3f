/* A server that frees and allocates many blocks in 3 % of requests: the C library's allocator is the work. See echo.h. */
#include "echo.h"

enum { BLOCKS = 5500 };
static void *blocks[BLOCKS];

static __attribute__((noinline)) void refill_cache(unsigned long seed)
{
	for (int i = 0; i < BLOCKS; i++) {
		int at = (i * 7919 + seed) % BLOCKS;
		free(blocks[at]);
		blocks[at] = malloc(24 + (i * 37 + seed) % 1400);
		*(char *)blocks[at] = 1;
	}
}

static __attribute__((noinline)) void handle(unsigned long request)
{
	if (request % 33 != 7)
		return;
	uint64_t begin = now_ns();
	refill_cache(request);
	log_stretch(begin, now_ns());
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	open_log(argv[2]);
	refill_cache(0);
	serve_on_one_thread(listen_on(atoi(argv[1])), handle);
}
