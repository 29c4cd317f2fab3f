/* What the C and C++ programs of this folder share: HTTP/1.1 with keep-alive, one request at a time. See log_and_listen.h. */
#include "log_and_listen.h"

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
