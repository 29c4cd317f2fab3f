"""A second client of Redis. In: PORT LOG MODE. What is wrong, by MODE: `keys`, 20 times a second it asks for all keys that match a pattern,
which looks at every one of 60,000 and more. `bgsave`, it fills the database and then has Redis save it in the background every 400 ms, which forks; `pipeline`, it sends
50 commands at once 60 times a second, each of which sorts 300 numbers. In LOG: from each such request to the end of its reply, CLOCK_MONOTONIC ns."""

import os
import socket
import sys
import time

port, log, mode = int(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), sys.argv[3]
connection = socket.create_connection(("10.77.0.1", port))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
replies = connection.makefile("rb")


def command(*words):
    parts = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in map(str.encode, words))
    return b"*%d\r\n%s" % (len(words), parts)


def take():
    line = replies.readline()
    if line[:1] == b"$" and line != b"$-1\r\n":
        replies.read(int(line[1:]) + 2)
    elif line[:1] == b"*":
        for _ in range(int(line[1:])):
            take()
    return line


def ask(bytes_, n=1):
    begin = time.monotonic_ns()
    connection.sendall(bytes_)
    lines = [take() for _ in range(n)]
    os.write(log, f"{begin} {time.monotonic_ns()}\n".encode())
    return lines


FILL = {
    "keys": command("DEBUG", "POPULATE", "60000", "filler", "100"),
    "bgsave": command("DEBUG", "POPULATE", "1200000", "filler", "100"),
    "pipeline": command("RPUSH", "numbers", *(str(i * 7919 % 6007) for i in range(300))),
}
connection.sendall(FILL[mode])
assert take()[:1] != b"-"
print("ready", flush=True)
WHAT = {
    "keys": (command("KEYS", "absent:*"), 1, 0.05),
    "bgsave": (command("BGSAVE"), 1, 0.4),
    "pipeline": (command("SORT", "numbers", "LIMIT", "0", "1") * 50, 50, 1 / 60),
}
bytes_, n, gap = WHAT[mode]
due = time.monotonic()
while True:
    due += gap
    time.sleep(max(0, due - time.monotonic()))
    # A save that has not ended refuses the next one: its answer is an error, and comes at once.
    ask(bytes_, n)
