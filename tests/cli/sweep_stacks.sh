# A member of a sweep on an encoder-decoder equals the file written by `train` with the same
# options, byte for byte.
golden=$SOURCE/tests/golden
printf 'lr = 0.02, 0.01\nmethod = direct, mlp\n' >grid.txt
how='--steps 3 --prefix-length 3 --batch-size 3 --threads 2 --precision f32 --seed 2'

# members BASE DATA OPTIONS...
members() {
    base=$golden/$1 data=$golden/$2
    shift 2
    rm -rf board
    # shellcheck disable=SC2086 # words
    run 0 sweep --base "$base" --data "$data" --valid "$data" --grid grid.txt $how --out board "$@"
    for method in direct mlp; do
        # shellcheck disable=SC2086
        run 0 train --base "$base" --data "$data" --valid "$data" --lr 0.01 --method $method $how --out run.h5 --force "$@"
        same run.h5 board/lr-0.01_method-$method.h5
    done
}
members model_t5 peft_trained/rows.jsonl
members model_t5 peft_trained/rows.jsonl --places peft
members bart bart/prompts.jsonl
members seq_cls/t5 seq_cls/rows.jsonl --task seq-cls
members seq_cls/bart seq_cls/rows.jsonl --task seq-cls
