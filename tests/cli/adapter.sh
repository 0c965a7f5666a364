# Method adapter trains bottlenecks inside the base instead of a prefix: from train to the adapter
# file and the commands that read it.
make_inputs
tune() {
    want=$1
    shift
    run "$want" train --base model --data train.jsonl --threads 2 --precision f32 "$@"
}

tune 0 --method adapter --adapter-size 4 --out run.h5 --valid valid.jsonl --json
best=$(value best_valid_loss)
run 0 merge run.h5 --out adapter.h5 --json
[ "$(value max_abs_diff)" = 0.0 ] || fail "max_abs_diff is $(value max_abs_diff)"
for file in run.h5 adapter.h5; do
    run 0 eval --base model --data valid.jsonl --precision f32 --threads 2 --prefix $file --json
    [ "$(value loss)" = "$best" ] || fail "eval of $file says $(value loss), train said $best"
done
run 0 eval --base model --data valid.jsonl --precision f32 --threads 2 --prefix adapter.h5 --drop-layers 0-1 --json
[ "$(value loss)" != "$best" ] || fail 'nothing was left out'
run 2 eval --base model --data valid.jsonl --drop-layers 0
err_is 'kvfold: eval: model has no adapters to leave out; try kvfold eval --help'
run 1 eval --base model --data valid.jsonl --prefix adapter.h5 --drop-layers 0-9
err_is 'kvfold: eval: layers 0-9: the base has layers 0-1'
run 2 eval --base model --data valid.jsonl --prefix adapter.h5 --prefix run.h5
has err 'so other prefixes cannot use it'
run 0 inspect adapter.h5
has out '^adapter.h5: adapter$'
has out '^  placement  *serial$'
has out '^  adapter/1.ffn.up.weight  '
run 1 export adapter.h5 --format peft --out peft
has err 'method adapter trains no prefix'
absent peft
run 0 generate --base model --prefix run.h5 --prompt abc --max-tokens 2 --precision f32
mv out first
run 0 generate --base model --prefix adapter.h5 --prompt abc --max-tokens 2 --precision f32
same first out

tune 2 --method adapter --out other.h5 --prefix-length 4
has err 'prefix-length: not for method adapter'
absent other.h5
tune 2 --method direct --out other.h5 --adapter-size 4
has err 'adapter-size: not for method direct'
absent other.h5
