# distill: a document becomes a prefix; the run folds like any other.
make_inputs
printf 'abc abd abe xyz xyz abf cab dab eab, zyx.\nabc abc abd zzz yyy xxx abe abf cab.\n' >document.txt
shared="--base model --document document.txt --precision f32 --prefix-length 4 --self-study 8 --answer-tokens 12 --chunk 16 --top-k 8"

# shellcheck disable=SC2086
run 0 distill $shared --steps 6 --out run.h5 --quiet --verbose --threads 2
has out '^document: [0-9]* tokens; [0-9]* training rows, [0-9]* held out; the teacher took '
has out 'initial prefix of --init text, relative error 0.0e+00$'
has out '^held-out loss: [0-9.]* bare, [0-9.]* with the prefix, [0-9.]* with the document (\([0-9-]* % of the way\|which does not lower it\|[123] rows*: too few to judge\))$'
has out '^KL to the base that reads the document: [0-9.]* bare, [0-9.]* with the prefix$'
run 0 merge run.h5 --out prefix.h5
run 0 inspect prefix.h5
has out 'document_tokens'

# shellcheck disable=SC2086
run 0 distill $shared --data train.jsonl --valid valid.jsonl --ffn-length 3 --steps 2 --out rows.h5 --quiet --json --threads 2
err_is
for key in loss_base loss_prefix loss_document kl_base kl_prefix document_tokens held_out_label_tokens teacher_seconds; do
    has out "\"$key\":[0-9]"
done
run 0 merge rows.h5 --out rows-prefix.h5
run 0 eval --base model --data valid.jsonl --prefix rows-prefix.h5 --precision f32 --json --threads 2
loss=$(sed 's/.*"loss":\([0-9.]*\).*/\1/' out)
# shellcheck disable=SC2086
run 0 distill $shared --data train.jsonl --valid valid.jsonl --out rows.h5 --resume --steps 2 --quiet --json --threads 2
has out "\"loss_prefix\":$loss"
has out '"finished_before":true'

# beside other documents
# shellcheck disable=SC2086
run 0 distill $shared --distractor prefix.h5 --distractor run.h5 --steps 4 --out beside.h5 --quiet --threads 2
run 0 inspect beside.h5
has out 'distractors  *2$'
# shellcheck disable=SC2086
run 1 distill $shared --distractor nowhere.txt --out other.h5
has err 'nowhere.txt'

# no steps: the initial run
# shellcheck disable=SC2086
run 0 distill $shared --steps 0 --out start.h5 --quiet --threads 2
has out '^start.h5: 0 steps, '
run 0 merge start.h5 --out start-prefix.h5

# prefixes distilled separately can be composed, with a warning
run 0 compose prefix.h5 start-prefix.h5 --base model --out both.h5
has out '^2 parts are documents, each distilled without the others: '
run 0 compose prefix.h5 start-prefix.h5 --base model --out both.h5 --force --json
has out '"documents":2'
run 0 compose prefix.h5 start-prefix.h5 --base model --mode parallel --out both.h5 --force
out_is "$(sed -n 1p out)" # no warning

# a solved initial prefix: text begins at its position after the document, or after the prefix
# shellcheck disable=SC2086
run 0 distill $shared --init match --steps 0 --out match.h5 --quiet --verbose --threads 2
has out '^prefix solved by attention matching from [0-9]* query tokens '
has out 'initial prefix of --init match, relative error 0.0e+00$'
tokens=$(sed -n 's/^document of \([0-9]*\) tokens.*/\1/p' out)
run 0 merge match.h5 --out match-prefix.h5
run 0 inspect match-prefix.h5
has out "position_start *$tokens"
run 0 generate --base model --prefix match-prefix.h5 --prompt abc --max-tokens 4 --precision f32
# shellcheck disable=SC2086
run 0 distill $shared --init match --position-start P --method mlp --schedule constant --steps 2 --out match.h5 --force --quiet --threads 2
# shellcheck disable=SC2086
run 0 distill $shared --out match.h5 --resume --steps 3 --quiet --threads 2

