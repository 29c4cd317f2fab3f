#!/bin/sh
# Builds the book of docs/ with mdBook, which cargo brings, and checks that every link of its pages leads to a page and a heading of it.
#
# The work is a test, crates/tailsight-testing/tests/book.rs, which `make test` runs too. In: docs/, and the pages of the repository that
# it links. Out: book/html/index.html in target/ (CARGO_TARGET_DIR is respected); exit 1 if it cannot be built, or a link is broken.
set -eu
. "$(dirname -- "$0")/lib.sh"
require_cargo
cd "$REPO"
as_builder cargo test --quiet --locked --workspace --test book -- --nocapture --exact \
    the_book_is_built_and_its_links_lead_somewhere || die "the book is not complete (see above)"
