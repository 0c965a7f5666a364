# Virtual neurons (--ffn-length): trained beside a prefix and alone, on bases of every kind of
# feed-forward block. Folding changes no bit, a start with values of zero changes no loss, decoding
# one token at a time agrees with a pass, and what cannot hold neurons refuses in one line.
. "$SOURCE/tests/cli/neuron_bases.sh"

# every base with both methods, with and without a prefix; a plain and a gated block with all four
for base in bert modernbert llama gpt2 gpt_neox gemma2 olmo2 granite t5; do
    data='lm.jsonl'
    task='lm'
    case $base in *bert) data='class.tsv' task='seq-cls' ;; esac
    for form in direct-3 mlp-0 direct-0 mlp-3; do
        case $base-$form in bert-* | llama-* | *-direct-3 | *-mlp-0) ;; *) continue ;; esac
        method=${form%-*} P=${form#*-} hidden=
        [ $method = direct ] || hidden='--encoder-hidden 8'
        # shellcheck disable=SC2086 # words
        run 0 train --base $base.h5 --data $data --task $task --method $method --steps 5 --prefix-length $P --ffn-lr 0.05 $how $hidden --out run.h5
        run 0 merge run.h5 --out prefix.h5 --force --base $base.h5 --probe $data --json
        [ "$(value max_abs_diff)$(value probe_max_abs_diff)" = 0.00.0 ] || fail "$base $method $P: $(cat out)"
        for file in run prefix; do
            run 0 eval --base $base.h5 --prefix $file.h5 --data $data --threads 2 --precision f32 --json
            value loss >$file.loss
        done
        same run.loss prefix.loss
        [ $task = lm ] || continue
        for file in run prefix; do
            run 0 generate --base $base.h5 --prefix $file.h5 --data $data --max-tokens 6 --threads 2 --precision f32
            cp out $file.txt
        done
        same run.txt prefix.txt
    done
done

# training: resumed, recomputed and swept runs have the bits of a plain one
train_llama() { # OUT OPTIONS...
    out=$1
    shift
    run 0 train --base llama.h5 --data lm.jsonl --prefix-length 3 --ffn-length 5 --encoder-hidden 8 --batch-size 3 --threads 2 \
        --precision f32 --seed 2 --steps 6 --schedule constant --quiet --out "$out" "$@"
}
train_llama whole.h5
train_llama part.h5 --steps 3
train_llama part.h5 --steps 6 --resume
run 0 diff whole.h5 part.h5 --tensors-only
train_llama again.h5 --recompute on
run 0 merge whole.h5 --out whole-p.h5
run 0 merge again.h5 --out again-p.h5
run 0 diff whole-p.h5 again-p.h5 --tensors-only
printf 'ffn-length = 0, 5\n' >grid
run 0 sweep --base llama.h5 --data lm.jsonl --grid grid --prefix-length 3 --encoder-hidden 8 --batch-size 3 --threads 2 \
    --precision f32 --seed 2 --steps 6 --schedule constant --quiet --out swept
for run in swept/*.h5; do
    run 0 inspect "$run" --json
    grep -q '"neurons":5' out && run 0 diff "$run" whole.h5 --tensors-only
done

# one comparison holds both forms, and neurons alone
run 0 compare --base llama.h5 --data lm.jsonl --valid lm.jsonl --methods mlp,mlp:ffn-length=5,mlp:prefix-length=0:ffn-length=5 \
    --prefix-length 3 --encoder-hidden 8 --steps 2 --threads 2 --precision f32 --out both --quiet
for row in mlp mlp-ffn-length=5 mlp-prefix-length=0-ffn-length=5; do
    has out "^$(printf '%s' "$row" | sed 's/-\(ffn-\|prefix-\)/ \1/g')  *[0-9]"
    "$KVFOLD" inspect "both/$row-0.h5" --json | tr , '\n' | sed -n "s/^\"\(P\|neurons\)\":/$row \1 /p"
done >forms
printf '%s\n' 'mlp P 3' 'mlp-ffn-length=5 neurons 5' 'mlp-ffn-length=5 P 3' 'mlp-prefix-length=0-ffn-length=5 neurons 5' \
    'mlp-prefix-length=0-ffn-length=5 P 0' >want
cmp -s forms want || fail "the rows of compare: $(cat forms)"

# the start has the loss of the same start without neurons
for P in 3 0; do
    [ $P = 3 ] && train_llama plain.h5 --ffn-length 0 --steps 1 --lr 1e-30
    train_llama start.h5 --prefix-length $P --steps 1 --lr 1e-30 --ffn-lr 1e-30
    run 0 eval --base llama.h5 --prefix start.h5 --data lm.jsonl --threads 2 --precision f32 --json
    value loss >start.loss
    if [ $P = 3 ]; then
        run 0 eval --base llama.h5 --prefix plain.h5 --data lm.jsonl --threads 2 --precision f32 --json
    else
        run 0 eval --base llama.h5 --data lm.jsonl --threads 2 --precision f32 --json
    fi
    value loss >plain.loss
    awk 'NR == FNR { a = $1; next } { d = a - $1; exit !(d < 1e-6 && d > -1e-6) }' start.loss plain.loss ||
        fail "P $P: the start has loss $(cat start.loss), without neurons $(cat plain.loss)"
    [ $P = 0 ] || run 0 merge plain.h5 --out tokens-p.h5
    rm -f start.h5 plain.h5
done

# files
run 0 inspect whole-p.h5
has out '^whole-p.h5: prefix, features neurons$'
has out '^  neurons  *5$'
has out '^  prefix/neurons/up  *\[2, 5, 32\]  *f32 .*(layer, neuron, channel)$'
run 0 train --base llama.h5 --data lm.jsonl --prefix-length 0 --ffn-length 5 --encoder-hidden 8 --layers 1 --steps 3 --threads 2 --precision f32 \
    --quiet --force --out alone.h5
run 0 merge alone.h5 --out alone-p.h5
has out '^alone-p.h5: \[2, 2, 1, 2, 0, 8\] f32, '
run 0 inspect alone-p.h5
has out '^alone-p.h5: prefix, features layer-mask, neurons$'
# a report shows neurons beside a prefix, and alone, where a layer without them has no norms
run 0 report whole-p.h5 --out page.html
for id in keys values neurons; do has page.html "<figure class=\"heat\" id=\"$id\""; done
has page.html '<th scope="col">gate</th><th scope="col">up</th><th scope="col">value</th>'
run 0 report alone-p.h5 --out page.html --force
! grep -q -e '<figure class="heat" id="keys"' -e 'Method mlp trains parameters of the base' page.html ||
    fail 'the report of neurons alone has a prefix, or a note on a method without one'
has page.html '<tr><th scope="row">0</th><td>&ndash;</td><td>&ndash;</td><td>&ndash;</td></tr>'
loss() { # FILE
    run 0 eval --base llama.h5 --prefix "$1" --data lm.jsonl --threads 2 --precision f32 --json
    value loss
}
for dtype in f16 bf16 int8; do
    run 0 quantize whole-p.h5 --dtype $dtype --out narrow.h5 --force
    awk -v a="$(loss whole-p.h5)" -v b="$(loss narrow.h5)" 'BEGIN { d = a - b; exit !(d < 0.05 && d > -0.05) }' ||
        fail "$dtype: loss $(loss narrow.h5), of f32 $(loss whole-p.h5)"
done
run 0 unmerge whole-p.h5 --encoder-hidden 8 --out unmerged.h5
run 0 merge unmerged.h5 --out unmerged-p.h5
awk -v a="$(loss whole-p.h5)" -v b="$(loss unmerged-p.h5)" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }' ||
    fail "unmerged: loss $(loss unmerged-p.h5), before $(loss whole-p.h5)"
# outputs of composed neurons add up: those of a part with values of zero change nothing
run 0 train --base llama.h5 --data lm.jsonl --prefix-length 0 --ffn-length 2 --method direct --steps 1 --lr 1e-30 --ffn-lr 1e-30 \
    --threads 2 --precision f32 --quiet --out zero.h5
run 0 merge zero.h5 --out zero-p.h5
run 0 compose whole-p.h5 zero-p.h5 --out both.h5
run 0 inspect both.h5
has out '^  neurons  *7$'
awk -v a="$(loss whole-p.h5)" -v b="$(loss both.h5)" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }' ||
    fail "composed: loss $(loss both.h5), of the part $(loss whole-p.h5)"
# neurons with values of zero are pruned first, and change nothing; the file has the curve's loss
prune() { # FILE OPTIONS...
    run 0 prune "$@" --base llama.h5 --data lm.jsonl --out pruned.h5 --force --threads 2 --json
    after=$(value loss_after)
    [ "$(loss pruned.h5)" = "$after" ] || fail "eval says $(loss pruned.h5), prune $after"
}
for score in gradient leave-one-out; do
    prune both.h5 --neurons --keep 5 --score $score
    awk -v a="$(loss whole-p.h5)" -v b="$after" 'BEGIN { d = a - b; exit !(d < 1e-6 && d > -1e-6) }' ||
        fail "pruned by $score: loss $after, of the part $(loss whole-p.h5)"
    run 0 inspect pruned.h5
    has out '^  neurons  *5$'
    has out '^  pruned_kept  *0,1,2,3,4$'
    prune both.h5 --neurons --keep 1 --score $score
done
prune alone-p.h5 --keep 2
run 0 inspect pruned.h5
has out '^  neurons  *2$'
prune whole-p.h5 --keep 2 # tokens, beside all neurons
run 0 inspect pruned.h5
has out '^  prefix/past_key_values  *\[2, 2, 1, 2, 2, 8\] '
has out '^  neurons  *5$'
run 0 prune both.h5 --neurons --max-loss-rise 1e-6 --base llama.h5 --data lm.jsonl --out pruned.h5 --force --dtype f16
has out '^dropping neuron [0-4] too would change the loss by [-+]'
has out '^pruned.h5: 5 virtual neurons, '
run 0 train --base llama.h5 --data lm.jsonl --init-from whole-p.h5 --prefix-length 3 --ffn-length 5 --encoder-hidden 8 --steps 1 --lr 1e-30 --ffn-lr 1e-30 \
    --threads 2 --precision f32 --quiet --out from.h5
awk -v a="$(loss whole-p.h5)" -v b="$(loss from.h5)" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }' ||
    fail "--init-from: loss $(loss from.h5), of the file $(loss whole-p.h5)"

# --init-encoder reads the part of the neurons too; without it they start as usual
encoder() { # NAME ROWS... writes a state dict of zeros, each row `"name" [shape] bytes`
    file=$1 at=0 header=
    shift
    while [ $# -gt 0 ]; do
        header="$header${header:+,}$1:{\"dtype\":\"F32\",\"shape\":$2,\"data_offsets\":[$at,$((at + $3))]}"
        at=$((at + $3))
        shift 3
    done
    # shellcheck disable=SC2059 # octal
    { printf "\\$(printf %o $((${#header} + 2)))\0\0\0\0\0\0\0" && printf '{%s}' "$header" && head -c $at /dev/zero; } >"$file"
}
encoder plain.safetensors '"embedding.weight"' '[3,64]' 768
encoder both.safetensors '"embedding.weight"' '[3,64]' 768 '"neurons.embedding.weight"' '[5,192]' 3840
begin() { # CODE FILE OPTIONS...
    want=$1 from=$2
    shift 2
    run "$want" train --base llama.h5 --data lm.jsonl --method direct --prefix-length 3 --init-encoder "$from" --steps 1 --lr 1e-30 \
        "$@" --threads 2 --precision f32 --quiet --force --out begun.h5
}
for kind in plain both; do
    begin 0 $kind.safetensors --ffn-length 5 --ffn-lr 1e-30
    run 0 merge begun.h5 --out begun-p.h5 --force
    run 0 inspect begun-p.h5 --json
    sed 's/.*neurons\/gate//; s/prefix\/neurons\/up.*//' out | grep -q '"max":0.0,' && zeros=both || zeros=plain
    [ $kind = $zeros ] || fail "--init-encoder $kind.safetensors: $(cat out)"
done
begin 1 both.safetensors
has err 'both.safetensors: neurons.embedding.weight is not a parameter of method direct without neurons$'

# neurons alone are resumed without naming the length again; heads by layer
run 0 train --base llama.h5 --data lm.jsonl --resume --out alone.h5 --steps 3 --quiet --threads 2
cat >gemma4.json <<'END'
{"model_type": "gemma4_text", "vocab_size": 258, "vocab_size_per_layer_input": 258, "hidden_size": 32, "intermediate_size": 48,
 "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16,
 "num_global_key_value_heads": 1, "attention_k_eq_v": true, "num_kv_shared_layers": 2, "use_double_wide_mlp": true,
 "hidden_size_per_layer_input": 4, "sliding_window": 16, "max_position_embeddings": 512, "initializer_range": 0.3,
 "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
                 "full_attention"], "bos_token_id": 256, "eos_token_id": 257, "tie_word_embeddings": true}
