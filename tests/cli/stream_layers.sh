# A base larger than the memory of a run, and weights kept in other types.
make_inputs

# The results do not depend on the part of the base in memory; another type is another model.
train 0 --out packed.h5 --steps 4 --json
loss=$(value train_loss)
train 0 --out streamed.h5 --steps 4 --json --stream-layers on
[ "$(value train_loss)" = "$loss" ] || fail "streamed: loss $(value train_loss), want $loss"
train 0 --out f32.h5 --steps 4 --json --weight-dtype f32
[ "$(value train_loss)" = "$loss" ] || fail "weights in f32: loss $(value train_loss), want $loss"
train 0 --out int8.h5 --steps 4 --json --weight-dtype int8
[ "$(value train_loss)" != "$loss" ] || fail "weights in int8: the loss of f32"
run 0 merge packed.h5 --out prefix.h5 --quiet
"$MAKE_TINY" classes 3 bert || exit 1
printf '{"text":"a b","label":"x"}\n{"text":"c d","label":"y"}\n' >classes.jsonl
run 0 train --base classes --data classes.jsonl --task seq-cls --out classes.h5 --steps 2 --quiet
for how in '--stream-layers on' '--weight-dtype f32'; do
    # shellcheck disable=SC2086 # an option and its value
    for command in "eval --base model --prefix prefix.h5 --data valid.jsonl" \
        "predict --base classes --prefix classes.h5 --data classes.jsonl --out predicted.jsonl --force" \
        "generate --base model --prefix prefix.h5 --prompt after --max-tokens 8"; do
        run 0 $command --precision f32 --threads 2
        sed 's/, [0-9.]* s$//' out >want.txt
        run 0 $command --precision f32 --threads 2 $how
        sed 's/, [0-9.]* s$//' out >got.txt
        same want.txt got.txt
    done
done

# Unsupported combinations
train 2 --out no.h5 --stream-layers on --weight-dtype int8
err_is 'kvfold: train: --stream-layers: not with --weight-dtype; try kvfold train --help'
run 2 train --base model --data train.jsonl --out no.h5 --method full --weight-dtype bf16
err_is 'kvfold: train: --weight-dtype: not with --method full; try kvfold train --help'
run 2 train --base model --data train.jsonl --out no.h5 --method full --stream-layers on
err_is 'kvfold: train: --stream-layers: not with --method full; try kvfold train --help'
train 2 --out no.h5 --method p-tuning --unfreeze base --stream-layers on
err_is 'kvfold: train: --stream-layers: not with --unfreeze; try kvfold train --help'
run 2 eval --base model --data valid.jsonl --weight-dtype int4
run 2 eval --base model --data valid.jsonl --weight-dtype int8 --stream-layers on
absent no.h5

# 79 MB of weights, with less memory than that for all writable data of a run (file mappings do not
# count).
sed -e 's/"hidden_size":32/"hidden_size":256/;s/"intermediate_size":64/"intermediate_size":1024/' \
    -e 's/"num_hidden_layers":2/"num_hidden_layers":20/;s/"head_dim":8/"head_dim":64/' model/config.json >config.json
run 0 new-base --config config.json --tokenizer model/tokenizer.json --out large.h5 --quiet
limit=72000
bytes=$(wc -c <large.h5)
[ "$bytes" -gt $((limit * 1024)) ] || fail "the base has $bytes bytes only"
set -- train --base large.h5 --data train.jsonl --threads 2 --prefix-length 4 --encoder-hidden 16 --precision f32 \
    --steps 3 --batch-size 4 --init random --json --quiet
run 0 "$@" --out unlimited.h5
loss=$(value train_loss)
if ! (ulimit -d $limit && "$KVFOLD" --version >out 2>err); then
    skip 'a memory limit: this build does not start in so little memory'
else
    (ulimit -d $limit && "$KVFOLD" "$@" --out packed2.h5 >out 2>err)
    code=$?
    [ $code -eq 1 ] || fail "the packed base fits into $limit kB: exit status $code"
    has err '^kvfold: train: large.h5: out of memory: its weights take 1[0-9][0-9] MB this way, [12][0-9] MB with --stream-layers on$'
    absent packed2.h5
    (ulimit -d $limit && "$KVFOLD" "$@" --out limited.h5 --stream-layers on >out 2>err)
    code=$?
    [ $code -eq 0 ] || fail "exit status $code under $limit kB: $(cat err)"
    [ "$(value train_loss)" = "$loss" ] || fail "limited: loss $(value train_loss), want $loss"
fi

# Lack of memory gives one line wherever it occurs, from the first thread to the last step.
for limit in 10000 12000 16000 24000 30000 33000 36000 38000 40000 41000 42000 43000 44000 45000 46000 47000 48000 50000; do
    # shellcheck disable=SC3045 # of every shell that we run in
    (ulimit -d $limit && "$KVFOLD" --version >out 2>err) || continue
    rm -f limited.h5
    (ulimit -d $limit && "$KVFOLD" "$@" --out limited.h5 --stream-layers on >out 2>err)
    code=$?
    if [ $code -eq 0 ]; then
        [ "$(value train_loss)" = "$loss" ] || fail "$limit kB: loss $(value train_loss), want $loss"
        continue
    fi
    [ $code -eq 1 ] || fail "exit status $code under $limit kB: $(cat err)"
    [ "$(wc -l <err)" -eq 1 ] || fail "$limit kB: not one line: $(cat err)"
    has err '^kvfold: train: .*out of memory'
done
