#!/bin/sh
# Does tailsight work on the kernels that it says it works on? Boots each in QEMU (emulated, no root, no network) and runs scripts/kernel.sh
# (every message of a memcached matched) and scripts/guest/traced.sh (functions that the user names) in it.
#
#   scripts/kernels.sh [FOLDER…]   FOLDER: where a kernel package was unpacked (dpkg -x linux-image-….deb FOLDER). Without one: the newest
#                                  kernel of each series that apt on this machine offers (6.1, 6.12, … on Debian), fetched to kernels/
#
# OUT is where the logs go (default: kernels). Needs what scripts/guest.sh needs, and TAILSIGHT (default: target/release/tailsight).
# Takes two to six minutes a kernel, emulated; with QEMU_CPU="-enable-kvm -cpu host" half a minute, where /dev/kvm can be used. Not a
# part of make test: CI would spend longer on it than on all other tests together.
# Exit: 0 when each passed, 1 else.
set -eu
. "$(dirname -- "$0")/lib.sh"
out=${OUT:-kernels}
mkdir -p "$out"
if [ $# = 0 ]; then
    have apt-get || die "no apt-get here to fetch kernels with; give folders with unpacked kernel packages"
    series=$(apt-cache search --names-only '^linux-image-[0-9].*-amd64$' | sed -n 's/^linux-image-\([0-9]*\.[0-9]*\)[.-].*/\1/p' | sort -uV)
    [ -n "$series" ] || die "apt knows no kernel packages; apt-get update, or give folders with unpacked ones"
    for one in $series; do
        package=$(apt-cache search --names-only "^linux-image-$one[.-].*-amd64\$" | cut -d' ' -f1 | grep -v -e cloud -e rt- | sort -V | tail -n 1)
        if [ ! -e "$out/$package" ]; then
            (cd "$out" && apt-get download "$package")
            dpkg -x "$out/$package"_*.deb "$out/$package.new"
            mv "$out/$package.new" "$out/$package"
            rm "$out/$package"_*.deb
        fi
        set -- "$@" "$out/$package"
    done
fi
failed=''
for folder in "$@"; do
    image=$(find "$folder" -name 'vmlinuz*' -type f | head -n 1)
    [ -n "$image" ] || die "there is no kernel image below $folder"
    release=$(basename -- "$image" | sed 's/^vmlinuz-//')
    say "$release"
    for part in kernel traced; do
        case $part in
        kernel) set -- "$REPO/scripts/kernel.sh" "$image" "$out/$release-kernel" ;;
        traced) set -- "$REPO/scripts/guest.sh" "$image" traced.sh "$out/$release-traced" ;;
        esac
        if "$@" >"$out/$release-$part.log" 2>&1; then
            say "  $part: passed"
        else
            say "  $part: FAILED, see $out/$release-$part.log"
            failed="$failed $release"
        fi
    done
done
[ -z "$failed" ] || die "not every kernel passed:$failed"
