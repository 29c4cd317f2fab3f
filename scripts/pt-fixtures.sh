#!/bin/sh
# Makes the Intel PT recordings of the tests of tailsight-pt again: the lab's stepped program, encoded, and what perf prints of them.
# Their control flow is real, their time is assigned and not measured. Needs perf and a C compiler; no hardware with Intel PT.
#
#   scripts/pt-fixtures.sh
set -eu
. "$(dirname -- "$0")/lib.sh"
cd "$REPO"
fixtures=crates/tailsight-pt/tests/fixtures
cargo build -q -p tailsight-lab --bin lab
mkdir -p "$fixtures"
make_one() { # make_one NAME OPTION…
    name=$1
    shift
    work=$(mktemp -d)
    rm -rf "${fixtures:?}/$name"
    target/debug/lab pt "$work" "$@"
    mkdir "$fixtures/$name"
    cp "$work/perf.data" "$work/log.txt" "$fixtures/$name/"
    cp "$work/two-threads" "$fixtures/two-threads"
    perf script -i "$work/perf.data" --symfs "$work" --itrace=cr -F tid,flags,ip,addr \
        | awk '$2 == "call" || $2 == "return" { print $1, $2, $3, $5 }' >"$fixtures/$name/perf-script.txt"
    rm -r "$work"
}
make_one tsc
make_one cycles --cycles
make_one compressed --cycles --compress-returns
make_one overflow --overflow-in 11
