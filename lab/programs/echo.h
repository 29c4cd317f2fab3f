/* What the C and C++ programs of the lab share: 128 bytes in, the same 128 bytes out, and a log of what took long.
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
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 128 };
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

/* Reads one request; 0 when the connection is over. */
static inline int take_request(int fd, char *bytes)
{
	size_t have = 0;
	while (have < MESSAGE) {
		ssize_t n = read(fd, bytes + have, MESSAGE - have);
		if (n <= 0)
			return 0;
		have += n;
	}
	return 1;
}

static inline int reply(int fd, const char *bytes)
{
	return write(fd, bytes, MESSAGE) == MESSAGE;
}

/* One thread serves all connections. */
static inline void serve_on_one_thread(int listener, void (*work)(unsigned long request))
{
	unsigned long requests = 0;
	struct epoll_event event, events[64];
	int poll = epoll_create1(0);
	event.events = EPOLLIN;
	event.data.fd = listener;
	epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
	for (;;) {
		int n = epoll_wait(poll, events, 64, -1);
		for (int i = 0; i < n; i++) {
			char bytes[MESSAGE];
			int fd = events[i].data.fd;
			if (fd == listener) {
				event.data.fd = accepted(listener);
				epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event);
			} else if (!take_request(fd, bytes)) {
				close(fd);
			} else {
				work(requests++);
				reply(fd, bytes);
			}
		}
	}
}
