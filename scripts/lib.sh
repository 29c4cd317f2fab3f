# shellcheck shell=sh
# Shared by the scripts in this folder; source it, do not run it. POSIX sh.
#
# In: the environment (SUDO_UID and friends, CARGO_HOME, PATH). Out: functions, and the variables that
# `find_builder` and `find_cargo` set. Nothing here changes the machine.

# Servers and `ip` live in sbin, which is not on every user's PATH.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
REPO=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# The Rust that a fresh installation gets, and that CI's clippy is clean with. The least that works is rust-version.
RUST_TESTED=1.95.0
# shellcheck disable=SC2034 # Used by the scripts that source this file.
RUST_LEAST=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$REPO/Cargo.toml")
# The least that runs vite and playwright-core as web/package-lock.json has them.
# shellcheck disable=SC2034 # Used by the scripts that source this file.
NODE_LEAST=20.19

say() { printf '%s\n' "$*" >&2; }
die() {
    say "error: $*"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }

# Who builds. Under `sudo make …` in a checkout that belongs to the invoking user, the build runs as that user: the
# toolchain in ~/.cargo is found and no root-owned file is left in target/ or ~/.cargo. Otherwise whoever we are.
# Sets BUILDER_UID and BUILDER_GID (empty: ourselves) and BUILDER_HOME.
find_builder() {
    BUILDER_UID='' BUILDER_GID='' BUILDER_HOME=${HOME:-/}
    if is_root && [ "${SUDO_UID:-0}" != 0 ] && [ "$(stat -c %u "$REPO")" = "$SUDO_UID" ]; then
        BUILDER_UID=$SUDO_UID BUILDER_GID=$SUDO_GID
        BUILDER_HOME=$(getent passwd "$SUDO_UID" | cut -d: -f6)
    fi
}

# Runs a command as the builder, with the builder's HOME.
as_builder() {
    if [ -n "$BUILDER_UID" ]; then
        setpriv --reuid="$BUILDER_UID" --regid="$BUILDER_GID" --init-groups \
            env HOME="$BUILDER_HOME" USER="${SUDO_USER:-}" LOGNAME="${SUDO_USER:-}" "$@"
    else
        "$@"
    fi
}

# version_ge A B: A is at least B, both like 1.88 or 1.95.0.
version_ge() {
    awk -v a="$1" -v b="$2" 'BEGIN {
        split(a, x, "."); split(b, y, ".")
        for (i = 1; i <= 3; i++) if (x[i] + 0 != y[i] + 0) exit !(x[i] + 0 > y[i] + 0)
        exit 0
    }'
}

# Puts the builder's ~/.cargo/bin on the PATH, then picks a cargo that is new enough: the default one, or the
# toolchain RUST_TESTED when rustup has it. Sets CARGO_VERSION (empty: there is no cargo) and CARGO_OK (yes or no),
# and may export RUSTUP_TOOLCHAIN.
find_cargo() {
    bin="${CARGO_HOME:-$BUILDER_HOME/.cargo}/bin"
    if [ -n "$BUILDER_UID" ]; then PATH="$bin:$PATH"; else PATH="$PATH:$bin"; fi
    # Root through sudo in somebody else's checkout: the user's toolchain still serves, read only.
    if [ -z "$BUILDER_UID" ] && is_root && [ "${SUDO_UID:-0}" != 0 ] && ! have cargo; then
        sudo_home=$(getent passwd "$SUDO_UID" | cut -d: -f6)
        if [ -x "$sudo_home/.cargo/bin/cargo" ]; then
            PATH="$PATH:$sudo_home/.cargo/bin"
            RUSTUP_HOME=${RUSTUP_HOME:-$sudo_home/.rustup}
            export RUSTUP_HOME
        fi
    fi
    export PATH
    CARGO_OK=no CARGO_VERSION=''
    have cargo || return 0
    # From the repository, so that an override or a toolchain file of this folder counts.
    CARGO_VERSION=$(cd "$REPO" && as_builder cargo --version 2>/dev/null | awk '{ print $2; exit }')
    if [ -n "$CARGO_VERSION" ] && version_ge "$CARGO_VERSION" "$RUST_LEAST"; then
        CARGO_OK=yes
        return 0
    fi
    have rustup || return 0
    tested=$(as_builder env RUSTUP_TOOLCHAIN="$RUST_TESTED" RUSTUP_AUTO_INSTALL=0 cargo --version 2>/dev/null |
        awk '{ print $2; exit }')
    if [ -n "$tested" ]; then
        # shellcheck disable=SC2034 # Used by the scripts that source this file.
        CARGO_VERSION=$tested CARGO_OK=yes
        RUSTUP_TOOLCHAIN=$RUST_TESTED
        export RUSTUP_TOOLCHAIN
    fi
}

# For the scripts that build: cargo, or a sentence.
require_cargo() {
    find_builder
    find_cargo
    [ "$CARGO_OK" = yes ] || die "no cargo of $RUST_LEAST or newer is on the PATH (found: ${CARGO_VERSION:-none}); run \`make setup\`"
}

# Sets LINT_LEVEL. A clippy newer than the one that CI uses may know lints that this tree was never read with: its warnings are
# shown and do not fail, so that `make test` still passes on a machine with next year's Rust.
lint_level() {
    LINT_LEVEL=-Dwarnings
    if ! version_ge "$RUST_TESTED" "$CARGO_VERSION"; then
        LINT_LEVEL=-Wwarnings
        say "lint: clippy $CARGO_VERSION is newer than $RUST_TESTED: its warnings do not fail"
    fi
    export LINT_LEVEL
}

# From here on cargo compiles the workspace's crates with clippy's lints: a warning fails the build of the tests.
lint_while_building() {
    lint_level
    RUSTC_WORKSPACE_WRAPPER=$REPO/scripts/rustc-with-lints.sh
    export RUSTC_WORKSPACE_WRAPPER
}

# To be called after a build that may be the first. libipt-sys tells cargo to watch a header that its own build script writes: newer
# than that script's start, it counts as changed, and the next cargo would build libipt and all that stands on it once more.
settle_build() {
    for header in "${CARGO_TARGET_DIR:-target}"/*/build/libipt-sys-*/out/include/intel-pt.h; do
        [ ! -e "$header" ] || as_builder touch -d 2000-01-01 "$header"
    done
}

# phase NAME COMMAND…: runs the command, says how long it took, and fails as it fails.
phase() {
    phase_name=$1 phase_start=$(date +%s)
    shift
    say "== $phase_name"
    phase_code=0
    "$@" || phase_code=$?
    if [ "$phase_code" = 0 ]; then
        say "== $phase_name: done in $(($(date +%s) - phase_start)) s"
    else
        say "== $phase_name: FAILED (exit $phase_code) after $(($(date +%s) - phase_start)) s"
    fi
    return "$phase_code"
}

# Files that we made as root on the builder's behalf become the builder's: give_back PATH…
give_back() {
    [ -n "$BUILDER_UID" ] || return 0
    for path in "$@"; do
        [ ! -e "$path" ] || find "$path" -user root -exec chown -h "$BUILDER_UID:$BUILDER_GID" {} +
    done
}
