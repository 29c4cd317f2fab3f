#!/bin/bash
# The part of deb-check.sh that runs inside the fresh system. In: /tailsight.deb. Out: a line a step.
set -euo pipefail
# shellcheck disable=SC1091
. /etc/os-release
step() { printf '   %-28s %s\n' "$1" "$2"; }
fail() {
    step "$1" "FAILED: $2"
    exit 1
}
tree() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var -o -path /etc \) -prune -o -print | sort; }

step system "$PRETTY_NAME, $(getconf GNU_LIBC_VERSION)"
tree >/tmp/before
began=$SECONDS
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /tailsight.deb >/tmp/apt.log 2>&1 ||
    fail "apt-get install" "$(tail -3 /tmp/apt.log)"
step "apt-get install" "$(dpkg-query -W -f '${Version}, ${Installed-Size} KiB, needs ${Depends}' tailsight)"

for file in /usr/bin/tailsight /usr/share/man/man1/tailsight-record.1.gz /usr/share/bash-completion/completions/tailsight \
    /usr/share/zsh/vendor-completions/_tailsight /usr/share/fish/vendor_completions.d/tailsight.fish \
    /usr/share/doc/tailsight/copyright; do
    # A minimal Ubuntu image tells dpkg to leave out manuals and documents.
    [ -s "$file" ] || grep -qrs "path-exclude=${file%/*}" /etc/dpkg/dpkg.cfg.d || fail files "$file is not there"
done
dpkg --verify tailsight | grep -v '^??5?????? c' >/tmp/verify || true
[ ! -s /tmp/verify ] || grep -qrs path-exclude /etc/dpkg/dpkg.cfg.d || fail files "$(cat /tmp/verify)"
named=0
for page in $({ tailsight --help && for command in $(tailsight --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    tailsight help "$command"; done; } | grep -o 'docs/[a-z/-]*\.md' | sort -u); do
    named=$((named + 1))
    [ -s "/usr/share/doc/tailsight/$page" ] || grep -qrs 'path-exclude=/usr/share/doc' /etc/dpkg/dpkg.cfg.d ||
        fail files "help names $page, which is not there"
done
[ "$named" -gt 3 ] || fail files "help names $named pages"
step files "$(dpkg -L tailsight | wc -l) files and folders, as packed"

tailsight --version >/dev/null || fail --version "exit $?"
tailsight man record | grep -q 'tailsight.record' || fail man "no page"
tailsight completions bash >/dev/null || fail completions "exit $?"
code=0
tailsight doctor >/tmp/doctor || code=$?
step doctor "exit $code"
[ "$code" = 0 ] || { cat /tmp/doctor; fail doctor "this kernel does not permit recording"; }

# Server, load and recording end here, also when a step fails.
server='' load=''
trap '[ -z "$load" ] || kill "$load" 2>/dev/null; [ -z "$server" ] || kill "$server" 2>/dev/null' EXIT
memcached -u nobody -l 127.0.0.1 -p 11311 -t 1 &
server=$!
sleep 1
tailsight load memcached://127.0.0.1:11311 --rate 5k --max-time 12s >/tmp/load 2>&1 &
load=$!
sleep 2
tailsight record -p "$server" -d 2s -o /tmp/run >/tmp/record 2>&1 || fail record "$(tail -3 /tmp/record)"
code=0
tailsight diagnose /tmp/run >/tmp/diagnosis 2>&1 || code=$?
[ "$code" = 0 ] || fail diagnose "exit $code: $(tail -3 /tmp/diagnosis)"
messages=$(sed -n 's/^memcached.*legs: \([0-9,]* of [0-9,]* messages\).*/\1/p' /tmp/diagnosis)
cause=$(sed -n 's/^ 1 \( *[0-9.]* %\) *[^ ]* *\(.*\)/\1 \2/p' /tmp/diagnosis | tr -s ' ')
[ -n "$cause" ] || fail diagnose "no cause: $(cat /tmp/diagnosis)"
step "recorded and diagnosed" "$messages; first cause: $cause"
step "install to cause" "$((SECONDS - began)) s"
kill "$load" "$server"
wait "$load" "$server" 2>/dev/null || true
server='' load=''

DEBIAN_FRONTEND=noninteractive apt-get purge -y tailsight >/tmp/apt.log 2>&1 || fail "apt-get purge" "$(tail -3 /tmp/apt.log)"
tree >/tmp/after
diff /tmp/before /tmp/after >/tmp/left || fail "apt-get purge" "left behind: $(cat /tmp/left)"
step "apt-get purge" "nothing is left"
