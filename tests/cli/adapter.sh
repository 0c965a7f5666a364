# Method adapter: no prefix, but bottlenecks inside the base, from train to the adapter file and what reads it.
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
without=$(value loss)
spans() {
    want=$1
    shift
    run "$want" eval --base model --data valid.jsonl --precision f32 --threads 2 --drop-spans spans.html "$@"
}
spans 0 --prefix adapter.h5 --json
has out '^{"layers":2,"loss":'"$best"',"value":'"$best"',"metric":"loss","spans":\[{"first":0,"last":0,"loss":'
has out '{"first":0,"last":1,"loss":'"$without"','
has out '{"first":1,"last":1,"loss":[0-9.]*,"value":[0-9.]*}\],"added":\[{"layer":0,"attn":[0-9.]*,"ffn":[0-9.]*},{"layer":1,'
has spans.html '<figure class="heat" id="loss"'
has spans.html '<h2>What adapters add</h2>'
spans 1 --prefix adapter.h5
err_is 'kvfold: eval: spans.html: exists (use --force to replace it)'
spans 0 --prefix adapter.h5 --force
has out '^ *0-1  *[0-9.]* '
has out '^spans.html: 3 spans$'
spans 2 --prefix adapter.h5 --force --drop-layers 0
has err 'drop-spans: not with --drop-layers, --generate or --per-class'
rm spans.html
spans 2
err_is 'kvfold: eval: no adapters to leave out: model carries none; try kvfold eval --help'
absent spans.html
run 2 eval --base model --data valid.jsonl --force
has err 'force is for --drop-spans'
run 2 eval --base model --data valid.jsonl --drop-layers 0
err_is 'kvfold: eval: no adapters to leave out: model carries none; try kvfold eval --help'
run 1 eval --base model --data valid.jsonl --prefix adapter.h5 --drop-layers 0-9
err_is 'kvfold: eval: layers 0-9, the base has 0-1'
run 2 eval --base model --data valid.jsonl --prefix adapter.h5 --prefix run.h5
has err 'no other prefix can share'
run 0 inspect adapter.h5
has out '^adapter.h5: adapter$'
has out '^  placement  *serial$'
has out '^  adapter/1.ffn.up.weight  '
run 1 export adapter.h5 --format peft --out peft
has err 'method adapter is no prefix'
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
