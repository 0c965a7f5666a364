# Classifiers on the server: all tasks, on a tiny BERT and a tiny Llama, from every kind of file.
# Answers of POST /v1/classify have the same bits as predict.
# shellcheck disable=SC2086 # no spaces in names
"$MAKE_TINY" bert 1 bert || exit 1
"$MAKE_TINY" llama 2 || exit 1
# shellcheck source=tests/cli/server.sh
. "$SOURCE/tests/cli/server.sh"

for i in 1 2 3 4 5 6; do
    printf '{"text": "good film %d", "label": "yes"}\n{"text": "bad", "text_pair": "film %d", "label": "no"}\n' $i $i >>classes.jsonl
    printf '{"text": "size %d", "label": %d.5}\n' $i $i >>numbers.jsonl
    printf '{"tokens": ["Ann", "went", "to", "Rome%d"], "tags": ["B-PER", "O", "O", "B-LOC"]}\n' $i >>tags.jsonl
    printf '{"text": "pick %d", "choices": ["%d", "x", "yy"], "label": %d}\n' $i $i $((i % 3)) >>choices.jsonl
    printf '{"context": "Long ago the %d men met here.", "question": "Who met?", "answers": [{"text": "the %d men", "start": 9}]}\n' $i $i >>answers.jsonl
    printf '{"context": "Nobody came.", "question": "Who met %d?", "answers": []}\n' $i >>answers.jsonl
done
common='--prefix-length 3 --threads 2 --precision f32 --steps 3 --batch-size 4 --quiet --force'

# fit TASK DATA OUT ARGUMENTS...
fit() {
    task=$1 data=$2 to=$3
    shift 3
    run 0 train --base $base --task $task --data $data --out $to $common "$@"
}

# agree MODEL DATA ARGUMENTS...: compares the server with predict on the rows of a file.
agree() {
    model=$1 data=$2
    shift 2
    post /v1/classify "{\"model\": \"$model\", \"input\": [$(paste -s -d, "$data")]}"
    run 0 predict --base "$base" --data "$data" --out - --threads 2 --precision f32 "$@"
    want=$(sed 's/^.*"prediction":/{"prediction":/' out | paste -s -d,)
    got=$(sed -n 's/^.*"data":\[\(.*\)\],"usage":.*$/\1/p' answer)
    [ -n "$want" ] && [ "$got" = "$want" ] || fail "$base $model: the server says $(cat answer), predict $want"
}

for base in bert llama; do
    fit seq-cls classes.jsonl classes.h5 --method direct
    fit seq-cls numbers.jsonl numbers.h5 --method mlp --regression on
    fit token-cls tags.jsonl tags.h5 --method projected
    fit multiple-choice choices.jsonl choices.h5 --method prompt
    fit qa answers.jsonl answers.h5 --method direct
    run 0 train --base $base --task seq-cls --data classes.jsonl --out adapter.h5 --method adapter --threads 2 --precision f32 \
        --steps 3 --batch-size 4 --quiet --force
    run 0 train --base $base --task seq-cls --data a=classes.jsonl --data b=tags.jsonl --task a=seq-cls --task b=token-cls \
        --out several.h5 --method direct $common
    run 0 merge classes.h5 --out folded.h5 --force
    serve_on --prefix classes=classes.h5 --prefix numbers=numbers.h5 --prefix tags=tags.h5 --prefix choices=choices.h5 \
        --prefix answers=answers.h5 --prefix adapter=adapter.h5 --prefix folded=folded.h5 \
        --prefix a=several.h5 --prefix b=several.h5 --head a=a --head b=b
    if [ "$port" = 0 ]; then
        grep -q 'built without libmicrohttpd' err || fail "no server: $(cat err)"
        skip 'the server: built without libmicrohttpd'
        break
    fi
    if ! post /v1/classify '{}'; then
        skip 'requests: neither curl nor bash to ask with'
        end TERM 143
        break
    fi
    agree classes classes.jsonl --prefix classes.h5
    agree folded classes.jsonl --prefix classes.h5
    agree numbers numbers.jsonl --prefix numbers.h5
    agree tags tags.jsonl --prefix tags.h5
    agree choices choices.jsonl --prefix choices.h5
    agree answers answers.jsonl --prefix answers.h5
    agree adapter classes.jsonl --prefix adapter.h5
    agree a classes.jsonl --prefix several.h5 --head a
    agree b tags.jsonl --prefix several.h5 --head b
    post /v1/classify '{"model": "tags", "input": ["Ann went"]}'
    has answer '"message":"input, row 1: want an array of words, or {'
    post /v1/classify '{"model": "tags", "input": [["Ann", "went"]]}'
    has answer '"task":"token-cls","data":\[{"prediction":\["[^"]*","[^"]*"\],"probabilities":\[[^]]*\],"entities":\['
    post /v1/completions "{\"model\": \"$base\", \"prompt\": \"Ann\", \"max_tokens\": 1}"
    [ $base = llama ] || has answer '"message":"the base, a bert, does not predict the next token"'
    [ $base = bert ] || head -1 answer | grep -q '^HTTP/1\.1 200 ' || fail "$(cat answer)"
    end TERM 143

    # a base file that keeps its trained head
    run 0 train --base $base --task seq-cls --data classes.jsonl --out full.h5 --method full --threads 2 --precision f32 \
        --steps 3 --batch-size 4 --lr 1e-3 --quiet --force
    run 0 merge full.h5 --base $base --out base-$base.h5
    base=base-$base.h5
    serve_on --base-name own
    agree own classes.jsonl
    end TERM 143
done

base=bert
run 2 serve --base bert --prefix a=several.h5 --head a
err_is 'kvfold: serve: --head "a": want NAME=HEAD; try kvfold serve --help'
run 2 serve --base bert --prefix a=several.h5 --head b=a
err_is 'kvfold: serve: --head "b=a": no --prefix has that name; try kvfold serve --help'
