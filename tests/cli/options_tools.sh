# Every option of the commands that make, convert and inspect files acts, or is refused. See
# option_table.sh. eval, predict and generate are in options.sh, train in test_options.c, sweep and
# distill in options_runs.sh.
# shellcheck disable=SC2086 disable=SC1091 # words; in this folder
. "$SOURCE/tests/cli/option_table.sh"
make_inputs
"$MAKE_TINY" bert 1 bert || exit 1
"$MAKE_TINY" elsewhere 9 || exit 1
"$MAKE_TINY" lora 5 lora || exit 1
printf '{"prompt": "q", "completion": "zqzq zqqz"}\n' >far.jsonl # which training is bad for
for i in 1 2 3 4; do printf 'good film %d\tyes\nbad film %d\tno\n' $i $i; done >mood.tsv
for i in 1 2 3 4; do printf 'kim\tB-P\nsaw\tO\n\nold\tO\nlee\tB-P\n\n'; done >names.conll
sed 's/prompt/question/; s/completion/answer/' valid.jsonl >foreign.jsonl
printf '{"prompt": "a much longer prompt than the others have", "completion": " so"}\n' | cat valid.jsonl - >long.jsonl
printf 'prompt,completion\nab,cd\nef,gh\n' >rows.csv
printf 'there' >there
echo go >lines
direct='--method direct --prefix-length 4 --schedule constant --precision f32 --threads 1 --quiet'
run 0 train --base model --data train.jsonl --valid far.jsonl $direct --steps 6 --eval-every 1 --lr 5 --out run.h5
run 0 train --base model --data train.jsonl $direct --steps 2 --seed 3 --out next.h5
run 0 train --base elsewhere --data train.jsonl $direct --steps 1 --out foreign.h5
run 0 train --base bert --data mood=mood.tsv --data names=names.conll --task mood=seq-cls --task names=token-cls $direct --task-prefix low-rank \
    --steps 2 --out tasks.h5
run 0 train --base bert --data mood.tsv --task seq-cls --unfreeze base --method p-tuning --prefix-length 2 --encoder-hidden 4 --steps 1 \
    --precision f32 --threads 1 --quiet --out both.h5
