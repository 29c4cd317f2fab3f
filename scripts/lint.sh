#!/bin/sh
# rustfmt and clippy over the whole workspace; any difference or warning fails.
# A clippy newer than the one that CI uses may know lints that this tree was never read with: its warnings are shown
# and do not fail, so that `make test` still passes on a machine with next year's Rust.
set -eu
. "$(dirname -- "$0")/lib.sh"
require_cargo
cd "$REPO"
phase rustfmt as_builder cargo fmt --all --check || die "\`cargo fmt --all\` puts the formatting right"
# The modules of probes are listed by a build script, which cargo fmt does not follow.
phase "rustfmt of the probes" as_builder rustfmt --edition 2024 --check crates/tailsight-record/src/probes/*/mod.rs ||
    die "\`rustfmt --edition 2024 crates/tailsight-record/src/probes/*/mod.rs\` puts the formatting right"
set -- --locked --workspace --all-targets --
if version_ge "$RUST_TESTED" "$CARGO_VERSION"; then
    set -- "$@" -D warnings
else
    say "lint: clippy $CARGO_VERSION is newer than $RUST_TESTED: its warnings do not fail"
fi
phase clippy as_builder cargo clippy "$@"
