#!/bin/sh
# Boots a kernel in QEMU (emulated, no root, no network outside) and runs one of the scripts in scripts/guest inside: for what
# this machine may not have, such as a NIC that stamps packets, a second NUMA node, or a kernel that traces functions.
#
#   scripts/guest.sh [--igb] [--numa] [--disk] [--modules DIR] VMLINUZ SCRIPT [DIR]
#     --igb          two emulated Intel 82576 on one wire: eth0 and eth1, each with a clock of its own (QEMU 8.0 or newer)
#     --numa         two NUMA nodes, each with a core and half of the memory, NUMA balancing on
#     --disk         a disk with an empty ext4, /dev/vda
#     --modules DIR  lib/modules/RELEASE of that kernel, when drivers are modules of it
#     VMLINUZ        a kernel image, as it lies in a distribution's kernel package (dpkg -x linux-image-….deb there)
#     SCRIPT         a name in scripts/guest, or a path; it is run as root by the guest's init. Its lines `# programs:` and
#                    `# modules:` say what of this machine and of that kernel it needs, modules in the order of loading
#     DIR            where the console's log goes (default: guest-out in the current folder)
#
#   scripts/guest.sh --igb --modules k/lib/modules/6.18.5-amd64 k/boot/vmlinuz-6.18.5-amd64 igb.sh
#   scripts/guest.sh --numa k/boot/vmlinuz-6.12.94-amd64 numa.sh
#   scripts/guest.sh --disk --modules k/lib/modules/6.12.94-amd64 k/boot/vmlinuz-6.12.94-amd64 functions.sh
#
# Needs qemu-system-x86_64, a static busybox, cpio, strip and xz, what the script names, and for --disk mkfs.ext4. Debian 13:
# qemu-system-x86 busybox-static cpio binutils xz-utils e2fsprogs memcached redis-server linuxptp ethtool; Debian 12 the same,
# with QEMU from backports (apt-get install -t bookworm-backports qemu-system-x86). TAILSIGHT is the binary (default:
# target/release/tailsight, make release). Takes one to five minutes. Exit: that of SCRIPT; 1 when the guest did not come so far.
set -eu
. "$(dirname -- "$0")/lib.sh"
igb='' numa='' disk='' modules=''
while [ $# -gt 0 ]; do
    case $1 in
    --igb) igb=yes ;;
    --numa) numa=yes ;;
    --disk) disk=yes ;;
    --modules)
        modules=${2:?which folder?}
        shift
        ;;
    -*) die "no option $1; see the head of $0" ;;
    *) break ;;
    esac
    shift
done
[ $# -ge 2 ] || die "which kernel and which script? scripts/guest.sh [--igb] [--numa] [--disk] [--modules DIR] VMLINUZ SCRIPT [DIR]"
kernel=$1 script=$2 out=${3:-guest-out}
case $script in */*) ;; *) script=$REPO/scripts/guest/$script ;; esac
binary=${TAILSIGHT:-${CARGO_TARGET_DIR:-$REPO/target}/release/tailsight}
[ -r "$kernel" ] || die "$kernel cannot be read"
[ -r "$script" ] || die "$script cannot be read"
[ -x "$binary" ] || die "$binary is not there: make release, or set TAILSIGHT"
programs="busybox $(sed -n 's/^# programs: //p' "$script")"
for program in qemu-system-x86_64 cpio strip xz $programs ${disk:+mkfs.ext4}; do
    have "$program" || die "$program is not installed; the head of $0 has the names of Debian's packages"
done
if [ -n "$igb" ]; then
    qemu-system-x86_64 -device help 2>/dev/null | grep -q '"igb"' ||
        die "this QEMU has no igb: 8.0 or newer has (Debian 12: apt-get install -t bookworm-backports qemu-system-x86)"
fi

mkdir -p "$out"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 130' INT TERM
for folder in bin proc sys dev tmp run etc modules; do mkdir -p "$root/$folder"; done
strip -o "$root/bin/tailsight" "$binary"
for program in $programs; do cp "$(command -v "$program")" "$root/bin/$program"; done
cp "$script" "$root/script"
cp "$REPO/scripts/guest/check.sh" "$root/check.sh"
echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
# The libraries of all, where their loader looks for them.
for program in "$root"/bin/*; do ldd "$program" 2>/dev/null || true; done |
    awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\/.*[^:]$/) print $i }' | sort -u | while read -r library; do
    mkdir -p "$root$(dirname -- "$library")"
    cp -L "$library" "$root$library"
done
# What the script needs of the kernel's modules, in the order in which they are loaded; what is not there is built in.
number=10
for module in ${modules:+$(sed -n 's/^# modules: //p' "$script")}; do
    file=$(find "$modules" -name "$module.ko*" | head -n 1)
    number=$((number + 1)) to=$root/modules/$number-$module.ko
    case $file in
    '') ;;
    *.xz) xz -dc "$file" >"$to" ;;
    *.gz) gzip -dc "$file" >"$to" ;;
    *.ko) cp "$file" "$to" ;;
    *) die "$file is compressed in a way that is not known here" ;;
    esac
done
cat >"$root/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev && mount -t tmpfs tmp /tmp && mount -t tmpfs run /run
mkdir -p /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
for module in /modules/*.ko; do
    [ ! -e $module ] || insmod $module
done
uname -r
sh /script
echo "the script ended with $?"
poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 >"$out/initramfs.gz"

# no_timer_check: on a busy machine an emulated timer looks broken. iomem=relaxed: a script may set registers of a device.
set -- -kernel "$kernel" -initrd "$out/initramfs.gz" -append "console=ttyS0 quiet panic=-1 no_timer_check iomem=relaxed" \
    -nographic -no-reboot ${QEMU_CPU:--cpu max} -smp 2 -m 3000 -nic none
# Their places leave room for the virtual functions that each brings.
[ -z "$igb" ] || set -- "$@" -netdev hubport,id=a,hubid=0 -netdev hubport,id=b,hubid=0 \
    -device igb,netdev=a,mac=52:54:00:00:00:01,addr=4 -device igb,netdev=b,mac=52:54:00:00:00:02,addr=8
if [ -n "$disk" ]; then
    image=$root.ext4
    trap 'rm -rf "$root" "$root.ext4"' EXIT
    truncate -s 128M "$image"
    mkfs.ext4 -q "$image"
    set -- "$@" -drive "file=$image,format=raw,if=none,id=disk" -device virtio-blk-pci,drive=disk
fi
[ -z "$numa" ] || set -- "$@" -object memory-backend-ram,id=m0,size=1500M -object memory-backend-ram,id=m1,size=1500M \
    -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1 -numa dist,src=0,dst=1,val=20
log=$out/console.log
timeout "${GUEST_SECONDS:-400}" qemu-system-x86_64 "$@" </dev/null >"$log" 2>&1 || true
rm -f "$out/initramfs.gz"

plain=$(tr -d '\r' <"$log" | sed 's/\x1b\[[0-9;]*m//g')
printf '%s\n' "$plain" | sed -n '/^==== /,$p'
ended=$(printf '%s\n' "$plain" | sed -n 's/^the script ended with \([0-9]*\).*/\1/p')
[ -n "$ended" ] || die "the guest did not come to the end of the script; the console's log is $log"
say "the console's log is $log"
exit "$ended"
