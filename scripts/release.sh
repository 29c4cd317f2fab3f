# shellcheck shell=sh
# The release build, the same for `make release`, `make deb` and `make tarball`; source it after lib.sh.
#
# In: REPO, the builder's cargo. Out: RELEASE_PROGRAM, the path of the program. No path of this machine goes into it.

# Sets SOURCE_DATE_EPOCH: as it is, or the time of the last commit.
epoch() {
    : "${SOURCE_DATE_EPOCH:=$(git -C "$REPO" -c safe.directory="$REPO" log -1 --format=%ct 2>/dev/null || echo 0)}"
    export SOURCE_DATE_EPOCH
}

# build_release [static]: static links the C library, too; its program runs on any Linux of this processor.
build_release() {
    home=${CARGO_HOME:-$BUILDER_HOME/.cargo}
    folder=${CARGO_TARGET_DIR:-$REPO/target}
    # The longer paths last: the last one that fits counts.
    flags="--remap-path-prefix=$home=/cargo --remap-path-prefix=$REPO=/tailsight --remap-path-prefix=$folder=/target"
    c_flags="-ffile-prefix-map=$home=/cargo -ffile-prefix-map=$REPO=/tailsight -ffile-prefix-map=$folder=/target"
    set -- "${1:-}"
    where=release
    if [ "$1" = static ]; then
        # With a target named, build scripts and procedural macros stay dynamic, which they must be.
        triple=$(as_builder rustc -vV | sed -n 's/^host: //p')
        flags="$flags -C target-feature=+crt-static"
        where=$triple/release
        set -- --target "$triple"
    else
        set --
    fi
    as_builder env CARGO_PROFILE_RELEASE_DEBUG=none CARGO_PROFILE_RELEASE_STRIP=symbols RUSTFLAGS="$flags" \
        CFLAGS="${CFLAGS:-} $c_flags" cargo build --locked --release -p tailsight "$@" >&2
    # shellcheck disable=SC2034 # Used by the scripts that source this file.
    RELEASE_PROGRAM=$folder/$where/tailsight
}
