#!/bin/sh
# Installs what a build, the demo, the tests or the benchmarks of Tailsight miss on Debian 12, Debian 13 and
# Ubuntu 24.04. Costs a fraction of a second when nothing is missing. POSIX sh.
#
#   scripts/setup.sh [--check] [build|deb|deb-check|demo|test|bench]
#
# In: what the machine has (commands, headers, cargo's version). Out: installed Debian packages and, when cargo is
# absent or too old, Rust through rustup. It says what it installs and why before it does. --check only prints what
# is missing, and exits 1 if something is. Services that Debian would start on installation (memcached, nginx, redis, postgresql)
# are neither started nor enabled; services that were there before are not touched.
#
# For `test` it also brings what the tests of the report's page use: Debian's chromium and firefox-esr (as root), node where the
# distribution's is new enough, and the packages of web/package-lock.json; and the tools that look at packages and images (as root).
# Nothing fails without these: the tests are then skipped by name, and say what they miss.
set -eu
. "$(dirname -- "$0")/lib.sh"

goal='' check=no
for arg in "$@"; do
    case $arg in
    --check) check=yes ;;
    build | deb | deb-check | demo | test | bench) goal=$arg ;;
    *)
        say "usage: scripts/setup.sh [--check] [build|deb|deb-check|demo|test|bench]"
        exit 2
        ;;
    esac
done
: "${goal:=test}"

# --- what is needed ---------------------------------------------------------------------------------------------

# Presence is judged by the thing that is used, not by a package name: an nginx or a clang from elsewhere is as good.
missing='' why=''
need() { # need PACKAGE REASON TEST…
    package=$1 reason=$2
    shift 2
    if ! "$@"; then
        missing="$missing $package"
        why="$why
    $(printf '%-16s %s' "$package" "$reason")"
    fi
}
any_file() {
    for file in "$@"; do [ -e "$file" ] && return 0; done
    return 1
}
both() { have "$1" && have "$2"; }
# A wrapper without the tools of the running kernel (Ubuntu) is not a perf.
perf_works() { perf --version >/dev/null 2>&1; }
static_libelf() { [ -e /usr/include/libelf.h ] && any_file /usr/lib/*/libelf.a /usr/lib/libelf.a; }
static_zlib() { [ -e /usr/include/zlib.h ] && any_file /usr/lib/*/libz.a /usr/lib/libz.a; }

need clang "compiles the BPF programs" have clang
need llvm "strips the BPF objects" have llvm-strip
need libelf-dev "libbpf is linked statically with it" static_libelf
need zlib1g-dev "libbpf is linked statically with it" static_zlib
need pkg-config "libbpf's build asks it for libelf and zlib" have pkg-config
need gcc "compiles libbpf and links the binary" both gcc cc
need libc6-dev "C headers" any_file /usr/include/features.h
need make "builds libbpf" have make
need cmake "builds libipt, the decoder of Intel PT" have cmake
need ca-certificates "TLS for the crate registry" any_file /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs
# The tests that use servers record them live, which needs root: without it `make test` does not ask for the servers.
live=yes
case $goal in build | deb | deb-check) live=no ;; esac
if [ "$goal" = test ] && ! is_root; then live=no; fi
if [ "$live" = yes ]; then
    need memcached "server of the demo and the tests, unmodified" have memcached
    need nginx-light "server of the demo and the tests, unmodified" have nginx
    need iproute2 "network namespaces of our own" have ip
fi
if [ "$live" = yes ] && [ "$goal" != demo ]; then
    need redis-server "server of the tests and the benchmarks, unmodified" have redis-server
fi
case $goal in
deb | deb-check) need dpkg-dev "names the libraries that the package needs" have dpkg-shlibdeps ;;
esac
if [ "$goal" = deb-check ]; then
    need debootstrap "fresh systems that the package is tried on" have debootstrap
    need curl "fetches Ubuntu's keys where the distribution has no package of them" have curl
    need iproute2 "network namespaces of our own" have ip
