# Encoder-decoders, on bases of random weights. A prefix in all three places is trained, merged
# without changing a bit, evaluated, and used in generation. Places act as layers, and unsupported
# uses are refused with one line.
"$MAKE_TINY" tokens 1 || exit 1
# config NAME KEYS
config() {
    printf '{"model_type": "t5", "vocab_size": 258, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 2,
        "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 257, "initializer_range": 0.3, %s}\n' "$2" >"$1.json"
    run 0 new-base --config "$1.json" --tokenizer tokens --out "$1.h5"
}
config t5 '"num_decoder_layers": 3'
config flan '"feed_forward_proj": "gated-gelu", "tie_word_embeddings": false'
for i in 1 2 3 4 5 6 7 8; do
    printf '{"prompt": "copy %d and %d", "completion": "%d"}\n' $i $((i * 7)) $((i * 7)) >>train.jsonl
    printf '{"prompt": "copy %d", "completion": "%d%d"}\n' $((i * 3)) $i $i >>valid.jsonl
done
how='--prefix-length 3 --batch-size 3 --threads 2 --precision f32 --seed 2 --force'

for base in t5 flan; do
    for method in mlp direct; do
        # shellcheck disable=SC2086 # words
        run 0 train --base $base.h5 --data train.jsonl --valid valid.jsonl --method $method --steps 6 $how --out run.h5
        run 0 merge run.h5 --out prefix.h5 --force --base $base.h5 --probe valid.jsonl --json
        [ "$(value max_abs_diff)$(value probe_max_abs_diff)" = 0.00.0 ] || fail "$base $method: $(cat out)"
        for file in run prefix; do
            run 0 eval --base $base.h5 --prefix $file.h5 --data valid.jsonl --threads 2 --precision f32 --json
            value loss >$file.loss
            run 0 generate --base $base.h5 --prefix $file.h5 --data valid.jsonl --max-tokens 6 --threads 2 --precision f32
            cp out $file.txt
        done
        same run.loss prefix.loss
        same run.txt prefix.txt
    done
done

# the file names its form, and no reader takes it for a prefix of one stack
run 0 inspect prefix.h5 --json
has out '"features":[[]"encoder-decoder"[]]'
has out '"encoder_layers":2'
run 1 eval --base t5.h5 --prefix prefix.h5 --data valid.jsonl
err_is 'kvfold: eval: t5.h5: the prefix is for base flan, L=6 G=2 D=8, but the base has L=8 G=2 D=8'

# layers in memory, recomputed layers, and layers packed just before use: the same bits
run 0 train --base t5.h5 --data train.jsonl --steps 3 $how --out run.h5 --json
value train_loss >kept.loss
for option in '--recompute on' '--stream-layers on'; do
    # shellcheck disable=SC2086
    run 0 train --base t5.h5 --data train.jsonl --steps 3 $how $option --out again.h5 --json
    value train_loss >again.loss
    same kept.loss again.loss
done

# score equals eval's loss; texts are scored; beams; a single prompt equals the one in a batch
printf '{"input_ids": [50, 60, 257], "labels": [70, 80, 257]}\n' >ids.jsonl
run 0 score --base t5.h5 --prefix run.h5 --data ids.jsonl --threads 2 --precision f32 --out lines --json
sum=$(value loglikelihood)
run 0 eval --base t5.h5 --prefix run.h5 --data ids.jsonl --threads 2 --precision f32 --json
awk -v sum="$sum" -v loss="$(value loss)" 'BEGIN { d = sum / 3 + loss; exit !(d < 1e-4 && d > -1e-4) }' ||
    fail "score $sum of 3 tokens, eval $(value loss)"
# -100 among labels: T5ForConditionalGeneration's loss of transformers 5.24 in f32 (tests/golden/model_t5, input_ids 5 6 7 1)
while read -r labels loss; do
    printf '{"input_ids": [5, 6, 7, 1], "labels": [%s]}\n' "$labels" >ids.jsonl
    run 0 eval --base "$SOURCE/tests/golden/model_t5" --data ids.jsonl --threads 2 --precision f32 --json
    awk -v want="$loss" -v loss="$(value loss)" 'BEGIN { d = want - loss; exit !(d < 2e-6 && d > -2e-6) }' ||
        fail "labels $labels: loss $(value loss), want $loss"
