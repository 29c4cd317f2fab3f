# shellcheck shell=sh
# Runs in the guest of scripts/guest.sh --igb: are the NIC's time stamps in the messages?
# programs: memcached hwstamp_ctl
# modules: dca i2c-core i2c-algo-bit ptp igb
#
# memcached on eth0, a client behind eth1 in a network namespace of its own, one wire. Transmit stamps by the kernel's BPF
# callbacks (6.15 or newer). Receive stamps: the 82576 as QEMU makes it stamps frames of PTP over Ethernet only, by their
# EtherType and message id. So both are set, in the device's registers, to those of IPv4 with ECT(0) (version and header
# length 0x45, then the byte of ECN with 2), and TCP negotiates ECN: then the device stamps the client's segments with data, and
# driver, kernel and recorder do what they always do. That is an emulated NIC with a setting that no driver makes.
set -u
. /check.sh
server=192.0.2.1
ip link set eth0 up
ip addr add $server/24 dev eth0
sysctl -q -w net.ipv4.tcp_ecn=1
unshare -n sleep 1000 &
client=$!
sleep 1
ip link set eth1 netns $client
in_client() { nsenter -t $client -n "$@"; }
in_client ip link set lo up
in_client ip link set eth1 up
in_client ip addr add 192.0.2.2/24 dev eth1
in_client sysctl -q -w net.ipv4.tcp_ecn=1
for _ in 1 2 3 4 5 6 7 8 9 10; do
    in_client ping -c 1 -W 1 $server >/dev/null && break
    sleep 1
done
# PTP over Ethernet, version 2: all that an 82576 stamps.
echo "==== the NIC"
hwstamp_ctl -i eth0 -t 1 -r 12
# BAR 0; TSYNCRXCFG 0x5f50: message id 0x45; ETQF 3 0x5cbc: on, stamped, EtherType 0x0800.
bar=$(head -n 1 "$(readlink -f /sys/class/net/eth0/device)/resource" | cut -d' ' -f1)
devmem $((bar + 0x5f50)) 32 0x4500
devmem $((bar + 0x5cbc)) 32 $((1 << 26 | 1 << 30 | 0x0800))

memcached -u root -l $server -p 11211 -t 1 &
memcached=$!
sleep 2
# The device stamps no further packet before software has taken the stamp; QEMU waits for RXSATRH (0xb630) to be read, which the
# driver does not do. So it is read before each request, and there is one request at a time.
request() {
    devmem $((bar + 0xb630)) 32 >/dev/null
    printf "$1\r\n"
}
load() {
    while [ ! -e "$1" ]; do
        request 'get a'
        usleep 5000
    done
    request quit
}
# One connection is there before the recording (its flag is set by the recorder), one comes while it runs.
load /tmp/first | in_client nc $server 11211 2>/tmp/refused >/dev/null &
first=$!
sleep 2
tailsight record -p $memcached -d 40s -o /tmp/run --nic-tx-stamps >/tmp/recorded 2>&1 &
recorder=$!
# Loading the probes takes its time where every instruction is emulated.
while [ ! -e /tmp/run/run.json ] && kill -0 $recorder; do sleep 1; done
sleep 15
touch /tmp/first
wait $first
load /tmp/second | in_client nc $server 11211 2>>/tmp/refused >/dev/null &
wait $recorder
ended=$?
touch /tmp/second
echo "==== record ended with $ended"
cat /tmp/recorded
echo "==== stamps in run.json"
awk '/"nic": \{/,/^  \},/' /tmp/run/run.json
for leg in receive transmit; do
    echo "==== the $leg leg"
    tailsight diagnose /tmp/run --leg $leg --focus p50..p100 --reference p0..p50
    tailsight diagnose /tmp/run --leg $leg --focus p50..p100 --reference p0..p50 --json >/tmp/$leg.json
done
echo "==== checks"
check "the recording ends well" test $ended = 0
check "both connections were made, the first before the recording" test ! -s /tmp/refused
flow() { tailsight show /tmp/run "$1" | sed -n 's/^tcp \([^,]*\),.*/\1/p'; }
last=$(awk '$1 == "\"total\":" { sub(",", ""); print $2 - 1; exit }' /tmp/transmit.json)
# The last one, which ends the connection, has no reply.
echo "the first message: $(flow 0); the last but one: $(flow $((last - 1)))"
check "the last but one is known" test -n "$(flow $((last - 1)))"
check "messages of both connections are in it" test "$(flow 0)" != "$(flow $((last - 1)))"
check "receive legs begin at the NIC" grep -q 'receive legs begin at the NIC' /tmp/receive.json
check "transmit legs end at the NIC" grep -q 'transmit legs end at the NIC' /tmp/transmit.json
check "from the NIC to the driver is a row" grep -q 'blocked/nic-to-driver' /tmp/receive.json
check "from the driver to the NIC is a row" grep -q 'blocked/driver-to-nic' /tmp/transmit.json
# The driver lets go of a stamped packet in the way in which packets are dropped.
check "no reply is said to be dropped" not grep -q 'dropped on their way out' /tmp/transmit.json
conclude
