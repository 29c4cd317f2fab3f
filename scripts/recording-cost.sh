#!/bin/bash
# What an event of a recording costs by two builds of tailsight, in turns: memcached with one thread on core 0, a load of 20,000
# requests/s on core 1, loopback. Root, two cores; nothing else should run.
#
#   scripts/recording-cost.sh OLD NEW [ROUNDS]       two programs; rounds: default 24
#
# In: the programs; NEW also makes the load. Out: on stdout the median ns an event of each (least, most) and their ratio with its
# interval at 95 % (bootstrap over the runs, 4,000 draws). A run with fewer than 100,000 events had no load: exit 1.
set -euo pipefail
. "$(dirname -- "$0")/lib.sh"
[ $# -ge 2 ] || { say "usage: scripts/recording-cost.sh OLD NEW [ROUNDS]"; exit 2; }
is_root || die "recording needs root"
old=$(realpath "$1") new=$(realpath "$2") rounds=${3:-24} port=31777
work=$(mktemp -d)
taskset -c 0 memcached -u root -l 127.0.0.1 -p "$port" -t 1 -U 0 &
server=$!
(
    while [ ! -e "$work/stop" ]; do
        timeout 12 "$new" load "memcached://127.0.0.1:$port" --rate 20k --cpus 1 --max-time 10s >/dev/null 2>&1 || true
    done
) &
load=$!
trap 'touch "$work/stop"; kill "$server"; wait "$load" || true; rm -rf "$work"' EXIT
sleep 2
for ((round = 0; round < rounds; round++)); do
    order="old new"
    [ $((round % 2)) = 0 ] || order="new old"
    for which in $order; do
        rm -rf "$work/run"
        "${!which}" record -p "$server" -d 600ms -o "$work/run" >/dev/null 2>&1
        jq -r --arg which "$which" '[$which, .overhead.ns_per_event, ([.cpus[].events] | add)] | @tsv' "$work/run/run.json"
    done
done >"$work/costs"
python3 - "$work/costs" <<'PYTHON'
import random, statistics, sys
costs = {"old": [], "new": []}
for line in open(sys.argv[1]):
    which, ns, events = line.split()
    if int(events) < 100_000:
        sys.exit(f"a recording has {events} events: there was no load")
    costs[which].append(float(ns))
median = statistics.median
draws = sorted(median(random.choices(costs["new"], k=len(costs["new"]))) / median(random.choices(costs["old"], k=len(costs["old"])))
               for _ in range(4000))
for which, all in costs.items():
    print(f"{which}: {median(all):.1f} ns an event ({min(all):.1f} to {max(all):.1f}), {len(all)} runs")
print(f"new / old: {median(costs['new']) / median(costs['old']):.2f} [{draws[100]:.2f}..{draws[3899]:.2f}]")
PYTHON
