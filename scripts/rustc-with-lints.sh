#!/bin/sh
# The compiler of the tests: clippy's driver, which is rustc with clippy's lints. Cargo calls it in place of rustc for the crates of
# this workspace (RUSTC_WORKSPACE_WRAPPER, set by `lint_while_building` in lib.sh), so that lints and tests share one build.
#
# Test harnesses are compiled without optimisation (that of tailsight-diagnose's integration tests took 37 s of a processor, and takes 4);
# the libraries and programs that they test keep their level. Cargo's profiles cannot tell the two apart.
#
# In: rustc's path and arguments, as cargo gives them; LINT_LEVEL (default: -Dwarnings). Out: as rustc.
case " $* " in
    *" --test "*) set -- "$@" -C opt-level=0 -C codegen-units=16 ;;
esac
exec clippy-driver "$@" "${LINT_LEVEL:--Dwarnings}"