END
run 0 new-base --config gemma4.json --tokenizer tokens --out gemma4.h5 --quiet
for P in 0 3; do
    run 0 train --base gemma4.h5 --data lm.jsonl --method direct --prefix-length $P --steps 3 $how --out run.h5
    run 0 merge run.h5 --base gemma4.h5 --out prefix.h5 --force --probe lm.jsonl --json
    [ "$(value max_abs_diff)$(value probe_max_abs_diff)" = 0.00.0 ] || fail "gemma4 $P: $(cat out)"
done

# bad input
refused() { # MESSAGE OPTIONS...
    line=$1
    shift
    run 2 train --base llama.h5 --data lm.jsonl --steps 1 --out x.h5 "$@"
    has err "$line"
    absent x.h5
}
refused '^kvfold: train: --prefix-length 0: want a whole number from 1, or --ffn-length' --prefix-length 0
refused '^kvfold: train: --ffn-length: not for method projected' --method projected --ffn-length 4
refused '^kvfold: train: --ffn-length: not with --infix' --infix --ffn-length 4
refused '^kvfold: train: --ffn-lr needs --ffn-length' --ffn-lr 0.1
refused '^kvfold: train: --ffn-length 65: layer 0 of the base has 64 neurons of its own' --ffn-length 65
run 1 train --base llama.h5 --data lm.jsonl --steps 1 --init-from whole-p.h5 --prefix-length 3 --out x.h5
has err '^kvfold: train: whole-p.h5: has 5 virtual neurons in each layer: give --ffn-length 5$'
run 1 eval --base gpt2.h5 --prefix alone-p.h5 --data lm.jsonl
has err 'the prefix is for base llama'
run 1 eval --base gpt2.h5 --prefix alone-p.h5 --data lm.jsonl --allow-other-base
refused '^kvfold: train: --log-weight: weighs virtual tokens' --prefix-length 0 --ffn-length 4 --log-weight train
refused '^kvfold: train: --init zero: neurons alone' --prefix-length 0 --ffn-length 4 --init zero
refused '^kvfold: train: --ffn-length 33: want at most --encoder-hidden, 8' --ffn-length 33 --encoder-hidden 8
run 1 train --base llama.h5 --data lm.jsonl --steps 1 --init-from whole.h5 --prefix-length 3 --encoder-hidden 8 --out x.h5
has err 'whole.h5: has 5 virtual neurons in each layer: give --ffn-length 5$'
run 1 compose whole-p.h5 whole-p.h5 --mode average --out x.h5
has err 'whole-p.h5: has virtual neurons, whose mean means nothing'
run 2 prune whole-p.h5 --base llama.h5 --data lm.jsonl --neurons --keep 6 --out x.h5
has err '^kvfold: prune: --keep 6: whole-p.h5 has only 5 virtual neurons; try'
run 2 prune tokens-p.h5 --base llama.h5 --data lm.jsonl --neurons --keep 1 --out x.h5
has err '^kvfold: prune: tokens-p.h5: has no virtual neurons; try'
run 2 words alone-p.h5 --base llama.h5
absent x.h5 x
