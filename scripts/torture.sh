#!/bin/bash
# What strangers send, name and leave behind, again and again, with counts: recordings killed at random moments, small disks,
# damaged runs, hostile names, hostile servers, hostile targets, agents under attack, two servers on one port. At most ten minutes.
#
# In: nothing; SECONDS_A_PART (default 60) says how long each of kills, disks and damage goes on. Out: the tests' lines with
# counts. Root, for recordings, namespaces of its own and disks of its own; everything else is loopback. Everything it makes goes
# with it.
set -euo pipefail
. "$(dirname -- "$0")/lib.sh"
require_cargo
is_root || die "make torture records, and makes namespaces and disks of its own: sudo make torture"
cd "$REPO"
# As `make test` builds them.
lint_while_building
phase "build of the tests" as_builder cargo test --locked -p tailsight -p tailsight-trace -p tailsight-agent --no-run
export TAILSIGHT_TORTURE="${SECONDS_A_PART:-60}"
# shellcheck disable=SC2317 # Called through phase.
run_part() {
    cargo test --locked "$@" -- --show-output --test-threads 1
}
phase "kills, disks, damage, privileges" run_part -p tailsight --test all torture
phase "names and closed outputs" run_part -p tailsight --test all outputs
phase "two servers on one port" run_part -p tailsight --test all neighbours
phase "hostile servers" run_part -p tailsight --test all hostile_live
phase "hostile targets" run_part -p tailsight --test all hostile_target_live
phase "damaged runs, byte by byte" run_part -p tailsight-trace --test all
phase "agents under attack" run_part -p tailsight-agent --test all
