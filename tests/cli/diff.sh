# diff: equal and different files of every kind, with the exit status of diff(1).
make_inputs
for n in 1 2; do
    train 0 --out run$n.h5 --steps 3 --valid valid.jsonl --quiet
    run 0 merge run$n.h5 --out p$n.h5
done
train 0 --out other.h5 --steps 3 --lr 0.01 --seed 7 --quiet
run 0 merge other.h5 --out p3.h5
run 0 quantize p1.h5 --out p8.h5 --dtype int8 --json
most=$(value max_abs_diff)

# equal: no output
for pair in "run1.h5 run2.h5" "p1.h5 p2.h5" "model model"; do
    # shellcheck disable=SC2086 # two words
    run 0 diff $pair
    out_is
    err_is
    # shellcheck disable=SC2086
    run 0 diff $pair --json
    has out '"same":true,"facts":\[\],"tensors":{"equal":[0-9]*,"changed":\[\],"removed":\[\],"added":\[\],'
done

# two runs: options, parameters, moments, history
run 1 diff run1.h5 other.h5
err_is
has out '^options.lr: 0.03 | 0.01$'
has out '^options.seed: 0 | 7$'
has out '^encoder/transform.2.weight \[64, 16\] f32: max [0-9.e-]*, relative [0-9.e-]*, cosine [0-9.e-]*$'
has out '^optimizer/m/'
has out '^history/train_loss \[3\] f64: '
has out '^only in run1.h5: best/encoder/embedding.weight '
has out '^tensors: .* changed, .* in one file only$'
grep -q 'history/step ' out && fail 'equal steps are shown'

# prefixes by layer; int8 by its values
run 1 diff p1.h5 p8.h5
has out '^attributes.dtype: "f32" | "int8"$'
has out '^lineage.quantized_hash: - | "'
[ "$(grep -c '^prefix/[01]/\(key\|value\) \[2, 4, 8\] f32: max ' out)" -eq 4 ] || fail "layers: $(cat out)"
run 1 diff p1.h5 p8.h5 --json
has out '"kind":"prefix","same":false,"facts":\[{"group":"attributes","name":"dtype","a":"f32","b":"int8"}'
[ "$(sed 's/.*"max_abs":\([^}]*\)}}$/\1/' out)" = "$most" ] || fail "max_abs is not $most: $(cat out)"
run 1 diff p1.h5 p8.h5 --tensors-only
grep -q '^attributes' out && fail 'facts among tensors'
run 0 prune p1.h5 --base model --data valid.jsonl --keep 3 --out short.h5
run 1 diff p1.h5 short.h5
has out '^prefix/0/key \[2, 4, 8\] f32 | \[2,3,8\]$'
has out '^attributes.P: 4 | 3$'

# composed layers, one text after another: layer 0 equals that of the whole text
for text in ab cd abcd; do
    run 0 train --base model --data train.jsonl --method direct --init text --init-text $text --prefix-length ${#text} --lr 1e-30 --steps 1 \
        --precision f32 --out $text.run.h5 --quiet
    run 0 merge $text.run.h5 --out $text.h5
done
run 0 compose ab.h5 cd.h5 --base model --out both.h5
run 1 diff both.h5 abcd.h5 --tensors-only --json
sed 's/{"name":"prefix/\n&/g' out | grep 'prefix/0/' | sed 's/.*"relative_l2":\([^,]*\),.*/\1/' >relative
awk '$1 >= 1e-6 { exit 1 }' relative || fail "layer 0 differs by $(cat relative)"
has out '"name":"prefix/1/key"'

# other kinds: adapters, embeddings, bases, safetensors, PEFT folders
for n in 1 2; do
    run 0 train --base model --data train.jsonl --method adapter --adapter-size 2 --steps $n --out tune$n.h5 --quiet
    run 0 merge tune$n.h5 --out adapter$n.h5
    train 0 --method prompt --steps $n --p-template '{prompt} {p:4} {completion}' --out prompt$n.h5 --quiet
    run 0 merge prompt$n.h5 --out embeddings$n.h5
    run 0 export p$((2 * n - 1)).h5 --format peft --out peft$n
    run 0 export p$((2 * n - 1)).h5 --format safetensors --out kv$n.safetensors
done
run 1 diff adapter1.h5 adapter2.h5
has out '^adapter/0.attn.up.weight \[32, 2\] f32: max '
run 1 diff embeddings1.h5 embeddings2.h5
has out '^embeddings/virtual \[4, 32\] f32: max '
run 1 diff peft1 peft2
has out '^prompt_embeddings \[4, 64\] f32: max '
run 1 diff kv1.safetensors kv2.safetensors
has out '^past_key_values \[2, 2, 1, 2, 4, 8\] f32: max '
"$MAKE_TINY" elsewhere 9
run 1 diff model elsewhere
has out '^model.layers.1.self_attn.q_proj.weight \[32, 32\] f32: max '
run 0 import model --out base.h5
run 0 diff model base.h5 --tensors-only

# errors exit with 2
run 2 diff p1.h5 run1.h5
err_is 'kvfold: diff: p1.h5 is of kind prefix, but run1.h5 is of kind run: compare files of one kind; try kvfold diff --help'
run 2 diff p1.h5 none.h5
has err '^kvfold: diff: none.h5: '
run 2 diff p1.h5
err_is 'kvfold: diff: B is missing; try kvfold diff --help'
printf nothing >text.h5
run 2 diff text.h5 p1.h5
"$KVFOLD" diff p1.h5 p8.h5 >/dev/full 2>err
[ $? -eq 2 ] || fail 'a full disk is not 2'
