# shellcheck shell=sh
# Runs in the guest of scripts/guest.sh --igb: fixes that need a network device with interrupts and queues of its own, or settings
# that the machine of the tests may not have. Each is shown, refused without an answer, made, and put back.
# programs: memcached ethtool
# modules: dca i2c-core i2c-algo-bit ptp igb
#
# memcached on eth0 and on core 0 is recorded. A category table that calls every cause by one name asks for the fixes of that
# name, as the tests do. Values are read from /proc, /sys and ethtool, not by what set them.
set -u
. /check.sh
server=192.0.2.1
ip link set eth0 up
ip addr add $server/24 dev eth0
unshare -n sleep 1000 &
client=$!
sleep 1
ip link set eth1 netns $client
in_client() { nsenter -t $client -n "$@"; }
in_client ip link set eth1 up
in_client ip addr add 192.0.2.2/24 dev eth1
taskset 1 memcached -u root -l $server -p 11211 -t 1 &
memcached=$!
group=/sys/fs/cgroup/server
echo '+cpu +memory' >/sys/fs/cgroup/cgroup.subtree_control
mkdir $group
echo $memcached >$group/cgroup.procs
for _ in 1 2 3 4 5 6 7 8 9 10; do
    in_client ping -c 1 -W 1 $server >/dev/null && break
    sleep 1
done
load() {
    while [ ! -e /tmp/stop ]; do
        printf 'get a\r\n'
        usleep 20000
    done
    printf 'quit\r\n'
}
tailsight record -p $memcached -d 10s -o /tmp/run >/tmp/recorded 2>&1 &
recorder=$!
while [ ! -e /tmp/run/run.json ] && kill -0 $recorder; do sleep 1; done
load | in_client nc $server 11211 >/dev/null &
wait $recorder
check "the recording ends well" test $? = 0
touch /tmp/stop
cat /tmp/recorded

# there_and_back CATEGORY NAME KIND WITH CHANGED WORDS…: the fix of a cause called so whose change is of this kind and has WITH in
# it. WORDS print the value.
there_and_back() {
    category=$1 name=$2 kind=$3 with=$4 changed=$5
    shift 5
    echo "==== $category, $name: $kind $with"
    printf '[[rule]]\ncategory = "%s"\nname = "%s"\nnest = false\n' "$category" "$name" >/tmp/table.toml
    question="--leg receive --focus p50..p100 --reference p0..p50 --categories /tmp/table.toml"
    tailsight diagnose /tmp/run $question --json >/tmp/answer.json
    n=$(awk -v kind="\"kind\": \"$kind\"" -v with="$with" '/^ *"n": / { n = $2; is = 0 } index($0, kind) { is = 1 }
        is && index($0, with) { sub(",", "", n); print n; exit }' /tmp/answer.json)
    check "the diagnosis has it" test -n "$n"
    [ -n "$n" ] || return
    before=$("$@")
    check "it is not so before: $before" test "$before" != "$changed"
    tailsight fix /tmp/run "$n" $question </dev/null >/tmp/shown 2>&1
    check "without an answer: 2" test $? = 2
    cat /tmp/shown
    check "it shows each value" grep -q -e ' -> ' /tmp/shown
    check "nothing is changed" test "$("$@")" = "$before"
    tailsight fix /tmp/run "$n" $question --yes >/tmp/made 2>&1
    check "made: 0" test $? = 0
    check "it is $changed" test "$("$@")" = "$changed"
    tailsight fix --undo >/tmp/undone 2>&1
    check "undone: 0" test $? = 0
    check "it is as before" test "$("$@")" = "$before"
    sed 's/^/    /' /tmp/made /tmp/undone
}
each() { cat "$@" | tr '\n' ' ' | sed 's/ $//'; }
# One word a line of the argument.
words() { n=$1 word=$2 && yes "$word" | head -n "$n" | tr '\n' ' ' | sed 's/ $//'; }

irqs=''
for irq in /sys/class/net/eth0/device/msi_irqs/*; do
    # Those that are requested: of the device's vectors some may not be.
    [ -z "$(ls "/proc/irq/${irq##*/}" | grep eth0)" ] || irqs="$irqs /proc/irq/${irq##*/}/smp_affinity_list"
done
echo "==== interrupts and queues of eth0"
grep eth0 /proc/interrupts
ls -d /sys/class/net/eth0/queues/*
queues() { echo /sys/class/net/eth0/queues/$1-*/$2; }
there_and_back receive-processing net_rx interrupts interrupts "$(words $(echo $irqs | wc -w) 1)" each $irqs
one=$(echo $irqs | tr ' ' '\n' | sed -n '2s/[^0-9]//gp')
there_and_back interrupts "irq:$one" file "/proc/irq/$one/" 1 cat "/proc/irq/$one/smp_affinity_list"
there_and_back receive-processing net_rx queues rps_cpus "$(words $(queues rx rps_cpus | wc -w) 2)" each $(queues rx rps_cpus)
there_and_back transmit-processing send queues xps_cpus "$(words $(queues tx xps_cpus | wc -w) 2)" each $(queues tx xps_cpus)
usecs() { ethtool -c eth0 | sed -n 's/^rx-usecs:[^0-9]*//p'; }
there_and_back nic-delay "NIC to driver" coalescing coalescing 0 usecs

echo 1 >/sys/kernel/mm/ksm/run
there_and_back os-threads ksmd file ksm/run 0 cat /sys/kernel/mm/ksm/run
echo 1 >/sys/kernel/mm/transparent_hugepage/khugepaged/defrag
there_and_back os-threads khugepaged file khugepaged/defrag 0 cat /sys/kernel/mm/transparent_hugepage/khugepaged/defrag
there_and_back os-threads kworker file workqueue/cpumask 2 cat /sys/devices/virtual/workqueue/cpumask
there_and_back lock-wait rcu file rcu_expedited 1 cat /sys/kernel/rcu_expedited
echo '50000 100000' >$group/cpu.max
there_and_back throttled quota no-limit cpu-quota 'max 100000' cat $group/cpu.max
echo 512M >$group/memory.high
there_and_back paging memcg-limit no-limit memory-high max cat $group/memory.high
echo "==== idle states of this guest"
grep . /sys/devices/system/cpu/cpu0/cpuidle/state*/name /sys/devices/system/cpu/cpu0/cpuidle/state*/latency || echo none
conclude
