// A server whose threads, one a connection, share a journal behind a std::mutex. Another thread of it compacts the journal at times,
// with the mutex held. See echo.h.
#include "echo.h"

#include <chrono>
#include <mutex>
#include <thread>

class Journal {
public:
	__attribute__((noinline)) void append(unsigned value)
	{
		std::lock_guard<std::mutex> held(lock);
		entries[value & 1023] += value;
	}

	__attribute__((noinline)) void compact()
	{
		std::lock_guard<std::mutex> held(lock);
		uint64_t begin = now_ns();
		for (int i = 0; i < 2500000; i++) {
			entries[i & 1023] = entries[(i * 7) & 1023] + i;
			// Threads of requests share the core. Unless they run meanwhile, they wait for the core and never for the lock.
			if (i % 100000 == 0)
				std::this_thread::yield();
		}
		log_stretch(begin, now_ns());
	}

private:
	std::mutex lock;
	volatile uint64_t entries[1024] = {};
};

static Journal journal;

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	open_log(argv[2]);
	int listener = listen_on(atoi(argv[1]));
	std::thread([] {
		pthread_setname_np(pthread_self(), "compactor");
		for (;;) {
			std::this_thread::sleep_for(std::chrono::milliseconds(60));
			journal.compact();
		}
	}).detach();
	for (;;) {
		int fd = accepted(listener);
		std::thread([fd] {
			char bytes[MESSAGE];
			for (unsigned n = 0; take_request(fd, bytes); n++) {
				journal.append(n);
				reply(fd, bytes);
			}
			close(fd);
		}).detach();
	}
}
