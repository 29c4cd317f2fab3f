"""A server whose requests are handled by a ThreadPoolExecutor, one thread a connection. In: PORT LOG MODE. What is wrong: one request in 400
computes for 60 ms in Python, and the threads of all others must get the interpreter's lock from it, up to 5 ms each time. In LOG: when such
a request computed, CLOCK_MONOTONIC ns."""

import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

port, log = int(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
requests = 0


def make_report():
    begin = time.monotonic_ns()
    n = 0
    while time.monotonic_ns() < begin + 60_000_000:
        n += 1
    os.write(log, f"{begin} {time.monotonic_ns()}\n".encode())


def serve(connection):
    global requests
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        kept = b""
        while True:
            while b"\r\n\r\n" not in kept:
                more = connection.recv(4096)
                if not more:
                    return
                kept += more
            kept = kept.split(b"\r\n\r\n", 1)[1]
            requests += 1
            if requests % 400 == 7:
                make_report()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")


listener = socket.create_server(("0.0.0.0", port), backlog=64)
print("ready", flush=True)
with ThreadPoolExecutor(64) as pool:
    while True:
        pool.submit(serve, listener.accept()[0])
