# --precision int8: products of the frozen weights in eight bits. A run keeps it and resumes to the
# byte; commands that read a prefix can use it. Other processes and runs do not change results, and
# unsupported uses get one line.
make_inputs
no_int8() { # LEVEL OTHERS
    KVF_CPU=$1 "$KVFOLD" train --base model --data train.jsonl --out none.h5 --precision int8 --steps 1 >out 2>err && fail "int8 at $1"
    err_is "kvfold: train: precision int8: this CPU ($1) has no eight-bit dot products (AVX512-VNNI); use $2"
    absent none.h5
}
no_int8 ref f32
case $flags in *' avx2 '*) no_int8 avx2 f32 ;; esac
case $flags in *' avx512bw '*) no_int8 avx512 'bf16 or f32' ;; esac

# unsupported uses
train 2 --out none.h5 --precision int8 --weight-dtype int8
err_is 'kvfold: train: --weight-dtype: not with --precision int8; try kvfold train --help'
train 2 --out none.h5 --precision int8 --stream-layers on
err_is 'kvfold: train: --stream-layers: not with --precision int8; try kvfold train --help'
run 2 train --base model --data train.jsonl --out none.h5 --precision int8 --method full
err_is 'kvfold: train: --precision int8 is for frozen weights; method full trains them; try kvfold train --help'
train 2 --out none.h5 --precision int8 --method p-tuning --unfreeze base
err_is 'kvfold: train: --unfreeze: not with --precision int8; try kvfold train --help'
run 2 eval --base model --data valid.jsonl --precision int8 --stream-layers on
err_is 'kvfold: eval: --precision int8: not with --stream-layers; try kvfold eval --help'
run 2 bench --shape tiny --precision int8 --weight-dtype bf16
err_is 'kvfold: bench: --precision int8: not with --weight-dtype; try kvfold bench --help'

can int8 || {
    skip 'training and reading: this CPU has no eight-bit dot products'
    return
}

# training stays near bf16, the note describes the change, and a resumed run equals an unbroken one
way='--method direct --init vocab --schedule-steps 6 --valid valid.jsonl' eight="--precision int8 $way"
# shellcheck disable=SC2086 # options
train 0 $eight --steps 6 --out whole.h5
has out '^int8: on 6 rows the bare base has loss [0-9.]*, in bf16 [0-9.]*$'
# shellcheck disable=SC2086
train 0 $eight --steps 6 --out again.h5 --json
same whole.h5 again.h5
[ "$(value precision)" = '"int8"' ] || fail "precision: $(value precision)"
has out '"notes":\[[^]]*"int8: on [0-9]* rows the bare base has loss'
eight_loss=$(value train_loss)
# shellcheck disable=SC2086
train 0 --precision bf16 $way --steps 6 --out bf16.h5 --json
[ "$(value train_loss)" != "$eight_loss" ] || fail 'the loss of bf16'
awk "BEGIN { d = $eight_loss - $(value train_loss); exit !(d * d < 0.02 * 0.02) }" ||
    fail "loss $eight_loss, in bf16 $(value train_loss)"
# shellcheck disable=SC2086
train 0 $eight --steps 3 --out parts.h5
run 0 train --base model --data train.jsonl --valid valid.jsonl --out parts.h5 --resume --steps 6 --threads 2 --json
[ "$(value precision)" = '"int8"' ] || fail "resumed as $(value precision)"
same whole.h5 parts.h5
run 0 inspect whole.h5 --json
has out '"precision":"int8"'

# every method that keeps the matrices frozen, and heads
"$MAKE_TINY" bert 3 bert || exit 1
printf '{"text":"a b","label":"x"}\n{"text":"c d","label":"y"}\n' >classes.jsonl
train 0 --precision int8 --steps 2 --out mlp.h5 --recompute on
run 0 train --base model --data train.jsonl --threads 2 --precision int8 --steps 2 --out adapter.h5 --method adapter
run 0 train --base bert --data classes.jsonl --task seq-cls --precision int8 --out classes.h5 --steps 2
has out '^int8: on 2 rows the bare base has loss '
run 0 predict --base bert --prefix classes.h5 --data classes.jsonl --out - --precision int8

# the runs of a sweep equal those of train
printf 'lr = 0.01, 0.03\n' >grid.txt
run 0 sweep --base model --data train.jsonl --valid valid.jsonl --grid grid.txt --out runs --method direct --prefix-length 4 \
    --precision int8 --threads 2 --steps 3 --quiet
run 0 train --base model --data train.jsonl --valid valid.jsonl --out alone.h5 --method direct --prefix-length 4 --precision int8 \
    --threads 2 --steps 3 --lr 0.03 --quiet
run 0 diff alone.h5 runs/lr-0.03.h5 --json
has out '"tensors":{"equal":[0-9]*,"changed":\[\]'

# reading: eval, and a text from serve
run 0 merge whole.h5 --out prefix.h5 --quiet
run 0 eval --base model --prefix prefix.h5 --data valid.jsonl --precision int8 --threads 2
run 0 generate --base model --prefix prefix.h5 --prompt 'after 5:' --max-tokens 8 --precision int8 --threads 2 --json
want=$(sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/\1/p' out)
# shellcheck disable=SC1091
. "$SOURCE/tests/cli/server.sh"
serve_on --prefix mine=prefix.h5 --precision int8
if [ "$port" = 0 ]; then
    wait "$pid"
    skip 'the server: built without libmicrohttpd'
else
    if post /v1/completions '{"model": "mine", "prompt": "after 5:", "max_tokens": 8, "temperature": 0}'; then
        said=$(sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/\1/p' answer)
        [ -n "$want" ] && [ "$said" = "$want" ] || fail "the server says $said, generate $want"
    else
        skip 'requests: neither curl nor bash to ask with'
    fi
    end TERM 143
fi
