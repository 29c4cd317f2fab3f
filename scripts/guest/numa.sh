# shellcheck shell=sh
# Runs in the guest of scripts/guest.sh --numa: two nodes with a core and memory each, NUMA balancing on.
# programs: memcached
#
# memcached is recorded while its memory is filled from one node and it runs on the other, so that the kernel moves its
# pages after it. What the recording holds of that is printed.
set -u
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
tailsight record -p $memcached -d 12s -o /tmp/run >/tmp/recorded 2>&1 &
recorder=$!
# Loading the probes takes its time where every instruction is emulated.
while [ ! -e /tmp/run/run.json ] && kill -0 $recorder; do sleep 1; done
before=$(awk '/numa_pages_migrated/ { print $2 }' /proc/vmstat)
get_values | nc 127.0.0.1 11211 >/dev/null &
sleep 2
# All its threads to the other node: its memory stays behind.
for task in /proc/$memcached/task/*; do taskset -p 2 "${task##*/}" >/dev/null; done
wait $recorder
ended=$?
touch /tmp/stop
echo "==== record ended with $ended"
cat /tmp/recorded
after=$(awk '/numa_pages_migrated/ { print $2 }' /proc/vmstat)
echo "==== the kernel moved $((after - before)) pages between the nodes while recording"
tailsight diagnose /tmp/run --focus p90..p100 --reference p0..p50 || ended=1
exit $ended
