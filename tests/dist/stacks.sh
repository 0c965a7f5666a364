# The checks of parity.sh on encoder-decoders: T5 and BART with prefixes in all places, in PEFT's
# form, and with a head stored in the folder.
# shellcheck disable=SC1091,SC2086 # no spaces in names
. "$SOURCE/tests/dist/mpi.sh"
golden=$SOURCE/tests/golden
t5="--base $golden/model_t5 --data $golden/peft_trained/rows.jsonl --batch-size 5 --prefix-length 4"
bart="--base $golden/bart --data $golden/bart/prompts.jsonl --batch-size 5 --prefix-length 4"
parity t5 2 $t5 --method mlp --encoder-hidden 16
parity near 3 $t5 --method direct --places peft --prefix-dropout 0.2
parity bart 3 $bart --method direct --grad-accum 2
parity cross 2 $bart --method mlp --encoder-hidden 16 --places decoder,cross --keep-states 1M
for family in t5 bart; do
    parity classes_$family 2 --base $golden/seq_cls/$family --data $golden/seq_cls/rows.jsonl --task seq-cls --batch-size 4 --prefix-length 4 \
        --method direct --head-dropout 0.1
done
# held-out rows are divided: the loss equals that of one process
ranks 3 0 train $bart --method direct --threads 1 --precision f32 --steps 2 --valid $golden/bart/prompts.jsonl --json --quiet --out valid.h5
got=$(value valid_loss)
run 0 eval --base $golden/bart --prefix valid.h5 --data $golden/bart/prompts.jsonl --threads 1 --precision f32 --json
[ "$(value loss)" = "$got" ] || fail "3 ranks: validation loss $got, alone $(value loss)"
