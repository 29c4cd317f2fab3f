#!/bin/sh
# Packs every crate that is to be published as a registry would get it, and builds each from its package. Nothing is sent.
#
# In: a checkout without uncommitted changes. Out: target/package/*.crate; exit 1 if a crate lacks a file, a version or a field that a
# registry asks for. Crates of the workspace that are in no registry yet are taken from the packages made here, which needs cargo 1.90.
# Further arguments go to cargo; `--no-verify` leaves out the builds.
set -eu
. "$(dirname -- "$0")/lib.sh"
require_cargo
version_ge "$CARGO_VERSION" 1.90 || die "cargo $CARGO_VERSION cannot pack crates that need each other: cargo 1.90 or newer can"
cd "$REPO"
# The lab, the benchmarks and the helpers of tests are marked publish = false, and cargo leaves them out.
as_builder cargo publish --dry-run --locked --workspace "$@"
