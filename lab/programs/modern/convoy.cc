// A server with a thread a connection, each of whose requests appends to a journal behind one std::mutex. What is wrong: the write to
// the journal, which takes 250 us of waiting, is made with the mutex held, so that requests queue for it. In LOG: when it was held and
// somebody else wanted it. See http.h.
#include "http.h"

#include <atomic>
#include <mutex>
#include <thread>

class Journal {
public:
	__attribute__((noinline)) void append()
	{
		wanted++;
		std::lock_guard<std::mutex> held(lock);
		uint64_t begin = now_ns();
		struct timespec device = {0, 250000};
		nanosleep(&device, 0);
		if (--wanted > 0)
			log_stretch(begin, now_ns());
	}

private:
	std::mutex lock;
	std::atomic<int> wanted{0};
};

static Journal journal;

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	open_log(argv[2]);
	int listener = listen_on(atoi(argv[1]));
	for (;;) {
		int fd = accepted(listener);
		std::thread([fd] {
			while (take_request(fd)) {
				journal.append();
				if (!reply(fd))
					break;
			}
			close(fd);
		}).detach();
	}
}
