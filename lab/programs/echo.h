/* What the programs of the lab that echo share: 128 bytes in, the same 128 bytes out. See log_and_listen.h. */
#include <sys/epoll.h>

#include "log_and_listen.h"

enum { MESSAGE = 128 };

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
