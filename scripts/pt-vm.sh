#!/bin/sh
# Makes an Intel PT recording of a whole machine without the hardware: boots a Debian kernel with memcached and a client in QEMU
# (emulated, no root, no network outside), writes down every instruction between two marks, kernel and user space, and encodes it
# as perf would have recorded it. Its control flow is real; its time is assigned, not measured.
#
#   scripts/pt-vm.sh [--cpus N] [--requests N] [--cycles] [--compress-returns] [--fault NAME] [--fixture FOLDER] VMLINUZ [DIR]
#     --cpus N            virtual processors (default 2)
#     --requests N        requests between the marks (default 64)
#     --cycles            cycle counts with every packet, MTC and TMA; else a TSC packet every 30 ns
#     --compress-returns  returns as one bit where the processor would
#     --fault NAME        tailsight records the messages in the guest meanwhile, the server has the second processor for itself, and a
#                         fault is put into every tenth request: long, interrupt, queue, protection, or none (lab/src/pt/vm/faults.h).
#                         The functions are then put into that run, and it is diagnosed; needs TAILSIGHT (default: target/release/tailsight)
#     --fixture FOLDER    puts the recording into the tests of tailsight-pt under that name, compressed
#     VMLINUZ             a kernel image with BTF, as it lies in a distribution's kernel package (dpkg -x linux-image-….deb there)
#     DIR                 where everything goes (default: pt-vm-out in the current folder)
#
# Where perf is installed, its calls and returns of the recording are compared with what ran. Needs qemu-system-x86_64 9.2 or newer (Debian
# 12: from backports), a C compiler, a static busybox, memcached, cpio and strip. Takes two to five minutes.
# With --fault, exit 1 also when import or diagnosis fails.
# Exit: 0; 1 when the guest did not come so far, or perf finds other calls and returns than those that ran.
set -eu
. "$(dirname -- "$0")/lib.sh"
cpus=2 requests=64 style='' fixture='' fault=''
while [ $# -gt 0 ]; do
    case $1 in
    --cpus)
        cpus=${2:?how many?}
        shift
        ;;
    --requests)
        requests=${2:?how many?}
        shift
        ;;
    --cycles | --compress-returns) style="$style $1" ;;
    --fault)
        fault=${2:?which?}
        shift
        ;;
    --fixture)
        fixture=${2:?which folder?}
        shift
        ;;
    -*) die "no option $1; see the head of $0" ;;
    *) break ;;
    esac
    shift
