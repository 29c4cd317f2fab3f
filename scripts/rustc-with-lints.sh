#!/bin/sh
# The compiler of the tests: clippy's driver, which is rustc with clippy's lints. Cargo calls it in place of rustc for the crates of
# this workspace (RUSTC_WORKSPACE_WRAPPER, set by `lint_while_building` in lib.sh), so that lints and tests share one build.
#
# In: rustc's path and arguments, as cargo gives them; LINT_LEVEL (default: -Dwarnings). Out: as rustc.
exec clippy-driver "$@" "${LINT_LEVEL:--Dwarnings}"
