// The agent in the guest: tells the emulator's plugin (plugin.c) what it must know of the guest, and is the client between the marks.
//
//   agent REQUESTS [FAULT]  the client. FAULT: what is done to every tenth request (faults.h); without it, a timer's signals and page
//                           faults of the client itself come now and then
//   agent send FILE NAME    gives a file of the guest to the plugin
//
// In: a memcached at 127.0.0.1:11211. Out: by the instruction `call` below, the kernel's symbols, where a task's
// number is in memory (BTF), the mappings of all processes and the names of all tasks; two marks around the requests.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { PAGES = 64 };
static volatile char fresh[PAGES * 4096];

enum { OPEN = 1, DATA, CLOSE, TASKS, BEGIN, END, PREPARE };

// An instruction that does nothing on a processor; the jump ends the emulator's block.
static void call(uint64_t what, uint64_t a, uint64_t b, uint64_t c)
{
    __asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00, 0x9b, 0x51, 0x11, 0x7a\n\tjmp 1f\n1:" ::"D"(what), "S"(a), "d"(b), "c"(c) : "memory");
}

static void die(const char *what)
{
    printf("agent: %s\n", what);
    exit(1);
}

static char *whole(const char *path, size_t *len)
{
    size_t room = 32 << 20, n = 0;
    char *to = malloc(room);
    int file = open(path, O_RDONLY);
    if (!to || file < 0)
        return NULL;
    for (ssize_t got; n < room - 1 && (got = read(file, to + n, room - 1 - n)) > 0;)
        n += got;
    close(file);
    to[n] = 0;
    *len = n;
    return to;
}

static void send_file(const char *name, const char *data, size_t len)
{
    static char padded[64];
    memset(padded, 0, sizeof padded);
    snprintf(padded, sizeof padded, "%s", name);
    call(OPEN, (uint64_t)padded, 0, 0);
    for (size_t at = 0; at < len; at += 1 << 15) {
        size_t n = len - at < 1 << 15 ? len - at : 1 << 15;
        call(DATA, (uint64_t)(data + at), n, 0);
    }
    call(CLOSE, 0, 0, 0);
}

struct btf_header { uint16_t magic; uint8_t version, flags; uint32_t header, types, types_len, strings, strings_len; };

// Where a member of struct task_struct is, bytes.
static uint32_t member(const char *btf, const char *wanted)
{
    const struct btf_header *h = (const void *)btf;
    const char *strings = btf + h->header + h->strings;
    const uint32_t *at = (const void *)(btf + h->header + h->types), *end = (const void *)((const char *)at + h->types_len);
    while (at < end) {
        uint32_t kind = at[1] >> 24 & 31, n = at[1] & 0xffff, bits = at[1] >> 31;
        const uint32_t *more = at + 3;
        if (kind == 4 && !strcmp(strings + at[0], "task_struct"))
            for (uint32_t i = 0; i < n; i++)
                if (!strcmp(strings + more[3 * i], wanted))
                    return (bits ? more[3 * i + 2] & 0xffffff : more[3 * i + 2]) / 8;
        switch (kind) {
        case 1: case 14: case 17: at = more + 1; break;
        case 3: at = more + 3; break;
        case 4: case 5: at = more + 3 * n; break;
        case 6: at = more + 2 * n; break;
        case 13: at = more + 2 * n; break;
        case 15: case 19: at = more + 3 * n; break;
        default: at = more;
        }
    }
    die("BTF has no such member");
    return 0;
}

static void send_processes(void)
{
    char *tasks = calloc(1, 1 << 20), path[300], comm[64];
    size_t n = 0;
    struct dirent *entry, *thread;
    DIR *proc = opendir("/proc");
    while (proc && (entry = readdir(proc))) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s/task", entry->d_name);
        DIR *threads = opendir(path);
        while (threads && (thread = readdir(threads))) {
            if (thread->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "/proc/%.20s/task/%.20s/comm", entry->d_name, thread->d_name);
            int file = open(path, O_RDONLY);
            ssize_t got = file < 0 ? 0 : read(file, comm, sizeof comm - 1);
            if (file >= 0)
                close(file);
            comm[got > 0 ? got : 0] = 0;
            comm[strcspn(comm, "\n")] = 0;
            n += snprintf(tasks + n, (1 << 20) - n, "%s %s %s\n", entry->d_name, thread->d_name, comm);
        }
        if (threads)
            closedir(threads);
        size_t len = 0;
        snprintf(path, sizeof path, "/proc/%.20s/maps", entry->d_name);
        char *maps = whole(path, &len);
        if (maps && len) {
            snprintf(path, sizeof path, "maps.%.20s", entry->d_name);
            send_file(path, maps, len);
        }
        free(maps);
    }
    send_file("tasks", tasks, n);
}

