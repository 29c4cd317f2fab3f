// What the agent (guest.c) does to every tenth request, by name; a part of that file.
//
//   none         nothing
//   long         asks for a value of 60,000 bytes: the copy of it is a function that takes long
//   interrupt    has the server's processor read 200 counters of perf, by an inter-processor interrupt, as soon as the request is sent
//   queue        sends eight UDP packets before it, which wait in the same queue (RPS) of the server's processor: more calls of ip_rcv
//   protection   has the kernel write-protect all memory of the server (/proc/PID/clear_refs), as a change of protection by another does
#include <linux/perf_event.h>
#include <sys/syscall.h>

enum { COUNTERS = 200, BIG = 60000, SINK = 9999, AHEAD = 8 };
static int counters = -1, sender = -1, sink = -1, references = -1;

static int is(const char *fault, const char *name)
{
    return fault && !strcmp(fault, name);
}

// The process of that name.
static int process(const char *name)
{
    struct dirent *entry;
    DIR *proc = opendir("/proc");
    while (proc && (entry = readdir(proc))) {
        char path[300], comm[64];
        snprintf(path, sizeof path, "/proc/%.20s/comm", entry->d_name);
        int file = open(path, O_RDONLY);
        ssize_t got = file < 0 ? 0 : read(file, comm, sizeof comm - 1);
        if (file >= 0)
            close(file);
        comm[got > 0 ? got : 0] = 0;
        if (!strncmp(comm, name, strlen(name)))
            return atoi(entry->d_name);
    }
    die("the server is not there");
    return 0;
}

static void prepare_fault(int to, const char *fault)
{
    if (is(fault, "long")) {
        static char set[BIG + 64];
        size_t n = sprintf(set, "set big 0 0 %d\r\n", BIG);
        memset(set + n, 'x', BIG);
        memcpy(set + n + BIG, "\r\n", 2);
        request(to, set, n + BIG + 2, "STORED\r\n");
    }
    if (is(fault, "interrupt"))
        for (int i = 0; i < COUNTERS; i++) {
            struct perf_event_attr of = { .type = PERF_TYPE_SOFTWARE, .size = sizeof of, .config = PERF_COUNT_SW_CPU_CLOCK,
                                          .read_format = PERF_FORMAT_GROUP };
            int file = syscall(SYS_perf_event_open, &of, -1, 1, counters, 0);
            if (file < 0)
                die("no counter of perf");
            if (counters < 0)
                counters = file;
        }
    if (is(fault, "queue")) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(SINK), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        sink = socket(AF_INET, SOCK_DGRAM, 0);
        sender = socket(AF_INET, SOCK_DGRAM, 0);
        if (bind(sink, (void *)&at, sizeof at) || connect(sender, (void *)&at, sizeof at))
            die("no UDP");
    }
    if (is(fault, "protection")) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/clear_refs", process("memcached"));
        references = open(path, O_WRONLY);
        if (references < 0)
            die("no clear_refs");
    }
}

static void one_request(int to, int i, const char *fault)
{
    static uint64_t values[COUNTERS + 1];
    static char packet[512];
    int faulty = i % 10 == 5;
    if (faulty && is(fault, "long")) {
        request(to, "get big\r\n", 9, "END\r\n");
        return;
    }
    if (faulty && is(fault, "protection") && write(references, "4", 1) != 1)
        die("memory was not protected");
    for (int n = 0; faulty && is(fault, "queue") && n < AHEAD; n++)
        if (write(sender, packet, sizeof packet) != sizeof packet)
            die("a packet was not sent");
    if (write(to, "get key\r\n", 9) != 9)
        die("a request was not sent");
    if (faulty && is(fault, "interrupt") && read(counters, values, sizeof values) != sizeof values)
        die("the counters cannot be read");
    char answer[256];
    if (read(to, answer, sizeof answer) <= 0)
        die("memcached does not answer");
    for (int n = 0; faulty && is(fault, "queue") && n < AHEAD; n++)
        (void)!recv(sink, answer, sizeof answer, MSG_DONTWAIT);
}
