# The option of docs/contributing.md: its effect, and --help.
make_inputs
for seed in 1 2; do
    run 0 train --base model --data train.jsonl --method direct --prefix-length 4 --steps 1 --seed $seed --out $seed.h5 --threads 2 --quiet
done
run 1 diff --summary 1.h5 2.h5
[ "$(wc -l <out)" -eq 1 ] || fail "$(cat out)"
has out '^tensors: '
run 0 diff --help
has out 'summary .*print the last line alone'
