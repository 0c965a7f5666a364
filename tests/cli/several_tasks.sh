# Several tasks with one prefix, a trained language-model head, and a prefix inside rows: by the
# command line and a recipe, on a tiny BERT and a tiny Llama.
# shellcheck disable=SC2086 # no spaces in names
"$MAKE_TINY" bert 1 bert || exit 1
"$MAKE_TINY" llama 2 || exit 1

for i in 1 2 3 4 5 6 7 8; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i >>mood.tsv
    printf 'Ann\tB-PER\nwent\tO\n\nI\tO\nsaw\tO\nBob\tB-PER\n\n' >>names.conll
    printf '{"prompt": "size %d is", "completion": " %d"}\n' $i $i >>lm.jsonl
done
common="--method direct --prefix-length 4 --threads 2 --precision f32 --steps 4 --batch-size 4 --json"

# ---- several tasks
tasks="--base bert --data mood=mood.tsv --data names=names.conll --task mood=seq-cls"
run 0 train $tasks --task names=token-cls --valid mood=mood.tsv $common --out run.h5
has out '"steps":4'
run 0 eval --base bert --prefix run.h5 --head mood --data mood.tsv --threads 2 --json
has out '"accuracy"'
run 0 predict --base bert --prefix run.h5 --head names --data names.conll --out answers.conll
run 2 eval --base bert --prefix run.h5 --data mood.tsv
err_is 'kvfold: eval: run.h5: holds heads of several tasks: --head names one of mood, names; try kvfold eval --help'
run 0 merge run.h5 --head names --out names.h5
run 0 eval --base bert --prefix names.h5 --data names.conll --threads 2
run 0 merge run.h5 --out all.h5
run 0 eval --base bert --prefix all.h5 --head mood --data mood.tsv --threads 2
run 0 export all.h5 --head mood --out adapter
run 0 inspect run.h5
has out 'heads/mood/classifier.weight'

cat >recipe.txt <<'END'
data = mood=mood.tsv
data = names=names.conll
task = mood=seq-cls
task = names=token-cls
valid = mood=mood.tsv
END
run 0 train --recipe recipe.txt --base bert $common --out again.h5
same run.h5 again.h5
run 0 train --recipe recipe.txt --base bert --task-prefix low-rank --mix equal $common --out low.h5
run 0 merge low.h5 --head mood --out low_mood.h5
run 2 train --base bert --data mood.tsv --task seq-cls --mix equal $common --out x.h5
err_is 'kvfold: train: --mix is for several tasks: --data NAME=FILE; try kvfold train --help'

# ---- a trained language-model head, a prefix inside rows
for option in --train-head --infix; do
    run 0 train --base llama --data lm.jsonl --valid lm.jsonl $option $common --out lm.h5 --force
    run 0 merge lm.h5 --out lm_prefix.h5 --base llama --probe lm.jsonl --force
    run 0 eval --base llama --prefix lm_prefix.h5 --data lm.jsonl --threads 2 --precision f32
    mv out folded
    run 0 eval --base llama --prefix lm.h5 --data lm.jsonl --threads 2 --precision f32
    sed 's/, [0-9.]* s$//' folded >one
    sed 's/, [0-9.]* s$//' out >two
    same one two
    run 0 generate --base llama --prefix lm_prefix.h5 --prompt 'size 3 is' --max-tokens 3
done
run 1 export lm_prefix.h5 --out infix_adapter
has err 'inside rows (--infix)'
