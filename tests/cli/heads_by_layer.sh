# A base whose layers have different heads, shared keys and values, and inputs of their own (Gemma
# 4). A prefix is then a list of layers, in every command that takes one. Unsupported uses are
# refused with one line.
make_inputs
cat >config.json <<'END'
{"model_type": "gemma4_text", "vocab_size": 258, "vocab_size_per_layer_input": 258, "hidden_size": 32, "intermediate_size": 48,
 "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16,
 "num_global_key_value_heads": 1, "attention_k_eq_v": true, "num_kv_shared_layers": 2, "use_double_wide_mlp": true,
 "hidden_size_per_layer_input": 4, "sliding_window": 16, "max_position_embeddings": 512, "initializer_range": 0.3,
 "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention",
                 "full_attention"], "bos_token_id": 256, "eos_token_id": 257, "tie_word_embeddings": true}
END
cp model/tokenizer.json .
run 0 new-base --config config.json --tokenizer tokenizer.json --out gemma.h5 --quiet
rm -r model
mv gemma.h5 model # the base, as make_inputs has its own
loss() { # FILE
    run 0 eval --base model --prefix "$1" --data valid.jsonl --precision f32 --threads 2 --json
    value loss
}

# every method: the run, its folded file, and the files' descriptions
for method in direct mlp projected; do
    train 0 --method $method --out $method.h5 --valid valid.jsonl --steps 4 --quiet
    run 0 merge $method.h5 --base model --out $method-folded.h5 --probe valid.jsonl
    has out "^$method-folded.h5: \\[4, 2, 1, \\*, 4, \\*\\] f32, "
    has out "^largest difference from the encoder's output: 0\$"
    has out '^largest difference of logits: 0$'
    [ "$(loss $method.h5)" = "$(loss $method-folded.h5)" ] || fail "$method: folded and live differ"
done
run 0 inspect direct-folded.h5
has out '^direct-folded.h5: prefix, features heads-by-layer$'
has out '^  G  *\[2,1,2,1\]$'
has out '^  D  *\[8,16,8,16\]$'
has out '^  prefix/past_key_values  *\[512\] '
run 0 merge direct.h5 --base model --out again.h5
same direct-folded.h5 again.h5

# the same results for any storage of layers, and for a resumed run
train 0 --method direct --out kept.h5 --steps 4 --valid valid.jsonl --recompute on --quiet
run 1 diff direct.h5 kept.h5
has out '^tensors: [0-9]* equal, 0 changed, 0 and 0 in one file only$'
train 0 --method direct --out kept.h5 --steps 4 --valid valid.jsonl --stream-layers on --force --quiet
run 1 diff direct.h5 kept.h5
has out '^tensors: [0-9]* equal, 0 changed, 0 and 0 in one file only$'
set -- --method direct --schedule-steps 4 --eval-every 2 --save-every 2 --valid valid.jsonl --quiet
train 0 "$@" --out whole.h5 --steps 4
train 0 "$@" --out parts.h5 --steps 2
run 0 train --base model --data train.jsonl --valid valid.jsonl --out parts.h5 --steps 4 --resume --threads 2 --quiet
same whole.h5 parts.h5

# other ways to train
train 0 --method direct --layers 1,3 --out some.h5 --steps 2 --quiet
train 0 --method direct --prefix-dropout 0.2 --out drop.h5 --steps 2 --quiet
train 0 --method direct --prefix-dropout 0.2 --prefix-dropout-per-row --out rows.h5 --steps 2 --quiet
train 0 --method direct --infix --out infix.h5 --steps 2 --quiet
train 0 --method mlp --log-weight train --start-mass -2 --out weighted.h5 --steps 2 --quiet
train 0 --method direct --init-from direct-folded.h5 --out from.h5 --steps 2 --quiet
train 0 --method direct --init text --init-text 'after all' --out text.h5 --steps 2 --quiet
for run in some infix weighted; do
    run 0 merge $run.h5 --out $run-folded.h5
    [ "$(loss $run.h5)" = "$(loss $run-folded.h5)" ] || fail "$run: folded and live differ"
done

# tools
run 0 generate --base model --prefix direct.h5 --prompt 'after 3:' --max-tokens 8 --temperature 0
mv out live
run 0 generate --base model --prefix direct-folded.h5 --prompt 'after 3:' --max-tokens 8 --temperature 0
same live out
run 0 convert-position direct-folded.h5 --base model --position-start 0 --out moved.h5
awk -v a="$(loss moved.h5)" -v b="$(loss direct-folded.h5)" 'BEGIN { exit !(a - b < 1e-5 && b - a < 1e-5) }' ||
    fail 'a moved prefix is another'
run 0 compose direct-folded.h5 mlp-folded.h5 --base model --out both.h5
has out '^both.h5: \[4, 2, 1, \*, 8, \*\] f32, '
run 0 compose direct-folded.h5 direct-folded.h5 --mode average --out mean.h5
run 1 diff direct-folded.h5 mean.h5
has out '^tensors: 8 equal, 0 changed, 0 and 0 in one file only$'
run 0 prune direct-folded.h5 --base model --data valid.jsonl --keep 2 --out pruned.h5
run 0 quantize direct-folded.h5 --dtype int8 --out small.h5
loss small.h5 >/dev/null
run 0 unmerge direct-folded.h5 --out unmerged.h5
run 0 merge unmerged.h5 --out unmerged-folded.h5
awk -v a="$(loss unmerged-folded.h5)" -v b="$(loss direct-folded.h5)" 'BEGIN { exit !(a - b < 1e-4 && b - a < 1e-4) }' ||
    fail 'an unmerged prefix is another'
run 0 report direct.h5 --base model --data valid.jsonl --out report.html --force
run 0 export direct-folded.h5 --format safetensors --out layers.safetensors
run 0 inspect layers.safetensors
has out '^  past_key_values.3  *\[2, 1, 1, 4, 16\] '

# unsupported uses
refused() { # LINE COMMAND...
    line=$1
    shift
    run 1 "$@"
    has err "$line"
}
refused 'which PEFT does not support' export direct-folded.h5 --format peft --out peft
refused 'layers differ, and no supported engine loads' export direct-folded.h5 --format llamacpp --out state
refused 'layers differ, and no supported engine loads' export direct-folded.h5 --format mlx --out mlx
refused 'nearest words are not supported' words direct-folded.h5 --base model
run 2 train --base model --data train.jsonl --method direct --value-optimizer muon --out x.h5
has err 'value-optimizer muon: want a base with equal layers;'
refused 'which has embeddings for each layer' train --base model --data train.jsonl --method prompt \
    --prefix-length 4 --out no.h5
refused 'weights and adapters of a base whose layers differ cannot be trained' train --base model --data train.jsonl --method adapter --out no.h5
refused 'weights and adapters of a base whose layers differ cannot be trained' train --base model --data train.jsonl --method full --out no.h5
"$MAKE_TINY" other || exit 1
refused 'the prefix is for base model, 4 layers \[2, G, P, D\] with G x D of 2x8, 1x16, 2x8, 1x16, but the base has L=2 G=2 D=8' \
    eval --base other --prefix direct-folded.h5 --data valid.jsonl
