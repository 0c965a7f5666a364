# Prefixes for inference engines: training on a GGUF, export, import, refusals.
gguf=$SOURCE/tests/golden/gguf_bpe.gguf
make_inputs
train_on() { run 0 train --base "$gguf" --data train.jsonl --prefix-length 4 --steps 2 --precision f32 --threads 1 --quiet "$@"; }
loss_of() { run 0 eval --base "$gguf" --prefix "$1" --data valid.jsonl --precision f32 --threads 1 --json && value loss; }

train_on --method direct --out run.h5
run 0 merge run.h5 --out prefix.h5
run 0 export prefix.h5 --format llamacpp --base "$gguf" --dtype f32 --out state
out_is 'state: llamacpp'
for file in prefix.state placeholders.json chat_template.jinja README.md; do [ -s state/$file ] || fail "no $file"; done
has state/placeholders.json '^{"ids":\[261,261,261,261\]'
has state/README.md '^llama-server -m MODEL.gguf .* -ctk f32 -ctv f32 '
run 1 export prefix.h5 --format llamacpp --base "$gguf" --out state
err_is 'kvfold: export: state: exists (use --force to replace the files of the prefix in it)'

# the import has the same bits, and training continues from them
run 0 import state/prefix.state --base "$gguf" --out back.h5 --json
has out '"kind":"prefix"'
[ "$(loss_of back.h5)" = "$(loss_of prefix.h5)" ] || fail 'another loss after the way through a state'
train_on --method direct --init kv --init-kv back.h5 --out next.h5 || fail 'no start from an imported state'

# int8 and bf16 are dequantised
for dtype in int8 bf16; do
    run 0 quantize prefix.h5 --dtype $dtype --out $dtype.h5
    run 0 export $dtype.h5 --format llamacpp --base "$gguf" --dtype f32 --out $dtype
    run 0 import $dtype/prefix.state --base "$gguf" --out $dtype.back.h5
    [ "$(loss_of $dtype.back.h5)" = "$(loss_of $dtype.h5)" ] || fail "another loss of $dtype"
done

# a run is folded first; a pruned prefix is repaired first
run 0 export run.h5 --format llamacpp --base "$gguf" --dtype f32 --out folded
same folded/prefix.state state/prefix.state
run 0 prune prefix.h5 --base "$gguf" --data valid.jsonl --keep 3 --out pruned.h5
run 1 export pruned.h5 --format llamacpp --base "$gguf" --out pruned
err_is 'kvfold: export: pruned.h5: position_start is 4, but after a cache of 3 tokens an engine continues at 3: run kvfold convert-position --position-start P first'
run 0 convert-position pruned.h5 --base "$gguf" --position-start P --out mended.h5
run 0 export mended.h5 --format llamacpp --base "$gguf" --out pruned
run 1 export prefix.h5 --format mlx --engine mlx-lm-0.31.3 --out no-such-folder/x.safetensors
run 0 export prefix.h5 --format mlx --out x.safetensors
out_is 'x.safetensors: mlx'

# virtual tokens and task heads cannot be caches
train_on --method prompt --out prompt.h5
run 1 export prompt.h5 --format llamacpp --base "$gguf" --out no
err_is 'kvfold: export: prompt.h5: has virtual tokens at the input, which a cache cannot store'
"$MAKE_TINY" bert 1 bert || exit 1
printf 'text\tlabel\ngood day\tyes\nbad day\tno\n' >mood.tsv
printf 'kim\tB-P\nsaw\tO\n\n' >names.conll
run 0 train --base bert --data mood=mood.tsv --data names=names.conll --task mood=seq-cls --task names=token-cls --task-prefix low-rank \
    --method direct --prefix-length 4 --steps 1 --precision f32 --quiet --out tasks.h5
run 1 export tasks.h5 --format mlx --out no
err_is 'kvfold: export: tasks.h5: has heads of several tasks, which no engine supports'
absent no
