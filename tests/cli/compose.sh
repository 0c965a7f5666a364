# compose: two prefixes in sequence and their mean, as files and as runs.
make_inputs
train 0 --out run.h5 --valid valid.jsonl --steps 4 --quiet
train 0 --out next.h5 --method direct --steps 2 --seed 3 --quiet
run 0 merge run.h5 --out a.h5
run 0 merge next.h5 --out b.h5

run 0 compose a.h5 b.h5 --base model --out c.h5 --json
err_is
has out '^{"out":"c.h5","mode":"concatenate","shape":\[2,2,1,2,8,8\],"position_start":8,'
[ "$(value bytes)" -eq "$(wc -c <c.h5)" ] || fail "bytes is $(value bytes)"
run 0 compose run.h5 next.h5 --base model --out from_runs.h5
out_is 'from_runs.h5: [2, 2, 1, 2, 8, 8] f32, '"$(sed -n 's/.* f32, \(.*\), text.*/\1/p' out)"', text from position 8'
for file in c.h5 from_runs.h5; do
    run 0 eval --base model --prefix $file --data valid.jsonl --precision f32 --threads 2 --json
    echo "$(value loss)" >>losses
done
[ "$(sort -u losses | wc -l)" -eq 1 ] || fail "files and runs differ: $(cat losses)"
run 0 inspect c.h5
has out '^  compose_mode  *concatenate$'
has out '^  part_0_hash  *[0-9a-f]*$'
has out '^  position_start  *8$'
run 0 export c.h5 --format peft --out peft
run 0 generate --base model --prefix c.h5 --prompt 'after 3:' --max-tokens 2

run 0 compose a.h5 b.h5 --mode parallel --out parallel.h5 --json
has out '"mode":"parallel",.*"position_start":4,'

run 0 compose a.h5 b.h5 --mode average --weights 0.5,1.5 --dtype int8 --out mean.h5
out_is 'mean.h5: [2, 2, 1, 2, 4, 8] int8, '"$(sed -n 's/.* int8, \(.*\), text.*/\1/p' out)"', text from position 4'
run 0 compose a.h5 a.h5 --mode average --out same.h5
run 0 eval --base model --prefix same.h5 --data valid.jsonl --precision f32 --threads 2 --json
mean=$(value loss)
run 0 eval --base model --prefix a.h5 --data valid.jsonl --precision f32 --threads 2 --json
[ "$(value loss)" = "$mean" ] || fail "a mean with itself: $mean, not $(value loss)"

# a head is kept if both parts have the same one
printf '{"text": "ab", "label": "x"}\n{"text": "cd", "label": "y"}\n' >labels.jsonl
for seed in 1 2; do
    run 0 train --base model --data labels.jsonl --task seq-cls --method direct --prefix-length 3 --steps 1 --out cls$seed.h5 --seed $seed --quiet
done
run 0 compose cls1.h5 cls1.h5 --base model --out cls.h5
run 0 predict --base model --prefix cls.h5 --data labels.jsonl --out predictions.jsonl
run 1 compose cls1.h5 cls2.h5 --base model --out no.h5
err_is 'kvfold: compose: cls2.h5: has another head than cls1.h5'
run 1 compose a.h5 cls1.h5 --base model --out no.h5
err_is 'kvfold: compose: cls1.h5: has another task than a.h5'

# virtual tokens at the input become a prefix of their base
train 0 --method prompt --out prompt.h5 --steps 1 --quiet
run 0 compose a.h5 prompt.h5 --base model --out with_prompt.h5
has out ' \[2, 2, 1, 2, 8, 8\] '
run 2 compose a.h5 prompt.h5 --out no.h5
has err 'name it with --base'

run 2 compose a.h5 b.h5 --out no.h5
has err 'b.h5: its keys must be rotated by 4 to follow the previous part: name the base with --base'
run 2 compose a.h5 --out no.h5
err_is 'kvfold: compose: B.h5 is missing; try kvfold compose --help'
run 2 compose a.h5 b.h5 --mode average --weights 1 --out no.h5
err_is 'kvfold: compose: --weights "1": 1 numbers for 2 prefixes; try kvfold compose --help'
run 2 compose a.h5 b.h5 --mode average --weights 1,x --out no.h5
err_is 'kvfold: compose: --weights "1,x": want numbers of at least 0; try kvfold compose --help'
run 2 compose a.h5 b.h5 --base model --out a.h5 --force
has err 'a.h5'
"$MAKE_TINY" elsewhere 9
run 0 train --base elsewhere --data train.jsonl --method direct --prefix-length 4 --steps 1 --out foreign.h5 --quiet
run 1 compose a.h5 foreign.h5 --mode average --out no.h5
has err 'foreign.h5: is for base elsewhere ([0-9a-f]\{32\}), but a.h5 is for model ([0-9a-f]\{32\}) (--allow-other-base overrides)'
run 0 compose a.h5 foreign.h5 --mode average --out other.h5 --allow-other-base
absent no.h5
