# bench on the tiny shape and on a folder: one JSON object with the documented keys, a table, and
# steps on request.
make_inputs

run 0 bench --shape tiny --batch 2 --length 16 --steps 2 --threads 2 --precision f32 --json
[ "$(wc -l <out)" -eq 1 ] || fail "not one line: $(cat out)"
for key in precision tokens_per_second seconds_per_step matmul_rate matmul_share peak_rss_bytes \
    components; do
    has out "[{,]\"$key\":"
done
for key in qkv attention ffn head attention_bwd encoder encoder_bwd adamw; do
    has out "[{,]\"$key\":[0-9]"
done
err_is
[ "$(value precision)" = '"f32"' ] || fail "precision is $(value precision)"
[ "$(value steps)" -eq 2 ] && [ "$(value tokens)" -eq 64 ] && [ "$(value label_tokens)" -eq 16 ] ||
    fail "sizes are others: $(cat out)"

run 0 bench --base model --batch 2 --length 16 --prefix-length 4 --encoder-hidden 16 --threads 2
err_is
has out ', 7 steps of 2 rows, 32 tokens and 8 labels$'
has out '^[0-9]* tokens/s, [0-9.]* s per step'
has out '^attention  *[0-9.]* *[0-9.]*%$'

# recomputation changes only the time
run 0 bench --shape tiny --batch 2 --length 16 --steps 2 --threads 2 --recompute on
has out '^recompute  *[0-9.]*[1-9]'
run 0 bench --shape tiny --batch 2 --length 16 --steps 2 --threads 2 --recompute off
has out '^recompute  *0\.00 '

# one line per step, rows in turn, and the summary at the end
printf 'go\n\n' >lines
run 0 bench --shape tiny --batch 2 --lengths 5,9,12 --interactive --warmup 0 --threads 2 --json <lines
[ "$(wc -l <out)" -eq 3 ] || fail "not three lines: $(cat out)"
sed -n 1p out | grep -q '"rows":2,"tokens":14,' || fail "first step: $(sed -n 1p out)"
sed -n 2p out | grep -q '"rows":1,"tokens":12,' || fail "second step: $(sed -n 2p out)"
sed -n 3p out | grep -q '"steps":2,"rows":3,"tokens":26,' || fail "summary: $(sed -n 3p out)"
run 0 bench --shape tiny --batch 1 --length 8 --interactive --threads 2 </dev/null
out_is 'no steps'

misuse() {
    line=$1
    shift
    run 2 bench "$@"
    out_is
    err_is "kvfold: bench: $line; try kvfold bench --help"
}
misuse 'shape "huge" is neither known nor a file; known: gpt2, smollm2-135m, tiny' --shape huge
misuse 'exactly one of --shape and --base is needed, not both' --shape tiny --base model
misuse '--steps 0: want a whole number of at least 1' --steps 0
misuse '--batch 0: want a whole number of at least 1' --shape tiny --batch 0
misuse '--label-fraction 1.5: want a number above 0 and at most 1' --shape tiny --label-fraction 1.5
misuse '--label-fraction 1.5: want a number above 0 and at most 1' --shape tiny --label-fraction 1.5
misuse 'a row has 493 tokens, but the model has room for 492 after the prefix' --shape tiny --length 493
misuse '--lengths: "1" is not a row length, want a whole number of at least 2' --shape tiny --lengths 7,1
misuse '--recompute "yes": want on or off' --recompute yes
misuse '--precision "f16": want auto|f32|bf16|int8' --precision f16
run 1 bench --base nothing
has err '^kvfold: bench: nothing: '
