# shellcheck shell=sh disable=SC2034,SC2154 # The scripts that source this file set page and use what it sets.
# The options of the scripts that run scenarios of the lab; source it, do not run it. POSIX sh.
#
# In: the positional parameters, and page, the file that --write writes. Out: scenarios (`all`, or those of `--only`), write (empty, or
# the option for lab), repeat_given (yes or no), and the other options as the positional parameters.
scenarios=all
write=
repeat_given=no
count=$#
while [ "$count" -gt 0 ]; do
    option=$1
    shift
    count=$((count - 1))
    case $option in
    --write) write="--write $page" ;;
    --only)
        scenarios=$1
        shift
        count=$((count - 1))
        ;;
    *)
        [ "$option" != --repeat ] || repeat_given=yes
        set -- "$@" "$option"
        ;;
    esac
done
