"""A server on asyncio. In: PORT LOG MODE; in LOG what took long, CLOCK_MONOTONIC ns. What is wrong, by MODE: `overload`, every request
computes for 300 us, awaits something for 1 ms and computes for 300 us again, at a rate that keeps the core busy: requests wait for the loop's
other tasks; in LOG when a request took three times as long. `block`, one request in 50 calls a library that blocks the loop for 6 ms; in LOG
these calls. `clean`, nothing. With uvicorn, if it is installed, `block` is served by it; else all are served by asyncio's streams."""

import asyncio
import os
import sys
import time

port, log, mode = int(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), sys.argv[3]
requests = 0


def write(begin, end):
    os.write(log, f"{begin} {end}\n".encode())


def compute(rounds):
    n = 0
    for i in range(rounds):
        n += i
    return n


def rounds_of(ns):
    """How many rounds take so long, undisturbed."""
    best = 1 << 60
    for _ in range(50):
        begin = time.perf_counter_ns()
        compute(2000)
        best = min(best, time.perf_counter_ns() - begin)
    return max(1, ns * 2000 // best)


ROUNDS = rounds_of(300_000)


def call_blocking_library():
    begin = time.monotonic_ns()
    time.sleep(0.006)
    write(begin, time.monotonic_ns())


async def handle():
    global requests
    requests += 1
    if mode == "overload":
        begin = time.monotonic_ns()
        compute(ROUNDS)
        await asyncio.sleep(0.001)
        compute(ROUNDS)
        end = time.monotonic_ns()
        if end - begin > 4_800_000:
            write(begin, end)
    elif mode == "block" and requests % 50 == 7:
        call_blocking_library()
    return b"ok\n"


async def serve(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            body = await handle()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def streams():
    server = await asyncio.start_server(serve, "0.0.0.0", port)
    print("ready", flush=True)
    await server.serve_forever()


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            event = (await receive())["type"]
            if event == "lifespan.startup":
                print("ready", flush=True)
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return
    body = await handle()
    head = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


try:
    import uvicorn
except ImportError:
    uvicorn = None
if uvicorn and mode == "block":
    uvicorn.run(application, host="0.0.0.0", port=port, log_level="error", timeout_keep_alive=60)
else:
    asyncio.run(streams())