fi
# Measured beside us. perf has another name on each distribution, and none for some kernels: nice to have.
peers=''
if [ "$goal" = bench ]; then
    need postgresql "server of the lab, unmodified" any_file /usr/lib/postgresql/*/bin/initdb
    need nftables "a fault of the lab is a long firewall" have nft
    need bpftrace "measured beside us" have bpftrace
    need redis-tools "redis-benchmark, measured beside us" have redis-benchmark
    need libmemcached-tools "memcaslap, measured beside us" have memcaslap
    need wrk "measured beside us" have wrk
    need nghttp2-client "h2load, measured beside us" have h2load
    perf_works || peers=perf
fi

find_builder
find_cargo
rust=''
[ "$CARGO_OK" = yes ] || rust="Rust $RUST_TESTED"
components=''
if [ "$CARGO_OK" = yes ] && [ "$goal" = test ]; then
    (cd "$REPO" && as_builder cargo clippy --version) >/dev/null 2>&1 || components="clippy"
    (cd "$REPO" && as_builder cargo fmt --version) >/dev/null 2>&1 || components="$components rustfmt"
fi

distro=other distro_name='this distribution'
if [ -r /etc/os-release ]; then
    # shellcheck disable=SC1091
    distro_name=$(. /etc/os-release && printf '%s' "${PRETTY_NAME:-$ID}")
    distro=$(
        # shellcheck disable=SC1091
        . /etc/os-release
        case ${ID:-}-${VERSION_ID:-99} in
        # Testing and unstable have no VERSION_ID.
        debian-*) version_ge "${VERSION_ID:-99}" 12 && echo debian || echo other ;;
        ubuntu-*) version_ge "${VERSION_ID:-99}" 24.04 && echo ubuntu || echo other ;;
        *) echo other ;;
        esac
    )
fi

# What the tests of the report's page use. Ubuntu has its browsers as snaps only, which need a running snapd.
page='' page_why='' modules=''
node_serves() { have npm && version_ge "$(node --version 2>/dev/null | tr -d v)" "$NODE_LEAST"; }
# npm writes this file last: an installation that was stopped does not have it.
modules_are_current() {
    [ -e "$REPO/web/node_modules/.package-lock.json" ] &&
        [ -z "$(find "$REPO/web/package-lock.json" -newer "$REPO/web/node_modules/.package-lock.json")" ]
}
if [ "$goal" = test ]; then
    if is_root && [ "$distro" = debian ]; then
        kept=$missing kept_why=$why missing='' why=''
        need chromium "browser of the tests of the report's page" have chromium
        need firefox-esr "browser of the tests of the report's page" have firefox-esr
        # Debian 12's node is too old for the packages of web/.
        if ! have node || ! have npm; then
            candidate=$(apt-cache policy nodejs 2>/dev/null | sed -n 's/^ *Candidate: \([0-9][0-9.]*\).*/\1/p')
            if version_ge "${candidate:-0}" "$NODE_LEAST"; then
                need nodejs "runs the browsers of these tests" have node
                need npm "installs the packages of web/" have npm
            fi
        fi
        page=$missing page_why=$why missing=$kept why=$kept_why
    fi
    if { node_serves || case $page in *npm*) true ;; *) false ;; esac; } && ! modules_are_current; then
        modules=web/node_modules
    fi
fi

# What the tests of packages, images and manifests look at them with. Not runc: it would push out Docker's containerd.io.
tools='' tools_why=''
a_runtime() { have runc || have crun; }
if [ "$goal" = test ] && is_root && [ "$distro" != other ]; then
    kept=$missing kept_why=$why missing='' why=''
    need rpm "looks at the rpm that is packed" have rpm
    need cpio "unpacks it" have cpio
    need skopeo "looks at the image that is packed" have skopeo
    need umoci "unpacks it" have umoci
    need crun "starts it" a_runtime
    need shellcheck "looks at the plugin of kubectl" have shellcheck
    tools=$missing tools_why=$why missing=$kept why=$kept_why
fi

# --- what is done about it --------------------------------------------------------------------------------------

saved=/usr/sbin/policy-rc.d.before-tailsight
policy=/usr/sbin/policy-rc.d
marker='# tailsight-setup'
# Puts the machine's own policy back.
restore_policy() {
    if [ -e "$policy" ] && grep -qx "$marker" "$policy"; then rm -f "$policy"; fi
    if [ -e "$saved" ]; then mv -f "$saved" "$policy"; fi
}

# What a killed earlier run left behind, if that run is over.
if is_root && [ -e "$policy" ] && grep -qx "$marker" "$policy"; then
    owner=$(sed -n 's/^# process \([0-9]*\)$/\1/p' "$policy")
    [ -d "/proc/${owner:-none}" ] || restore_policy
