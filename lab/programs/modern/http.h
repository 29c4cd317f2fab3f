/* What the C and C++ programs of this folder share: HTTP/1.1 with keep-alive, one request at a time, and a log of what took long.
 *
 * In: PROGRAM PORT LOG MODE. Out: `ready` on stdout when it listens; in LOG a line for each interval, its begin and its end in
 * CLOCK_MONOTONIC ns, written when it is over. */
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

/* Reads the head of a request without a body; 0 when the connection is over. */
static inline int take_request(int fd)
{
	char head[4096];
	size_t have = 0;
	while (have < sizeof(head) - 1) {
		ssize_t n = read(fd, head + have, sizeof(head) - 1 - have);
		if (n <= 0)
			return 0;
		have += n;
		head[have] = 0;
		if (strstr(head, "\r\n\r\n"))
			return 1;
	}
	return 0;
}

static inline int reply(int fd)
{
	static const char page[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
	return write(fd, page, sizeof(page) - 1) == sizeof(page) - 1;
}
