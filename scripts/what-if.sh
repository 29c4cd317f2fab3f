#!/bin/sh
# Whether the what-if of a diagnosis is right: builds tailsight and the lab, then `lab what-if all`, which prints the tables of
# docs/results/what-if.md. Needs root; a machine that does nothing else, or most rounds are measured again for nothing.
#
#   scripts/what-if.sh [OPTION…]   --write puts the tables into docs/results/what-if.md; other options are those of `lab what-if`:
#                                  --repeat 3, --at-most 10min, --keep DIR …; `--only "cpu-hog fsync"` runs just these.
#
# Exit: 0 done, 1 failed, 130 interrupted.
set -eu
. "$(dirname -- "$0")/lib.sh"
page=docs/results/what-if.md
. "$(dirname -- "$0")/lab-options.sh"

if ! is_root; then
    die "scenarios record and make network namespaces, which needs root: run this with sudo"
fi
"$REPO/scripts/setup.sh" bench
require_cargo
cd "$REPO"
phase "build of tailsight and the lab" as_builder cargo build --locked -p tailsight -p tailsight-lab --bin tailsight --bin lab
target=${CARGO_TARGET_DIR:-target}
# Ctrl-C is for lab, which undoes what it made; this shell waits for it.
trap : INT TERM
code=0
# Words on purpose: names of scenarios, and options with their values.
# shellcheck disable=SC2086
"$target/debug/lab" what-if $scenarios $write "$@" || code=$?
give_back "$page"
exit "$code"