fi

if [ -z "$missing$rust$components$peers$page$modules$tools" ]; then
    [ "$check" = no ] || say "setup: nothing is missing for $goal"
    exit 0
fi

if [ "$check" = yes ]; then
    say "setup: missing for $goal:$missing${rust:+ $rust}${components:+ Rust components: $components}${peers:+ $peers (optional)}${page:+$page (optional)}${modules:+ $modules (optional)}${tools:+$tools (optional)}$why$page_why$tools_why"
    [ -n "$missing$rust$components" ] && exit 1
    exit 0
fi
if [ -n "$missing" ] && [ "$distro" = other ]; then
    die "setup knows Debian 12, Debian 13 and Ubuntu 24.04, not $distro_name; install what these Debian packages hold and run this again:$missing${rust:+; and $rust or newer than $RUST_LEAST}"
fi
if [ -n "$missing" ] && ! is_root; then
    die "these packages are missing and installing them needs root:$missing; run \`sudo make setup\` once, then this again without sudo"
fi

# Denies the starts of the services in $1 and leaves every other decision to the machine's own policy, if it has one.
deny_starts() {
    restore_policy
    [ ! -e "$policy" ] || mv "$policy" "$saved"
    cat >"$policy" <<POLICY
#!/bin/sh
$marker
# process $$
# Here only while Tailsight's setup installs packages: it wants the servers' programs, not their services.
[ ! -d /proc/$$ ] || for word in "\$@"; do
    case \${word%.service} in
    $1) exit 101 ;;
    esac
done
[ ! -x '$saved' ] || exec '$saved' "\$@"
exit 0
POLICY
    chmod 755 "$policy"
}

install_packages() {
    say "setup: for \`$goal\` this machine misses Debian packages, which I install now with apt-get:${why}"
    # One at a time: two would take each other's policy for the machine's own.
    mkdir -p /run/lock
    exec 9>/run/lock/tailsight-setup
    flock -n 9 || {
        say "setup: waiting for another setup of Tailsight that installs packages (ten minutes at most)"
        flock -w 600 9 || die "another setup of Tailsight still installs packages; run this again when it is done"
    }
    # Only services that this installation brings: one that is there already keeps running through it.
    services='' pattern=''
    for package in $missing; do
        case $package in
        memcached | redis-server | postgresql) services="$services $package" ;;
        nginx-light) services="$services nginx" ;;
        esac
    done
    for service in $services; do pattern="$pattern${pattern:+ | }$service"; done
    if [ -n "$services" ]; then
        say "setup: the services of:$services are not started, and not enabled at boot"
        trap restore_policy EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM HUP
        deny_starts "$pattern"
    fi
    export DEBIAN_FRONTEND=noninteractive
    # Another apt-get may hold the lock (unattended upgrades on a machine that just booted).
    # What it starts is not to keep our own lock.
    apt() { apt-get -o DPkg::Lock::Timeout=300 "$@" </dev/null >&2 9>&-; }
    # shellcheck disable=SC2086 # A list of words.
    if ! apt-get install --simulate $missing >/dev/null 2>&1; then
        say "setup: the package lists are absent or old: apt-get update"
        apt update || die "apt-get update failed (see above); is the network up?"
    fi
    # A list that is days old names versions which the mirror no longer has.
    # shellcheck disable=SC2086
    if ! apt install -y --no-install-recommends $missing; then
        say "setup: once more, with fresh package lists"
        if ! { apt update && apt install -y --no-install-recommends $missing; }; then
            die "apt-get could not install:$missing (see above)"
        fi
    fi
    for service in $services; do
        update-rc.d "$service" disable >&2 ||
            say "setup: could not disable $service at boot: systemctl disable $service"
    done
    if [ -n "$services" ]; then
        restore_policy
        trap - EXIT INT TERM HUP
    fi
    # The next installation of this setup takes the lock again, from a shell of its own.
    exec 9>&-
}

