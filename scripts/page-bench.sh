#!/bin/sh
# What the report's page costs: makes the page of a made-up run of a million messages and opens it in Chromium.
#
#   scripts/page-bench.sh [DIR [RUN]]   the page goes to DIR (default: bench-out in the current folder); RUN is what `tailsight
#                                       view` serves (default: a golden run of 240 requests)
#
# Out: how long the page took to make, the lines of web/bench.mjs (evidence/2026-11-23-report-page.md says what they are), and how
# fast `view` answers. Needs node, chromium and `npm ci` in web/; without these it says so and is done. MESSAGES=N makes a smaller page,
# to try the script.
set -eu
. "$(dirname -- "$0")/lib.sh"
require_cargo
out=${1:-bench-out} run=${2:-crates/tailsight-lifetime/tests/golden/memcached-requests} messages=${MESSAGES:-1000000}
for program in node chromium; do
    have "$program" || { say "the page is not measured: $program is not installed"; exit 0; }
done
[ -d "$REPO/web/node_modules/playwright-core" ] ||
    { say "the page is not measured: \`npm ci\` in web/ installs what drives the browser"; exit 0; }
mkdir -p "$out"
out=$(CDPATH='' cd -- "$out" && pwd)
[ $# -lt 2 ] || run=$(CDPATH='' cd -- "$run" && pwd)
cd "$REPO"
phase "build of the page's example" as_builder cargo build --locked --release -p tailsight-report --example page
phase "build of tailsight" as_builder cargo build --locked --release -p tailsight
target=$(CDPATH='' cd -- "${CARGO_TARGET_DIR:-target}" && pwd)
"$target/release/examples/page" "$out/million.html" "$messages" 1000 | tail -n 1
(cd web && node bench.mjs "$out/million.html")
case $run in /*) ;; *) run=$REPO/$run ;; esac
(cd web && node view-bench.mjs "$target/release/tailsight" "$run")
