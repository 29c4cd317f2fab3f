#!/bin/sh
# What the report's page costs: makes the page of a made-up run of a million messages and opens it in Chromium.
#
#   scripts/page-bench.sh [DIR]   the page goes to DIR (default: bench-out in the current folder)
#
# Out: the lines of web/bench.mjs (docs/results/2026-11-23-report-page.md says what they are). Needs node, chromium and `npm ci` in
# web/; without these it says so and is done.
set -eu
. "$(dirname -- "$0")/lib.sh"
require_cargo
out=${1:-bench-out}
for program in node chromium; do
    have "$program" || { say "the page is not measured: $program is not installed"; exit 0; }
done
[ -d "$REPO/web/node_modules/playwright-core" ] ||
    { say "the page is not measured: \`npm ci\` in web/ installs what drives the browser"; exit 0; }
mkdir -p "$out"
out=$(CDPATH='' cd -- "$out" && pwd)
cd "$REPO"
phase "build of the page's example" as_builder cargo build --locked --release -p tailsight-report --example page
"${CARGO_TARGET_DIR:-target}/release/examples/page" "$out/million.html" 1000000 1000 | tail -n 1
(cd web && node bench.mjs "$out/million.html")