# with log-weights: the prefix file holds them
# shellcheck disable=SC2086
run 0 distill $shared --init match --log-weight fixed --steps 0 --out weighed.h5 --quiet --threads 2
run 0 merge weighed.h5 --out weighed-prefix.h5
run 0 inspect weighed-prefix.h5
has out 'log_weight'
# shellcheck disable=SC2086
run 2 distill $shared --init match --log-weight fixed --start-mass 1 --steps 0 --out other.h5
has err '^kvfold: distill: --start-mass: not with --init match, '

# shellcheck disable=SC2086
run 2 distill $shared --init match --prefix-length 400 --out other.h5
has err '^kvfold: distill: --prefix-length 400: the document has only [0-9]* tokens; try '
# shellcheck disable=SC2086
run 2 distill $shared --init match --init-from match.h5 --out other.h5
has err '^kvfold: distill: --init-from: not with --init match; try '
printf a >one.txt
run 1 distill --base model --document one.txt --init match --prefix-length 1 --steps 0 --out other.h5
has err '^kvfold: distill: one.txt: 0 training rows, want more: '

# shellcheck disable=SC2086
run 2 distill $shared --out other.h5 --method prompt
has err '^kvfold: distill: --method prompt: .*mlp.*; try '
# shellcheck disable=SC2086
run 2 distill $shared --out document.txt --force
has err '^kvfold: distill: '
run 2 distill --base model --out other.h5
has err '^kvfold: distill: .*document'
: >empty.txt
run 1 distill --base model --document empty.txt --out other.h5
has err '^kvfold: distill: empty.txt: the document is empty$'
[ ! -e other.h5 ] || fail 'an output in spite of an error'

# a system prompt: the base's template without its system turn, in the run and for all readers of
# its prefix
cp -r model chat
cat >chat/chat_template.jinja <<'END'
{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helper<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}
END
echo 'Say xyz.' >system.txt
printf '{"prompt": "abc"}\n{"prompt": "abd"}\n{"messages": [{"role": "user", "content": "xyz"}]}\n' >turns.jsonl
system='--base chat --system-prompt system.txt --precision f32 --threads 2 --prefix-length 4 --answer-tokens 6 --top-k 8 --quiet'
# shellcheck disable=SC2086
run 0 distill $system --data turns.jsonl --steps 2 --out system.h5
has out '^system prompt: [0-9]* tokens; 2 training rows, 1 held out; the teacher took '
has out '^KL to the base that reads the system prompt: [0-9.]* bare, [0-9.]* at the start, [0-9.]* with the prefix$'
# shellcheck disable=SC2086
run 0 distill $system --self-study 6 --valid turns.jsonl --kl reverse --on-policy --ffn-length 3 --steps 2 --json --out system.h5 --force
has out '"kl_start":[0-9]'
run 0 merge system.h5 --out system-prefix.h5
run 0 inspect system-prefix.h5
has out '^  neurons  *3$'
has out 'chat_template.*no-system'
has out 'kl_prefix'
run 0 generate --base chat --prefix system-prefix.h5 --prompt abc --max-tokens 4 --precision f32
run 1 generate --base model --prefix system-prefix.h5 --prompt abc --max-tokens 4 --precision f32 --allow-other-base
has err 'chat template no-system: the base has no chat template$'
echo '{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}' >own.jsonl
# shellcheck disable=SC2086
run 1 distill $system --data own.jsonl --out other.h5
has err 'message 1 is a system turn, but the prefix already replaces the system turn$'
# shellcheck disable=SC2086
run 2 distill $system --document document.txt --out other.h5
has err '^kvfold: distill: --document is for documents, not --system-prompt; try '
# shellcheck disable=SC2086
run 2 distill $shared --on-policy --out other.h5
has err '^kvfold: distill: --on-policy needs --system-prompt; try '
[ ! -e other.h5 ] || fail 'an output in spite of an error'
