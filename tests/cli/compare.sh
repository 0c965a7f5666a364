# compare: methods and starting values on one budget, a process each, one table and one JSON object.
make_inputs
printf 'prefix-length = 4\nprecision = f32\n' >small.txt
shared="--base model --data train.jsonl --valid valid.jsonl --options small.txt --steps 3 --threads 2"

# shellcheck disable=SC2086 # words
run 0 compare $shared --methods direct,projected --out runs --quiet --json
has out '^{"out":"runs","steps":3,"runs":\[{"method":"direct","init":null,"seed":0,"trainable_parameters":'
[ "$(grep -o '"best_valid_loss":[0-9]' out | wc -l)" -eq 2 ] || fail "not two losses: $(cat out)"
[ "$(grep -o '"peak_rss_bytes":[1-9]' out | wc -l)" -eq 2 ] || fail "not two peaks: $(cat out)"
has out "\"bytes\":$(wc -c <runs/direct-0.h5)"
run 0 eval --base model --data valid.jsonl --prefix runs/projected-0.h5 --precision f32 --threads 2

# shellcheck disable=SC2086
run 0 compare $shared --methods direct --inits random,vocab,text --init-text abc --seeds 2 --out inits --quiet
[ "$(wc -l <out)" -eq 7 ] || fail "not a heading and six rows: $(cat out)"
has out '^direct     text       1 '
# shellcheck disable=SC2086
run 1 compare $shared --methods direct --out runs --quiet
has err '^kvfold: train: runs/direct-0.run.h5: exists '
has err '^kvfold: compare: train for direct failed'
# shellcheck disable=SC2086
run 1 compare $shared --methods lora --out other --quiet
has err '--method "lora": want '
# shellcheck disable=SC2086
run 2 compare $shared --methods , --out other --quiet
has err '^kvfold: compare: --methods names nothing'
# what was done before a failure is printed
# shellcheck disable=SC2086
run 1 compare $shared --methods direct,lora --out partly --quiet
has err '^kvfold: compare: train for lora failed'
[ "$(wc -l <out)" -eq 2 ] || fail "not a heading and one row: $(cat out)"
has out '^direct '

export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2
# shellcheck disable=SC2086
run 2 compare $shared --methods direct --out ranks --quiet
err_is 'kvfold: compare: a comparison is one process, Open MPI started 2; try kvfold compare --help'
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE

# a run that merge refuses has a row all the same
echo 'unfreeze = base' >both.txt
run 0 compare --base model --data train.jsonl --valid valid.jsonl --options both.txt --steps 2 --methods p-tuning --out both
has err '^kvfold: compare: merge for .*failed'
has out '^p-tuning .* - '
