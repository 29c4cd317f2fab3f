#!/bin/sh
# rustfmt and clippy over the whole workspace, and Biome over the page's source where it is installed; any difference or warning fails.
#
#   scripts/lint.sh [format]      format: rustfmt only. `make test` lints while it builds the tests (scripts/test.sh), and one of
#                                 these tests (page_source) runs Biome or is listed as skipped.
set -eu
. "$(dirname -- "$0")/lib.sh"
require_cargo
cd "$REPO"
phase rustfmt as_builder cargo fmt --all --check || die "\`cargo fmt --all\` puts the formatting right"
# The modules of probes are listed by a build script, which cargo fmt does not follow.
phase "rustfmt of the probes" as_builder rustfmt --edition 2024 --check crates/tailsight-record/src/probes/*/mod.rs ||
    die "\`rustfmt --edition 2024 crates/tailsight-record/src/probes/*/mod.rs\` puts the formatting right"
[ "${1:-}" = format ] && exit
lint_level
phase clippy as_builder cargo clippy --locked --workspace --all-targets -- "$LINT_LEVEL"
if [ -x web/node_modules/.bin/biome ]; then
    (cd web && phase "formatting and lints of the page's source" as_builder node_modules/.bin/biome check --error-on-warnings .) ||
        die "\`npm run format\` in web/ puts the formatting right"
else
    say "the page's source is not linted: \`npm ci\` in web/ installs what does it"
fi
