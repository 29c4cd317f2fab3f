# shellcheck shell=sh
# Runs in the guest of scripts/guest.sh --disk: programs at functions of the kernel (fentry, fexit), and tracepoints of a module.
# programs: memcached redis-server perl setpriv
# modules: crc16 crc32c_generic libcrc32c mbcache jbd2 ext4 virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk
#
# Servers are recorded twice: with the function tracer on, where sends and fsync are told by fentry and fexit; and with it off
# (kernel.ftrace_enabled=0), where each must be told by what comes next, and fsync by the tracepoints of the ext4 module. So what
# passes in one part must not in the other. For a kernel of 6.3 or newer, on x86-64, with ext4 as a module, as Debian's are.
set -u
. /check.sh
# record NAME PID LEG WORDS…: records while WORDS run, and diagnoses the leg.
record() {
    name=$1 pid=$2 leg=$3
    shift 3
    tailsight record -p "$pid" -d 10s -o "/tmp/$name" >"/tmp/$name.log" 2>&1 &
    recorder=$!
    # Loading the probes takes its time where every instruction is emulated.
    while [ ! -e "/tmp/$name/run.json" ] && kill -0 $recorder 2>/dev/null; do usleep 100000; done
    sleep 2
    "$@" >"/tmp/$name.load" 2>&1
    wait $recorder || cat "/tmp/$name.log"
    tailsight diagnose "/tmp/$name" --leg "$leg" --focus p50..p100 --reference p0..p50 --json >"/tmp/$name.json"
    echo "==== $name: $(number "$name" complete) of $(number "$name" total) messages, p50 of the transmit leg $(transmit "$name") ns"
    check "$name: 50 messages and more" test "$(number "$name" complete)" -ge 50
}
# number NAME KEY: of the messages.
number() { awk -v key="\"$2\":" '/"messages": \{/ { on = 1 } on && $1 == key { sub(",", ""); print $2; exit }' "/tmp/$1.json"; }
# The median of the transmit leg, ns. A leg of one datagram that begins at the driver ends there, too: 0.
transmit() {
    awk '/"legs": \{/ { legs = 1 } legs && /"transmit": \{/ { on = 1 } on && $1 == "\"p50\":" { sub(",", ""); print $2; exit }' \
        "/tmp/$1.json"
}
# begins NAME PROTOCOL BY: what the diagnosis says of where the transmit leg begins.
begins() { awk '/"send_entry": \{/,/\}/' "/tmp/$1.json" | grep -q "\"$2\": \"$3\""; }
# served NAME HOOK PROGRAM: whether that program served the hook.
served() { awk -v hook="\"$2\"," '$1 == "\"name\":" { on = $2 == hook } on && $1 == "\"program\":"' "/tmp/$1/run.json" | grep -q "\"$3\""; }
owned() { grep -q "$2" "/tmp/$1.json"; }

mkdir -p /disk
mount -t ext4 /dev/vda /disk || exit 1
memcached -u root -l 127.0.0.1,::1 -p 11211 -U 11211 -t 1 &
memcached=$!
redis-server --port 6379 --bind 127.0.0.1 --dir /disk --appendonly yes --appendfsync always --save '' >/tmp/redis.log &
redis=$!
# A server on a connected UDP socket: it sends back what comes from port 7001.
perl -e 'sub at { pack("S n C4 x8", 2, shift, 127, 0, 0, 1) } socket(S, 2, 2, 17); bind(S, at(7000)); connect(S, at(7001));
    while (1) { send(S, $_, 0) if defined recv(S, $_, 100, 0) }' &
echo=$!
ask_echo() {
    perl -e 'sub at { pack("S n C4 x8", 2, shift, 127, 0, 0, 1) } socket(S, 2, 2, 17); bind(S, at(7001)); connect(S, at(7000));
        for (1 .. 100) { send(S, "ping", 0); recv(S, $_, 100, 0); select(undef, undef, undef, 0.02) }'
}
load() { timeout 20 tailsight load "$@" --rate 30 --connections 1 --keys 10 --max-time 5s; }
sleep 2

