/* A server that answers from a file, with a thread a connection. What is wrong: in 3 % of requests the part of the file is not in the page
 * cache and is read from the disk. (It was dropped just before by the server itself, which is not a part of the interval in LOG.)
 * See http.h. */
#define _GNU_SOURCE
#include "http.h"

enum { PART = 256 << 10, PARTS = 128 };
static int file;
static unsigned long requests;

static void make_file(void)
{
	char *bytes = malloc(PART);
	memset(bytes, 'x', PART);
	file = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
	for (int i = 0; i < PARTS; i++)
		if (pwrite(file, bytes, PART, (off_t)i * PART) != PART)
			exit(1);
	fsync(file);
	free(bytes);
}

static __attribute__((noinline)) void read_part(unsigned long n, char *bytes)
{
	off_t at = (off_t)(n % PARTS) * PART;
	if (n % 33 != 7) {
		if (pread(file, bytes, 4096, at) != 4096)
			exit(1);
		return;
	}
	posix_fadvise(file, at, PART, POSIX_FADV_DONTNEED);
	uint64_t begin = now_ns();
	if (pread(file, bytes, PART, at) != PART)
		exit(1);
	log_stretch(begin, now_ns());
}

static void *serve(void *of)
{
	int fd = (int)(intptr_t)of;
	char *bytes = malloc(PART);
	while (take_request(fd)) {
		read_part(__atomic_fetch_add(&requests, 1, __ATOMIC_RELAXED), bytes);
		if (!reply(fd))
			break;
	}
	free(bytes);
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	open_log(argv[2]);
	make_file();
	int listener = listen_on(atoi(argv[1]));
	for (;;) {
		pthread_t thread;
		int fd = accepted(listener);
		if (!pthread_create(&thread, 0, serve, (void *)(intptr_t)fd))
			pthread_detach(thread);
	}
}
