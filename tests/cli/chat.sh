# Chat templates. Rows rendered by a template (--chat-template rendered) give the same results as
# their messages, from training to generation. Also tests dates in templates, and unknown templates.
make_inputs
how='--precision f32 --threads 2'

# loss FILE ARGUMENTS...: loss and number of labels, into measured
loss() {
    file=$1
    shift
    run 0 eval --base model --data "$file" --precision f32 --threads 2 --json "$@"
    sed 's/,"seconds":[^,}]*//' out >measured
}

# ---- rendered

printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' >talk.jsonl
printf '{"prompt": "<|im_start|>user<|im_sep|>a<|im_end|><|im_start|>assistant<|im_sep|>", "completion": "b<|im_end|>"}\n' >rendered.jsonl
loss talk.jsonl --chat-template phi4
cp measured talk.measured
loss rendered.jsonl --chat-template rendered
same talk.measured measured
loss rendered.jsonl # with BOS and EOS
if cmp -s talk.measured measured; then fail 'rendered adds nothing'; fi
printf '{"text": "ab", "messages": []}\n' >text.jsonl
loss text.jsonl --chat-template rendered
has measured '"label_tokens":1[,}]'

# shellcheck disable=SC2086 # options without spaces
run 0 train --base model --data rendered.jsonl --out run.h5 --chat-template rendered --steps 3 --prefix-length 2 $how --quiet
run 0 inspect run.h5
has out 'rendered'
run 0 merge run.h5 --base model --out prefix.h5
loss rendered.jsonl --prefix run.h5
cp measured live.measured
loss rendered.jsonl --prefix prefix.h5
same live.measured measured
loss talk.jsonl --prefix prefix.h5 --chat-template phi4
same live.measured measured
# shellcheck disable=SC2086
run 0 generate --base model --prefix prefix.h5 --prompt '<|im_start|>user<|im_sep|>a<|im_end|><|im_start|>assistant<|im_sep|>' --max-tokens 4 $how
cp out answer
# shellcheck disable=SC2086
run 0 generate --base model --prefix prefix.h5 --prompt a --chat-template phi4 --max-tokens 4 $how
same answer out

run 1 eval --base model --data talk.jsonl --chat-template rendered
err_is 'kvfold: eval: talk.jsonl:1: none of the fields prompt, text, input_ids; the row has messages (map other names with --map)'
run 2 eval --base model --data talk.jsonl --chat-template alpaca
has err 'want auto|none|rendered|chatml'
printf 'A text to learn from, long enough.\n' >doc.txt
run 2 distill --base model --document doc.txt --out d.h5 --chat-template rendered --self-study 2
has err 'rendered is only for rows of --data'

# ---- dates

