# Values that are not finite, in the base, the run or the data: the run stops and names step and
# tensor, and the saved file stays. --skip-nonfinite and --spike-guard skip steps.
make_inputs
exploding='--lr 1e38 --lr-units parameter --schedule constant --warmup 0 --clip 0 --save-every 1'

# not_finite LINE: standard error is this one line.
not_finite() {
    err_is "kvfold: train: $1"
    absent ./*.tmp.* ./*.lock
}

# a weight of the base: the last four bytes of the file belong to the last tensor
cp -r model broken
bytes=$(wc -c <broken/model.safetensors)
printf '\000\000\300\177' |
    dd of=broken/model.safetensors bs=1 seek=$((bytes - 4)) conv=notrunc 2>/dev/null
run 1 train --base broken --data train.jsonl --out none.h5 --prefix-length 4 --init random --quiet
not_finite "step 1: the base's model.norm.weight has values that are not finite"
absent none.h5

# no token is drawn from such logits
for how in "" "--temperature 1" "--beams 2" "--draft 4"; do
    # shellcheck disable=SC2086
    run 1 generate --base broken --prompt 'after 1:' --max-tokens 4 $how
    err_is 'kvfold: generate: the logits of token 1 are not finite: a weight of the base or a value of the prefix is not finite or too large'
done

# in the run itself: the file of the last good step stays
# shellcheck disable=SC2086
train 1 $exploding --method direct --out run.h5 --steps 5 --quiet
not_finite 'step 2: embedding.weight has values that are not finite'
run 0 inspect run.h5 --json
has out '"state":{"step":1,'

# two steps are skipped, the third is not
# shellcheck disable=SC2086
train 1 $exploding --method direct --out skip.h5 --steps 5 --skip-nonfinite 2 --quiet
not_finite 'step 4: embedding.weight has values that are not finite'
has out '^step 2: .*: step skipped, 1 of at most 2$'
has out '^step 3: .*: step skipped, 2 of at most 2$'
run 0 inspect skip.h5 --json
has out '"state":{"step":3,.*"skipped_steps":2'

# in data: JSON has no such numbers, and CSV must not contain them either
"$MAKE_TINY" classes 3 bert || exit 1
printf '{"text":"a b","label":1e999}\n{"text":"c","label":1}\n' >big.jsonl
printf 'text,label\na b,nan\nc,1\n' >nan.csv
printf 'text,label\na b,inf\nc,1\n' >inf.csv
for file in big.jsonl nan.csv inf.csv; do
    run 1 train --base classes --data $file --task seq-cls --regression on --out none.h5 --quiet
    has err "^kvfold: train: $file:"
    absent none.h5
done

# spikes: steps above the mean are skipped, and a run in two parts skips the same ones
guarded='--spike-guard 1 --batch-size 1 --schedule constant --warmup 0 --optimizer adamw --lr 0.03 --beta1 0.9'
# shellcheck disable=SC2086
train 0 $guarded --out whole.h5 --steps 16 --quiet
has out '^step [0-9]* skipped: loss [0-9.]* exceeds 1 times the mean [0-9.]*$'
# shellcheck disable=SC2086
train 0 $guarded --out parts.h5 --steps 11 --schedule-steps 16 --quiet
train 0 --out parts.h5 --steps 16 --resume --quiet
run 0 inspect whole.h5 --json
sed 's/.*"history"//' out >one
run 0 inspect parts.h5 --json
sed 's/.*"history"//' out >two
same one two

# a loss that rises: a row learnt by heart comes twelve times, then others
train 0 --method direct --limit 1 --steps 200 --out first.h5 --quiet
grep -q risen out && fail "a falling loss has a warning"
for i in 1 2 3 4 5 6 7 8 9 10 11; do sed -n 1p train.jsonl; done >rising.jsonl
cat train.jsonl >>rising.jsonl
train 0 --method direct --init-from first.h5 --lr 1e-6 --data rising.jsonl --shuffle off --batch-size 1 --steps 24 --out risen.h5 --quiet
has out '^warning: the loss has risen from [0-9.]* (first 4 steps) to [0-9.]* (last 8): train again with --warmup 20 or half of --lr$'
