# shellcheck shell=sh
# Runs in the guest of scripts/guest.sh --numa: two nodes with a core and memory each, NUMA balancing on.
# programs: memcached
#
# memcached is recorded while its memory is filled from one node and it runs on the other, so that the kernel moves its
# pages after it: that must be the first cause. With the cause's own fix, and the threads moved again, it must not be one.
set -u
. /check.sh
echo "==== nodes"
for node in /sys/devices/system/node/node[0-9]*; do
    echo "${node##*/}: cores $(cat "$node/cpulist"), $(awk '/MemTotal/ { print $4, $5 }' "$node/meminfo")"
done
echo "kernel.numa_balancing = $(cat /proc/sys/kernel/numa_balancing)"
[ -d /sys/devices/system/node/node1 ] || exit 1
echo 1 >/proc/sys/kernel/numa_balancing
# The default scans a process' memory once a second at most, and not in its first second.
debug=/sys/kernel/debug
mount -t debugfs debug $debug
for scan in scan_delay_ms scan_period_min_ms; do
    [ ! -e $debug/sched/numa_balancing/$scan ] || echo 100 >$debug/sched/numa_balancing/$scan
done
taskset 1 memcached -u root -l 127.0.0.1 -p 11211 -t 2 -m 100 &
memcached=$!
sleep 1
value=$(head -c 60000 /dev/zero | tr '\0' x)
set_values() {
    i=0
    while [ $i -lt 300 ]; do
        printf 'set k%d 0 0 60000\r\n%s\r\n' $i "$value"
        i=$((i + 1))
    done
    printf 'quit\r\n'
}
set_values | timeout 120 nc 127.0.0.1 11211 >/dev/null
get_values() {
    i=0
    while [ ! -e /tmp/stop ]; do
        printf 'get k%d\r\n' $i
        i=$(((i + 1) % 300))
        usleep 2000
    done
    printf 'quit\r\n'
}
# record NAME CORES: all threads go to the cores of the mask while it records; their memory stays behind.
record() {
    tailsight record -p $memcached -d 12s -o "/tmp/$1" >/tmp/recorded 2>&1 &
    recorder=$!
    # Loading the probes takes its time where every instruction is emulated.
    while [ ! -e "/tmp/$1/run.json" ] && kill -0 $recorder; do sleep 1; done
    before=$(awk '/numa_pages_migrated/ { print $2 }' /proc/vmstat)
    rm -f /tmp/stop
    get_values | nc 127.0.0.1 11211 >/dev/null &
    sleep 2
    for task in /proc/$memcached/task/*; do taskset -p "$2" "${task##*/}" >/dev/null; done
    wait $recorder
    check "$1: the recording ends well" test $? = 0
    touch /tmp/stop
    cat /tmp/recorded
    moved=$(($(awk '/numa_pages_migrated/ { print $2 }' /proc/vmstat) - before))
    echo "==== $1: the kernel moved $moved pages between the nodes while recording"
    tailsight diagnose "/tmp/$1" $question
    tailsight diagnose "/tmp/$1" $question --json >"/tmp/$1.json"
}
question="--focus p90..p100 --reference p0..p50"
# The names of the causes, first to last.
causes() { awk '/^  "causes": \[/ { on = 1 } /^  \]/ { on = 0 } on && /^      "name":/' "/tmp/$1.json"; }
record on 2
moved_on=$moved
check "on: pages moved" test $moved -ge 100
check "on: the first cause is NUMA balancing" test "$(causes on | head -n 1 | grep -c 'NUMA balancing')" = 1
tailsight fix /tmp/on 1 $question --yes
check "its first fix turns it off" test "$(cat /proc/sys/kernel/numa_balancing)" = 0
# Pages that were marked before it was turned off still move when they are touched: once more round all values.
rm /tmp/stop
(sleep 5 && touch /tmp/stop) &
get_values | nc 127.0.0.1 11211 >/dev/null
record off 1
check "off: a hundredth of the pages at most" test $((moved * 100)) -le "$moved_on"
check "off: there are causes" test "$(causes off | wc -l)" -gt 0
check "off: NUMA balancing is none" test "$(causes off | grep -c 'NUMA balancing')" = 0
conclude
