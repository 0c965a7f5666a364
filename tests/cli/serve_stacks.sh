# The server on encoder-decoders: answers equal generate's text, with prefixes in all places, in
# PEFT's form, and without prefix. Its classes have predict's probabilities. Different prefixes
# share a batch.
. "$SOURCE/tests/cli/server.sh"
golden=$SOURCE/tests/golden
how='--precision f32 --threads 2'
printf '{"prompt": "a dene", "completion": "nnnsc"}\n{"prompt": "b ceded", "completion": "ii aa"}\n' >rows.jsonl

# text_of FILE: text of its first answer
text_of() {
    sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/\1/p' "$1"
}
# answers NAME OPTIONS...: answers to two prompts
answers() {
    name=$1
    shift
    for prompt in 'a dene' 'b, cold aa'; do
        run 0 generate --base "$base" --prompt "$prompt" --max-tokens 8 --json $how "$@"
        text_of out >want
        post /v1/completions "{\"model\": \"$name\", \"prompt\": \"$prompt\", \"max_tokens\": 8, \"temperature\": 0}" || return 1
        text_of answer >got
        [ -s got ] || fail "$base, $name: $(cat answer)"
        same got want
    done
}
for family in t5 bart; do
    base=$golden/$family
    [ $family = bart ] || base=$golden/model_t5
    # shellcheck disable=SC2086 # words
    run 0 train --base "$base" --data rows.jsonl --method direct --prefix-length 3 --steps 4 --lr 0.1 $how --out all.h5 --force
    serve_on --prefix all=all.h5 --prefix peft="$golden/peft_trained/$family/prefix.h5"
    if [ "$port" = 0 ]; then
        wait "$pid"
        grep -q 'built without libmicrohttpd' err || fail "no server: $(cat err)"
        skip 'the server: built without libmicrohttpd'
        break
    fi
    answers all --prefix all.h5 && answers peft --prefix "$golden/peft_trained/$family/prefix.h5" || skip 'requests: neither curl nor bash to ask with'
    end TERM 143

    base=$golden/seq_cls/$family
    # shellcheck disable=SC2086
    run 0 train --base "$base" --data "$golden/seq_cls/rows.jsonl" --task seq-cls --method direct --prefix-length 4 --steps 2 $how --out classes.h5 --force
    run 0 predict --base "$base" --prefix classes.h5 --data "$golden/seq_cls/rows.jsonl" --precision f32 --threads 2 --out lines --force
    serve_on --prefix mood=classes.h5
    if post /v1/classify '{"model": "mood", "input": ["a dene", "b", "nnnsc ceded aa", "the sbase, ici", "no cnb", "is ii aa bibn i s"]}'; then
        grep -o '"probabilities":{[^}]*}' lines >want
        grep -o '"probabilities":{[^}]*}' answer >got
        [ -s got ] || fail "$(cat answer)"
        same got want
    fi
    end TERM 143
done
