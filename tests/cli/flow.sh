# The whole workflow on a tiny model: train, merge, inspect, eval, generate, export, import.
make_inputs

# keys WORD...: out has only one JSON line, with these keys.
keys() {
    [ "$(wc -l <out)" -eq 1 ] || fail "not one line: $(cat out)"
    for key; do
        has out "[{,]\"$key\":"
    done
    err_is
}

train 0 --out run.h5 --valid valid.jsonl --json --quiet
keys steps train_loss valid_loss best_valid_loss tokens tokens_per_second seconds peak_rss_bytes \
    trainable_parameters parameters notes
best=$(value best_valid_loss)
train 0 --out again.h5 --valid valid.jsonl --quiet --verbose
err_is
has out '^again.h5: 9 steps, '
has out '^initialized from 12 training rows (144 tokens) .* 46 query tokens '
has out 'initial prefix of --init match, relative error '
has out '^rows: 24 with [0-9]* tokens, the longest [0-9]*; 6 held out$'
has out '^parameters: [0-9]* of [0-9]* are trained ([0-9.]* %)$'
same run.h5 again.h5

train 0 --out dry.h5 --dry-run
has out '^dry.h5: dry run, nothing written: 9 steps to do$'
absent dry.h5

run 0 merge run.h5 --out prefix.h5 --json
keys max_abs_diff shape bytes
[ "$(value max_abs_diff)" = 0.0 ] || fail "max_abs_diff is $(value max_abs_diff)"
[ "$(value bytes)" -eq "$(wc -c <prefix.h5)" ] || fail "bytes is $(value bytes)"
has out '"shape":\[2,2,1,2,4,8\]'
run 0 merge again.h5 --out again_prefix.h5
has out '^again_prefix.h5: \[2, 2, 1, 2, 4, 8\] f32, '
same prefix.h5 again_prefix.h5
run 0 merge run.h5 --out half.h5 --dtype bf16 --probe valid.jsonl --base model
has out '^largest difference of logits: '
run 0 merge run.h5 --out last.h5 --checkpoint last

run 0 inspect prefix.h5 --json
keys kind features tensors name shape dtype
has out '^{"kind":"prefix","features":[[][]],'
run 0 inspect prefix.h5
has out '^prefix.h5: prefix$'
has out '^  prefix/past_key_values  \[2, 2, 1, 2, 4, 8\]  f32 .*(layer, key_value, batch, head, position, head_dim)$'
has out '^ *1  value  '
has out '^  run_hash '
run 0 inspect prefix.h5 --diffable
mv out first
run 0 inspect again_prefix.h5 --diffable
same first out
has out '^prefix$'
run 0 inspect prefix.h5 --diffable --json
keys kind tensors
grep -q bytes out && fail '--diffable --json shows sizes'
run 0 inspect run.h5
has out '^run.h5: run$'
has out '^  encoder/transform.2.weight  '
has out '^  best_step '
run 0 inspect model
has out '^model: hf$'

# the live encoder, the file, and validation in training give the same result
evaluate() {
    run 0 eval --base model --data valid.jsonl --precision f32 --threads 2 --json "$@"
}
evaluate --prefix prefix.h5
keys loss perplexity label_tokens examples
loss=$(value loss)
[ "$loss" = "$best" ] || fail "eval says $loss, train said $best"
evaluate --prefix run.h5
[ "$(value loss)" = "$loss" ] || fail "run file: $(value loss), prefix file: $loss"
evaluate --prefix prefix.h5 --prefix prefix.h5
twice=$(value loss)
awk "BEGIN { exit !($twice - $loss < 1e-5 && $loss - $twice < 1e-5) }" ||
    fail "averaged with itself: $twice, not $loss"
evaluate
bare=$(value loss)
[ "$bare" != "$loss" ] || fail 'the prefix changes nothing'
[ "$(value examples)" = 6 ] || fail "examples: $(value examples)"
evaluate --overlong skip --max-length 12
[ "$(value skipped)" = 4 ] || fail "skipped: $(value skipped)"
run 0 eval --base model --data valid.jsonl
has out '^loss [0-9.]*, perplexity [0-9.]*$'

generate() {
    run 0 generate --base model --threads 2 --precision f32 --max-tokens 12 "$@"
}
generate --prompt 'after 3:' --prefix prefix.h5 --json
keys text
text=$(value text)
generate --prompt 'after 3:' --prefix run.h5 --json
[ "$(value text)" = "$text" ] || fail 'run file and prefix file generate different texts'
generate --prompt 'after 3:' --temperature 1 --top-k 20 --top-p 0.9 --seed 5
mv out first
generate --prompt 'after 3:' --temperature 1 --top-k 20 --top-p 0.9 --seed 5
same first out
generate --prompt 'after 3:' --temperature 1 --seed 6 --json
drawn=$(value text)
generate --prompt 'after 3:' --temperature 1 --seed 7 --json
[ "$(value text)" != "$drawn" ] || fail 'the seed changes nothing'
generate --data valid.jsonl --json
keys texts
generate --data valid.jsonl --batch-size 2
has out '^==> 6 <==$'

run 0 export prefix.h5 --out peft --json
keys out format
has peft/adapter_config.json '"peft_type": *"PREFIX_TUNING"'
run 0 import peft --out imported.h5 --base model --json
keys out kind
evaluate --prefix imported.h5
[ "$(value loss)" = "$loss" ] || fail "after export and import: $(value loss), not $loss"
run 0 import peft --out unnamed.h5
run 1 eval --base model --data valid.jsonl --prefix unnamed.h5
evaluate --prefix unnamed.h5 --allow-other-base
[ "$(value loss)" = "$loss" ] || fail "imported without a base: $(value loss), not $loss"
run 0 export run.h5 --format safetensors --out kv.safetensors
run 0 inspect kv.safetensors
has out '^  past_key_values  \[2, 2, 1, 2, 4, 8\]  f32'

# a direct prefix gives the same kind of file
train 0 --out direct.h5 --method direct --steps 2
run 0 merge direct.h5 --out direct_prefix.h5
evaluate --prefix direct_prefix.h5

# threads wait passively, unless the environment sets another policy
OMP_DISPLAY_ENV=true
export OMP_DISPLAY_ENV
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
run 0 inspect prefix.h5
has err "OMP_WAIT_POLICY *= *'PASSIVE'"
OMP_WAIT_POLICY=active
export OMP_WAIT_POLICY
run 0 inspect prefix.h5
has err "OMP_WAIT_POLICY *= *'ACTIVE'"
grep -q PASSIVE err && fail 'the policy that was set is changed'
