# The checks of parity.sh for every other form of training: their additional data also crosses
# between processes.
# shellcheck disable=SC1091,SC2086 # no spaces in names
. "$SOURCE/tests/dist/mpi.sh"
make_inputs
"$MAKE_TINY" bert 1 bert || exit 1
for i in 1 2 3 4 5 6 7 8; do
    printf 'Ann\tB-PER\nwent\tO\n\nI\tO\nsaw\tO\nBob\tB-PER\n\n' >>names.conll
    printf '{"text":"which %d","choices":["one a","two bb %d","three"],"label":%d}\n' $i $i $((i % 3)) >>choice.jsonl
    printf '{"context":"the cat %d sat there","question":"who sat?","answers":[{"text":"cat","start":4}]}\n' $i >>qa.jsonl
done
lm="--base model --data train.jsonl --batch-size 7"
prefix="--prefix-length 4 --method direct"
parity ptuning 2 $lm --prefix-length 4 --method p-tuning --encoder-hidden 16
parity unfreeze 2 $lm --prefix-length 4 --method p-tuning --encoder-hidden 16 --unfreeze base --base-lr 1e-5
parity projected 2 $lm --prefix-length 4 --method projected
parity masked 2 $lm --prefix-length 4 --encoder-hidden 16 --prefix-dropout 0.3
parity dropped 2 $lm --method full --base-dropout 0.1 --lr 1e-4
parity infix 2 $lm $prefix --infix
parity own_head 2 $lm $prefix --train-head
parity layers 3 $lm $prefix --layers 1-1 --recompute on
parity weighted 2 $lm $prefix --log-weight train --start-mass -2 --prefix-dropout 0.2
parity held 2 $lm $prefix --retain valid.jsonl --kl-to-base 0.5
parity tokens 2 --base model --data train.jsonl $prefix --batch-tokens 120 --group-by prefix
parity words 3 --base bert --task token-cls --data names.conll $prefix --batch-size 5
parity choice 3 --base bert --task multiple-choice --data choice.jsonl $prefix --batch-size 4
parity answers 2 --base bert --task qa --data qa.jsonl $prefix --batch-size 4

# layers without attention: a state after a text, and trained
cp -r model attention
cat >hybrid.json <<END
{"model_type": "lfm2", "vocab_size": 258, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 512, "initializer_range": 0.3, "bos_token_id": 256, "eos_token_id": 257, "tie_word_embeddings": true,
 "num_hidden_layers": 3, "block_auto_adjust_ff_dim": false, "layer_types": ["conv", "full_attention", "conv"]}
END
run 0 new-base --config hybrid.json --tokenizer attention/tokenizer.json --out hybrid --quiet
lm="--base hybrid --data train.jsonl --batch-size 7"
parity after_text 2 $lm $prefix --init text --init-text 'a state' --prefix-dropout 0.2
parity state 3 $lm $prefix --state-lr 0.01
lm="--base model --data train.jsonl --batch-size 7"

# with int8 a row has the same products on any rank
if can int8; then
    eight="$lm $prefix --threads 1 --precision int8 --schedule constant --warmup 0 --schedule-steps 5 --quiet"
    run 0 train $eight --steps 1 --out one.h5 --force
    ranks 2 0 train $eight --steps 1 --out eight.h5
    said
    close one.h5 eight.h5 0.03 gradients # bf16 alone: 0.003; what it rounds otherwise may fall to another of 255 values
else
    skip 'eight bits: this CPU has no dot products of them'
fi