echo "==== with the function tracer"
check "the function tracer is on" test "$(cat /proc/sys/kernel/ftrace_enabled)" = 1
record tcp $memcached transmit load memcached://127.0.0.1
record udp4 $memcached transmit load memcached+udp://127.0.0.1
record udp6 $memcached transmit load memcached+udp://[::1]
record connected $echo transmit ask_echo
record fsync $redis service load redis://127.0.0.1 --get-ratio 0
# From 6.16 on TCP has a tracepoint for it, which comes first.
if awk -F. '{ exit !($1 > 6 || ($1 == 6 && $2 >= 16)) }' /proc/sys/kernel/osrelease; then
    check "tcp: the leg begins at the tracepoint" begins tcp tcp tcp_sendmsg_locked
else
    check "tcp: the leg begins with fentry" begins tcp tcp fentry
    check "tcp: by its program" served tcp tcp_sendmsg_locked fentry_tcp_sendmsg_locked
fi
check "tcp: the leg begins before the driver" test "$(transmit tcp)" -gt 0
check "udp4: by its program" served udp4 udp_sendmsg fentry_udp_sendmsg
check "udp6: by its program" served udp6 udpv6_sendmsg fentry_udpv6_sendmsg
for name in udp4 udp6 connected; do
    check "$name: the leg begins with fentry" begins $name udp fentry
    check "$name: the leg begins before the driver" test "$(transmit $name)" -gt 0
done
check "fsync: begins by fentry" served fsync ext4_sync_file_enter fentry_vfs_fsync_range
check "fsync: ends by fexit" served fsync ext4_sync_file_exit fexit_vfs_fsync_range
check "fsync: a span" owned fsync file-sync

echo "==== without it"
if ! echo 0 >/proc/sys/kernel/ftrace_enabled; then
    echo "SKIPPED: this kernel does not let the function tracer be turned off"
    conclude
    exit
fi
record tcp-off $memcached transmit load memcached://127.0.0.1
record udp4-off $memcached transmit load memcached+udp://127.0.0.1
record connected-off $echo transmit ask_echo
record fsync-off $redis service load redis://127.0.0.1 --get-ratio 0
check "tcp-off: no fentry" not begins tcp-off tcp fentry
# On 6.16 and newer by the tracepoint, as before.
if begins tcp tcp fentry; then
    check "tcp-off: the leg begins at the driver" test "$(transmit tcp-off)" = 0
fi
check "udp4-off: the leg begins with the control group's hook" begins udp4-off udp cgroup
check "udp4-off: the leg begins before the driver" test "$(transmit udp4-off)" -gt 0
check "connected-off: the leg begins at the driver" test "$(transmit connected-off)" = 0
check "ext4 is a module" test -e /sys/kernel/btf/ext4
check "fsync-off: begins by the module's tracepoint" served fsync-off ext4_sync_file_enter ext4_sync_file_enter
check "fsync-off: ends by the module's tracepoint" served fsync-off ext4_sync_file_exit ext4_sync_file_exit
check "fsync-off: a span" owned fsync-off file-sync
# Whoever may not list the types of modules records all the same, without those hooks.
# By its path: the shell has a setpriv of its own, which cannot.
/bin/setpriv --bounding-set=-sys_admin tailsight record -p $redis -d 1s -o /tmp/unlisted >/tmp/unlisted.log 2>&1
ended=$?
[ $ended = 0 ] || cat /tmp/unlisted.log
check "without CAP_SYS_ADMIN: recorded" test $ended = 0
check "without CAP_SYS_ADMIN: the hooks are off and say why" grep -q 'module ext4: .*CAP_SYS_ADMIN' /tmp/unlisted/run.json

echo "==== hooks that are off: with the function tracer, without it, without it and CAP_SYS_ADMIN"
for log in fsync fsync-off unlisted; do sed -n '/^Off:/,/^Next/p' /tmp/$log.log | grep -v '^Next'; done
conclude
