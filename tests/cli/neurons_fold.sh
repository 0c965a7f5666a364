# Virtual neurons folded into the base: an ordinary transformers folder or GGUF, N wider, with the
# same loss and its old values.
. "$SOURCE/tests/cli/neuron_bases.sh"
# shellcheck disable=SC2086 # words
{
    run 0 train --base llama.h5 --data lm.jsonl --method direct --prefix-length 3 --steps 3 --ffn-lr 0.05 $how --out whole.h5
    run 0 train --base llama.h5 --data lm.jsonl --method direct --prefix-length 0 --steps 3 --ffn-lr 0.05 $how --out alone.h5
}
run 0 merge whole.h5 --out whole-p.h5
run 0 merge alone.h5 --out alone-p.h5

for base in llama gpt2 gpt_neox gemma2 gemma4_text granite granitemoehybrid lfm2 qwen3_5_text modernbert; do
    data=lm.jsonl task=lm
    [ $base = modernbert ] && data=class.tsv task=seq-cls
    run 0 train --base $base.h5 --data $data --task $task --method direct --steps 3 --prefix-length 0 --ffn-lr 0.05 $how --out run.h5
    if [ $base = modernbert ]; then
        run 1 export run.h5 --format transformers --base $base.h5 --out wide
        has err 'run.h5: has a trained head, which is not written with the base$'
        continue
    fi
    run 0 export run.h5 --format transformers --base $base.h5 --out wide --force
    key='intermediate_size\|n_inner'
    [ $base = granitemoehybrid ] && key=shared_intermediate_size
    width=$(sed -n 's/.*"\('$key'\)": *\([0-9]*\).*/\2/p' wide/config.json)
    [ "$width" = 69 ] || fail "$base: width $width, want 69"
    run 0 eval --base wide --data lm.jsonl --threads 2 --precision f32 --json
    wide=$(value loss)
    run 0 eval --base $base.h5 --prefix run.h5 --data lm.jsonl --threads 2 --precision f32 --json
    awk -v a="$wide" -v b="$(value loss)" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }' ||
        fail "$base: the folder has loss $wide, the neurons $(value loss)"
done
run 0 train --base granite.h5 --data lm.jsonl --method prompt --prefix-length 2 --steps 1 --threads 2 --precision f32 --quiet --out tokens.h5
for format in peft safetensors; do
    run 1 export tokens.h5 --format $format --out x
    has err 'tokens.h5: transformers multiplies virtual tokens at the input of a granite model by its embedding_multiplier'
done
run 0 export llama.h5 --format transformers --out plain # a base file alone
run 0 eval --base plain --data lm.jsonl --threads 2 --precision f32 --json
plain=$(value loss)
run 0 eval --base llama.h5 --data lm.jsonl --threads 2 --precision f32 --json
[ "$plain" = "$(value loss)" ] || fail "the folder of the base has loss $plain, the base $(value loss)"
run 1 export llama.h5 --format transformers --out plain
# with a LoRA in it, and trained as a whole
"$MAKE_TINY" model 1 && "$MAKE_TINY" lora 5 lora || exit 1
run 0 train --base model --data lm.jsonl --method full --steps 2 --precision f32 --threads 2 --quiet --out full.h5
run 0 merge full.h5 --base model --out full-base.h5
run 0 export model --format transformers --lora lora --out folded
run 0 export full-base.h5 --format transformers --out full
for folder in folded full; do
    how_else="--lora lora"
    [ $folder = folded ] || how_else="--prefix full.h5"
    run 0 eval --base $folder --data lm.jsonl --threads 2 --precision f32 --json
    value loss >got
    # shellcheck disable=SC2086 # words
    run 0 eval --base model --data lm.jsonl --threads 2 --precision f32 --json $how_else
    value loss >want
    awk 'NR == FNR { a = $1; next } { d = a - $1; exit !(d < 1e-5 && d > -1e-5) }' want got || fail "$folder: loss $(cat got), want $(cat want)"
done
# a GGUF with a LoRA in it, and one trained as a whole: the same loss, other tensors unchanged
for gguf in bpe neox; do
    gguf=$SOURCE/tests/golden/gguf_$gguf.gguf
    run 0 train --base "$gguf" --data lm.jsonl --method full --steps 2 --lr 1e-3 --precision f32 --threads 2 --quiet --out tuned.h5 --force
    run 0 merge tuned.h5 --base "$gguf" --out tuned-base.h5 --force
    run 0 eval --base tuned-base.h5 --data lm.jsonl --threads 2 --precision f32 --json
    value loss >want
    for type in own f32; do
        asked=--ffn-type=f32 most=1e-5
        [ $type = f32 ] || asked='' most=0.02
        # shellcheck disable=SC2086 # words
        run 0 export tuned-base.h5 --format gguf --base "$gguf" --out tuned.gguf --force $asked
        run 0 eval --base tuned.gguf --data lm.jsonl --threads 2 --precision f32 --json
        value loss >got
        awk -v most=$most 'NR == FNR { a = $1; next } { d = a - $1; exit !(d < most && d > -most) }' want got ||
            fail "$gguf, $type: the trained GGUF has loss $(cat got), want $(cat want)"
    done
