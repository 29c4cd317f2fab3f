#!/bin/sh
# Does tailsight work on another kernel? Boots it in QEMU (emulated, no root, no network), records memcached under a few
# hundred requests there, checks that every message was matched, and that watch makes a capture.
#
#   scripts/kernel.sh VMLINUZ [DIR]   VMLINUZ: a kernel image, as it lies in boot/ of a distribution's kernel package
#                                     (dpkg -x linux-image-….deb there); memcached and loopback are all it must have.
#                                     DIR: where the console's log goes (default: kernel-out in the current folder)
#
# Needs qemu-system-x86_64, a static busybox, memcached, cpio, and TAILSIGHT (default: target/release/tailsight, make release).
# Takes half a minute.
# Exit: 0 recorded and matched, 1 not; the log says what the kernel did not have.
set -eu
. "$(dirname -- "$0")/lib.sh"
[ $# -ge 1 ] || die "which kernel? scripts/kernel.sh VMLINUZ [DIR]"
kernel=$1
out=${2:-kernel-out}
binary=${TAILSIGHT:-${CARGO_TARGET_DIR:-$REPO/target}/release/tailsight}
[ -r "$kernel" ] || die "$kernel cannot be read"
[ -x "$binary" ] || die "$binary is not there: make release, or set TAILSIGHT"
for program in qemu-system-x86_64 busybox memcached cpio strip; do
    have "$program" || die "$program is not installed (Debian: qemu-system-x86 busybox-static memcached cpio binutils)"
done

mkdir -p "$out"
root=$(mktemp -d)
chmod 755 "$root" # it becomes / of the guest, where a process without rights reads the server's files
trap 'rm -rf "$root"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/run" "$root/etc"
cp "$(command -v busybox)" "$root/bin/busybox"
strip -o "$root/bin/tailsight" "$binary"
cp "$(command -v memcached)" "$root/bin/memcached"
echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
# The libraries of both, where their loader looks for them.
ldd "$root/bin/tailsight" "$root/bin/memcached" | awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\/.*[^:]$/) print $i }' | sort -u | while read -r library; do
    mkdir -p "$root$(dirname -- "$library")"
    cp -L "$library" "$root$library"
done
cat >"$root/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev && mount -t tmpfs tmp /tmp && mount -t tmpfs run /run
ip link set lo up
memcached -u root -l 127.0.0.1 -p 11211 -t 1 &
server=$!
sleep 1
tailsight doctor >/tmp/doctor 2>&1
echo "doctor ended with $?"
cat /tmp/doctor
tailsight record -p $server -d 16s -o /tmp/run >/tmp/recorded 2>&1 &
recorder=$!
# Loading the probes takes its time where every instruction is emulated.
while [ ! -e /tmp/run/run.json ] && kill -0 $recorder 2>/dev/null; do usleep 100000; done
sleep 1
# requests N
requests() {
    i=0
    while [ $i -lt $1 ]; do
        printf 'get a\r\n'
        i=$((i + 1))
        usleep 20000
    done
    printf 'quit\r\n'
}
requests 200 | timeout 40 nc 127.0.0.1 11211 >/dev/null
wait $recorder
echo "record ended with $?"
cat /tmp/recorded
tailsight diagnose /tmp/run --leg receive --focus p50..p100 --reference p0..p50
echo "diagnose ended with $?"
# Here every message takes longer than that.
timeout 150 tailsight watch -p $server --when 'total > 1us' --captures 1 -o /tmp/watch >/tmp/watched 2>&1 &
watcher=$!
while ! grep -q '^watching' /tmp/watched && kill -0 $watcher 2>/dev/null; do usleep 100000; done
requests 400 | timeout 60 nc 127.0.0.1 11211 >/dev/null
wait $watcher
echo "watch ended with $?"
cat /tmp/watched
poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 >"$out/initramfs.gz"
log=$out/console.log
timeout 500 qemu-system-x86_64 -kernel "$kernel" -initrd "$out/initramfs.gz" -append "console=ttyS0 quiet panic=-1" \
    -nographic -no-reboot ${QEMU_CPU:--cpu max} -smp 2 -m 3000 </dev/null >"$log" 2>&1 || true
rm -f "$out/initramfs.gz"

plain=$(tr -d '\r' <"$log" | sed 's/\x1b\[[0-9;]*m//g')
printf '%s\n' "$plain" | sed -n '/^Recorded: /,/^Next: /p'
grep -q 'doctor ended with 0' "$log" || die "doctor says that this kernel cannot record; the console's log is $log"
grep -q 'record ended with 0' "$log" || die "nothing was recorded; the console's log is $log"
grep -q 'diagnose ended with 0' "$log" || die "the run was not diagnosed; the console's log is $log"
matched=$(printf '%s\n' "$plain" | sed -n 's/.*receive only: \([0-9,]*\) of .*/\1/p' | tr -d ,)
messages=$(printf '%s\n' "$plain" | sed -n 's/.*receive only: .* of \([0-9,]*\) messages.*/\1/p' | tr -d ,)
if [ "${matched:-0}" -lt 100 ] || [ "$matched" != "$messages" ]; then
    die "${matched:-no} of ${messages:-no} messages were matched; the console's log is $log"
fi
grep -q 'watch ended with 0' "$log" || die "watch failed; the console's log is $log"
printf '%s\n' "$plain" | grep -q ', 1 captured$' || die "watch captured nothing; the console's log is $log"
say "$matched of $messages messages matched, one captured; the console's log is $log"
