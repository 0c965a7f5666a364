# Every option of sweep and distill. Options of train are tested with the values of test_options.c:
# each changes the run or is refused with a line. The commands' own options have rows here, or a
# script that tests them.
# shellcheck disable=SC2086 # words
make_inputs
printf '[only]\n' >grid.txt
printf 'prefix-length = 5\n' >recipe.txt
printf 'abc abd abe xyz xyz abf cab dab eab, zyx.\nabc abc abd zzz yyy xxx abe abf cab.\n' >document.txt
printf 'zzz abd abe xyz abc abf eab dab cab, abc.\nabd abd abd zzz xxx xxx abe abc cab.\n' >other.txt
run 0 train --base model --data train.jsonl --method direct --prefix-length 4 --steps 1 --quiet --out from.h5
run 0 merge from.h5 --out prefix.h5
"$MAKE_TINY" elsewhere 9 || exit 1
"$MAKE_TINY" lora 5 lora || exit 1
run 0 train --base elsewhere --data train.jsonl --method direct --prefix-length 4 --steps 1 --quiet --out foreign.h5
cp valid.jsonl retain.jsonl
shared='--base model --precision f32 --threads 1 --quiet --schedule constant'
sweep="$shared --data train.jsonl --steps 3 --grid grid.txt --out o"
distill="$shared --document document.txt --prefix-length 4 --self-study 4 --answer-tokens 6 --chunk 16 --top-k 4 --steps 1 --out o/only.h5"

# attempt COMMAND OPTIONS...: its run, or nothing, into seen
attempt() {
    rm -rf o
    mkdir o
    : >seen
    timeout 30 "$KVFOLD" "$@" >out 2>err
    code=$?
    [ ! -e o/only.h5 ] || mv o/only.h5 seen
}

# option|value|other options: tested by test_options.c
{
    sed -n 's/^    {"\([a-z0-9-]*\)", \("[^"]*"\|NULL\), \(EFFECT\|EXACT\|ANSWER\|SOMEWHERE\), "\([^"]*\)".*/\1|\2|\4/p' \
        "$SOURCE/tests/options/test_options.c" | tr -d '"'
    printf 'method|mlp|method=direct\nskip-nonfinite|2|\nspike-guard|3|\nsave-every|1|\ninit-from|from.h5|method=direct\n'
    printf 'allow-other-base||init-from=foreign.h5;method=direct\napproximate||encoder-hidden=2;init=text;init-text=abcdef\n'
} | awk -F'|' '!seen[$1]++' | sed 's/||/|NULL|/' >rows
printf 'lora|lora|\nrecipe|recipe.txt|\nvalid|valid.jsonl|\ntask|seq-cls|\nplaces|encoder|\n' >rows_sweep
printf 'lora|lora|\ndocument|other.txt|\nself-study|6|\nanswer-tokens|4|\ntemperature|0.5|\nchunk|9|\nwindow|8|\ntop-k|3|\nkl|reverse|\ndata|train.jsonl|\ndry-run|NULL|\n' >rows_distill

# act COMMAND OPTION VALUE WITH: another run, or a line. Adjacent rows with the same WITH share the
# reference run.
act() {
    eval "set -- \"\$1\" \"\$2\" \"\$3\" \"\$4\" \$$1"
    command=$1 option=$2 value=$3 with=$4
    shift 4
    if [ "$command $with" != "$last" ]; then
        attempt "$command" "$@" $(printf '%s' "$with" | tr ';' '\n' | sed 's/^\([^=]*\)=/--\1 /' | grep -v ' .* ')
        plain=$code
        mv seen before
        last="$command $with"
    fi
    set -- "$command" "$@" $(printf '%s' "$with" | tr ';' '\n' | sed 's/^\([^=]*\)=/--\1 /' | grep -v ' .* ') "--$option"
    [ "$value" = NULL ] || set -- "$@" "$value"
    attempt "$@"
    if [ $code -ne 0 ]; then
        [ -s err ] || fail "$command --$option $value: refused without a word"
    elif [ $plain -eq 0 ] && cmp -s before seen; then
        fail "$command --$option $value ($with): is ignored"
    fi
}
for command in sweep distill; do
    "$KVFOLD" $command --help all | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p' | grep -vx -e threads -e json -e quiet -e help >options
    while read -r name; do
        grep -q "^$name|" rows rows_$command || grep -qe "--$name\b" "$SOURCE/tests/cli/$command.sh" ||
            fail "$command --$name: nothing says how its effect is seen"
    done <options
    last=
    sort -s -t'|' -k3 rows rows_$command | while IFS='|' read -r name value with; do
        ! grep -qx -e "$name" options || act $command "$name" "$value" "$with"
    done >failed
    cat failed
    failures=$((failures + $(grep -c '^FAILED' failed)))
done
