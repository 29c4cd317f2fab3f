#!/bin/sh
# The benchmarks: builds the release binaries, then `bench`, which measures Tailsight beside its peers and prints
# the tables of docs/results/benchmarks.md. Needs root, and a machine that does nothing else.
#
#   scripts/bench.sh [DIR] [OPTION…]   raw results go to DIR (default: bench-out in the current folder); options are
#                                      those of `bench`: --quick, --write, --gate, --only roundtrip …
#                                      `--only client` measures the load generator (docs/results/client.md)
# Without options it ends with the report's page (scripts/page-bench.sh).
#
# Exit: 0 measured, 1 failed, 130 interrupted; with --gate 4 a goal missed, 3 one that cannot be judged.
set -eu
. "$(dirname -- "$0")/lib.sh"
out=bench-out
# Options ask for a part of it.
page=yes
case ${1:--} in
-*) ;;
*)
    out=$1
    shift
    ;;
esac

[ $# -eq 0 ] || page=no

if ! is_root; then
    die "the benchmarks load BPF programs and make network namespaces, which needs root: sudo make bench"
fi
"$REPO/scripts/setup.sh" bench
require_cargo
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$REPO"
phase "build of the release binaries" as_builder cargo build --locked --release -p tailsight -p tailsight-lab --bin tailsight --bin bench
target=${CARGO_TARGET_DIR:-target}
# Ctrl-C is for `bench`, which cleans up; this shell waits for it.
trap : INT TERM
code=0
"$target/release/bench" --tailsight "$target/release/tailsight" --out "$out" "$@" || code=$?
[ "$code" -ne 0 ] || [ "$page" = no ] || scripts/page-bench.sh "$out" || code=$?
give_back "$out" docs/results/benchmarks.md docs/results/client.md docs/results/intel-pt.md
exit "$code"
