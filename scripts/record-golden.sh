#!/bin/sh
# Records the golden runs of crates/tailsight-lifetime/tests/golden again: tiny real runs of memcached (TCP and UDP),
# redis-server (IPv6) and nginx (two workers), in network namespaces of their own. Then writes what the tests expect of
# them. Needs root and the servers; look at the differences before you commit them.
#
# In: nothing (CARGO_TARGET_DIR is respected). Out: the runs, and expected.json beside each.
set -eu
. "$(dirname -- "$0")/lib.sh"
require_cargo
cd "$REPO"
is_root || die "recording needs root: sudo scripts/record-golden.sh"
golden=crates/tailsight-lifetime/tests/golden
cargo build --locked -p tailsight
cargo run --locked -p tailsight-lifetime --example golden -- "${CARGO_TARGET_DIR:-target}/debug/tailsight" "$golden"
UPDATE_GOLDEN=1 cargo test --locked -p tailsight-lifetime --test all golden
du -sh "$golden"/*
