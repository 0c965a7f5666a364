# quantize: prefixes in narrower types, their loss, and support of int8 prefixes by every command.
make_inputs
train 0 --out run.h5 --valid valid.jsonl --steps 4 --quiet
run 0 merge run.h5 --out f32.h5

for dtype in f32 f16 bf16 int8; do
    run 0 quantize f32.h5 --out $dtype.q.h5 --dtype $dtype --base model --data valid.jsonl --threads 2 --json
    err_is
    before=$(value loss_before)
    after=$(value loss_after)
    change=$(value loss_change)
    has out "\"dtype\":\"$dtype\",\"shape\":\[2,2,1,2,4,8\]"
    [ "$(value bytes)" -eq "$(wc -c <$dtype.q.h5)" ] || fail "bytes is $(value bytes)"
    run 0 eval --base model --data valid.jsonl --prefix f32.h5 --precision f32 --threads 2 --json
    [ "$(value loss)" = "$before" ] || fail "$dtype: before $before, eval says $(value loss)"
    run 0 eval --base model --data valid.jsonl --prefix $dtype.q.h5 --precision f32 --threads 2 --json
    [ "$(value loss)" = "$after" ] || fail "$dtype: after $after, eval says $(value loss)"
    awk "BEGIN { d = $after - $before - ($change); exit !(d < 1e-12 && d > -1e-12 && $change < 0.01 && $change > -0.01) }" ||
        fail "$dtype: $before to $after, change $change"
    # merge writes the same values
    run 0 merge run.h5 --out merged.h5 --dtype $dtype --force
    has out "^merged.h5: .* $dtype, "
    run 0 eval --base model --data valid.jsonl --prefix merged.h5 --precision f32 --threads 2 --json
    [ "$(value loss)" = "$after" ] || fail "$dtype: merge says $(value loss), quantize $after"
done

# a run is folded first; quantizing again gives the same bytes except for the lineage
run 0 quantize run.h5 --out from_run.h5 --dtype int8
has out '^from_run.h5: \[2, 2, 1, 2, 4, 8\] int8, '
has out '^largest difference of a value: [0-9.e-]*, relative error of the whole: 0.00'
run 0 quantize int8.q.h5 --out again.h5 --dtype int8 --json
[ "$(value max_abs_diff)" = 0.0 ] || fail "rounded twice: $(value max_abs_diff)"

# inspect
run 0 inspect int8.q.h5
has out '^  dtype  *int8$'
has out '^  prefix/past_key_values  \[2, 2, 1, 2, 4, 8\]  i8 .*(layer, key_value, batch, head, position, head_dim)$'
has out '^  prefix/scale  *\[2, 2, 1, 2\]  *f32 .*(layer, key_value, batch, head)$'
has out '^  quantized_hash '
run 0 inspect int8.q.h5 --json
has out '"name":"prefix/scale","shape":\[2,2,1,2\],"dtype":"f32".*"values":{"mean":'

# every command with a prefix option accepts it
run 0 generate --base model --prefix int8.q.h5 --prompt 'after 3:' --max-tokens 4 --precision f32
mv out text
run 0 quantize int8.q.h5 --out wide.h5 --dtype f32
run 0 generate --base model --prefix wide.h5 --prompt 'after 3:' --max-tokens 4 --precision f32
same text out
run 0 words int8.q.h5 --base model --top 1
run 0 export int8.q.h5 --format peft --out peft
run 0 import peft --base model --out imported.h5
run 0 eval --base model --data valid.jsonl --prefix imported.h5 --precision f32 --threads 2 --json
[ "$(value loss)" = "$after" ] || fail "after export and import: $(value loss), not $after"
run 0 export int8.q.h5 --format safetensors --out kv.safetensors
train 0 --out next.h5 --method direct --init kv --init-kv int8.q.h5 --steps 1 --quiet
printf '{"text": "ab", "label": "x"}\n{"text": "cd", "label": "y"}\n' >labels.jsonl
run 0 train --base model --data labels.jsonl --task seq-cls --method direct --prefix-length 3 --steps 1 --out cls.h5 --quiet
run 0 merge cls.h5 --out cls8.h5 --dtype int8
run 0 predict --base model --prefix cls8.h5 --data labels.jsonl --out predictions.jsonl
has predictions.jsonl '"x"'
run 0 quantize cls.h5 --out cls16.h5 --dtype bf16 --base model --data labels.jsonl

# refused
run 1 quantize f32.h5 --out f16.q.h5 --dtype f16
has err 'f16.q.h5: exists'
run 2 quantize f32.h5 --out no.h5 --dtype int4
err_is 'kvfold: quantize: --dtype "int4": want f32|f16|bf16|int8; try kvfold quantize --help'
run 2 quantize f32.h5 --out no.h5 --dtype f16 --data valid.jsonl
err_is 'kvfold: quantize: --data needs --base; try kvfold quantize --help'
run 2 quantize f32.h5 --out f32.h5 --dtype f16 --force
has err 'f32.h5'
run 0 train --base model --data train.jsonl --method adapter --adapter-size 2 --steps 1 --out adapter.h5 --quiet
run 1 quantize adapter.h5 --out no.h5 --dtype f16
err_is 'kvfold: quantize: adapter.h5: method adapter changes the base and has no prefix'
absent no.h5
