# A resumed run equals an unbroken one, byte for byte.
make_inputs
run_options='--valid valid.jsonl --schedule constant --schedule-steps 10 --eval-every 5'

# shellcheck disable=SC2086
train 0 $run_options --out straight.h5 --steps 10
# shellcheck disable=SC2086
train 0 $run_options --out parts.h5 --steps 5
# shellcheck disable=SC2086
train 0 $run_options --out parts.h5 --steps 10 --resume --json
[ "$(value steps)" = 10 ] || fail "steps: $(value steps)"
[ "$(value finished_before)" = false ] || fail 'said to be finished before'
same straight.h5 parts.h5

# the reference of validation is measured once, if the whole schedule is long enough
long='--valid valid.jsonl --schedule constant --schedule-steps 400 --eval-every 2'
# shellcheck disable=SC2086
train 0 $long --out whole.h5 --steps 4
has out '^bare [0-9.]*, start [0-9.]*, best [0-9.]* at step [24] of 4'
# shellcheck disable=SC2086
train 0 $long --out measured.h5 --steps 2
# shellcheck disable=SC2086
train 0 $long --out measured.h5 --steps 4 --resume --json
has out '"bare_loss":[0-9]'
same whole.h5 measured.h5
bare=$(value bare_loss)
run 0 eval --base model --data valid.jsonl --threads 2 --precision f32 --json
[ "$(value loss)" = "$bare" ] || fail "bare loss: $bare, of eval $(value loss)"

# finished: nothing remains to do
cp parts.h5 before.h5
# shellcheck disable=SC2086
train 0 $run_options --out parts.h5 --steps 10 --resume --json
[ "$(value finished_before)" = true ] || fail 'not said to be finished before'
same before.h5 parts.h5

# no file: the run starts
# shellcheck disable=SC2086
train 0 $run_options --out fresh.h5 --steps 10 --resume
same straight.h5 fresh.h5

# another tokenizer is another base, even if these rows have the same ids
cp -r model lower
sed 's/"pre_tokenizer": {/"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {/' model/tokenizer.json >lower/tokenizer.json
run 1 train --base lower --data train.jsonl --valid valid.jsonl --out straight.h5 --steps 12 --resume
has err '^kvfold: train: straight.h5: the run was created with a different base'
run 1 eval --base lower --prefix straight.h5 --data valid.jsonl
has err 'the prefix is for base model'
run 1 merge straight.h5 --base lower --probe valid.jsonl --out none.h5
has err 'the prefix is for base model'

# the run keeps options that are not given again
train 0 --out parts.h5 --valid valid.jsonl --steps 11 --resume --json
[ "$(value steps)" = 11 ] || fail "steps: $(value steps)"

# rows with common beginnings in the same steps: stored, with the same order after any resume
# shellcheck disable=SC2086
train 0 $run_options --group-by prefix --out grouped.h5 --steps 10
# shellcheck disable=SC2086
train 0 $run_options --group-by prefix --out grouped_parts.h5 --steps 5
train 0 --out grouped_parts.h5 --valid valid.jsonl --steps 10 --resume
same grouped.h5 grouped_parts.h5
# shellcheck disable=SC2086
train 2 $run_options --out straight.h5 --steps 12 --resume --group-by prefix
has err '^kvfold: train: straight.h5: --group-by differs from that of the run'

# rows cut at the start of their prompts
# shellcheck disable=SC2086
train 0 $run_options --max-length 8 --overlong truncate --out cut.h5 --steps 5
run 0 inspect cut.h5 --json
has out '"overlong":"truncate"'
# shellcheck disable=SC2086
train 2 $run_options --out cut.h5 --steps 10 --resume --overlong truncate-end
has err '^kvfold: train: cut.h5: --overlong differs from that of the run'
train 0 --out cut.h5 --valid valid.jsonl --steps 10 --resume --overlong truncate
# shellcheck disable=SC2086
train 0 $run_options --max-length 8 --overlong truncate --out cut_straight.h5 --steps 10
same cut_straight.h5 cut.h5
printf '{"prompt": "a b c d e f g h", "completion": " i"}\n{"text": "a b"}\n' >long.jsonl
for way in truncate truncate-end; do
    run 0 train --base model --data long.jsonl --method direct --prefix-length 4 --max-length 6 \
        --overlong $way --out $way.h5 --steps 1 --precision f32 --threads 2 --json
    cp out $way.out
    run 0 eval --base model --prefix $way.h5 --data long.jsonl --max-length 6 --precision f32 \
        --threads 2 --json
    [ "$(value truncated)" = 1 ] || fail "$way: $(cat out)"
    cat out >>$way.out
done
has truncate-end.out '1 of the truncated rows have no label left'
has truncate-end.out '"without_label":1'
! grep -q 'no label left\|without_label' truncate.out || fail "$(cat truncate.out)"

# refused: another option, another data file
cp straight.h5 before.h5
# shellcheck disable=SC2086
train 2 $run_options --out straight.h5 --steps 12 --resume --lr 0.5
has err '^kvfold: train: straight.h5: --lr differs from that of the run'
head -n 20 train.jsonl >fewer.jsonl
# shellcheck disable=SC2086
train 1 $run_options --out straight.h5 --steps 12 --resume --data fewer.jsonl
has err '^kvfold: train: straight.h5: the run was created with a different data file'
same before.h5 straight.h5

# --batch-tokens auto: the run equals that of the printed number, which --resume keeps
# shellcheck disable=SC2086
train 0 $run_options --out auto.h5 --steps 10 --batch-tokens auto
tokens=$(sed -n 's/^--batch-tokens auto: \([0-9]*\) tokens per step$/\1/p' out)
[ "${tokens:-0}" -ge 576 ] || fail "no number of tokens: $tokens"
# shellcheck disable=SC2086
train 0 $run_options --out number.h5 --steps 10 --batch-tokens "$tokens"
same auto.h5 number.h5
# shellcheck disable=SC2086
train 0 $run_options --out halves.h5 --steps 5 --batch-tokens "$tokens"
# shellcheck disable=SC2086
train 0 $run_options --out halves.h5 --steps 10 --batch-tokens auto --resume
same auto.h5 halves.h5
train 2 --out straight.h5 --valid valid.jsonl --steps 11 --batch-tokens auto --resume
has err '^kvfold: train: straight.h5: --batch-tokens differs from that of the run; --resume cannot change it'
train 2 --out no.h5 --batch-tokens many
has err '^kvfold: train: --batch-tokens "many": want '