done
[ $# -ge 1 ] || die "which kernel? scripts/pt-vm.sh VMLINUZ [DIR]"
kernel=$1 out=${2:-pt-vm-out}
[ -r "$kernel" ] || die "$kernel cannot be read"
for program in qemu-system-x86_64 busybox memcached cpio strip cc; do
    have "$program" || die "$program is not installed (Debian: qemu-system-x86 busybox-static memcached cpio binutils gcc)"
done
lab=${LAB:-${CARGO_TARGET_DIR:-$REPO/target}/debug/lab}
[ -x "$lab" ] || die "$lab is not there: cargo build -p tailsight-lab --bin lab, or set LAB"

rm -rf "$out"
mkdir -p "$out/log" "$out/guest"
out=$(CDPATH='' cd -- "$out" && pwd)
root=$out/guest vm=$REPO/lab/src/pt/vm
cc -O2 -g0 -Wall -Wextra -shared -fPIC -fvisibility=hidden -o "$out/plugin.so" "$vm/plugin.c"
binary=${TAILSIGHT:-${CARGO_TARGET_DIR:-$REPO/target}/release/tailsight}
[ -z "$fault" ] || [ -x "$binary" ] || die "$binary is not there: make release, or set TAILSIGHT"
for folder in bin proc sys dev tmp run etc; do mkdir -p "$root/$folder"; done
cc -O2 -g0 -Wall -static -o "$root/bin/agent" "$vm/guest.c"
for program in busybox memcached; do cp "$(command -v "$program")" "$root/bin/$program"; done
[ -z "$fault" ] || strip -o "$root/bin/tailsight" "$binary"
echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
for program in "$root"/bin/*; do ldd "$program" 2>/dev/null || true; done |
    awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\/.*[^:]$/) print $i }' | sort -u | while read -r library; do
    mkdir -p "$root$(dirname -- "$library")"
    cp -L "$library" "$root$library"
done
cat >"$root/init" <<END
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev && mount -t tmpfs tmp /tmp && mount -t tmpfs run /run
ip link set lo up
echo 0 >/proc/sys/kernel/randomize_va_space
END
if [ -z "$fault" ]; then
    cat >>"$root/init" <<END
/bin/memcached -u root -l 127.0.0.1 -p 11211 -t 1 &
/bin/agent $requests
poweroff -f
END
else
    cat >>"$root/init" <<END
[ $fault != queue ] || echo 2 >/sys/class/net/lo/queues/rx-0/rps_cpus
taskset 2 /bin/memcached -u root -l 127.0.0.1 -p 11211 -t 1 &
server=\$!
sleep 1
taskset 1 /bin/agent $requests $fault &
agent=\$!
sleep 1
# Loading the probes takes its time where every instruction is emulated; the agent waits for it.
taskset 1 /bin/tailsight record -p \$server -d 600s --sample off -o /tmp/run >/tmp/recorded 2>&1 &
recorder=\$!
wait \$agent
usleep 300000
kill -INT \$recorder
wait \$recorder
echo "record ended with \$?"
cat /tmp/recorded
tar -cf /tmp/run.tar -C /tmp run && /bin/agent send /tmp/run.tar run.tar && echo "agent: the run"
poweroff -f
END
fi
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 >"$out/initramfs.gz"
# -icount: the processors take turns in one thread, so the plugin's log is in the order of execution. vdso=0: all code of programs is of files.
timeout "${GUEST_SECONDS:-500}" qemu-system-x86_64 -kernel "$kernel" -initrd "$out/initramfs.gz" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check nokaslr vdso=0 mitigations=off" -nographic -no-reboot -nic none \
    -cpu max -accel tcg,thread=single -icount shift=0,sleep=off -smp "$cpus" -m 3000 -plugin "$out/plugin.so,out=$out/log" \
    </dev/null >"$out/console.log" 2>&1 || true
rm -f "$out/initramfs.gz"
grep -q 'agent: done' "$out/console.log" || die "the guest did not come to its end; the console's log is $out/console.log"
# shellcheck disable=SC2086 # No word of it has a space.
"$lab" pt-vm "$out/log" --root "$root" --out "$out" $style

if have perf; then
    # An idle task is named by its processor, as in the log. perf counts processors with leading zeros.
    perf script -i "$out/recording" --symfs "$out/root" --itrace=cr -F tid,cpu,flags,ip,addr 2>"$out/perf-errors.txt" |
        awk '$3 == "call" || $3 == "return" { cpu = $2; gsub(/[^0-9]/, "", cpu); print $1 ? $1 : "0/" cpu + 0, $3, $4, $6 }' >"$out/perf-script.txt"
    same=yes
    for thread in $(awk '$2 == "instructions" { print $1 }' "$out/log.txt"); do
        awk -v t="$thread" '$1 == t && $2 != "instructions"' "$out/log.txt" >"$out/one.txt"
        awk -v t="$thread" '$1 == t' "$out/perf-script.txt" | cmp -s - "$out/one.txt" || {
            say "perf finds other calls and returns of thread $thread than those that ran"
            same=no
        }
    done
    rm -f "$out/one.txt"
    [ -s "$out/perf-script.txt" ] || same=no
    [ "$same" = yes ] || die "see $out/perf-script.txt, $out/log.txt and $out/perf-errors.txt"
    say "perf finds the calls and returns that ran, of every thread: $(wc -l <"$out/perf-script.txt") of them"
fi

if [ -n "$fault" ]; then
    grep -q 'agent: the run' "$out/console.log" || die "the guest sent no run; the console's log is $out/console.log"
    tar -xf "$out/log/files/run.tar" -C "$out"
    "$binary" import "$out/recording" --root "$out/root" --with "$out/run" --all -o "$out/both"
    "$binary" diagnose "$out/both" --focus p90..p100 --reference p0..p50
fi

if [ -n "$fixture" ]; then
    to=$REPO/crates/tailsight-pt/tests/fixtures/$fixture
    rm -rf "$to"
    # With a run, what is tested is what becomes of it: the log stays out.
    parts='recording root log.txt'
    [ -z "$fault" ] || parts='recording root run'
    # shellcheck disable=SC2086 # Words.
    (cd "$out" && find $parts -type f) | while read -r file; do
        mkdir -p "$to/$(dirname -- "$file")"
        gzip -9n <"$out/$file" >"$to/$file.gz"
    done
    say "$to: $(du -sk "$to" | cut -f1) KiB"
fi