for name in run next foreign; do run 0 merge $name.h5 --out ${name}_p.h5; done
run 0 merge tasks.h5 --out tasks_p.h5 --base bert
gguf=$SOURCE/tests/golden/gguf_bpe.gguf
folds="neurons.h5 --format gguf --base $gguf --out o/x"
state="gguf_p.h5 --format llamacpp --base $gguf --out o/x"
run 0 import $SOURCE/tests/golden/llama_states/v4.state --base $gguf --out gguf_p.h5
run 0 train --base $gguf --data train.jsonl --method direct --prefix-length 0 --ffn-length 2 --steps 1 --precision f32 --threads 1 --quiet --out neurons.h5
run 0 export run_p.h5 --format peft --out peft
run 0 train --base bert --data mood.tsv --task seq-cls $direct --steps 1 --out cls.h5
run 0 export cls.h5 --format peft --out peft_cls
eval='--base model --data valid.jsonl'
to='--out o/x.h5'
one='--threads 1'
small="--shape tiny --batch 2 --length 8 --prefix-length 2 --encoder-hidden 4 --steps 1 --warmup 0 --precision f32 $one"
compare="--base model --data train.jsonl --valid far.jsonl --methods direct --options small.txt --steps 2 --quiet $one --out o/c"
printf 'prefix-length = 2\nprecision = f32\n' >small.txt
printf 'prefix-length = 3\nprecision = f32\n' >larger.txt
cat >table <<TABLE
merge|out|run.h5|o/x.h5|rescue
merge|out-base|both.h5 --base bert $to|o/base.h5|rescue
merge|out-base|run.h5 $to|o/base.h5|refuse
merge|dtype|run.h5 $to|f16|change
merge|checkpoint|run.h5 $to|last|change
merge|head|tasks.h5 $to|mood|change
merge|head|run.h5 $to|x|refuse
merge|probe|run.h5 --base model $to|valid.jsonl|change
merge|probe|run.h5 $to|valid.jsonl|refuse
merge|base|run.h5 --probe valid.jsonl $to|model|rescue
merge|base|run.h5 $to|elsewhere|refuse
merge|lora|run.h5 --base model $to|lora|refuse
merge|lora|run.h5 $to|lora|refuse
merge|allow-other-base|run.h5 --base elsewhere $to|@|rescue
merge|allow-other-base|run.h5 --base elsewhere --probe valid.jsonl $to|@|rescue
merge|allow-other-base|run.h5 $to|@|refuse
merge|force|run.h5 --out there|@|rescue
inspect|diffable|run.h5|@|change
import|out|peft|o/x.h5|rescue
import|base|peft $to|model|change
import|base|model $to|model|refuse
import|lora|peft --base model $to|lora|change
import|lora|peft $to|lora|refuse
import|from|peft $to|base|refuse
import|from|peft $to|peft|same
import|from|model $to|peft|refuse
import|labels|peft_cls $to|a,b|change
import|labels|peft $to|a,b|refuse
import|labels|model $to|a,b|refuse
import|force|peft --out there|@|rescue
export|format|run_p.h5 --out o/x|safetensors|change
export|out|run_p.h5|o/x|rescue
export|base-id|run_p.h5 --out o/x|org/name|change
export|base-id|run_p.h5 --format safetensors --out o/x|org/name|refuse
export|checkpoint|run.h5 --out o/x|last|change
export|head|tasks_p.h5 --out o/x|mood|rescue
export|head|run_p.h5 --out o/x|mood|refuse
export|force|run_p.h5 --format safetensors --out there|@|rescue
export|base|gguf_p.h5 --format llamacpp --out o/x|$gguf|rescue
export|base|gguf_p.h5 --format mlx --out o/x|$gguf|refuse
export|lora|$state|lora|change
export|lora|gguf_p.h5 --format mlx --out o/x|lora|refuse
export|engine|gguf_p.h5 --format mlx --out o/x|mlx-lm-0.31.3|change
export|engine|$state|llama-cpp-python|change
export|engine|$state|mlx-lm|refuse
export|state-version|$state|3|change
export|flash-attention|$state|off|change
export|streams|$state|4|change
export|dtype|$state|f32|change
export|dtype|run_p.h5 --out o/x|f32|refuse
export|ffn-type|neurons.h5 --format gguf --base $gguf --out o/x|f32|change
export|ffn-type|neurons.h5 --format gguf --base $gguf --out o/x|q4_0|refuse
export|ffn-type|run_p.h5 --out o/x|f32|refuse
export|data|$folds|valid.jsonl|change
export|data|run_p.h5 --out o/x --base model|valid.jsonl|refuse
export|data|$state|valid.jsonl|refuse
export|chat-template|$folds|chatml|refuse
export|chat-template|$folds --data valid.jsonl|chatml|change
export|map|$folds --data foreign.jsonl|prompt=question,completion=answer|rescue
export|map|$folds|prompt=question|refuse
export|max-length|$folds --data long.jsonl --overlong truncate|16|change
export|max-length|$folds|16|refuse
export|overlong|$folds --data long.jsonl --max-length 16|skip|rescue
export|overlong|$folds|skip|refuse
export|precision|$folds --data valid.jsonl|bf16|change
export|precision|$folds|bf16|refuse
new-base|config|--tokenizer model/tokenizer.json $to|model/config.json|rescue
new-base|tokenizer|--config model/config.json $to|model/tokenizer.json|rescue
new-base|out|--config model/config.json --tokenizer model/tokenizer.json|o/x.h5|rescue
new-base|seed|--config model/config.json --tokenizer model/tokenizer.json $to|1|change
new-base|force|--config model/config.json --tokenizer model/tokenizer.json --out there|@|rescue
report|out|run_p.h5|o/x.html|rescue
report|base|run_p.h5 --out o/x.html|model|change
report|lora|run_p.h5 --base model --out o/x.html|lora|refuse
report|lora|run_p.h5 --base model --allow-other-base --out o/x.html|lora|change
report|data|run_p.h5 --base model --out o/x.html|valid.jsonl|change
report|data|run_p.h5 --out o/x.html|valid.jsonl|refuse
report|words|run_p.h5 --base model --out o/x.html|1|change
report|words|run_p.h5 --out o/x.html|1|refuse
report|rows|run_p.h5 $eval --out o/x.html|1|change
report|rows|run_p.h5 --base model --out o/x.html|1|refuse
report|samples|run_p.h5 $eval --out o/x.html|1|change
report|samples|run_p.h5 --base model --out o/x.html|1|refuse
report|max-tokens|run_p.h5 $eval --out o/x.html|3|change
report|max-tokens|run_p.h5 --base model --out o/x.html|3|refuse
report|max-tokens|run_p.h5 $eval --samples 0 --out o/x.html|3|refuse
report|checkpoint|run.h5 --out o/x.html|last|change
report|head|tasks.h5 --base bert --out o/x.html|mood|rescue
report|head|run_p.h5 --out o/x.html|mood|refuse
report|allow-other-base|run_p.h5 --base elsewhere --out o/x.html|@|rescue
report|allow-other-base|run_p.h5 --out o/x.html|@|refuse
report|precision|run_p.h5 --base model --out o/x.html|bf16|change
report|precision|run_p.h5 --out o/x.html|bf16|refuse
report|format|run_p.h5 $eval --out o/x.html|csv|refuse
report|no-header|run_p.h5 --base model --data rows.csv --columns prompt,completion --out o/x.html|@|change
report|no-header|run_p.h5 $eval --out o/x.html|@|refuse
report|columns|run_p.h5 --base model --data rows.csv --no-header --out o/x.html|completion,prompt|change
report|columns|run_p.h5 $eval --out o/x.html|a,b|refuse
report|delimiter|run_p.h5 $eval --out o/x.html|;|refuse
report|map|run_p.h5 --base model --data foreign.jsonl --out o/x.html|prompt=question,completion=answer|rescue
report|max-length|run_p.h5 --base model --data long.jsonl --overlong truncate --out o/x.html|16|change
report|overlong|run_p.h5 --base model --data long.jsonl --max-length 16 --out o/x.html|skip|rescue
report|force|run_p.h5 --out there|@|rescue
serve|base|||cli/serve.sh
serve|lora|--base model --port 0|nothing|refuse
serve|lora|--base model --port 0 --prefix x=run_p.h5|lora|refuse
serve|prefix|--base model|x|refuse
serve|prefix|||cli/serve.sh
serve|prefix-dir|--base model|none|refuse
serve|prefix-dir|||serve/test_serve_folders.c
serve|prefix-memory|--base model --prefix-dir .|0|refuse
serve|prefix-memory|||serve/test_serve_folders.c
serve|cache-memory|--base model|1K|refuse
serve|cache-memory|||serve/test_serve_tenants.c
serve|head|--base model|x|refuse
serve|head|||cli/classify.sh
serve|base-name|||serve_fx.h
serve|host|--base model|nowhere|refuse
serve|host|||cli/serve.sh
serve|port|--base model|70000|refuse
serve|port|||cli/serve.sh
serve|allow-host|||serve/test_serve_guard.c
serve|cors|--base model|app.example|refuse
serve|cors|||serve/test_serve_access.c
serve|access-log|--base model|none/x|refuse
serve|access-log|||cli/serve.sh
serve|token-file|--base model|none|refuse
serve|token-file|||serve/test_serve_guard.c
serve|tenant-rows|||serve/test_serve_tenants.c
serve|tenant-queue|||serve/test_serve_tenants.c
serve|tenant-tokens|||serve/test_serve_tenants.c
serve|max-body|||serve/test_serve_guard.c
serve|max-body|--base model|0|refuse
serve|max-rows|||serve/test_serve_queue.c
serve|max-rows|--base model|0|refuse
serve|max-queue|||serve/test_serve_queue.c
serve|max-queue-bytes|||serve/test_serve_queue.c
serve|max-tokens|||serve/test_serve_guard.c
serve|max-tokens|--base model|0|refuse
serve|max-context|||serve_fx.h
serve|timeout|||serve/test_serve_guard.c
serve|timeout|--base model|0|refuse
serve|chat-template|||serve/test_serve_prompts.c
serve|chat-template|--base model|x|refuse
serve|checkpoint|--base model|x|refuse
serve|allow-other-base|--base model --port 0 --prefix x=foreign_p.h5|@|listen
serve|weight-dtype|--base model|f16|refuse
serve|stream-layers|--base model|x|refuse
serve|precision|--base model|f16|refuse
serve|precision|||cli/serve.sh
bench|base|--batch 2 --length 8 --prefix-length 2 --encoder-hidden 4 --steps 1 --warmup 0 $one|nothing|refuse
bench|base|||cli/bench.sh
bench|base|$small|model|refuse
bench|lora|$small|lora|refuse
bench|length|$small --lengths 7|9|refuse
bench|recompute|||cli/bench.sh
bench|stream-layers|--base model --batch 2 --length 8 --prefix-length 2 --encoder-hidden 4 --warmup 0 --precision f32 $one --interactive|on|same
bench|lora|--base model --batch 2 --length 8 --prefix-length 2 --encoder-hidden 4 --warmup 0 --precision f32 $one --interactive|lora|change
bench|batch|$small|3|change
bench|length|$small|9|change
bench|label-fraction|$small|0.5|change
bench|steps|$small|2|change
bench|interactive|$small|@|change
bench|precision|$small|bf16|change
bench|shape|$small --interactive|model/config.json|change
bench|prefix-length|$small --interactive|3|change
bench|encoder-hidden|$small --interactive|5|change
bench|warmup|$small --interactive|1|change
bench|weight-dtype|$small --interactive|int8|change
bench|seed|$small --interactive|1|change
bench|lengths|--shape tiny --batch 2 --prefix-length 2 --steps 1 --warmup 0 $one|7|change
words|base|run_p.h5|model|rescue
words|lora|run_p.h5 --base model|lora|refuse
words|lora|run_p.h5 --base model --allow-other-base|lora|change
words|top|run_p.h5 --base model|2|change
words|checkpoint|run.h5 --base model|last|change
words|allow-other-base|run_p.h5 --base elsewhere|@|rescue
words|precision|run_p.h5 --base model|bf16|change
diff|tensors-only|||cli/diff.sh
compose|out|run_p.h5 next_p.h5 --mode average|o/x.h5|rescue
compose|mode|run_p.h5 next_p.h5 --base model $to|average|change
compose|weights|run_p.h5 next_p.h5 --mode average $to|1,3|change
compose|weights|run_p.h5 next_p.h5 --base model $to|1,3|refuse
compose|dtype|run_p.h5 next_p.h5 --mode average $to|f16|change
compose|base|run_p.h5 next_p.h5 $to|model|rescue
compose|lora|run_p.h5 next_p.h5 --base model $to|lora|refuse
compose|base|run_p.h5 next_p.h5 --mode average $to|elsewhere|refuse
compose|checkpoint|run.h5 next_p.h5 --mode average $to|last|change
compose|head|tasks_p.h5 tasks_p.h5 --mode average $to|mood|rescue
compose|head|run_p.h5 next_p.h5 --mode average $to|x|refuse
compose|allow-other-base|run_p.h5 foreign_p.h5 --mode average $to|@|rescue
compose|force|run_p.h5 next_p.h5 --mode average --out there|@|rescue
prune|keep|run_p.h5 $eval $to|2|rescue
prune|keep|run_p.h5 $eval $to --max-loss-rise 1|2|refuse
prune|neurons|run_p.h5 $eval $to --keep 3|@|refuse
prune|max-loss-rise|run_p.h5 $eval $to|1|rescue
prune|score|run_p.h5 $eval $to --keep 3|gradient|change
prune|curve|run_p.h5 $eval $to --keep 3|o/curve|change
prune|out|run_p.h5 $eval --keep 3|o/x.h5|rescue
prune|dtype|run_p.h5 $eval --keep 3 $to|f16|change
prune|force|run_p.h5 $eval --keep 3 --out there|@|rescue
prune|base|run_p.h5 --data valid.jsonl --keep 3 $to|model|rescue
prune|lora|run_p.h5 --base model --data valid.jsonl --keep 3 $to|lora|refuse
prune|lora|run_p.h5 --base model --allow-other-base --data valid.jsonl --keep 3 $to|lora|change
prune|data|run_p.h5 --base model --keep 3 $to|valid.jsonl|rescue
prune|checkpoint|run.h5 $eval --keep 3 $to|last|change
prune|head|tasks_p.h5 --base bert --data mood.tsv --keep 3 $to|mood|rescue
prune|head|run_p.h5 $eval --keep 3 $to|x|refuse
prune|allow-other-base|run_p.h5 --base elsewhere --data valid.jsonl --keep 3 $to|@|rescue
prune|format|run_p.h5 $eval --keep 3 $to|csv|refuse
prune|map|run_p.h5 --base model --data foreign.jsonl --keep 3 $to|prompt=question,completion=answer|rescue
prune|max-length|run_p.h5 --base model --data long.jsonl --overlong truncate --keep 3 $to|16|change
prune|overlong|run_p.h5 --base model --data long.jsonl --max-length 16 --keep 3 $to|skip|rescue
prune|precision|run_p.h5 $eval --keep 3 $to|bf16|change
quantize|out|run_p.h5 --dtype f16|o/x.h5|rescue
quantize|dtype|run_p.h5 $to|f16|rescue
quantize|force|run_p.h5 --dtype f16 --out there|@|rescue
quantize|base|run_p.h5 --dtype f16 --data valid.jsonl $to|model|rescue
quantize|base|run_p.h5 --dtype f16 $to|elsewhere|refuse
quantize|lora|run_p.h5 --base model --dtype f16 $to|lora|refuse
quantize|lora|run_p.h5 --base model --allow-other-base --data valid.jsonl --dtype f16 $to|lora|change
quantize|data|run_p.h5 --base model --dtype f16 $to|valid.jsonl|change
quantize|data|run_p.h5 --dtype f16 $to|valid.jsonl|refuse
quantize|checkpoint|run.h5 --dtype f16 $to|last|change
quantize|head|tasks_p.h5 --dtype f16 $to|mood|change
quantize|head|run_p.h5 --dtype f16 $to|x|refuse
quantize|allow-other-base|run_p.h5 --base elsewhere --data valid.jsonl --dtype f16 $to|@|rescue
quantize|allow-other-base|run_p.h5 --dtype f16 $to|@|refuse
quantize|format|run_p.h5 $eval --dtype f16 $to|csv|refuse
quantize|format|run_p.h5 --dtype f16 $to|csv|refuse
quantize|map|run_p.h5 --base model --data foreign.jsonl --dtype f16 $to|prompt=question,completion=answer|rescue
quantize|map|run_p.h5 --dtype f16 $to|prompt=question|refuse
quantize|max-length|run_p.h5 --base model --data long.jsonl --overlong truncate --dtype f16 $to|16|change
quantize|max-length|run_p.h5 --dtype f16 $to|16|refuse
quantize|overlong|run_p.h5 --base model --data long.jsonl --max-length 16 --dtype f16 $to|skip|rescue
quantize|overlong|run_p.h5 --dtype f16 $to|skip|refuse
quantize|precision|run_p.h5 $eval --dtype f16 $to|bf16|change
quantize|precision|run_p.h5 --dtype f16 $to|bf16|refuse
unmerge|out|run_p.h5 --encoder-hidden 8|o/x.h5|rescue
unmerge|encoder-hidden|run_p.h5 $to|8|change
unmerge|seed|run_p.h5 --encoder-hidden 8 $to|1|change
unmerge|approximate|run_p.h5 --encoder-hidden 1 $to|@|rescue
unmerge|base|run_p.h5 $to|elsewhere|refuse
unmerge|lora|run_p.h5 --base model $to|lora|refuse
unmerge|allow-other-base|run_p.h5 --base elsewhere $to|@|rescue
unmerge|allow-other-base|run_p.h5 $to|@|refuse
unmerge|force|run_p.h5 --encoder-hidden 8 --out there|@|rescue
convert-position|base|run_p.h5 --position-start 0 $to|model|rescue
convert-position|lora|run_p.h5 --base model --position-start 0 $to|lora|refuse
convert-position|position-start|run_p.h5 --base model $to|0|rescue
convert-position|out|run_p.h5 --base model --position-start 0|o/x.h5|rescue
convert-position|allow-other-base|run_p.h5 --base elsewhere --position-start 0 $to|@|rescue
convert-position|force|run_p.h5 --base model --position-start 0 --out there|@|rescue
compare|base|||cli/compare.sh
compare|lora|$compare|lora|change
compare|data|||cli/compare.sh
compare|valid|||cli/compare.sh
compare|methods|$compare|projected|change
compare|inits|$compare|random|change
compare|init-text|$compare --inits text|abcd|rescue
compare|init-text|$compare|abcd|change
compare|init-text|$compare --inits random|abcd|refuse
compare|steps|$compare|3|change
compare|seeds|$compare|2|change
compare|draws|$compare|2|change
compare|seed|$compare|3|change
compare|resume|||cli/compare_draws.sh
compare|quick|||cli/compare_quick.sh
compare|minutes|||cli/compare_quick.sh
compare|eval-every|$compare|2|change
compare|options|$compare|larger.txt|change
compare|ensembles|$compare|1|change
compare|recipe|$compare|larger.txt|change
compare|lr|$compare|0.5|change
compare|limit|$compare|2|change
compare|out|||cli/compare.sh
compare|force|--base model --data train.jsonl --valid far.jsonl --methods direct --options small.txt --steps 1 --quiet $one --out kept|@|rescue
TABLE
run 0 compare --base model --data train.jsonl --valid far.jsonl --methods direct --options small.txt --steps 1 --quiet $one --out kept
# Options of train are passed on unchanged (cli/compare.sh); their effects are tested there.
"$KVFOLD" train --help all | sed -n 's/^  --\([a-z-]*\).*/\1/p' | sort -u >of_train
"$KVFOLD" compare --help all | sed -n 's/^  --\([a-z-]*\).*/\1/p' | sort -u | comm -12 - of_train |
    grep -vx -e threads -e json -e quiet -e help | while read -r name; do
    grep -q "^compare|$name|" table || echo "compare|$name|||options/test_options.c"
done >handed
cat handed >>table
try_options table merge inspect import export new-base report serve bench words diff compose prune quantize unmerge convert-position compare completion
run 2 help train more
has err '^kvfold: help: unexpected argument'