done <<'LOSSES'
9,11,1 3.8756883
9,-100,11,1 3.8678856
9,-100,-100,12,-100,1 3.8223312
9,11,-100,-100 3.9717178
LOSSES
printf '{"input_ids": [50, 60, 257], "labels": [-100, 70]}\n' >ids.jsonl
run 1 eval --base t5.h5 --data ids.jsonl
err_is 'kvfold: eval: ids.jsonl:1: labels[0] is -100, but the first label of an encoder-decoder must be a token'
run 0 eval --base t5.h5 --prefix run.h5 --data valid.jsonl --generate 4 --json
has out '"bleu":'
has out '"rouge_l":'
run 0 generate --base t5.h5 --prefix run.h5 --prompt 'copy 3' --max-tokens 4 --beams 3
run 0 generate --base t5.h5 --prefix run.h5 --prompt 'copy 3' --max-tokens 4 --temperature 0.7 --seed 3
for rows in 1 8; do
    head -$rows valid.jsonl >rows.jsonl
    run 0 generate --base t5.h5 --prefix run.h5 --data rows.jsonl --max-tokens 6 --threads 2 --precision f32 --json
    grep -o '"texts":\["[^"]*"' out >first.$rows
done
[ -s first.1 ] || fail "no text: $(cat out)"
same first.1 first.8
run 0 words run.h5 --base t5.h5 --top 1 --json
has out '"layer":7'
run 0 report run.h5 --base t5.h5 --data valid.jsonl --out page.html
run 0 quantize prefix.h5 --dtype bf16 --out small.h5
run 0 eval --base flan.h5 --prefix small.h5 --data valid.jsonl

# classes: both stacks read the text; the folded file has the bits of the run, and a row alone those
# it has in a batch
for i in 1 2 3 4 5 6 7 8; do
    printf '{"text": "copy %d", "label": "%s"}\n' $((i * 3)) "$([ $((i % 2)) = 0 ] && echo even || echo odd)" >>classes.jsonl
done
for base in t5 flan; do
    # shellcheck disable=SC2086
    run 0 train --base $base.h5 --data classes.jsonl --valid classes.jsonl --task seq-cls --method mlp --steps 6 $how --out run.h5
    run 0 merge run.h5 --out prefix.h5 --force --base $base.h5 --probe classes.jsonl --json
    [ "$(value max_abs_diff)$(value probe_max_abs_diff)" = 0.00.0 ] || fail "$base seq-cls: $(cat out)"
    run 0 predict --base $base.h5 --prefix run.h5 --data classes.jsonl --threads 2 --precision f32 --out all.txt --force
    tail -1 classes.jsonl >one.jsonl
    run 0 predict --base $base.h5 --prefix prefix.h5 --data one.jsonl --threads 2 --precision f32 --out one.txt --force
    tail -1 all.txt >last.txt
    same last.txt one.txt
done

# --places
for places in encoder:11000000 decoder:00101010 cross:00010101 decoder,cross:00111111; do
    # shellcheck disable=SC2086
    run 0 train --base t5.h5 --data train.jsonl --method direct --places ${places%:*} --steps 1 $how --out run.h5
    run 0 merge run.h5 --out prefix.h5 --force
    run 0 inspect prefix.h5 --json
    has out "\"layer_mask\":\[$(printf %s ${places#*:} | sed 's/./&,/g; s/,$//')\]"
done
refused() {
    message=$1
    shift
    run 2 train --base t5.h5 --data train.jsonl --out no.h5 "$@"
    has err "^kvfold: train: $message"
    absent no.h5
}
refused '--places head: want peft, or a list of encoder,decoder,cross' --places head
refused '--places decoder,peft: want peft, or a list of encoder,decoder,cross' --places decoder,peft
refused '--places encoder and --layers 2-7 leave no layer' --places encoder --layers 2-7
for method in prompt p-tuning projected; do
    refused "--method $method: not supported on t5" --method $method
done
for method in adapter full; do
    run 1 train --base t5.h5 --data train.jsonl --out no.h5 --method $method
    err_is 'kvfold: train: t5 is an encoder-decoder, whose weights cannot be trained: train a prefix'
