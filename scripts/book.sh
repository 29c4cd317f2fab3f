#!/bin/bash
# Builds the book of docs/ with mdBook, and checks that every link of its pages leads to a page and a heading that are in it.
#
# In: docs/, and the pages of the repository that it links. Out: target/book/html/index.html; exit 1 if a link is broken.
# MDBOOK names another mdbook program than the one on the PATH.
set -euo pipefail
. "$(dirname -- "$0")/lib.sh"
find_builder
mdbook=${MDBOOK:-mdbook}
have "${mdbook%% *}" || [ -n "${MDBOOK:-}" ] ||
    die "mdbook is missing: Debian 13 has it (apt-get install mdbook); elsewhere: cargo install mdbook --version ^0.4 --locked"
cd "$REPO"
book=${CARGO_TARGET_DIR:-target}/book
rm -rf "$book"
mkdir -p "$book/src/project"
cp docs/book.toml "$book/"
cp -r docs/. "$book/src/"
rm "$book/src/book.toml"
# Pages from outside of docs/, with their links turned the other way.
pages='ARCHITECTURE CONTRIBUTING CHANGELOG'
for page in $pages; do
    sed -e 's#](docs/#](../#g' -e 's#\[\([^]]*\)\](LICENSE[^)]*)#\1#g' "$page.md" >"$book/src/project/$page.md"
done
find "$book/src" -name '*.md' | while read -r file; do
    up=$(dirname "${file#"$book"/src/}" | sed -e 's#^\.$##' -e 's#[^/][^/]*#..#g' -e 's#\(.\)$#\1/#')
    for page in $pages; do sed -i "s#](\(\.\./\)*$page\.md#](${up}project/$page.md#g" "$file"; done
    # mdBook calls a README index.html, and does not tell the links.
    sed -i -E 's#\]\(([^):]*/)?README\.md#](\1index.md#g' "$file"
    # What is no page of the book is text in it.
    sed -i -E 's#\[([^]]*)\]\((\.\./)+(packaging|scripts|crates|lab|bench)/[^)]*\)#\1#g' "$file"
done
# The pages of the two folders that grow, and those of the project.
entries() {
    for file in docs/"$1"/*.md; do
        [ "${file##*/}" = README.md ] || printf '  - [%s](%s)\n' "$(sed -n 's/^# //p;T;q' "$file")" "${file#docs/}"
    done
}
find "$book/src" -name README.md -execdir mv {} index.md \;
awk -v results="$(entries results)" -v journal="$(entries journal)" \
    '{ print } /\(results\/README.md\)/ { print results } /\(journal\/README.md\)/ { print journal }' \
    docs/SUMMARY.md | sed 's#README.md)#index.md)#' >"$book/src/SUMMARY.md"
printf '\n# Project\n\n- [Architecture](project/ARCHITECTURE.md)\n- [Contributing](project/CONTRIBUTING.md)\n- [Changes](project/CHANGELOG.md)\n' \
    >>"$book/src/SUMMARY.md"
# shellcheck disable=SC2086 # MDBOOK may be a command with arguments.
$mdbook build "$book" >&2

# Every relative link of every page, and the heading that it names.
broken=$(cd "$book/html" && find . -name '*.html' ! -name print.html ! -name toc.html | while read -r page; do
    grep -o 'href="[^"]*"\|src="[^"]*"' "$page" | sed 's/^[a-z]*="//; s/"$//; s/?.*//' | sort -u |
        while read -r link; do
            # Scripts and styles are mdBook's own business.
            case $link in '' | '#' | *:* | /* | *.js | *.css) continue ;; esac
            file=${link%%#*}
            target=${file:+$(dirname "$page")/}${file:-$page}
            if [ ! -e "$target" ]; then
                printf '%s: %s\n' "$page" "$link"
            elif [ "$link" != "$file" ] && ! grep -qF "id=\"${link#*#}\"" "$target"; then
                printf '%s: %s, a heading that is not there\n' "$page" "$link"
            fi
        done
done)
if [ -n "$broken" ]; then
    say "$broken"
    die "links of the book lead nowhere"
fi
say "book: $(find "$book/html" -name '*.html' | wc -l) pages, every link leads somewhere: $book/html/index.html"
give_back "$book"
