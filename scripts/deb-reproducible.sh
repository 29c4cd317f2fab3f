#!/bin/bash
# Builds the Debian package twice from the last commit and compares the bytes.
#
#   scripts/deb-reproducible.sh [DIR]
#
# In: a checkout; what is not committed does not count. DIR (default: a new folder in /tmp) holds two fresh clones, whose paths
# have different lengths. The second build has another umask, time zone, language and number of jobs. Out: the two packages'
# SHA-256; exit 1 if they differ, with the files of the packages that do, and DIR kept. Two release builds take ten minutes to
# an hour and 10 GB.
set -euo pipefail
. "$(dirname -- "$0")/lib.sh"
have dpkg-deb || die "dpkg-deb is missing: apt-get install dpkg-dev"
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    work=$(realpath "$1")
else
    work=$(mktemp -d /tmp/tailsight-deb.XXXXXX)
fi
first=$work/a second=$work/another-folder-with-a-longer-name
for clone in "$first" "$second"; do
    [ ! -e "$clone" ] || die "$clone exists: remove it, or name another folder"
    git -c safe.directory="$REPO" clone --quiet --no-hardlinks "file://$REPO" "$clone"
done
say "commit $(git -C "$first" rev-parse HEAD), cargo $(cargo --version | awk '{ print $2 }'), in $work"
unset CARGO_TARGET_DIR SOURCE_DATE_EPOCH

phase "first build" make -C "$first" --no-print-directory deb >"$work/first.log" 2>&1 || {
    tail -20 "$work/first.log" >&2
    die "the first build failed: $work/first.log"
}
(
    umask 077
    export TZ=Asia/Kathmandu LANG=C.UTF-8 LC_ALL=C.UTF-8 CARGO_BUILD_JOBS=1
    phase "second build" make -C "$second" --no-print-directory deb
) >"$work/second.log" 2>&1 || {
    tail -20 "$work/second.log" >&2
    die "the second build failed: $work/second.log"
}
one=$(echo "$first"/target/package/*.deb) two=$(echo "$second"/target/package/*.deb)
sha256sum "$one" "$two"
if cmp -s "$one" "$two"; then
    say "the same bytes: $(basename "$one"), $(stat -c %s "$one") bytes, needs $(dpkg-deb -f "$one" Depends)"
    rm -rf "$first" "$second"
    [ $# -gt 0 ] || rm -rf "$work"
    exit 0
fi
mkdir "$work/files.a" "$work/files.b"
dpkg-deb -R "$one" "$work/files.a"
dpkg-deb -R "$two" "$work/files.b"
diff -rq "$work/files.a" "$work/files.b" >&2 || true
die "the two packages differ; both are in $work (diffoscope $one $two says how)"