done
refused '--task token-cls: not supported on t5' --task token-cls
refused '--infix: not supported on encoder-decoders such as t5' --infix
refused '--p-template: not supported on encoder-decoders such as t5' --p-template '{text} wind'
refused '--p-template: not supported on encoder-decoders such as t5' --task seq-cls --p-template '{text} [MASK]' --verbalizer 'even=cold,odd=rain'
refused '--chat-template chatml: not supported on t5, an encoder-decoder' --chat-template chatml
run 2 train --base tokens --data train.jsonl --out no.h5 --places cross
err_is 'kvfold: train: --places is for encoder-decoders, not llama; try kvfold train --help'
printf '{"text": "one stack"}\n' >text.jsonl
run 1 train --base t5.h5 --data text.jsonl --out no.h5
err_is 'kvfold: train: text.jsonl:1: an encoder-decoder needs rows with prompt and completion, not "text"'
run 1 export prefix.h5 --out adapter
err_is "kvfold: export: prefix.h5: layer 3 has a prefix, but in PEFT exactly the layers of the decoder's self-attention have one (--places peft)"
run 0 export prefix.h5 --format safetensors --out cache.safetensors

# PEFT's form of the decoder's prefix, which the relative bias counts: trained, resumed, merged
# without changing a bit, exported to PEFT and imported
# shellcheck disable=SC2086
run 0 train --base t5.h5 --data train.jsonl --places peft --method mlp --steps 3 --schedule constant $how --out run.h5
run 0 train --base t5.h5 --data train.jsonl --places peft --method mlp --steps 6 --schedule constant $how --out whole.h5
# shellcheck disable=SC2086
run 0 train --base t5.h5 --data train.jsonl --places peft --method mlp --steps 6 --schedule constant ${how% --force} --resume --out run.h5
run 0 merge run.h5 --out peft.h5 --base t5.h5 --probe valid.jsonl --json
[ "$(value max_abs_diff)$(value probe_max_abs_diff)" = 0.00.0 ] || fail "peft: $(cat out)"
run 0 inspect peft.h5 --json
has out '"relative_bias":"decoder"'
has out '"layer_mask":\[0,0,1,0,1,0,1,0\]'
run 0 export peft.h5 --out adapter
run 0 import adapter --base t5.h5 --out back.h5
run 0 diff peft.h5 back.h5 --tensors-only --json
has out '"max_abs":0.0'
run 0 quantize peft.h5 --dtype f32 --out same.h5
run 0 unmerge peft.h5 --base t5.h5 --out unmerged.h5 --approximate
run 0 compose peft.h5 back.h5 --mode average --out mean.h5 --allow-other-base
for file in run whole peft back same mean; do
    run 0 eval --base t5.h5 --prefix $file.h5 --data valid.jsonl --threads 2 --precision f32 --json
    value loss >$file.loss
    same $file.loss run.loss
    run 0 generate --base t5.h5 --prefix $file.h5 --data valid.jsonl --max-tokens 6 --beams 2 --threads 2 --precision f32
    cp out $file.txt
    same $file.txt run.txt
done
run 0 inspect unmerged.h5 --json
has out '"relative_bias":"decoder"'
run 0 export peft.h5 --format safetensors --out near.safetensors
grep -q '"relative_bias":"decoder"' near.safetensors || fail 'the metadata leaves relative_bias out'
run 1 compose peft.h5 back.h5 --out no.h5
err_is "kvfold: compose: peft.h5: its keys have the decoder's relative bias, which depends on the distance to the text: use --mode average"
run 1 prune peft.h5 --base t5.h5 --data valid.jsonl --keep 2 --out no.h5
err_is "kvfold: prune: peft.h5: cannot be pruned, because the decoder's relative bias of its keys depends on the distance to the text"
# shellcheck disable=SC2086
run 2 train --base t5.h5 --data train.jsonl --places decoder --method direct --init-kv peft.h5 --steps 1 $how --out no.h5
err_is "kvfold: train: peft.h5: its keys use the decoder's relative bias, but this run's none (see --places peft); try kvfold train --help"
# shellcheck disable=SC2086
run 0 train --base t5.h5 --data train.jsonl --places decoder --method direct --steps 1 $how --out plain.h5
run 1 compose peft.h5 plain.h5 --mode average --out no.h5
err_is 'kvfold: compose: plain.h5: has another relative bias than peft.h5'
run 1 export plain.h5 --out no
err_is "kvfold: export: plain.h5: its keys have no relative bias, but PEFT adds the decoder's: train with --places peft"

# an adapter written by PEFT is exported unchanged
golden=$SOURCE/tests/golden
run 0 import "$golden/t5_peft" --base "$golden/model_t5" --out theirs.h5
run 0 export theirs.h5 --out theirs
run 0 import theirs --base "$golden/model_t5" --out returned.h5
run 0 diff theirs.h5 returned.h5 --json
has out '"max_abs":0.0'
