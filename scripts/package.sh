#!/bin/bash
# Builds what people install: packages for Debian and for rpm, a tarball and an image whose program needs no library of the machine.
#
#   scripts/package.sh deb|rpm|tarball|image|sbom|dist|program
#
# In: the checkout; SOURCE_DATE_EPOCH (default: the time of the last commit); DEBFULLNAME and DEBEMAIL for the packages'
# maintainer; PROGRAM: a program that was built before, to be packed as it is; PACKER: a tailsight_package that was built before.
# Out, and its path on standard output: target/package/tailsight_VERSION-1_ARCH.deb, tailsight-VERSION-1.ARCH.rpm,
# tailsight-VERSION-ARCH.tar.xz, tailsight-VERSION.oci.tar (an OCI image layout, from PROGRAM or with a program of this machine's
# architecture), tailsight-VERSION.cdx.json (the components, CycloneDX); `dist`: each of these in target/package/dist, with their
# SHA256SUMS; `program`: only target/release/tailsight.
# The same sources give the same bytes: no time but SOURCE_DATE_EPOCH, no path of this machine, no order of a folder goes in.
#
# dpkg-deb and not cargo-deb: it is on every Debian and Ubuntu, and the package has no more than files and a control file. An rpm needs
# no rpmbuild, and an image neither a daemon nor root: crates/tailsight-package writes them.
set -euo pipefail
. "$(dirname -- "$0")/lib.sh"
. "$(dirname -- "$0")/release.sh"

kind=${1:-}
case $kind in
deb) { have dpkg-deb && have dpkg-shlibdeps; } || die "a .deb needs dpkg-deb and dpkg-shlibdeps: apt-get install dpkg-dev" ;;
tarball) have xz || die "a tarball needs xz: apt-get install xz-utils" ;;
rpm | image | sbom | dist | program) ;;
*)
    say "usage: scripts/package.sh deb|rpm|tarball|image|sbom|dist|program"
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
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
maintainer=${DEBFULLNAME:-The Tailsight developers}${DEBEMAIL:+ <$DEBEMAIL>}

# Each kind by itself, so that one fails with its own words and the deb's program is the rpm's.
if [ "$kind" = dist ]; then
    as_builder mkdir -p "$stage"
    for each in deb rpm tarball image sbom; do
        package=$("$0" "$each")
        as_builder cp "$package" "$stage/"
    done
    (cd "$stage" && sha256sum -- tailsight* | as_builder tee SHA256SUMS >&2)
    give_back "$out"
    printf '%s\n' "$stage"
    exit 0
fi

# packer ARGUMENT…: tailsight_package, which writes what no program of the machine is needed for.
packer() {
    if [ -z "${PACKER:-}" ]; then
        as_builder cargo build --locked --quiet -p tailsight-package >&2
        PACKER=$target/debug/tailsight_package
    fi
    as_builder "$PACKER" "$1" --release "$version" --epoch "$SOURCE_DATE_EPOCH" "${@:2}"
}

# The libraries of this machine that libbpf is linked with (.cargo/config.toml): their versions, as pkg-config knows them.
make_sbom() {
    package=$out/tailsight-$version.cdx.json
    packer sbom --target "$(as_builder rustc -vV | sed -n 's/^host: //p')" --created "$created" --out "$package" \
        --linked "libelf=$(pkg-config --modversion libelf)" --linked "zlib=$(pkg-config --modversion zlib)"
    printf '%s\n' "$package"
}
if [ "$kind" = sbom ]; then
    make_sbom
    give_back "$out"
    exit 0
fi

# --- the program, and what it says of itself ----------------------------------------------------------------------

if [ -n "${PROGRAM:-}" ]; then
    RELEASE_PROGRAM=$(realpath "$PROGRAM")
elif [ "$kind" = program ]; then
    build_release
    printf '%s\n' "$RELEASE_PROGRAM"
    exit 0
elif [ "$kind" = tarball ] || [ "$kind" = image ]; then
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
    find packaging/kubernetes -type f | while read -r file; do
        install -D -m "$([ -x "$file" ] && echo 755 || echo 644)" "$file" "$1/examples/${file#packaging/}"
    done
    # Where docs/privileges.md and docs/how-to/kubernetes.md have them.
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
    arch=$(dpkg --print-architecture)
    # None for a program that was linked statically.
    needs=$(depends)
    install -d "$stage/DEBIAN"
    cat >"$stage/DEBIAN/control" <<CONTROL
Package: tailsight
Version: $version-1
Architecture: $arch
Maintainer: $maintainer
Section: net
Priority: optional
Installed-Size: $(du -sk --apparent-size "$stage/usr" | cut -f1)
${needs:+Depends: $needs
}Description: $(sed -e '2,$s/^/ /' -e 's/^ $/ ./' packaging/description)
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

make_rpm() {
    everything usr/bin usr/share/man/man1 usr/share/bash-completion/completions usr/share/zsh/site-functions \
        usr/share/fish/vendor_completions.d usr/share/doc/tailsight
    find "$stage" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
    package=$out/tailsight-$version-1.$(uname -m).rpm
    packer rpm --stage "$stage" --description packaging/description --packager "$maintainer" --out "$package"
    printf '%s\n' "$package"
}

# The layout as one file, which `podman load`, `skopeo copy oci-archive:` and `ctr images import` take.
make_image() {
    layout=$out/tailsight-$version.oci
    rm -rf "$layout"
    as_builder mkdir -p "$stage"
    third_party | gzip -9n >"$stage/THIRD-PARTY.gz"
    files=()
    for file in "$stage/THIRD-PARTY.gz" LICENSE-*; do
        files+=(--file "$file=usr/share/doc/tailsight/$(basename "$file")")
    done
    packer image --program "$program" --created "$created" --out "$layout" "${files[@]}"
    package=$layout.tar
    tar --create --directory "$layout" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --mtime="@$SOURCE_DATE_EPOCH" --format=ustar blobs index.json oci-layout >"$package"
    rm -rf "$layout"
    printf '%s\n' "$package"
}

"make_$kind"
rm -rf "${out:?}/$kind"
give_back "$out"
