# Method projected: its runs read the base, so merge and eval of them need --base; folded files are
# ordinary prefixes.
make_inputs

train 0 --method projected --out run.h5 --valid valid.jsonl --json
best=$(value best_valid_loss)
run 2 merge run.h5 --out prefix.h5
err_is 'kvfold: merge: run.h5: method projected reads the base it was trained on: name it with --base; try kvfold merge --help'
absent prefix.h5
run 0 merge run.h5 --out prefix.h5 --base model --json
[ "$(value max_abs_diff)" = 0.0 ] || fail "max_abs_diff is $(value max_abs_diff)"
for file in run.h5 prefix.h5; do
    run 0 eval --base model --data valid.jsonl --precision f32 --threads 2 --prefix $file --json
    [ "$(value loss)" = "$best" ] || fail "eval of $file says $(value loss), train said $best"
done
run 0 inspect run.h5
has out '^  encoder/embedding.1.weight  *\[4, '
run 2 export run.h5 --format safetensors --out raw.safetensors
err_is 'kvfold: export: run.h5: the method of this run needs the base: merge the run, then export the prefix; try kvfold export --help'
run 0 export prefix.h5 --format safetensors --out raw.safetensors
run 0 generate --base model --prefix run.h5 --prompt abc --max-tokens 2 --precision f32
mv out first
run 0 generate --base model --prefix prefix.h5 --prompt abc --max-tokens 2 --precision f32
same first out

train 0 --method projected --out words.h5 --init vocab --quiet
train 2 --method projected --out other.h5 --init kv --init-kv prefix.h5
has err 'method projected cannot start from a given prefix'
absent other.h5
train 2 --method projected --out other.h5 --encoder-hidden 8
has err 'encoder-hidden: not for method projected'
absent other.h5
