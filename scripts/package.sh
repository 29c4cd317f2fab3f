#!/bin/bash
# Builds what people install: a Debian package, or a tarball whose program needs no library of the machine.
#
#   scripts/package.sh deb|tarball|program
#
# In: the checkout; SOURCE_DATE_EPOCH (default: the time of the last commit); DEBFULLNAME and DEBEMAIL for the package's
# maintainer; PROGRAM: a program that was built before, to be packed as it is. Out: target/package/tailsight_VERSION_ARCH.deb, or
# tailsight-VERSION-ARCH.tar.xz, or only target/release/tailsight; and the path on standard output.
# The same sources give the same bytes: no time but SOURCE_DATE_EPOCH, no path of this machine, no order of a folder goes in.
#
# dpkg-deb and not cargo-deb: it is on every Debian and Ubuntu, and the package has no more than files and a control file.
set -euo pipefail
. "$(dirname -- "$0")/lib.sh"
. "$(dirname -- "$0")/release.sh"

kind=${1:-}
case $kind in
deb) have dpkg-deb && have dpkg-shlibdeps || die "a .deb needs dpkg-deb and dpkg-shlibdeps: apt-get install dpkg-dev" ;;
tarball) have xz || die "a tarball needs xz: apt-get install xz-utils" ;;
program) ;;
*)
    say "usage: scripts/package.sh deb|tarball|program"
    exit 2
    ;;
esac
require_cargo
cd "$REPO"
umask 022
export LC_ALL=C TZ=UTC
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
epoch
target=${CARGO_TARGET_DIR:-target}
out=$target/package
stage=$out/$kind
as_builder mkdir -p "$out"
rm -rf "$stage"

# --- the program, and what it says of itself ----------------------------------------------------------------------

if [ -n "${PROGRAM:-}" ]; then
    RELEASE_PROGRAM=$(realpath "$PROGRAM")
elif [ "$kind" = program ]; then
    build_release
    printf '%s\n' "$RELEASE_PROGRAM"
    exit 0
elif [ "$kind" = tarball ]; then
    build_release static
else
    build_release
fi
program=$RELEASE_PROGRAM

# Names of this machine's folders would make another machine's package another one, and are nobody's business.
for path in "$REPO/" "${CARGO_HOME:-$BUILDER_HOME/.cargo}/"; do
    ! grep -qaF "$path" "$program" || die "$program holds the path $path"
done

# documents DIR: licences, the changelog, what others' code is in the program, and the documentation that help, errors and
# README.md name. Of its pictures only those of README.md and
# docs/how-it-works.md: those of docs/report.md would make the package a fifth larger.
documents() {
    install -m 644 LICENSE-APACHE LICENSE-MIT LICENSE-GPL-2.0 LICENSE-BSD-2-Clause README.md ARCHITECTURE.md CONTRIBUTING.md \
        CHANGELOG.md "$1/"
    gzip -9nc CHANGELOG.md >"$1/changelog.gz"
    third_party | gzip -9n >"$1/THIRD-PARTY.gz"
    install -d "$1/examples"
    install -m 644 packaging/tailsight-record.service "$1/examples/"
    # Where docs/privileges.md has it.
    ln -s examples "$1/packaging"
    { find docs evidence -name '*.md' && grep -o 'docs/images/[^)]*' README.md &&
        find docs/images -name 'how-it-works-*.svg'; } | while read -r page; do
        install -D -m 644 "$page" "$1/$page"
    done
}

# Every crate in the program with its licence and, where it has them, the licence's texts.
third_party() {
    as_builder cargo tree --locked -p tailsight -e normal --prefix none --format '{p}|{l}' | sed 's/ (\*)$//' | sort -u |
        while IFS='|' read -r package licence; do
            name=${package%% *} rest=${package#* }
            number=${rest%% *}
            case $name in tailsight*) continue ;; esac
            printf '%s %s: %s\n' "$name" "${number#v}" "${licence%% (*}"
            for text in "${CARGO_HOME:-$BUILDER_HOME/.cargo}"/registry/src/*/"$name-${number#v}"/{LICEN[CS]E,COPYING,COPYRIGHT,NOTICE}*; do
                [ ! -f "$text" ] || sed 's/^/    /' "$text"
            done
            printf '\n'
        done
}

# everything BIN MAN BASH ZSH FISH DOC: the files of the package under the stage.
everything() {
    install -d "$stage/$1" "$stage/$2" "$stage/$3" "$stage/$4" "$stage/$5" "$stage/$6"
    install -m 755 "$program" "$stage/$1/tailsight"
    "$program" man -o "$stage/$2"
    gzip -9n "$stage/$2"/*.1
    "$program" completions bash >"$stage/$3/tailsight"
    "$program" completions zsh >"$stage/$4/_tailsight"
    "$program" completions fish >"$stage/$5/tailsight.fish"
    documents "$stage/$6"
}

# --- the package --------------------------------------------------------------------------------------------------

# What the dynamic loader needs, as the package's dependencies.
depends() {
    work=$(mktemp -d)
    mkdir "$work/debian"
    printf 'Source: tailsight\n\nPackage: tailsight\nArchitecture: any\n' >"$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O -e "$OLDPWD/$stage/usr/bin/tailsight" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
    rm -rf "$work"
}

make_deb() {
    everything usr/bin usr/share/man/man1 usr/share/bash-completion/completions usr/share/zsh/vendor-completions \
        usr/share/fish/vendor_completions.d usr/share/doc/tailsight
    install -m 644 packaging/copyright "$stage/usr/share/doc/tailsight/copyright"
    # Debian has these two texts; the copyright file points to them.
    ln -sf ../../common-licenses/Apache-2.0 "$stage/usr/share/doc/tailsight/LICENSE-APACHE"
    ln -sf ../../common-licenses/GPL-2 "$stage/usr/share/doc/tailsight/LICENSE-GPL-2.0"
    maintainer=${DEBFULLNAME:-The Tailsight developers}${DEBEMAIL:+ <$DEBEMAIL>}
    arch=$(dpkg --print-architecture)
    install -d "$stage/DEBIAN"
    cat >"$stage/DEBIAN/control" <<CONTROL
Package: tailsight
Version: $version-1
Architecture: $arch
Maintainer: $maintainer
Section: net
Priority: optional
Installed-Size: $(du -sk --apparent-size "$stage/usr" | cut -f1)
Depends: $(depends)
Description: tells why the tail latency of a network server is high
 Records a running server for 2 to 30 seconds without changing it or the kernel, reconstructs the way of every message
 through the host to the nanosecond, and names what the slow messages have that the median ones do not.
 .
 Recording needs Linux 6.3 or newer, or 6.1 with fentry, with BTF; and root or three to five capabilities. Everything
 else needs none of these.
CONTROL
    (cd "$stage" && find usr -type f | sort | xargs md5sum) >"$stage/DEBIAN/md5sums"
    find "$stage" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
    package=$out/tailsight_$version-1_$arch.deb
    dpkg-deb --root-owner-group --threads-max=1 -Zxz --build "$stage" "$package" >&2
    printf '%s\n' "$package"
}

make_tarball() {
    name=tailsight-$version-$(uname -m)
    stage=$stage/$name
    everything bin share/man/man1 share/bash-completion/completions share/zsh/site-functions \
        share/fish/vendor_completions.d share/doc/tailsight
    package=$out/$name.tar.xz
    tar --create --directory "${stage%/*}" --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" --format=ustar "$name" | xz -9 --threads=1 >"$package"
    printf '%s\n' "$package"
}

"make_$kind"
rm -rf "$out/$kind"
give_back "$out"
