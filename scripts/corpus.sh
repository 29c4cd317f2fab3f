#!/bin/bash
# Records the lab's scenarios that the corpus has not yet, cuts each to a short interval with the same answer and without the names of others,
# and puts it into crates/tailsight/tests/corpus, which `make test` diagnoses again. To record one anew, remove its folder first.
#
# In: a folder for the recordings, optional (default: a temporary one); recordings of anybody's that are there already, with their keys
# (docs/lab.md), are taken too. Out: the corpus and what is expected of it; look at the differences before you commit them. Root.
set -euo pipefail
. "$(dirname -- "$0")/lib.sh"
require_cargo
is_root || die "scenarios record and make network namespaces, which needs root: sudo make corpus"
cd "$REPO"
out=${1:-$(mktemp -d)}
corpus=crates/tailsight/tests/corpus
phase "build of tailsight and the lab" as_builder cargo build --locked -p tailsight -p tailsight-lab --bin tailsight --bin lab --example tokio_server --example tokio_http
lab=${CARGO_TARGET_DIR:-target}/debug/lab
"$lab" run all --keep --out "$out" || [ $? -eq 4 ]
# The shortest interval that does: functions need samples.
for length in 250ms 700ms 1900ms; do
    "$lab" trim "$out" --out "$corpus" --for "$length"
done
phase "what is expected" as_builder env UPDATE_CORPUS=1 cargo test --locked -p tailsight --test all corpus
give_back "$out" "$corpus"
