#!/bin/bash
# Lints, builds and runs every test of the workspace; lints and tests share one build. As root the live tests record real
# servers in namespaces of their own; without root they are skipped, each by name.
#
# In: nothing (CARGO_TARGET_DIR is respected). Out: cargo's output, then the tests that did not run here and why.
# A test that cannot run prints `SKIPPED <test>: <reason>` on its standard output and returns; a live one whose recording other programs
# of this machine disturbed, three times, or that would begin too late, `NOT JUDGED <test>: <reason>`.
set -euo pipefail
. "$(dirname -- "$0")/lib.sh"
. "$(dirname -- "$0")/skips.sh"
require_cargo
cd "$REPO"

lint_while_building
phase "build of the tests, with lints" as_builder cargo test --locked --workspace --no-run
settle_build

log=$(mktemp)
trap 'rm -f "$log"; give_back "${CARGO_TARGET_DIR:-target}"' EXIT
# Live tests wait most of their time, for a recording, a load's end, or the cores that another one has to itself: twice as many threads as
# cores shorten the whole by a quarter.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$((2 * $(nproc)))}"
# Live tests take ten minutes on an idle machine. What has not begun after forty is not judged, and listed: a run that is given up tells nothing.
export TAILSIGHT_LIVE_UNTIL="${TAILSIGHT_LIVE_UNTIL:-$(($(date +%s) + 2400))}"
# shellcheck disable=SC2317 # Called through phase.
run_tests() {
    # --show-output: a test that passed shows what it printed, so that a skip is seen. Only standard output goes
    # through the pipe; cargo's own messages stay on the terminal.
    if [ -n "$BUILDER_UID" ]; then
        # Root runs what the user built: same CARGO_HOME, or cargo would build all of it again.
        CARGO_HOME="$BUILDER_HOME/.cargo" RUSTUP_HOME="$BUILDER_HOME/.rustup" \
            cargo test --frozen --workspace --no-fail-fast -- --show-output
    else
        cargo test --locked --workspace --no-fail-fast -- --show-output
    fi | tee "$log"
}
code=0
phase tests run_tests || code=$?
if [ -n "$BUILDER_UID" ]; then give_back "$BUILDER_HOME/.cargo" "$BUILDER_HOME/.rustup"; fi

skipped=$(skipped_tests "$log")
if [ -n "$skipped" ]; then
    say "$(grep -c . <<<"$skipped") tests did not run on this machine or were not judged on it, or a part of them:"
    sed 's/^/  /' <<<"$skipped" >&2
fi
is_root || say "not root: nothing was recorded live; \`sudo make test\` does that too"
exit "$code"
