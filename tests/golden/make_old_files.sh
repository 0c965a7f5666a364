#!/bin/sh
# Writes old_files/: small files of every kind by the kvfold of commit df66115, and what that kvfold measures with them.
# tests/cli/old_files.sh reads them.
#
#   run_CASE.h5       trained for 4 steps            resumed_CASE.h5   the same, resumed for 2 more
#   CASE.h5           merged from run_CASE.h5        mlp_TYPE.h5       mlp.h5 in a narrower type
#   small.h5          a base file                    losses            FILE, TAB, loss of `eval`; of bases without a prefix first
#   *.jsonl, ...      the rows; cases.sh the options of each case
#
# The files of the cases direct, mood-mlp and mood-direct were added by the kvfold of commit 804965d, which gives every value of
# all the other files bit for bit.
#
# Run: git worktree add --detach OLD df66115, build kvfold and tests/make_tiny there, then
#   make_old_files.sh OLD/build/kvfold OLD/build/tests/make_tiny
set -eu
kvfold=$(realpath "$1")
make_tiny=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)/old_files
export LC_ALL=C
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
. "$here/cases.sh"
make_bases "$make_tiny"
"$kvfold" new-base --config small/config.json --tokenizer small --out small.h5 --quiet

for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    printf '{"prompt": "after %d:", "completion": " %d"}\n' $i $((i + 1)) >>train.jsonl
done
for i in 3 9 27 28; do
    printf '{"prompt": "after %d:", "completion": " %d"}\n' $i $((i + 1)) >>valid.jsonl
done
for i in 1 2 3 4 5; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i >>mood.tsv
    printf 'Ann\tB-PER\nwent\tO\n\nI\tO\nsaw\tO\nBob%d\tB-PER\n\n' $i >>names.conll
done

measure() { # FILE ARGUMENTS...
    file=$1
    shift
    "$kvfold" eval "$@" >out
    printf '%s\t%s\n' "$file" "$(sed -n 's/.*"loss":\([^,}]*\).*/\1/p' out)" >>losses
}

# shellcheck disable=SC2046 # words
{
    measure model --base model $(measured_with mlp)
    measure small.h5 --base small.h5 $(measured_with full)
    for case in $CASES; do
        base=$(base_of "$case")
        "$kvfold" train --base "$base" $(data_of "$case") $(needs_of "$case") $(options_of "$case") --steps $STEPS \
            --out "run_$case.h5"
        cp "run_$case.h5" "resumed_$case.h5"
        "$kvfold" train --base "$base" $(data_of "$case") $(needs_of "$case") $(options_of "$case") --steps $RESUMED \
            --out "resumed_$case.h5" --resume
        "$kvfold" merge "run_$case.h5" --out "$case.h5" --base "$base"
        for file in "run_$case.h5" "resumed_$case.h5" "$case.h5"; do
            case $file in
            full.h5) measure "$file" --base "$file" $(measured_with full) ;;
            *) measure "$file" --base "$base" --prefix "$file" $(measured_with "$case") ;;
            esac
        done
    done
    for type in bf16 int8; do
        "$kvfold" quantize mlp.h5 --dtype $type --out mlp_$type.h5
        measure mlp_$type.h5 --base model --prefix mlp_$type.h5 $(measured_with mlp)
    done
}
cp ./*.h5 losses ./*.jsonl mood.tsv names.conll "$here"
