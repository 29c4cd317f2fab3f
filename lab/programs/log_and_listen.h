/* What all C and C++ programs of the lab share: a log of what took long, a listening socket, and accepted connections.
 *
 * In: PROGRAM PORT LOG MODE. Out: `ready` on stdout when it listens; in LOG a line for each interval, its begin and its end in
 * CLOCK_MONOTONIC ns, written when it is over. The lab puts a program and its headers into one folder. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int truth_fd = -1;

static inline uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline void log_stretch(uint64_t begin, uint64_t end)
{
	char line[64];
	int n = snprintf(line, sizeof(line), "%llu %llu\n", (unsigned long long)begin, (unsigned long long)end);
	if (write(truth_fd, line, n) != n)
		exit(1);
}

static inline void open_log(const char *path)
{
	truth_fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (truth_fd < 0)
		exit(1);
}

static inline int listen_on(int port)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a;
	memset(&a, 0, sizeof(a));
	a.sin_family = AF_INET;
	a.sin_port = htons(port);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 64))
		exit(1);
	puts("ready");
	fflush(stdout);
	return fd;
}

static inline int accepted(int listener)
{
	int one = 1, fd = accept(listener, 0, 0);
	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}
