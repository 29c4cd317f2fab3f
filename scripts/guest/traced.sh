# shellcheck shell=sh
# Runs in the guest of scripts/guest.sh: functions that the user names, of the kernel by fentry and fexit, and of a library by breakpoints.
# programs: memcached
#
# For a kernel of 6.1 or newer that lets programs attach to functions, as Debian's do.
set -u
. /check.sh
memcached -u root -l 127.0.0.1 -p 11211 -t 1 &
memcached=$!
sleep 1
tailsight record -p $memcached -d 10s -o /tmp/traced --function tcp_sendmsg_locked --function 'sock_def_reada*' \
    --uprobe libc.so.6:sendmsg >/tmp/traced.log 2>&1 &
recorder=$!
while [ ! -e /tmp/traced/run.json ] && kill -0 $recorder 2>/dev/null; do usleep 100000; done
sleep 2
timeout 20 tailsight load memcached://127.0.0.1 --rate 30 --connections 1 --keys 10 --max-time 5s >/tmp/load.log 2>&1
wait $recorder
ended=$?
cat /tmp/traced.log
# calls NAME: of a traced function, as run.json counts them.
calls() {
    awk -v name="\"$1\"," '/"traced": \{/ { on = 1 } on && $1 == "\"name\":" { it = $2 == name } on && it && $1 == "\"calls\":" { sub(",", "", $2); print $2; exit }' \
        /tmp/traced/run.json
}
tailsight diagnose /tmp/traced --leg transmit --focus p50..p100 --reference p0..p50 --json >/tmp/transmit.json
tailsight diagnose /tmp/traced --leg transmit --focus p50..p100 --reference p0..p50
echo "==== calls: sendmsg $(calls sendmsg), tcp_sendmsg_locked $(calls tcp_sendmsg_locked), sock_def_readable $(calls sock_def_readable)"
check "recorded" test "$ended" = 0
check "the library's function was met" test "$(calls sendmsg)" -ge 50
check "the kernel's function was met" test "$(calls tcp_sendmsg_locked)" -ge 50
# The tracepoint or fentry inside of it is where the transmit leg begins: the rest of it is a span of the leg.
check "its time is a span" grep -q 'function:tcp_sendmsg_locked' /tmp/transmit.json
if tailsight record -p $memcached -d 1s -o /tmp/none --function no_such_function_at_all 2>/tmp/none.log; then
    check "a function that is not there is refused" false
fi
cat /tmp/none.log
check "and it is said why" grep -q 'no function' /tmp/none.log
echo 0 >/proc/sys/kernel/ftrace_enabled 2>/dev/null && {
    tailsight record -p $memcached -d 1s -o /tmp/off --function tcp_sendmsg_locked 2>/tmp/off.log
    # Before 6.3 nothing can be recorded without it.
    cat /tmp/off.log
    check "without the function tracer it is said" grep -q -e ftrace_enabled -e 'recording needs kernel' /tmp/off.log
}
conclude
