#!/bin/sh
# The benchmarks: builds the release binaries, then `lab bench`, which measures Tailsight beside its peers and prints
# the tables of docs/benchmarks.md. Needs root, and a machine that does nothing else.
#
#   scripts/bench.sh [DIR]      raw results go to DIR (default: bench-out in the current folder)
set -eu
. "$(dirname -- "$0")/lib.sh"
out=${1:-bench-out}

if ! is_root; then
    die "the benchmarks load BPF programs and make network namespaces, which needs root: sudo make bench"
fi
"$REPO/scripts/setup.sh" bench
require_cargo
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$REPO"
phase "build of the release binaries" as_builder cargo build --locked --release -p tailsight -p tailsight-lab
trap : INT
code=0
"${CARGO_TARGET_DIR:-target}/release/lab" bench --tailsight "${CARGO_TARGET_DIR:-target}/release/tailsight" \
    --out "$out" || code=$?
give_back "$out"
exit "$code"
