#!/bin/sh
# Runs one script of this folder against the command, in a folder of its own that is removed.
# Usage: run.sh KVFOLD MAKE_TINY SCRIPT
#
# Scripts use these functions. Standard output, standard error and exit status of the last `run` are
# in out, err and $code. A failed expectation prints the actual text, and the test continues.
set -u
absolute() {
    case $1 in
    /*) printf '%s\n' "$1" ;;
    *) printf '%s/%s\n' "$PWD" "$1" ;;
    esac
}
KVFOLD=$(absolute "$1")
MAKE_TINY=$(absolute "$2")
SCRIPT=$(absolute "$3")
# shellcheck disable=SC2034 # for the scripts
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
export LC_ALL=C
# Settings for which the command would restart itself: half of the time of a short command.
export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=2000
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
cd "$folder" || exit 1
failures=0
skipped=0

# skip WHAT: a part of the script that cannot run on this machine. A script without any part that
# can run exits with 77.
skip() {
    skipped=$((skipped + 1))
    printf 'skipped: %s\n' "$*"
}

fail() {
    failures=$((failures + 1))
    printf 'FAILED: %s\n' "$*"
}

# can avx2|bf16|fast_bf16|int8: true if the CPU has it, and KVF_CPU allows it.
flags=$(sed -n '/^flags/{s/.*: / /;s/$/ /;p;q;}' /proc/cpuinfo)
can() {
    case $1,${KVF_CPU-} in
    avx2,avx2 | avx2,avx512 | bf16,avx512) ;;
    *,ref | *,avx2 | *,avx512) return 1 ;;
    esac
    case $1,$flags in
    avx2,*' avx2 '* | bf16,*' avx512bw '* | fast_bf16,*' avx512_bf16 '* | int8,*' avx512_vnni '*) ;;
    *) return 1 ;;
    esac
}

finish() {
    if [ $failures -ne 0 ]; then
        printf '%s: %d failed\n' "$(basename "$SCRIPT")" "$failures"
        exit 1
    fi
    [ $skipped -eq 0 ] || printf '%s: passed but for %d skipped parts\n' "$(basename "$SCRIPT")" "$skipped"
    exit 0
}

# run CODE ARGUMENTS...: the command must exit with CODE. Without the lab, a script ends at its
# first lab command.
run() {
    want=$1
    shift
    "$KVFOLD" "$@" >out 2>err
    code=$?
    if grep -q 'was built without the lab' err; then
        skip "what follows needs the lab"
        finish
    fi
    [ $code -eq "$want" ] && return
    fail "exit status $code, want $want: kvfold $*"
    sed 's/^/    /' err
}

# out_is LINE, err_is LINE: exactly this line. Without an argument: no output.
is_line() {
    if [ $# -gt 1 ]; then printf '%s\n' "$2" >want; else : >want; fi
    cmp -s want "$1" && return
    fail "$1 is not as expected, line 1 expected, the rest found:"
    cat want "$1" | sed 's/^/    /'
}
out_is() { is_line out "$@"; }
err_is() { is_line err "$@"; }

# has FILE PATTERN: a line matches the basic regular expression.
has() {
    grep -q -e "$2" "$1" && return
    fail "$1 has no line like: $2"
    sed 's/^/    /' "$1"
}

# same A B: equal bytes.
same() {
    cmp "$1" "$2" >difference 2>&1 || fail "$(cat difference)"
}

absent() {
    for file; do
        [ ! -e "$file" ] || fail "$file is there"
    done
}

# value KEY: prints a number or word of the JSON line in out.
value() {
    sed -n 's/.*"'"$1"'":\([^,}]*\).*/\1/p' out
}

# 24 rows for training, 6 for validation; the tiny model in model/.
make_inputs() {
    "$MAKE_TINY" model || exit 1
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do
        printf '{"prompt": "after %d:", "completion": " %d"}\n' $i $((i + 1))
    done >train.jsonl
    for i in 3 9 27 28 29 30; do
        printf '{"prompt": "after %d:", "completion": " %d"}\n' $i $((i + 1))
    done >valid.jsonl
}

# train CODE ARGUMENTS...: with the options common to all runs here.
train() {
    want=$1
    shift
    case " $* " in
    *" --method "*) ;; # not every method has a hidden layer
    *) set -- --encoder-hidden 16 "$@" ;;
    esac
    run "$want" train --base model --data train.jsonl --threads 2 --prefix-length 4 --precision f32 \
        "$@"
}

# shellcheck disable=SC1090 # one of this folder
. "$SCRIPT"
finish
