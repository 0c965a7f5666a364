# Rows longer than the limit: eval and predict count them, and predict has a line for every row and
# every word read.
# shellcheck disable=SC2086 # no spaces in names
"$MAKE_TINY" bert 1 bert || exit 1
"$MAKE_TINY" llama 2 || exit 1
long='one two three four five six seven eight nine ten eleven twelve thirteen fourteen'

printf 'good film\tyes\n%s\tno\nbad\tno\n%s %s\tyes\n' "$long" "$long" "$long" >seq-cls.tsv
printf '{"text": "pick", "choices": ["1", "%s"], "label": 1}\n' "$long" >multiple-choice.jsonl
printf '{"text": "pick", "choices": ["1", "2"], "label": 0}\n' >>multiple-choice.jsonl
printf '{"id": "q1", "context": "Nobody came.", "question": "Who? %s", "answers": []}\n' \
    "$long" >qa.jsonl
printf '{"id": "q2", "context": "Nobody came.", "question": "Who?", "answers": ["Nobody"]}\n' >>qa.jsonl
printf 'Ann\tB-PER\nwent\tO\n\n' >token-cls.conll
for word in $long; do printf '%s\tO\n' "$word"; done >>token-cls.conll
printf '\nBob\tB-PER\n\n' >>token-cls.conll

fit() {
    run 0 train --base "$base" --task "$task" --data "$data" --method direct --prefix-length 2 --threads 1 \
        --precision f32 --steps 1 --batch-size 2 --max-length 16 --overlong truncate --force --out run.h5 "$@"
}
use() {
    command=$1
    shift
    run 0 "$command" --base $base --prefix run.h5 --data $data --threads 1 --precision f32 "$@"
}

for base in bert llama; do
    for row in 'seq-cls.tsv 2 4' 'multiple-choice.jsonl 1 2' 'qa.jsonl 1 2' 'token-cls.conll 1 3'; do
        # shellcheck disable=SC2086
        set -- $row
        data=$1 task=${1%.*} cut=$2 rows=$3
        fit
        has out ", $cut truncated, [0-9]* trainable"
        has out "^rows: .*, $cut truncated; 0 held out"
        fit --dry-run --json
        [ "$(value truncated)" = "$cut" ] || fail "$(cat out)"
        use eval
        has out ", $cut truncated, "
        use eval --json
        [ "$(value truncated) $(value skipped)" = "$cut 0" ] || fail "$(cat out)"
        use eval --overlong skip --json
        [ "$(value truncated) $(value skipped)" = "0 $cut" ] || fail "$(cat out)"

        # cut rows are counted; words are not cut, but read in windows
        use predict --out cut.jsonl --force --json
        [ $task = token-cls ] && cut=0
        [ "$(value truncated) $(value skipped) $(value examples)" = "$cut 0 $rows" ] || fail "$(cat out)"
        [ "$(wc -l <cut.jsonl)" -eq "$rows" ] || fail "$(cat cut.jsonl)"
        grep -q null cut.jsonl && fail "$task: $(cat cut.jsonl)"

        # skipped rows keep their place, with null for an answer
        use predict --out left.jsonl --force --overlong skip
        has out ": $((rows - $2)) examples, $2 skipped, "
        [ "$(wc -l <left.jsonl)" -eq "$rows" ] || fail "$(cat left.jsonl)"
        [ "$(grep -c null left.jsonl)" -eq "$2" ] || fail "$task: $(cat left.jsonl)"
        sed 's/"prediction":.*//; s/"start":.*//' cut.jsonl >want
        sed 's/"prediction":.*//; s/"start":.*//' left.jsonl >found
        same want found
    done
done
has left.jsonl '"tokens":\["one",.*"prediction":\[null,'

# CoNLL: as many lines as words, none of them O for lack of room
data=token-cls.conll
run 0 predict --base llama --prefix run.h5 --data token-cls.conll --out all.conll --threads 1
cut -f 1,2 all.conll >columns
same token-cls.conll columns
grep -q '_$' all.conll && fail "$(cat all.conll)"
run 0 predict --base llama --prefix run.h5 --data token-cls.conll --out left.conll --overlong skip
cut -f 1,2 left.conll >columns
same token-cls.conll columns
[ "$(grep -c '_$' left.conll)" -eq 14 ] || fail "$(cat left.conll)"

# rows that fit are answered as before
run 0 predict --base llama --prefix run.h5 --data token-cls.conll --out whole.jsonl --max-length 200 --threads 1
run 0 predict --base llama --prefix run.h5 --data token-cls.conll --out cut.jsonl --force --threads 1
sed -n 1p whole.jsonl >want
sed -n 1p cut.jsonl >found
same want found

# on request, it stops at the first long row
run 1 predict --base llama --prefix run.h5 --data token-cls.conll --out x.jsonl --overlong stop
has err 'token-cls.conll:4: the row has [0-9]* tokens, at most 16 fit'
absent x.jsonl

# lm
printf '{"prompt": "a", "completion": "b"}\n{"prompt": "a", "completion": "%s"}\n' "$long" >lm.jsonl
run 0 eval --base llama --data lm.jsonl --max-length 16 --overlong truncate
has out ', 1 truncated, '
