#!/bin/sh
# Runs cargo with the given arguments, in the repository, as the user who builds (see find_builder in lib.sh).
set -eu
. "$(dirname -- "$0")/lib.sh"
require_cargo
cd "$REPO"
as_builder cargo "$@"
settle_build
