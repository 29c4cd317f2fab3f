"""A server in Python: 128 bytes in, the same 128 bytes out. In: PORT LOG MODE. MODE: `collect`, 3 % of requests collect garbage;
`thread`, another thread computes for 4 ms every 60 ms and keeps the interpreter's lock meanwhile. Out: `ready`; in LOG the begin and
end of each such stretch, CLOCK_MONOTONIC ns."""

import gc
import os
import selectors
import socket
import sys
import threading
import time

port, log, mode = int(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), sys.argv[3]
gc.disable()
# What the interpreter itself made is not collected: only `kept` is.
gc.freeze()
kept = [[i, [i]] for i in range(15_000)] if mode == "collect" else []


def stretch(work):
    begin = time.monotonic_ns()
    work()
    os.write(log, f"{begin} {time.monotonic_ns()}\n".encode())


def compute():
    end = time.monotonic_ns() + 4_000_000
    n = 0
    while time.monotonic_ns() < end:
        n += 1


def compute_at_times():
    while True:
        time.sleep(0.06)
        stretch(compute)


if mode == "thread":
    threading.Thread(target=compute_at_times, daemon=True).start()
listener = socket.create_server(("0.0.0.0", port), backlog=64)
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)
print("ready", flush=True)
requests = 0
while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            connection = listener.accept()[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ)
            continue
        connection = key.fileobj
        request = connection.recv(128)
        if not request:
            selector.unregister(connection)
            connection.close()
            continue
        requests += 1
        sum(range(500))
        if mode == "collect" and requests % 33 == 7:
            stretch(gc.collect)
        connection.sendall(request)
