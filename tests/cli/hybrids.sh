# Bases with layers without attention: short convolutions (LFM2), gated delta rules (Qwen3.5). Keys
# and values lie in the layers with attention; a prefix that comes from text carries the state of the
# others. Unsupported uses are refused with one line.
make_inputs
cp model/tokenizer.json .
rm -r model
sizes='"vocab_size": 258, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 512, "initializer_range": 0.3, "bos_token_id": 256, "eos_token_id": 257, "tie_word_embeddings": true'
cat >lfm2.json <<END
{"model_type": "lfm2", $sizes, "num_hidden_layers": 4, "block_auto_adjust_ff_dim": false,
 "layer_types": ["conv", "full_attention", "conv", "full_attention"]}
END
cat >qwen3_5.json <<END
{"model_type": "qwen3_5_text", $sizes, "num_hidden_layers": 4, "head_dim": 8, "full_attention_interval": 2,
 "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12}
END
loss() { # FILE
    run 0 eval --base model --prefix "$1" --data valid.jsonl --precision f32 --threads 2 --json
    value loss
}
valid_loss() { # RUN: that of the best step
    run 0 inspect "$1"
    sed -n 's/^  best_value *//p' out
}
near() { # A B WHAT
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a - b < 1e-5 && b - a < 1e-5) }' || fail "$3: $1, want $2"
}
refused() { # LINE COMMAND...
    line=$1
    shift
    run 1 "$@"
    has err "$line"
}

