# Several prefixes as one, and what cannot be averaged.
make_inputs
for seed in 1 2; do
    train 0 --seed $seed --lr 0.1 --steps 20 --out run$seed.h5 --quiet
done
train 0 --method prompt --steps 2 --out prompt.h5 --quiet
run 0 train --base model --data train.jsonl --threads 2 --precision f32 --method adapter \
    --adapter-size 4 --steps 2 --out adapter.h5 --quiet
run 0 merge run1.h5 --out one.h5
run 0 merge run2.h5 --out two.h5
common="--base model --threads 2 --precision f32"
# shellcheck disable=SC2086 # no spaces in names
complete() { run "$1" generate $common --prompt 'after 5:' --max-tokens 8 "$2" "$3" "$4" "$5" --json; }

# equal ones answer as one of them
# shellcheck disable=SC2086
run 0 generate $common --prefix one.h5 --prompt 'after 5:' --max-tokens 8 --json
alone=$(value text)
complete 0 --prefix one.h5 --prefix one.h5
[ "$(value text)" = "$alone" ] || fail "twice: $(value text), alone: $alone"
[ "$(value new_tokens)" -ge 1 ] || fail 'no tokens'

# the order does not matter, nor whether a file is folded
complete 0 --prefix one.h5 --prefix two.h5
both=$(value text)
complete 0 --prefix two.h5 --prefix run1.h5
[ "$(value text)" = "$both" ] || fail "in another order: $(value text), want $both"
# shellcheck disable=SC2086
run 0 generate $common --prefix one.h5 --prefix two.h5 --data valid.jsonl --max-tokens 3 --temperature 1
[ "$(grep -c '^==> ' out)" -eq 6 ] || fail 'not six texts'
# shellcheck disable=SC2086
run 0 eval $common --prefix one.h5 --prefix two.h5 --data valid.jsonl --generate 4 --json
has out '"bleu"'

# virtual tokens are in rows of their own, an adapter is the base itself
elsewhere='prefix 2 has its virtual tokens elsewhere in the rows than the first: fold both to prefixes'
complete 2 --prefix one.h5 --prefix prompt.h5
err_is "kvfold: generate: $elsewhere; try kvfold generate --help"
# shellcheck disable=SC2086
run 2 eval $common --prefix one.h5 --prefix prompt.h5 --data valid.jsonl
err_is "kvfold: eval: $elsewhere; try kvfold eval --help"
complete 2 --prefix one.h5 --prefix adapter.h5
err_is 'kvfold: generate: model: carries the values of method adapter, which no other prefix can share; try kvfold generate --help'

# folded, the same virtual tokens are a prefix like the others
run 0 merge prompt.h5 --base model --out folded.h5
complete 0 --prefix one.h5 --prefix folded.h5
# shellcheck disable=SC2086
run 0 eval $common --prefix one.h5 --prefix folded.h5 --data valid.jsonl
