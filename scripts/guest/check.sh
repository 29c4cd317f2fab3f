# shellcheck shell=sh
# For the scripts of this folder, which source it as /check.sh: checks that are counted.
passed=0 failed=0
# check WHAT COMMAND…: WHAT is so when COMMAND succeeds.
check() {
    what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok      $what"
    else
        failed=$((failed + 1))
        echo "FAILED  $what"
    fi
}
not() { ! "$@"; }
# The end of a script: succeeds when every check passed.
conclude() {
    echo "==== $passed of $((passed + failed)) checks passed"
    [ $failed = 0 ]
}