static volatile unsigned alarms;

static void alarmed(int signal)
{
    alarms += signal;
}

// Sends, and reads up to what ends the answer.
static void request(int to, const char *text, size_t len, const char *end)
{
    static char answer[1 << 17];
    size_t got = 0, tail = strlen(end);
    if (write(to, text, len) != (ssize_t)len)
        die("a request was not sent whole");
    for (ssize_t n; got < tail || memcmp(answer + got - tail, end, tail); got += n)
        if ((n = read(to, answer + got, sizeof answer - got)) <= 0)
            die("memcached does not answer");
}

static void ask(int to, const char *text)
{
    request(to, text, strlen(text), "\r\n");
}

#include "faults.h"

// Its symbols, and where a task says who it is.
static void tell_kernel(void)
{
    size_t len;
    char *kallsyms = whole("/proc/kallsyms", &len);
    char *found = kallsyms ? strstr(kallsyms, " T __switch_to\n") : NULL;
    if (!found)
        die("no symbol __switch_to");
    uint64_t switch_to = strtoull(found - 16, NULL, 16);
    send_file("kallsyms", kallsyms, len);
    char *btf = whole("/sys/kernel/btf/vmlinux", &len);
    if (!btf)
        die("no BTF");
    call(TASKS, switch_to, member(btf, "pid") | (uint64_t)member(btf, "tgid") << 32, member(btf, "on_rq"));
    struct utsname about;
    uname(&about);
    send_file("release", about.release, strlen(about.release));
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    size_t len;
    if (count == 4 && !strcmp(arguments[1], "send")) {
        char *file = whole(arguments[2], &len);
        if (!file)
            die("the file to send is not there");
        send_file(arguments[3], file, len);
        return 0;
    }
    int requests = count > 1 ? atoi(arguments[1]) : 10;
    const char *fault = count > 2 ? arguments[2] : NULL;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(11211), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int to = -1, one = 1;
    for (int i = 0; i < 100; i++) {
        to = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(to, (void *)&address, sizeof address))
            break;
        close(to);
        to = -1;
        usleep(100000);
    }
    if (to < 0)
        die("memcached is not there");
    setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ask(to, "set key 0 0 5\r\nvalue\r\n");
    prepare_fault(to, fault);
    for (int i = 0; i < 20; i++)
        ask(to, "get key\r\n");
    for (int i = 0; fault && i < 20; i++)
        one_request(to, i, fault);
    // The recorder's programs are among the kernel's symbols once it records.
    while (fault && access("/tmp/run/run.json", F_OK))
        usleep(100000);
    usleep(300000);
    tell_kernel();
    call(PREPARE, 0, 0, 0);
    usleep(10000);
    printf("agent: the marks\n");
    // A timer's interrupt now and then, and the signal that follows.
    struct itimerval often = { .it_interval.tv_usec = 300, .it_value.tv_usec = 300 };
    struct sigaction action = { .sa_handler = alarmed, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    if (!fault)
        setitimer(ITIMER_REAL, &often, NULL);
    call(BEGIN, gettid(), getpid(), __builtin_ia32_rdtsc());
    for (int i = 0; i < requests; i++) {
        // Memory that is not there yet: a page fault now and then.
        if (!fault && i % 16 == 3)
            fresh[i / 16 % PAGES * 4096] = 1;
        if (fault)
            one_request(to, i, fault);
        else
            ask(to, "get key\r\n");
    }
    call(END, 0, 0, 0);
    signal(SIGALRM, SIG_IGN);
    send_processes();
    printf("agent: done\n");
    return 0;
}
