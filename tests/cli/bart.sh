# BART from a transformers folder: greedy and beam completions and the loss equal those of
# transformers. A PEFT adapter is imported, gives PEFT's texts and loss, and is exported again. A
# run in all places is merged without changing a bit, and inspected. Unsupported PEFT forms are
# refused.
golden=$SOURCE/tests/golden/bart
how='--threads 2 --precision f32'
bare_loss=$(sed -n 1p "$golden/losses.txt") peft_loss=$(sed -n 2p "$golden/losses.txt")

# near A B: losses that differ by less than 1e-4
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a - b < 1e-4 && b - a < 1e-4) }' || fail "loss $1, want $2"
}
# texts NAME PREFIX...: greedy and beams, with an option for the prefix
texts() {
    name=$1
    shift
    for kind in greedy beams; do
        beams=1
        [ $kind = beams ] && beams=3
        # shellcheck disable=SC2086 # words
        run 0 generate --base "$golden" "$@" --data "$golden/prompts.jsonl" --max-tokens 12 --beams $beams $how
        grep -v '^==> ' out >"$name.$kind"
        cp "$golden/${name}_$kind.txt" "$name.want"
        same "$name.$kind" "$name.want"
    done
}
texts bare
# shellcheck disable=SC2086
run 0 eval --base "$golden" --data "$golden/prompts.jsonl" $how --json
near "$(value loss)" "$bare_loss"

run 0 import "$golden/peft" --base "$golden" --out peft.h5
texts peft --prefix peft.h5
# shellcheck disable=SC2086
run 0 eval --base "$golden" --prefix peft.h5 --data "$golden/prompts.jsonl" $how --json
near "$(value loss)" "$peft_loss"
run 0 export peft.h5 --out adapter
run 0 import adapter --base "$golden" --out again.h5
texts peft --prefix again.h5
run 0 diff peft.h5 again.h5 --json
has out '"max_abs":0.0'
run 1 import "$golden/peft" --out no.h5
err_is "kvfold: import: $golden/peft: task_type is SEQ_2_SEQ_LM, which is for an encoder-decoder: name the base with --base"
absent no.h5

# a base file is the folder
run 0 import "$golden" --out bart.h5
# shellcheck disable=SC2086
run 0 generate --base bart.h5 --prefix again.h5 --data "$golden/prompts.jsonl" --max-tokens 12 $how
grep -v '^==> ' out >file.greedy
same file.greedy peft.greedy

how="$how --prefix-length 3 --batch-size 3 --seed 2 --force"
for method in mlp direct; do
    # shellcheck disable=SC2086
    run 0 train --base "$golden" --data "$golden/prompts.jsonl" --valid "$golden/prompts.jsonl" --method $method --steps 6 $how --out run.h5
    run 0 merge run.h5 --out prefix.h5 --force --base "$golden" --probe "$golden/prompts.jsonl" --json
    [ "$(value max_abs_diff)$(value probe_max_abs_diff)" = 0.00.0 ] || fail "$method: $(cat out)"
    for file in run prefix; do
        run 0 generate --base "$golden" --prefix $file.h5 --data "$golden/prompts.jsonl" --max-tokens 6 --threads 2 --precision f32
        cp out $file.txt
    done
    same run.txt prefix.txt
done
# shellcheck disable=SC2086
run 0 train --base "$golden" --data "$golden/prompts.jsonl" --steps 3 --init vocab --method direct $how --out vocab.h5
run 0 words vocab.h5 --base "$golden" --top 1 --json
has out '"layer":7'
run 0 report vocab.h5 --base "$golden" --data "$golden/prompts.jsonl" --out page.html
# classes from the decoder's state at EOS, with a prefix in all places: equal to
# BartForSequenceClassification
# shellcheck disable=SC2086
run 0 predict --base "$golden" --prefix "$golden/classes.h5" --data "$golden/classes.jsonl" --threads 2 --precision f32 --out classes.out
sed 's/.*"odd":\([0-9.e-]*\)}.*/\1/' classes.out >odd
[ "$(paste odd "$golden/classes.txt" | awk 'NF == 2 && $1 - $2 < 1e-5 && $2 - $1 < 1e-5' | wc -l)" = 6 ] ||
    fail "classes: $(paste odd "$golden/classes.txt")"

# --places: PEFT's form has only the decoder's prefix
run 1 export prefix.h5 --out no
err_is 'kvfold: export: prefix.h5: layer 0 has a prefix, but in PEFT exactly the layers of the decoder'"'"'s self-attention have one (--places peft)'
# shellcheck disable=SC2086
run 0 train --base "$golden" --data "$golden/prompts.jsonl" --places decoder --method direct --steps 2 $how --out run.h5
run 0 export run.h5 --out trained
has trained/adapter_config.json '"task_type": "SEQ_2_SEQ_LM"'

# forced_bos_token_id comes first, for any logits: here w
mkdir forced wide
cp "$golden"/*.json "$golden"/*.safetensors forced
sed 's/"forced_bos_token_id": 0/"forced_bos_token_id": 40/' "$golden/generation_config.json" >forced/generation_config.json
for beams in 1 3; do
    run 0 generate --base forced --data "$golden/prompts.jsonl" --max-tokens 4 --beams $beams --threads 2 --precision f32
    [ "$(grep -v '^==> ' out | grep -c '^w')" = 6 ] || fail "$beams beams: $(cat out)"
done

# refusals from the config
cp "$golden"/*.json "$golden"/*.safetensors wide
sed 's/"decoder_ffn_dim": 40/"decoder_ffn_dim": 48/' "$golden/config.json" >wide/config.json
run 1 generate --base wide --prompt a
err_is 'kvfold: generate: wide/config.json: encoder_ffn_dim is 40 and decoder_ffn_dim is 48: stacks of different sizes are not supported'
