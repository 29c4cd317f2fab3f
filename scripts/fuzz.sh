#!/bin/bash
# Builds the fuzz targets with libFuzzer and runs each for a while: what reads outside data must never panic, hang, or take memory
# without bound.
#
#   scripts/fuzz.sh MINUTES [TARGET...]
#
# In: how long each target runs; the targets, all without a name. Out: on stdout a line a target, with the inputs tried, the seconds,
# the edges covered, and the findings; found inputs under fuzz/artifacts/, interesting ones under fuzz/corpus/, where the next run
# goes on from. Exits 1 when there is a finding. Needs the Rust and the compiler that a build needs, no nightly toolchain: the
# instrumentation is the compiler's own pass. JOBS targets run at a time (default 1).
set -euo pipefail
. "$(dirname -- "$0")/lib.sh"
require_cargo
minutes=${1:-}
case $minutes in '' | *[!0-9]*)
    say "usage: scripts/fuzz.sh MINUTES [TARGET...]"
    exit 2
    ;;
esac
shift
cd "$REPO/fuzz"
mapfile -t known < <(basename -s .rs -a fuzz_targets/*.rs)
[ $# -gt 0 ] || set -- "${known[@]}"
for target; do
    [ -e "fuzz_targets/$target.rs" ] || die "no fuzz target '$target'; there are: ${known[*]}"
done

# The flags of cargo-fuzz without a sanitizer: the code under test has no unsafe block that reads the input.
flags='--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
flags+=' -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table'
flags+=' -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks'
build=target/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS=$flags as_builder cargo build --release --locked --target "$host" --target-dir "$build" "${@/#/--bin=}" >&2
as_builder cargo run --release --locked --target-dir target/plain --bin seeds -- corpus/run_reader \
    ../crates/tailsight-lifetime/tests/golden/* >&2
# A program with debug information that is not compressed, and one without any.
mkdir -p corpus/reader_files
printf 'static int twice(int x) { return x + x; }\nint main(int n, char **v) { return twice(n); }\n' |
    cc -g -gz=none -O1 -x c -o corpus/reader_files/with-debug - && strip -o corpus/reader_files/without-symbols corpus/reader_files/with-debug
mkdir -p corpus/run_json corpus/pt_container corpus/pt_packets corpus/pt_sideband corpus/clock_log
for recording in ../crates/tailsight-pt/tests/fixtures/*/perf.data; do
    cp "$recording" "corpus/pt_container/$(basename "$(dirname "$recording")")"
done
as_builder cargo run --release --locked --target-dir target/plain --bin pt_seeds -- corpus >&2
for run in ../crates/tailsight-lifetime/tests/golden/*; do
    cp "$run/run.json" "corpus/run_json/$(basename "$run").json"
done

run_target() {
    local target=$1 log=target/fuzz-$1.log status=0
    mkdir -p "corpus/$target" "artifacts/$target"
    "$build/$host/release/$target" "corpus/$target" -artifact_prefix="artifacts/$target/" -max_total_time=$((minutes * 60)) \
        -max_len=32768 -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 >"$log" 2>&1 || status=$?
    awk -v target="$target" -v status="$status" '
        /^#[0-9]+/ { for (i = 1; i < NF; i++) if ($i == "cov:") edges = $(i + 1) }
        /^stat::number_of_executed_units/ { inputs = $2 }
        /^Done .* runs in/ { seconds = $(NF - 1) }
        END {
            printf "%-18s %12d inputs %6d s %6d edges  %s\n", target, inputs, seconds, edges,
                status ? "FINDING, see fuzz/target/fuzz-" target ".log" : "no finding"
        }' "$log"
    return "$status"
}
found=0 running=0
for target; do
    if [ "$running" -ge "${JOBS:-1}" ]; then
        wait -n || found=1
        running=$((running - 1))
    fi
    run_target "$target" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || found=1
    running=$((running - 1))
done
exit "$found"
