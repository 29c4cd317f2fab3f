#!/bin/bash
# The tests that did not run on this machine, or whose answer was not judged because other programs had its time. Sourced by test.sh, and
# by the test of the list.
# In: the log of a test run with --show-output. Out: a line a test, `SKIPPED <test>: <reason>` or `NOT JUDGED <test>: <reason>`.
skipped_tests() {
    # A test that asks twice says it twice. Order of the log.
    grep -E '^(SKIPPED|NOT JUDGED) ' "$1" | awk '!seen[$0]++' || true
}
