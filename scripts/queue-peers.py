#!/usr/bin/env python3
"""Serves the series that `cargo run --release -p tailsight-ideal --example simulator_speed -- FOLDER` wrote with simpy, a simulator from
PyPI, with as many FIFO workers as each is for: mean and p99 of the latency, ns, and requests a second.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install simpy && /tmp/peers/bin/python scripts/queue-peers.py FOLDER
"""

import math
import sys
import time

import simpy


def serve(series, workers):
    env = simpy.Environment()
    server = simpy.Resource(env, capacity=workers)
    latencies = [0] * len(series)

    def request(place, arrival, service):
        with server.request() as turn:
            yield turn
            yield env.timeout(service)
            latencies[place] = env.now - arrival

    def arrive():
        for place, (arrival, service) in enumerate(series):
            yield env.timeout(arrival - env.now)
            env.process(request(place, arrival, service))

    env.process(arrive())
    env.run()
    return latencies


def main():
    for workers in (1, 8):
        with open(f"{sys.argv[1]}/{workers}.txt", encoding="ascii") as lines:
            series = [tuple(map(int, line.split())) for line in lines]
        start = time.perf_counter()
        latencies = sorted(serve(series, workers))
        rate = len(series) / (time.perf_counter() - start)
        mean = sum(latencies) / len(latencies)
        p99 = latencies[math.ceil(0.99 * len(latencies)) - 1]
        print(f"simpy {simpy.__version__}, {workers} workers: mean {mean:.0f} ns, p99 {p99} ns, {rate:,.0f} requests/s")


main()
