# shellcheck shell=sh disable=SC2086,SC2154,SC2162 # words; variables of the script that reads this one
# Functions for tables of options. try_options TABLE COMMAND...: checks that each row's option acts
# or is refused, and that every option of the commands has a row, command|option|operands and other
# options|value|how. How, compared with the same call without the option:
#   change   another result or file (value @: a flag)    same    the same bits by contract
#   refuse   misuse, or a failure, with a line           rescue  the call fails without it only
#   listen   as rescue, for a server, which a signal then ends
#   any other word: the file of tests/ or of one of its folders that tests the option and has its name
# A row whose value is bf16 is skipped if the CPU lacks it, unless it is refused anyway.

# attempt COMMAND ARGUMENTS: its output and files in o/, without times, memory and compare's records,
# into seen
attempt() {
    rm -rf o
    mkdir o
    timeout 20 "$KVFOLD" "$@" --json >out 2>err <lines
    code=$?
    {
        sed 's/"[a-z_]*\(second\|rate\|rss\|matmul_share\)[a-z_]*":[^,}]*//g; s/"components":{[^}]*}//' out
        find o -type f ! -name '*run.h5' ! -path 'o/c/*.json' | sort | while read file; do cat $file; done
    } >seen
}
try_row() { # command option with value how
    if [ $4,$5 = bf16,change ] && ! can bf16; then
        skip "$1 --$2 bf16"
        return
    fi
    if [ $5 != refuse ] && [ "$1 $3" != "$last" ]; then
        attempt $1 $3
        mv seen plain
        plain_code=$code
        last="$1 $3"
        [ $5 = rescue ] && last=
    fi
    if [ $5 = listen ]; then
        [ $plain_code -eq 1 ] || fail "$1 --$2 ($3): is not needed"
        "$KVFOLD" $1 $3 --"$2" >out 2>err &
        for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            grep -q "^listening on" out && break
            kill -0 $! 2>kill_err || break
            sleep 0.2
        done
        kill -TERM $! 2>kill_err
        wait $!
        grep -q "^listening on" out || grep -q "built without libmicrohttpd" err || fail "$1 --$2 ($3): $(cat err)"
        return
    fi
    if [ "$4" = @ ]; then attempt $1 $3 --"$2"; else attempt $1 $3 --"$2" "$4"; fi
    [ $5 = refuse ] || [ $5 = rescue ] || [ $plain_code -eq 0 ] || fail "$1 $3: exit status $plain_code without --$2"
    case $5:$code in
    refuse:[12]) [ -s err ] || fail "$1 --$2: refused without a word" ;;
    change:0) cmp -s plain seen && fail "$1 --$2 $4 ($3): is ignored" ;;
    same:0) cmp -s plain seen || fail "$1 --$2 $4 ($3): changes bits" ;;
    rescue:0) [ $plain_code -ne 0 ] || fail "$1 --$2 ($3): is not needed" ;;
    *) fail "$1 --$2 $4 ($3): $5 expected, exit status $code: $(cat err)" ;;
    esac
}
try_options() {
    last=
    table=$1
    shift
    while IFS='|' read -r command option with value how; do
        case $how in
        change | same | refuse | rescue | listen) try_row $command $option "$with" "$value" $how ;;
        *)
            other=$(echo $option | tr - _)
            grep -qe "--$option\|[.\"]$option\|\b$other" "$SOURCE/tests/$how" "$SOURCE"/tests/*/"$how" 2>err || fail "$command --$option: not in tests/$how"
            ;;
        esac
    done <"$table"
    for command; do
        "$KVFOLD" $command --help all | sed -n 's/^  --\([a-z-]*\).*/\1/p' | grep -vx -e threads -e json -e quiet -e help >options
        while read -r option; do
            grep -q "^$command|$option|" "$table" || fail "$command --$option: no row says how its effect is seen"
        done <options
    done
}