cp -r model dated
cat >dated/chat_template.jinja <<'END'
{{- bos_token }}{%- if not date_string is defined %}{%- if strftime_now is defined %}
{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
{%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- elif 'tool_calls' in message %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- else %}{{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}{#- and that of tools: <|start_header_id|> #}
{{- '<|start_header_id|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
END
dated_loss() {
    run 0 eval --base dated --data talk.jsonl --precision f32 --threads 2 --json "$@"
    sed 's/,"seconds":[^,}]*//' out >measured
}
dated_loss
cp measured july
dated_loss --chat-template 'auto:26 Jul 2024'
same july measured
dated_loss --chat-template 'llama3:01 Jan 2025'
cp measured january
if cmp -s july january; then fail 'a date is printed'; fi
# shellcheck disable=SC2086
run 0 train --base dated --data talk.jsonl --out dated.h5 --chat-template 'auto:01 Jan 2025' --method direct --steps 1 --prefix-length 1 $how --quiet
run 0 inspect dated.h5
has out 'auto:01 Jan 2025'
dated_loss --prefix dated.h5
cp measured stored
dated_loss --prefix dated.h5 --chat-template 'auto:01 Jan 2025'
same stored measured
dated_loss --prefix dated.h5 --chat-template auto
if cmp -s stored measured; then fail 'the date is stored'; fi
sed 's/26 Jul 2024/27 Jul 2024/' dated/chat_template.jinja >other.jinja
cp -r dated another && cp other.jinja another/chat_template.jinja
run 1 eval --base another --prefix dated.h5 --data talk.jsonl
has err 'the prefix is for base dated'
run 2 eval --base model --data talk.jsonl --chat-template 'chatml:26 Jul 2024'
has err 'prints no date'

# ---- an unknown template

cp -r model strange
printf '{%% for m in messages %%}[{{ m.role }}] {{ m.content }}\n{%% endfor %%}' >strange/chat_template.jinja
run 1 eval --base strange --data talk.jsonl
has err 'the chat template is none that is known; its first line: {% for m in messages %}'
has err 'python3 -c .import json, sys, transformers; t = transformers.AutoTokenizer.from_pretrained'
has err 'BASE <rows.jsonl >rendered.jsonl, and give these with --chat-template rendered$'
[ "$(wc -l <err)" -eq 1 ] || fail 'more than a line'
run 0 eval --base strange --data rendered.jsonl --chat-template rendered --threads 2

# ---- the form of the rows is stored, and prompts follow it

cp -r model chatty
cat >chatty/chat_template.jinja <<'END'
{% for message in messages %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}
END
printf '{"prompt": "a", "completion": "b"}\n' >pairs.jsonl
# shellcheck disable=SC2086
run 0 train --base chatty --data talk.jsonl --valid pairs.jsonl --out talk.h5 --method direct --steps 1 --prefix-length 2 $how --json
valid=$(value valid_loss)
run 0 merge talk.h5 --out talk_prefix.h5
for file in talk.h5 talk_prefix.h5; do
    run 0 inspect $file
    has out '^  row_form  *chat$'
    has out '^  example_prompt  *a$'
done
pairs() {
    run 0 eval --base chatty --prefix talk_prefix.h5 --data pairs.jsonl --precision f32 --threads 2 --json "$@"
    value loss
}
[ "$(pairs)" = "$valid" ] || fail "a pair: $(pairs), of training $valid"
[ "$(pairs --chat-template chatml)" = "$valid" ] || fail 'a pair is no chat'
[ "$(pairs --chat-template auto)" != "$valid" ] || fail 'auto is not obeyed'
answer() {
    # shellcheck disable=SC2086
    run 0 generate --base chatty --prefix talk_prefix.h5 $how --max-tokens 4 --json "$@"
    sed 's/,"prompt_tokens.*//; s/.*text/text/; s/s":\[\(.*\)\]/":\1/' out >answer
}
answer --prompt a --chat-template chatml
cp answer want_answer
answer --prompt a
same want_answer answer
answer --data pairs.jsonl
same want_answer answer
answer --prompt a --chat-template none
if cmp -s want_answer answer; then fail 'a plain prompt'; fi
cp answer want_answer
answer --prompt a --chat-template auto
same want_answer answer

# pairs, text cut into rows, rows of both, a named template
form() {
    # shellcheck disable=SC2086
    run 0 train --base chatty --out form.h5 --force --method direct --steps 1 --prefix-length 1 $how --quiet "$@"
    run 0 inspect form.h5
    sed -n 's/^  row_form  *//p; s/^  example_prompt  */: /p' out | tr -d '\n' >form
}
form --data pairs.jsonl
[ "$(cat form)" = 'pairs: a' ] || fail "pairs: $(cat form)"
form --data doc.txt --split-text 8
[ "$(cat form)" = 'text: A text to learn' ] || fail "text: $(cat form)"
form --data pairs.jsonl --chat-template chatml
[ "$(cat form)" = 'chat: a' ] || fail "a named template: $(cat form)"
cat talk.jsonl pairs.jsonl >both.jsonl
form --data both.jsonl
[ -z "$(cat form)" ] || fail "both: $(cat form)"
# shellcheck disable=SC2086
run 0 generate --base chatty --prefix form.h5 --prompt a --max-tokens 2 $how
cp out answer
# shellcheck disable=SC2086
run 0 generate --base chatty --prefix form.h5 --prompt a --max-tokens 2 --chat-template auto $how
same answer out

# ---- the server: a chat like generate's, a prompt as plain text, the form for its page

. "$SOURCE/tests/cli/server.sh"
base=chatty
serve_on --prefix talk=talk_prefix.h5 --prefix both=form.h5
if [ "$port" = 0 ]; then
    wait "$pid"
    grep -q 'built without libmicrohttpd' err || fail "no server: $(cat err)"
    skip 'the server: built without libmicrohttpd'
else
    has err 'talk: trained on chats: ask it at /v1/chat/completions; a prompt at /v1/completions is plain text$'
    grep -q both: err && fail "$(cat err)"
    asked='"model": "talk", "max_tokens": 4, "temperature": 0'
    if post /v1/chat/completions "{$asked, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"; then
        sed -n 's/.*"content": *\("\([^"\\]\|\\.\)*"\).*/text":\1/p' answer >chat_answer
        post /v1/completions "{$asked, \"prompt\": \"a\"}"
        sed -n 's/.*"text": *\("\([^"\\]\|\\.\)*"\).*/text":\1/p' answer >plain_answer
    fi
    if command -v curl >/dev/null; then
        curl -s --noproxy '*' "http://127.0.0.1:$port/v1/models" >models
        has models '"row_form":"chat","example_prompt":"a"'
        [ "$(grep -o row_form models | wc -l)" = 1 ] || fail "$(cat models)"
    fi
    end TERM 143
    if [ -e plain_answer ]; then
        answer --prompt a
        same chat_answer answer
        answer --prompt a --chat-template auto
        same plain_answer answer
    fi
fi

# ---- --interactive: plain lines one by one, the turns of a chat, signals

use="--base chatty $how --max-tokens 4"
talk() {
    file=$1
    shift
    # shellcheck disable=SC2086
    "$KVFOLD" generate $use --interactive "$@" <"$file" >out 2>err
    code=$?
}
printf 'a\n\nb c\r\na' >lines
: >want
for line in a 'b c' a; do
    # shellcheck disable=SC2086
    run 0 generate $use --prefix form.h5 --prompt "$line"
    cat out >>want
done
talk lines --prefix form.h5
[ $code -eq 0 ] || fail "status $code: $(cat err)"
same want out
[ -s err ] && fail "piped: $(cat err)"

answer --prompt a
printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": %s}, {"role": "user", "content": "b c"}]}\n' \
    "$(sed 's/^text"://' answer)" >turns.jsonl
# shellcheck disable=SC2086
run 0 generate $use --prefix talk_prefix.h5 --prompt a
cp out want
# shellcheck disable=SC2086
run 0 generate $use --prefix talk_prefix.h5 --data turns.jsonl
sed 1d out >>want
printf 'a\nb c\n' >lines
talk lines --prefix talk_prefix.h5
same want out
talk lines --prefix talk_prefix.h5 --chat-template auto
if cmp -s want out; then fail 'auto is not obeyed'; fi

# a chat that no longer fits begins anew
for i in 1 2 3 4 5 6 7 8; do printf '%0100d\n' $i; done >lines
talk lines --prefix talk_prefix.h5
[ $code -eq 0 ] || fail "status $code: $(cat err)"
has err '^kvfold: generate: prompt 1 has [0-9]* tokens, more than the .*: the chat begins anew$'
[ "$(wc -l <out)" -ge 8 ] || fail "$(cat out)"

for bad in 'a\0b\n' 'a\377b\n'; do
    # shellcheck disable=SC2059
    printf "$bad" >lines
    talk lines
    [ $code -eq 1 ] || fail "$bad: status $code"
    [ "$(wc -l <err)" -eq 1 ] || fail "$bad: $(cat err)"
done
head -c 1048577 /dev/zero | tr '\0' a >lines
talk lines
[ $code -eq 1 ] || fail "a long line: status $code"
has err 'a line is longer than 1 MiB'
yes a | tr -d '\n' | head -c 1048577 >lines
talk lines
err_is 'kvfold: generate: standard input: a line is longer than 1 MiB or holds a zero byte'
for other in '--prompt a' '--data talk.jsonl' --json; do
    # shellcheck disable=SC2086
    run 2 generate $use --interactive $other
    has err 'interactive excludes --prompt, --data and --json'
done

# while it waits for a line SIGINT ends it
mkfifo pipe
# shellcheck disable=SC2086
env --default-signal=INT "$KVFOLD" generate $use --interactive <pipe >out 2>err &
pid=$!
exec 9>pipe
printf 'a\n' >&9
tries=0
until [ -s out ] || [ $tries -ge 200 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
sleep 0.3
end INT 130
exec 9>&-