done
bpe=$SOURCE/tests/golden/gguf_bpe.gguf
run 0 export "$bpe" --lora lora --format gguf --ffn-type f32 --out folded.gguf
run 0 eval --base folded.gguf --data lm.jsonl --threads 2 --precision f32 --json
value loss >got
run 0 eval --base "$bpe" --lora lora --data lm.jsonl --threads 2 --precision f32 --json
value loss >want
awk 'NR == FNR { a = $1; next } { d = a - $1; exit !(d < 1e-5 && d > -1e-5) }' want got || fail "GGUF with a LoRA: loss $(cat got), want $(cat want)"
run 0 inspect folded.gguf
has out 'blk.0.attn_q.weight  *\[32, 32\]  *f32 '
has out 'blk.0.attn_output.weight  *\[32, 32\]  *q4_1 '
run 2 export "$bpe" --format gguf --out x.gguf
has err 'gguf_bpe.gguf: is a GGUF: give --lora to fold one in, and no --base'
run 2 export tuned-base.h5 --format gguf --out x.gguf
has err 'tuned-base.h5: is a base: give --base MODEL.gguf'
run 2 export tuned-base.h5 --format gguf --base model --out x.gguf
has err '.*--base model: want the GGUF that the base was trained on'
run 1 export tuned-base.h5 --format gguf --base "$bpe" --out x.gguf
has err 'tuned-base.h5: .*: it was not trained on'
run 2 export tuned-base.h5 --format gguf --base "$bpe" --engine mlx-lm --out x.gguf
has err 'tuned-base.h5: is a base, so there is no state for --engine'
run 1 export "$bpe" --lora lora --format gguf --out folded.gguf
has err 'folded.gguf: exists (use --force to replace it)$'
absent x.gguf
run 1 export full.h5 --format transformers --base model --out x
has err 'full.h5: trains the whole base: merge it'
run 0 export whole-p.h5 --format transformers --base llama.h5 --out both # with keys and values: a cache
[ -s both/past_key_values.safetensors ] || fail 'no cache beside the model'
has both/README.md 'DynamicCache'
run 0 export alone-p.h5 --format transformers --base llama.h5 --out both --force
absent both/past_key_values.safetensors
! grep -q DynamicCache both/README.md || fail 'the README has a cache'
run 1 export alone-p.h5 --format transformers --base gpt2.h5 --out x
has err 'the prefix is for base llama'
run 1 export alone-p.h5 --format transformers --out x
run 2 export alone-p.h5 --format transformers --base plain --out plain --force
has err 'plain: is the base, which will not be replaced'
for format in peft safetensors; do
    run 1 export whole-p.h5 --format $format --out x
    has err 'whole-p.h5: has virtual neurons (--ffn-length), which no cache or adapter of another program holds: --format'
done
# folded into a GGUF, whose file has the loss of the neurons: exactly in f32, else within the error of its types
for base in bpe neox; do
    gguf=$SOURCE/tests/golden/gguf_$base.gguf
    run 0 train --base "$gguf" --data lm.jsonl --method direct --steps 3 --prefix-length 0 --ffn-lr 0.05 $how --out $base.run.h5
    run 0 eval --base "$gguf" --prefix $base.run.h5 --data lm.jsonl --threads 2 --precision f32 --json
    value loss >want
    for type in own q8_0 f16 f32; do
        asked=
        [ $type = own ] || asked="--ffn-type $type"
        # shellcheck disable=SC2086 # words
        run 0 export $base.run.h5 --format gguf --base "$gguf" --out wide.gguf --force $asked
        run 0 eval --base wide.gguf --data lm.jsonl --threads 2 --precision f32 --json
        value loss >got
        awk -v most="$([ $type = f32 ] && echo 1e-5 || echo 0.02)" 'NR == FNR { a = $1; next } { d = a - $1; exit !(d < most && d > -most) }' want got ||
            fail "$base, $type: the GGUF has loss $(cat got), the neurons $(cat want)"
    done
done
run 2 export bpe.run.h5 --base "$bpe" --lora lora --format gguf --out x.gguf
has err 'bpe.run.h5: write the GGUF with the LoRA first'
run 0 export neox.run.h5 --format gguf --base "$gguf" --out wide.gguf --force --ffn-type f32 --data lm.jsonl --precision f32 --json
awk -v a="$(value loss_before)" -v b="$(value loss_after)" -v want="$(cat want)" \
    'BEGIN { d = a - b; exit !(a == want && d < 1e-5 && d > -1e-5) }' || fail "$(cat out), want $(cat want)"
