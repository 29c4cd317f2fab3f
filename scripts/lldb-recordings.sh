#!/bin/sh
# Fetches the Intel PT recordings of lldb's tests, of real hardware, out of Debian's source package llvm-toolchain-16: what the opt-in test
# of tailsight-pt decodes (TAILSIGHT_LLDB_TRACES names the folder). About 150 MB are fetched, some hundred KiB are kept.
#
#   scripts/lldb-recordings.sh DIR
#
# Needs apt with a deb-src line, and xz. Exit: 0 the recordings are in DIR, 1 they are not, with what is missing.
set -eu
. "$(dirname -- "$0")/lib.sh"
package=llvm-toolchain-16
[ $# -eq 1 ] || die "usage: scripts/lldb-recordings.sh DIR"
mkdir -p "$1"
dir=$(CDPATH='' cd -- "$1" && pwd)
for program in apt-get apt-cache xz; do
    have "$program" || die "$program is not there: these recordings are in a source package of Debian"
done
if ! apt-cache showsrc "$package" 2>/dev/null | grep -q '^Package:'; then
    die "apt knows no source of $package. Add a line for sources and update, on Debian 12:
  echo 'deb-src http://deb.debian.org/debian bookworm main' | sudo tee /etc/apt/sources.list.d/sources.list
  sudo apt-get update"
fi
work=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get source --download-only -qq "$package") >&2 || die "apt-get source $package failed"
tar=$(find "$work" -name "${package}_*.orig.tar.xz" | head -n 1)
[ -n "$tar" ] || die "the source package has no ${package}_*.orig.tar.xz"
tar -C "$work" -xf "$tar" --wildcards '*/lldb/test/API/commands/trace/intelpt-*' ||
    die "$(basename "$tar") has no lldb/test/API/commands/trace"
found=$(find "$work" -type d -path '*/lldb/test/API/commands/trace' | head -n 1)
for folder in "$found"/intelpt-*; do
    rm -rf "$dir/$(basename "$folder")"
    mv "$folder" "$dir/"
done
say "TAILSIGHT_LLDB_TRACES=$dir cargo test -p tailsight-pt lldb"
