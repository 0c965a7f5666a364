# Virtual tokens at the input of a BERT: trained, merged to an embeddings file, evaluated and used
# by predict, alone and with a prefix.
"$MAKE_TINY" bert 1 bert || exit 1
for i in 1 2 3 4 5 6 7 8; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i >>mood.tsv
done
common="--base bert --data mood.tsv --threads 2 --precision f32"
fit="--task seq-cls --prefix-length 4 --steps 20 --batch-size 4 --quiet"

# shellcheck disable=SC2086 # no spaces in names
for method in prompt p-tuning; do
    run 0 train $common $fit --method $method --out run.h5 --force
    run 0 merge run.h5 --base bert --out vectors.h5 --force
    run 0 inspect vectors.h5
    has out 'embeddings/virtual'

    # the file answers like the run
    run 0 eval $common --prefix run.h5 --json
    sed 's/"seconds":[^,}]*//' out >live
    run 0 eval $common --prefix vectors.h5 --json
    sed 's/"seconds":[^,}]*//' out >folded
    same live folded
    has folded '"accuracy"'
    run 0 predict $common --prefix run.h5 --out live.jsonl --force
    run 0 predict $common --prefix vectors.h5 --out answers.jsonl --force
    same live.jsonl answers.jsonl
    [ "$(wc -l <answers.jsonl)" -eq 16 ] || fail "$(wc -l <answers.jsonl) answers"
    [ "$(grep -c '"\(yes\|no\)"' answers.jsonl)" -eq 16 ] || fail "$(head -1 answers.jsonl)"
done

# two files of the same form are averaged; a prefix needs other rows
# shellcheck disable=SC2086
run 0 train $common $fit --method prompt --out other.h5
# shellcheck disable=SC2086
run 0 predict $common --prefix vectors.h5 --prefix other.h5 --out answers.jsonl --force
# shellcheck disable=SC2086
run 0 train $common $fit --method direct --out prefix.h5
for command in eval predict; do
    set --
    [ $command = eval ] || set -- --out none.jsonl
    # shellcheck disable=SC2086
    run 2 $command $common --prefix prefix.h5 --prefix vectors.h5 "$@"
    err_is "kvfold: $command: prefix 2 has its virtual tokens at other positions of the row than the first: merge both to prefix files; try kvfold $command --help"
done
absent none.jsonl
