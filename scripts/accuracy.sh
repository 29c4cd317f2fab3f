#!/bin/sh
# How often the diagnosis is right: builds tailsight and the lab, then `lab run all --repeat 5`, which prints a row a
# scenario and the sums. Needs root; a machine that does little else gives more runs that count.
#
#   scripts/accuracy.sh [DIR] [OPTION…]   accuracy.json and accuracy.md go to DIR (default: accuracy-out in the current
#                                         folder); --write puts the sums into docs/results/accuracy.md; other options are those of
#                                         `lab run`: --repeat 1, --keep …; `--only "cpu-hog fsync"` runs just these.
#
# Exit: 0 every cause right, 1 a run failed, 4 a cause was wrong, 130 interrupted.
set -eu
. "$(dirname -- "$0")/lib.sh"
out=accuracy-out
case ${1:--} in
-*) ;;
*)
    out=$1
    shift
    ;;
esac
page=docs/results/accuracy.md
. "$(dirname -- "$0")/lab-options.sh"
repeat="--repeat 5"
[ "$repeat_given" = no ] || repeat=

if ! is_root; then
    die "scenarios record and make network namespaces, which needs root: sudo make accuracy"
fi
"$REPO/scripts/setup.sh" bench
require_cargo
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$REPO"
phase "build of tailsight and the lab" as_builder cargo build --locked -p tailsight -p tailsight-lab --bin tailsight --bin lab --example tokio_server --example tokio_http
target=${CARGO_TARGET_DIR:-target}
# Ctrl-C is for lab, which undoes what it made; this shell waits for it.
trap : INT TERM
code=0
# Words on purpose: names of scenarios, and options with their values.
# shellcheck disable=SC2086
"$target/debug/lab" run $scenarios $repeat --out "$out" $write "$@" || code=$?
give_back "$out" "$page"
exit "$code"
