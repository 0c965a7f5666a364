# The same bits with any number of threads: 20 steps with every kind of sum, in f32 and bf16.
make_inputs
can avx2 || {
    skip 'numbers of threads: KVF_CPU=ref promises nothing of them'
    exit 77
}
"$MAKE_TINY" bert 1 bert || exit 1
for i in 1 2 3 4 5 6; do
    printf '{"text": "good film %d", "label": "yes"}\n{"text": "bad film %d and long", "label": "no"}\n' $i $i
done >cls.jsonl

# alike OPTIONS...: equal values, moments and losses at 1, 2, 3 and 5 threads.
alike() {
    for threads in 1 2 3 5; do
        run 0 train "$@" --steps 20 --threads $threads --out $threads.h5 --force --quiet
        run 0 diff --tensors-only 1.h5 $threads.h5
    done
}

lm='--base model --data train.jsonl --prefix-length 4'
# shellcheck disable=SC2086 # words
{
    alike $lm --precision f32 --method mlp --encoder-hidden 16
    alike $lm --precision f32 --method p-tuning --encoder-hidden 16
    alike $lm --precision f32 --method direct --train-head --log-weight train
    alike --base model --data train.jsonl --precision f32 --method adapter
    alike --base model --data train.jsonl --precision f32 --method full
    alike --base bert --data cls.jsonl --task seq-cls --precision f32 --method mlp --encoder-hidden 16
    if can fast_bf16; then
        alike $lm --precision bf16 --method mlp --encoder-hidden 16
        alike $lm --precision bf16 --method prompt
        alike --base model --data train.jsonl --precision bf16 --method full
    else
        skip 'bf16: no products of it that threads do not change'
    fi
}
