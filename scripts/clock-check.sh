#!/bin/sh
# NSight's benchmark of time reconciliation (NSDI'22 section 6.1): 10 million conversions of the time-stamp counter interleaved with clock
# reads, through at least 4,000 changes of the clock; as root again while the clock's frequency is changed by 100 ppm up and down. The
# frequency is put back, also after Ctrl-C; the clock is never set.
#
#   scripts/clock-check.sh
set -eu
. "$(dirname -- "$0")/lib.sh"
cd "$REPO"
scripts/cargo.sh build --locked --release -p tailsight-lab --bin lab
lab=${CARGO_TARGET_DIR:-target}/release/lab
say "clock-check: as it is"
"$lab" clock-check
if is_root; then
    say "clock-check: while its frequency is changed"
    "$lab" clock-check --slew 100
else
    say "clock-check: not root: not repeated with another frequency"
fi