text_of() { sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/\1/p' "$1"; }
long=$(awk 'BEGIN { for (i = 0; i < 40; i++) printf "after %d: ", i }')
asked="{\"model\": \"mine\", \"prompt\": \"$long\", \"max_tokens\": 8, \"temperature\": 0}"
. "$SOURCE/tests/cli/server.sh"

for family in lfm2 qwen3_5; do
    rm -f ./*.h5
    run 0 new-base --config $family.json --tokenizer tokenizer.json --out model --force --quiet

    # both methods, also with neurons: the run, its folded file
    for how in direct mlp 'direct --ffn-length 3' 'mlp --prefix-length 0 --ffn-length 3'; do
        # shellcheck disable=SC2086 # options
        train 0 --method $how --out run.h5 --valid valid.jsonl --steps 4 --force --quiet
        run 0 merge run.h5 --base model --out folded.h5 --probe valid.jsonl --force
        has out '^largest difference from the encoder.s output: 0$'
        has out '^largest difference of logits: 0$'
        [ "$(loss run.h5)" = "$(loss folded.h5)" ] || fail "$family $how: folded and live differ"
    done
    train 0 --method direct --out direct.h5 --valid valid.jsonl --steps 4 --quiet
    run 0 merge direct.h5 --base model --out folded.h5 --force
    run 0 inspect folded.h5
    has out '^folded.h5: prefix, features heads-by-layer$'
    has out '^  G  *\[0,2,0,2\]$'
    if grep -q nan out; then fail "$family: layers without values are described"; fi

    # the same results for any storage of layers, and for a resumed run
    for how in '--recompute on' '--stream-layers on'; do
        # shellcheck disable=SC2086 # options
        train 0 --method direct --out kept.h5 --steps 4 --valid valid.jsonl $how --force --quiet
        run 1 diff direct.h5 kept.h5
        has out '^tensors: [0-9]* equal, 0 changed, 0 and 0 in one file only$'
    done
    set -- --method direct --schedule-steps 4 --eval-every 2 --save-every 2 --valid valid.jsonl --init text --init-text 'all the words' --quiet
    train 0 "$@" --out whole.h5 --steps 4
    train 0 "$@" --out parts.h5 --steps 2
    run 0 train --base model --data train.jsonl --valid valid.jsonl --out parts.h5 --steps 4 --resume --threads 2 --quiet
    same whole.h5 parts.h5

    # a state: a folded prompt is exact, and files carry it
    train 0 --method prompt --prefix-length 5 --init text --init-text 'words to begin' --out prompt.h5 --steps 3 --quiet
    run 0 merge prompt.h5 --base model --out captured.h5
    near "$(loss captured.h5)" "$(loss prompt.h5)" "$family: a folded prompt"
    train 0 --method direct --init text --init-text 'after all' --out text.h5 --steps 2 --quiet
    run 0 merge text.h5 --base model --out text-folded.h5
    [ "$(loss text.h5)" = "$(loss text-folded.h5)" ] || fail "$family: a state is lost in merging"
    run 0 inspect text-folded.h5
    has out 'features heads-by-layer, state$'
    has out '^  mixer_state  *\[[0-9]*\] '
    run 0 quantize text-folded.h5 --dtype f32 --out same.h5
    [ "$(loss same.h5)" = "$(loss text-folded.h5)" ] || fail "$family: a state is lost in quantizing"
    run 0 compose folded.h5 text-folded.h5 --base model --out both.h5
    run 0 inspect both.h5
    has out 'features heads-by-layer, state$'
    run 0 compose folded.h5 text-folded.h5 --base model --mode parallel --out beside.h5
    run 0 inspect beside.h5
    has out 'features heads-by-layer$'
    train 0 --method mlp --init-from text-folded.h5 --encoder-hidden 64 --out from.h5 --steps 2 --quiet
    run 0 inspect from.h5
    has out 'state$'
    refused 'has a state for layers without attention' export text-folded.h5 --format safetensors --out x.safetensors
    run 0 export folded.h5 --format safetensors --out layers.safetensors --force
    run 0 inspect layers.safetensors
    has out '^  past_key_values.3  *\[2, 1, 2, 4, 8\] '
    if grep -q 'past_key_values.0' out; then fail "$family: keys of a layer without attention"; fi

    # other ways to train, and tools
    train 0 --method direct --layers 1 --out some.h5 --steps 2 --quiet
    train 0 --method direct --infix --out infix.h5 --steps 2 --quiet
    train 0 --method direct --prefix-dropout 0.2 --prefix-dropout-per-row --out rows.h5 --steps 2 --quiet
    run 0 prune folded.h5 --base model --data valid.jsonl --keep 2 --out pruned.h5
    run 0 report direct.h5 --base model --data valid.jsonl --out report.html --force
    run 0 unmerge folded.h5 --out unmerged.h5
    printf 'a document of some words, more words than the prefix has\n' >document.txt
    run 0 distill --base model --data train.jsonl --document document.txt --method direct --prefix-length 4 --out student.h5 --steps 1 --quiet --threads 2
    run 0 inspect student.h5
    has out 'state$'
    run 0 distill --base model --data train.jsonl --document document.txt --method direct --prefix-length 4 --out student.h5 --steps 2 --quiet --threads 2 \
        --state-lr 0.02 --force
    run 0 inspect student.h5
    has out '^  encoder/mixer_state  *\[[0-9]*\] '

    # a trained state: resumed, merged, begun from, with one mask for a step
    set -- "$@" --state-lr 0.02 --prefix-dropout 0.1 --force
    train 0 "$@" --out whole.h5 --steps 4
    train 0 "$@" --out parts.h5 --steps 2
    run 0 train --base model --data train.jsonl --valid valid.jsonl --out parts.h5 --steps 4 --resume --threads 2 --quiet
    same whole.h5 parts.h5
    run 0 merge whole.h5 --base model --out whole-folded.h5
    [ "$(loss whole.h5)" = "$(loss whole-folded.h5)" ] || fail "$family: a trained state is lost in merging"
    near "$(loss whole.h5)" "$(valid_loss whole.h5)" "$family: a trained state"
    for how in 'mlp --optimizer adamw' mlp 'mlp --prefix-length 0 --ffn-length 3' 'direct --log-weight fixed --start-mass -1'; do
        # shellcheck disable=SC2086 # options
        train 0 --method $how --init random --state-lr 0.02 --valid valid.jsonl --out state.h5 --steps 4 --quiet --force
        near "$(loss state.h5)" "$(valid_loss state.h5)" "$family, $how: a trained state"
        run 0 inspect state.h5
        has out 'state$'
        run 0 merge state.h5 --base model --out state-folded.h5 --force
        run 0 inspect state-folded.h5
        has out '^  mixer_state  *\[[0-9]*\] '
        [ "$(loss state.h5)" = "$(loss state-folded.h5)" ] || fail "$family, $how: a trained state is lost in merging"
    done
    train 0 --method direct --init-from state-folded.h5 --log-weight fixed --state-lr 0.02 --out from.h5 --steps 0 --quiet --force
    [ "$(loss from.h5)" = "$(loss state-folded.h5)" ] || fail "$family: a run begins at another state"

    # rows in a batch, beams, and drafts
    run 0 generate --base model --prefix text-folded.h5 --data valid.jsonl --max-tokens 8 --temperature 0 --quiet
    mv out batch
    run 0 generate --base model --prefix text-folded.h5 --data valid.jsonl --max-tokens 8 --temperature 0 --batch-size 1 --quiet
    same batch out
    run 0 generate --base model --prefix folded.h5 --prompt 'after 3:' --max-tokens 6 --beams 3
    run 2 generate --base model --prefix folded.h5 --prompt 'after 3:' --max-tokens 6 --temperature 0 --draft 3
    has err 'layers without attention, whose state has no earlier tokens'
    run 0 score --base model --prefix text-folded.h5 --data valid.jsonl --out scores.jsonl --force

    # a server answers as generate does, also where a kept beginning gives keys, values and states
    serve_on --prefix mine=text-folded.h5 --cache-memory 8M
    if [ "$port" = 0 ]; then
        wait "$pid"
        skip 'the server: built without libmicrohttpd'
    elif post /v1/completions "$asked"; then
        said=$(text_of answer)
        post /v1/completions "$asked"
        [ "$(text_of answer)" = "$said" ] || fail "$family: another answer after a kept beginning"
        grep -q '"cached_tokens": *256' answer || fail "$family: nothing was kept: $(cat answer)"
        end TERM 143
        run 0 generate --base model --prefix text-folded.h5 --prompt "$long" --max-tokens 8 --threads 2 --precision f32 --json
        [ -n "$said" ] && [ "$(text_of out)" = "$said" ] || fail "$family: the server says $said, generate $(text_of out)"
    else
        kill -s KILL "$pid"
        skip 'answers: neither curl nor bash'
    fi

    # several runs in one pass
    printf 'lr = 0.01, 0.03\n' >grid.txt
    run 0 sweep --base model --data train.jsonl --valid valid.jsonl --method direct --prefix-length 4 --steps 4 --precision f32 --threads 2 \
        --grid grid.txt --out runs-$family --quiet
    [ "$(grep -c ' done$' out)" -eq 2 ] || fail "$family: not two runs: $(cat out)"

    # unsupported uses
    refused 'which PEFT does not support' export folded.h5 --format peft --out peft
    refused 'layers differ, and no supported engine loads' export folded.h5 --format llamacpp --out state
    refused 'has layers without attention, for which nothing can be projected' train --base model --data train.jsonl \
        --method projected --prefix-length 4 --out no.h5
    run 2 train --base model --data train.jsonl --method direct --prefix-length 4 --layers 0 --out no.h5
    has err '--layers 0: none of these layers has attention'
    run 2 train --base model --data train.jsonl --method direct --prefix-length 4 --state-lr 0.02 --infix --out no.h5
    has err 'state-lr.*infix'
    refused 'nearest words are not supported' words folded.h5 --base model
    refused 'layers differ cannot be trained' train --base model --data train.jsonl --method adapter --out no.h5
    refused 'layers differ cannot be trained' train --base model --data train.jsonl --method full --out no.h5
done

# a state of another size, which a prefix under dropout has no room for
run 0 new-base --config lfm2.json --tokenizer tokenizer.json --out model --force --quiet
train 0 --method direct --init text --init-text 'after all' --out text.h5 --steps 2 --quiet --force
run 0 merge text.h5 --base model --out text-folded.h5 --force
sed 's/"lfm2",/"lfm2", "conv_L_cache": 2,/' lfm2.json >short.json
run 0 new-base --config short.json --tokenizer tokenizer.json --out short --quiet
for how in '' '--state-lr 0.02'; do
    # shellcheck disable=SC2086 # options
    refused 'prefix: a state of 128 values, but the base.s has 64' train --base short --data train.jsonl --method direct --prefix-length 4 --threads 2 \
        --init-from text-folded.h5 --allow-other-base --prefix-dropout 0.2 $how --out no.h5
done

# configs that no pass runs
bad() { # EDIT LINE
    sed "$1" lfm2.json >bad.json
    refused "$2" new-base --config bad.json --tokenizer tokenizer.json --out bad --quiet
}
bad 's/full_attention/conv/g' 'no layer has attention'
bad 's/"conv", "full/"mamba", "full/' 'layer_types is "mamba", expected "full_attention" or "conv"'
bad 's/"lfm2",/"lfm2", "conv_bias": true,/' 'conv_bias is true, expected false'
bad 's/"lfm2",/"lfm2", "conv_L_cache": 65,/' 'conv_L_cache is 65, expected at most 64'
bad 's/, "full_attention"\]/]/' 'layer_types has 3 layers, expected 4'
sed 's/"linear_num_value_heads": 4/"linear_num_value_heads": 3/' qwen3_5.json >bad.json
refused '3 value heads do not divide into 2 key heads' new-base --config bad.json --tokenizer tokenizer.json --out bad --quiet
