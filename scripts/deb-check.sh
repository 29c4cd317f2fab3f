#!/bin/bash
# Tries the Debian package where it is to run: installs it in a fresh system of each distribution, uses it there on a server,
# and removes it. Root, and the network for what debootstrap and apt-get fetch.
#
#   scripts/deb-check.sh [PACKAGE.deb] [SUITE…]      suites: bookworm trixie noble (default: all)
#
# In: the package (default: `scripts/package.sh deb`). Out: a line a step and suite; exits 1 if a step fails in any. Base systems
# are kept in target/package/base. Everything runs in a mount and a network namespace of its own, which take /proc, /sys and the
# server with them when they end. The kernel is this machine's in every suite.
set -euo pipefail
. "$(dirname -- "$0")/lib.sh"
is_root || die "a system in a folder of its own needs root"
for tool in debootstrap unshare chroot ip; do
    have "$tool" || die "$tool is missing: apt-get install debootstrap util-linux iproute2"
done

if [ "${1:-}" = --inside ]; then
    # In the namespaces: $2 is the system's folder.
    root=$2
    ip link set lo up
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" /bin/bash /check.sh
fi

package=''
case ${1:-} in
*.deb)
    package=$(realpath "$1")
    shift
    ;;
esac
[ -n "$package" ] || package=$REPO/$("$REPO/scripts/package.sh" deb)
[ $# -gt 0 ] || set -- bookworm trixie noble
folder=${CARGO_TARGET_DIR:-$REPO/target}/package
mkdir -p "$folder/base"

# The keys that sign Ubuntu's packages: the machine's own, else (Debian 12 has no package of them) those of Ubuntu's package, whose
# bytes are known.
UBUNTU_KEYS=/usr/share/keyrings/ubuntu-archive-keyring.gpg
KEYS_PACKAGE=pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb
KEYS_SHA256=36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8
ubuntu_keys() {
    if [ -e "$UBUNTU_KEYS" ]; then
        echo "$UBUNTU_KEYS"
        return
    fi
    curl -fsSL -o "$work/keys.deb" "http://archive.ubuntu.com/ubuntu/$KEYS_PACKAGE" &&
        echo "$KEYS_SHA256  $work/keys.deb" | sha256sum --check --status &&
        dpkg-deb -x "$work/keys.deb" "$work/keys" && echo "$work/keys$UBUNTU_KEYS"
}

# base SUITE: its packages, fetched once.
base() {
    suite=$1
    [ ! -e "$folder/base/$suite.tgz" ] || return 0
    case $suite in
    noble)
        # An older debootstrap does not know the name; its newer Ubuntus are all made by one script.
        have_script=''
        [ -e "/usr/share/debootstrap/scripts/$suite" ] || have_script=gutsy
        keys=$(ubuntu_keys) || {
            say "the keys of Ubuntu's packages could not be fetched, or are others than expected ($KEYS_PACKAGE)"
            return 1
        }
        # shellcheck disable=SC2086 # One word or none.
        debootstrap --variant=minbase --keyring="$keys" \
            --make-tarball="$folder/base/$suite.tgz" "$suite" "$work/fetch" http://archive.ubuntu.com/ubuntu $have_script
        ;;
    *)
        debootstrap --variant=minbase --make-tarball="$folder/base/$suite.tgz" "$suite" "$work/fetch" http://deb.debian.org/debian
        ;;
    esac >"$work/debootstrap.log" 2>&1 || {
        tail -5 "$work/debootstrap.log" >&2
        return 1
    }
    rm -rf "$work/fetch"
}

# system SUITE: a fresh one in $work/SUITE, with the server that the check records.
system() {
    suite=$1 root=$work/$1
    case $suite in
    noble) mirror=http://archive.ubuntu.com/ubuntu sections='main universe' script=gutsy ;;
    *) mirror=http://deb.debian.org/debian sections=main script='' ;;
    esac
    [ ! -e "/usr/share/debootstrap/scripts/$suite" ] || script=''
    # shellcheck disable=SC2086
    debootstrap --variant=minbase --unpack-tarball="$folder/base/$suite.tgz" --no-check-gpg "$suite" "$root" "$mirror" \
        $script >"$work/debootstrap.log" 2>&1 || {
        tail -5 "$work/debootstrap.log" >&2
        return 1
    }
    printf 'deb %s %s %s\n' "$mirror" "$suite" "$sections" >"$root/etc/apt/sources.list"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    {
        chroot "$root" apt-get update
        DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y --no-install-recommends memcached
    } >"$work/apt.log" 2>&1 </dev/null || {
        tail -5 "$work/apt.log" >&2
        return 1
    }
    cp "$package" "$root/tailsight.deb"
    cp "$REPO/scripts/deb-check-inside.sh" "$root/check.sh"
}

work=$(mktemp -d "$folder/check.XXXXXX")
# Mounts are in the namespaces only, so that this removes no more than the systems. --one-file-system all the same.
trap 'rm -rf --one-file-system "$work"' EXIT
failed=''
for suite in "$@"; do
    say "== $suite"
    if base "$suite" && system "$suite" &&
        unshare --mount --net --propagation private "$0" --inside "$work/$suite" </dev/null; then
        say "== $suite: passed"
    else
        say "== $suite: FAILED"
        failed="$failed $suite"
    fi
    rm -rf --one-file-system "${work:?}/$suite"
done
[ -z "$failed" ] || die "the package failed in:$failed"
