# Method head trains only the head of a task: from train to the base file and the commands that read
# it; and its refusals.
# shellcheck disable=SC2086 # words
"$MAKE_TINY" bert 1 bert || exit 1
make_inputs
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i
done >rows.tsv
shared="--base bert --data rows.tsv --threads 2 --precision f32"
fit="$shared --valid rows.tsv --task seq-cls --method head --batch-size 4 --eval-every 4 --schedule constant --schedule-steps 12"

run 0 train $fit --steps 12 --out run.h5 --json
best=$(value best_value) loss=$(value best_valid_loss)
[ "$(value trainable_parameters)" = $((2 * 32 + 2)) ] || fail "$(value trainable_parameters) parameters"
run 0 inspect run.h5
has out '^  head/classifier.weight '
grep -q '^  encoder/' out && fail 'a head alone has parameters of an encoder'

# resumed: the same bytes
run 0 train $fit --steps 8 --out parts.h5
run 0 train $fit --steps 12 --out parts.h5 --resume
same run.h5 parts.h5

# the run and its base file have the validation's result; the base's weights are unchanged
run 0 merge run.h5 --base bert --out based.h5 --json
for with in "--base bert --prefix run.h5" "--base based.h5"; do
    run 0 eval $with --data rows.tsv --threads 2 --precision f32 --json
    [ "$(value accuracy) $(value loss)" = "$best $loss" ] || fail "$with: $(cat out), train said $best $loss"
done
run 0 predict --base based.h5 --data rows.tsv --threads 2 --precision f32 --out answers.jsonl
run 0 import bert --out plain.h5
run 1 diff plain.h5 based.h5
grep -q '^  *weights/' out && fail 'the fold changed a weight'
run 2 merge run.h5 --out other.h5
has err 'method head folds to a base'

# continuing from it, also with the head of another method
run 0 train $fit --steps 2 --init-from run.h5 --out on.h5
run 1 train $shared --task seq-cls --method full --steps 1 --init-from run.h5 --out full.h5
has err 'has 0 parameters, but the base needs '

run 2 train --base model --data train.jsonl --method head --out lm.h5
err_is 'kvfold: train: --method head: task lm has no head to train: choose another --task; try kvfold train --help'
for option in "--lr 0.1" "--prefix-length 4" "--layers 0-1" "--init zero" "--lr-units parameter"; do
    run 2 train $fit --steps 1 $option --out refused.h5
    has err "^kvfold: train: ${option% *}: not for method head"
done
run 2 train --base bert --data a=rows.tsv --data b=rows.tsv --task seq-cls --method head --out two.h5
has err 'method head has no prefix'
absent lm.h5 refused.h5 two.h5

# a tokenizer that appends EOS, as Qwen3-Embedding's: the head reads the state behind it
"$MAKE_TINY" tokens 1 && cp -r tokens appends || exit 1
cat >post.json <<'END'
"version": "1.0", "post_processor": {"type": "TemplateProcessing",
"single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
"pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
"special_tokens": {"</s>": {"id": "</s>", "ids": [257], "tokens": ["</s>"]}}},
END
sed -i -e '/"version": "1.0",/r post.json' -e '//d' appends/tokenizer.json
printf '%s\n' '{"model_type": "qwen3", "vocab_size": 258, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8,' \
    '"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3, "eos_token_id": 257, "pad_token_id": 257}' >qwen3.json
sed 's/	/<\/s>	/' rows.tsv >ended.tsv
for row in 'tokens rows' 'tokens ended' 'appends rows'; do
    set -- $row
    run 0 new-base --config qwen3.json --tokenizer $1 --out $1.h5 --force --quiet
    run 0 train --base $1.h5 --data $2.tsv --task seq-cls --method head --steps 1 --threads 2 --precision f32 --seed 2 --quiet --force --out run.h5
    run 0 eval --base $1.h5 --prefix run.h5 --data $2.tsv --threads 2 --precision f32 --json
    value loss >$1-$2.loss
done
same tokens-ended.loss appends-rows.loss
cmp -s tokens-rows.loss appends-rows.loss && fail 'the loss is that without EOS'