t5=$SOURCE/tests/golden/model_t5_gated/model.gguf # both stacks
run 0 train --base "$t5" --data lm.jsonl --method direct --steps 3 --prefix-length 0 --ffn-lr 0.05 $how --out t5.run.h5
run 0 export t5.run.h5 --format gguf --base "$t5" --out t5.gguf --ffn-type f32 --data lm.jsonl --precision f32 --json
awk -v d="$(value loss_change)" 'BEGIN { exit !(d < 1e-5 && d > -1e-5) }' || fail "t5: $(cat out)"
run 0 inspect wide.gguf
has out 'gptneox.feed_forward_length  *261$'
has out 'blk.2.ffn_down.weight  *\[32, 261\]  *f32 '
neox=$SOURCE/tests/golden/gguf_neox.gguf
# not_folded CODE MESSAGE OPTIONS...
not_folded() {
    code=$1 line=$2
    shift 2
    run "$code" export neox.run.h5 --format gguf "$@"
    has err "^kvfold: export: $line"
}
cp wide.gguf kept.gguf
not_folded 1 'wide.gguf: exists (use --force to replace it)$' --base "$neox" --out wide.gguf
cp "$neox" own.gguf
not_folded 2 'own.gguf: is read by this command, it will not be replaced; try' --base own.gguf --out own.gguf --force
not_folded 2 '--format gguf needs --base MODEL.gguf' --out x.gguf
not_folded 2 '--base llama.h5: want the GGUF file that the engine runs; try' --base llama.h5 --out x.gguf
not_folded 1 '.*gguf_bpe.gguf: has architecture llama, but the prefix is for base gguf_neox' --base "$SOURCE/tests/golden/gguf_bpe.gguf" --out x.gguf
not_folded 1 'cut.gguf: ' --base cut.gguf --out x.gguf
head -c 70000 "$neox" >cut.gguf
not_folded 1 'cut.gguf: .*truncated' --base cut.gguf --out x.gguf
ulimit -S -f 60
not_folded 1 'wide.gguf: .*File too large$' --base "$neox" --out wide.gguf --force
ulimit -S -f unlimited
same kept.gguf wide.gguf
# the type of a matrix whose blocks have as many bytes, IQ4_NL for Q4_0
at=$(($(grep -obUa 'blk.0.ffn_up.weight' own.gguf | cut -d: -f1) + 19 + 4 + 16))
printf '\024' | dd of=own.gguf bs=1 seek=$at conv=notrunc status=none
not_folded 1 'own.gguf: tensor "blk.0.ffn_up.weight" has type iq4_nl, which is not written: --ffn-type q8_0' --base own.gguf --out x.gguf
run 0 export neox.run.h5 --format gguf --base own.gguf --out typed.gguf --ffn-type q8_0
has err 'own.gguf: the weights differ from those of base gguf_neox'
run 0 inspect typed.gguf
has out 'blk.0.ffn_up.weight  *\[288, 32\]  *q8_0 '
run 1 export whole-p.h5 --format gguf --base "$neox" --out x.gguf
run 2 export neox.run.h5 --format gguf --base "$neox" --out x.gguf --dtype f32
has err 'neox.run.h5: has virtual neurons alone, so there is no state for --engine'
# with keys and values: a folder of the GGUF, the state and a README for both
run 0 train --base "$bpe" --data lm.jsonl --method direct --steps 3 --prefix-length 3 --ffn-lr 0.05 $how --out run.h5
run 0 export run.h5 --format gguf --base "$bpe" --dtype f32 --ffn-type f32 --out state
has state/README.md '^llama-server -m model.gguf .* -ctk f32 -ctv f32 '
has state/README.md 'with the 5 virtual neurons of the prefix'
run 0 import state/prefix.state --base state/model.gguf --out kv.h5
run 0 eval --base state/model.gguf --prefix kv.h5 --data lm.jsonl --threads 2 --precision f32 --json
value loss >got
run 0 eval --base "$bpe" --prefix run.h5 --data lm.jsonl --threads 2 --precision f32 --json
value loss >want
awk 'NR == FNR { a = $1; next } { d = a - $1; exit !(d < 1e-5 && d > -1e-5) }' want got || fail "GGUF and state have loss $(cat got), the prefix $(cat want)"
run 1 export run.h5 --format gguf --base "$bpe" --out state
run 2 export run.h5 --format gguf --base "$bpe" --out other --data lm.jsonl
has err '--data is for virtual neurons alone: run.h5 has keys and values'
run 1 export kv.h5 --format gguf --base state/model.gguf --out x.gguf
has err 'kv.h5: has no virtual neurons (--ffn-length) to fold into the base$'
run 1 export llama.h5 --format gguf --base "$neox" --out x.gguf
run 2 export alone-p.h5 --format transformers --base llama.h5 --out x --ffn-type f16
absent x.gguf