# perf, for the kernel that runs. Nothing fails without it: the benchmark leaves its row out and says so.
install_peers() {
    if is_root && [ "$distro" != other ]; then
        case $distro in
        ubuntu)
            missing=linux-tools-generic
            if apt-cache show "linux-tools-$(uname -r)" >/dev/null 2>&1; then
                missing="$missing linux-tools-$(uname -r)"
            fi
            ;;
        *) missing=linux-perf ;;
        esac
        why="
    $(printf '%-16s %s' "$missing" "perf, measured beside us")"
        (install_packages) || true
    fi
    perf_works || say "setup: there is no working perf for kernel $(uname -r): the benchmarks run without it"
}

# Browsers and node. Nothing fails without them: the tests of the page are skipped, and say so.
install_browsers() {
    missing=$page why=$page_why
    (install_packages) || say "setup: the tests of the report's page that need these are skipped:$page"
}

# Tools of packages. Nothing fails without them: their tests are skipped, and say so.
install_tools() {
    missing=$tools why=$tools_why
    (install_packages) || say "setup: the tests of packages that need these are skipped:$tools"
}

# The packages of web/, into the checkout and nowhere else; no script of theirs is run.
install_modules() {
    if ! node_serves; then
        say "setup: there is no node $NODE_LEAST or newer with npm: the tests of the report's page are skipped"
        return
    fi
    say "setup: the packages of web/package-lock.json, for the tests of the report's page: npm ci in web/"
    (cd "$REPO/web" && as_builder timeout 60 npm ci --ignore-scripts --no-audit --no-fund --fetch-retries=1 \
        --fetch-timeout=15000 --loglevel=error >&2 </dev/null) ||
        say "setup: npm ci in web/ failed (see above): the tests of the report's page are skipped"
}

install_rust() {
    found="there is none"
    [ -z "$CARGO_VERSION" ] || found="cargo $CARGO_VERSION is too old"
    say "setup: Rust $RUST_LEAST or newer is needed and $found: I install Rust $RUST_TESTED through rustup, in $BUILDER_HOME"
    if ! have rustup && is_root && [ "$distro" != other ] && ! have cargo; then
        # The distribution's rustup, where it has one (Debian 13, Ubuntu 24.04). It would push out a packaged cargo.
        if apt-cache policy rustup 2>/dev/null | grep -q 'Candidate: [0-9]'; then
            missing=rustup why="
    $(printf '%-16s %s' rustup "installs Rust")"
            install_packages
        fi
    fi
    if have rustup; then
        as_builder rustup toolchain install "$RUST_TESTED" --profile minimal -c clippy -c rustfmt ||
            die "rustup could not install Rust $RUST_TESTED (see above)"
        return
    fi
    if ! have curl; then
        if ! is_root || [ "$distro" = other ]; then
            die "rustup's installer is fetched with curl, which is missing: install curl, or Rust $RUST_LEAST or newer"
        fi
        missing=curl why="
    $(printf '%-16s %s' curl "fetches rustup's installer")"
        install_packages
    fi
    say "setup: fetching rustup's own installer from https://sh.rustup.rs"
    installer=$(mktemp)
    curl --proto '=https' --tlsv1.2 --silent --show-error --fail --output "$installer" https://sh.rustup.rs || {
        rm -f "$installer"
        die "https://sh.rustup.rs could not be fetched; install Rust $RUST_LEAST or newer by hand"
    }
    chmod 644 "$installer"
    # The check of the PATH would refuse beside a distribution's older Rust, which we leave alone.
    as_builder env RUSTUP_INIT_SKIP_PATH_CHECK=yes sh "$installer" -y --no-modify-path --profile minimal \
        --default-toolchain "$RUST_TESTED" -c clippy -c rustfmt >&2 || {
        rm -f "$installer"
        die "rustup's installer failed (see above); install Rust $RUST_LEAST or newer by hand"
    }
    rm -f "$installer"
}

[ -z "$missing" ] || install_packages
[ -z "$peers" ] || install_peers
[ -z "$page" ] || install_browsers
[ -z "$tools" ] || install_tools
[ -z "$modules" ] || install_modules
[ -z "$rust" ] || install_rust
if [ -n "$components" ]; then
    have rustup || die "cargo has no $components; install them from where this cargo came"
    say "setup: adding to the Rust toolchain:$components"
    # shellcheck disable=SC2086
    (cd "$REPO" && as_builder rustup component add $components) || die "rustup could not add $components (see above)"
fi
find_cargo
[ "$CARGO_OK" = yes ] || die "Rust was installed but no cargo of $RUST_LEAST or newer is found on: $PATH"
say "setup: done"
