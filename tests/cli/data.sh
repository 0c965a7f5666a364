# Common data formats: arrays, gzip, Alpaca, ShareGPT, plain text, the first rows, a share for
# validation, chosen rows. Each file gives the rows of its JSONL version, hence the same loss to the
# last digit.
# shellcheck disable=SC2086 # options without spaces
make_inputs

# loss_of FILE ARGUMENTS...: loss and number of labels, into measured
loss_of() {
    file=$1
    shift
    run 0 eval --base model --data "$file" --precision f32 --threads 2 --json "$@"
    sed 's/,"seconds":[^,}]*//' out >measured
}

# same_rows A B ARGUMENTS...
same_rows() {
    first=$1
    second=$2
    shift 2
    loss_of "$first" "$@"
    cp measured first.measured
    loss_of "$second" "$@"
    same first.measured measured
}

# ---- arrays, gzip

{
    printf '[\n'
    sed '$!s/$/,/' train.jsonl
    printf ']\n'
} >train.json
same_rows train.jsonl train.json
gzip -c train.jsonl >train.jsonl.gz
same_rows train.jsonl train.jsonl.gz
gzip -c train.json >array # told by content, not by name
same_rows train.jsonl array
{
    head -n 10 train.jsonl | gzip -c
    tail -n +11 train.jsonl | gzip -c
} >members.gz
same_rows train.jsonl members.gz
sed 's/{"prompt": "\(.*\)", "completion": "\(.*\)"}/"\1","\2"/' train.jsonl >bare.csv
{ echo prompt,completion; cat bare.csv; } | gzip -c >train.csv.gz
same_rows train.jsonl train.csv.gz

size=$(wc -c <train.jsonl.gz)
head -c $((size - 9)) train.jsonl.gz >cut.gz
run 1 eval --base model --data cut.gz
has err '^kvfold: eval: cut.gz: the gzip data is damaged at byte [0-9]*: it ends too early$'
{ head -c 40 train.jsonl.gz; head -c 40 /dev/zero; tail -c +81 train.jsonl.gz; } >holes.gz
run 1 eval --base model --data holes.gz
has err '^kvfold: eval: holes.gz: the gzip data is damaged at byte'
[ "$(wc -l <err)" -eq 1 ] || fail 'more than a line'
printf '[{"prompt": "a", "completion": "b"},\n {"prompt": "a" "b"}]\n' >bad.json
run 1 eval --base model --data bad.json
has err '^kvfold: eval: bad.json:2: '
printf 'PAR1.....PAR1' >my.parquet
run 1 train --base model --data my.parquet --out x.h5
err_is "kvfold: train: my.parquet: is Parquet; convert it: python3 -c \"import pandas; pandas.read_parquet('my.parquet').to_json('my.jsonl', orient='records', lines=True)\""

# ---- Alpaca: a chat if there is a template, else its own prompt format

printf '[{"instruction": "Add.", "input": "1 2", "output": "3"}, {"instruction": "Go", "input": "", "output": "on", "text": "x"}]' >alpaca.json
printf '{"messages": [{"role": "user", "content": "Add.\\n\\n1 2"}, {"role": "assistant", "content": "3"}]}\n{"messages": [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "on"}]}\n' >talk.jsonl
same_rows alpaca.json talk.jsonl --chat-template chatml
task='Below is an instruction that describes a task'
asks='Write a response that appropriately completes the request.\n\n### Instruction:\n'
printf '{"prompt": "%s, paired with an input that provides further context. %sAdd.\\n\\n### Input:\\n1 2\\n\\n### Response:", "completion": "3"}\n{"prompt": "%s. %sGo\\n\\n### Response:", "completion": "on"}\n' \
    "$task" "$(printf '%s' "$asks")" "$task" "$asks" >plain.jsonl
same_rows alpaca.json plain.jsonl
run 0 generate --base model --data alpaca.json --max-tokens 2 --threads 2 --json
run 0 eval --base model --data alpaca.json --generate 2 --precision f32 --threads 2 --json
has out '"bleu":[0-9.e-]*,"rouge_l"'
printf '{"instruction": "Go", "output": 3}\n' >bad.jsonl
run 1 eval --base model --data bad.jsonl
err_is 'kvfold: eval: bad.jsonl:1: "output" is not a string; the row has instruction, output (map other names with --map)'

# ---- ShareGPT

printf '[{"id": "x", "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}]' >share.json
printf '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' >talk.jsonl
same_rows share.json talk.jsonl --chat-template chatml
run 1 eval --base model --data share.json
has err 'share.json:1: "conversations" needs a chat template'
printf '{"conversations": [{"from": "tool", "value": "a"}]}\n' >bad.jsonl
run 1 eval --base model --data bad.jsonl --chat-template chatml
err_is 'kvfold: eval: bad.jsonl:1: conversations[0]: from "tool", want human, gpt or system'

# ---- foreign field names: by path, and the message for a missing column

printf '{"translation": {"en": "a", "de": " b"}, "n": 1}\n' >nested.jsonl
printf '{"prompt": "a", "completion": " b"}\n' >flat.jsonl
loss_of nested.jsonl --map prompt=translation.en,completion=translation.de
cp measured first.measured
loss_of flat.jsonl
same first.measured measured
run 1 eval --base model --data flat.jsonl --map completion=answer
err_is 'kvfold: eval: flat.jsonl:1: "completion" is missing; the row has prompt, completion; it has no "answer", which --map names for completion'

# the prefix keeps the run's map; kvfold's own names are read as well
run 0 train --base model --data nested.jsonl --map prompt=translation.en,completion=translation.de --out mapped.h5 --method direct --prefix-length 2 --steps 1 --threads 2 --precision f32
run 0 merge mapped.h5 --out mapped_prefix.h5
loss_of nested.jsonl --prefix mapped.h5 --map prompt=translation.en,completion=translation.de
cp measured first.measured
for held in mapped.h5 mapped_prefix.h5; do
    for rows in nested flat; do
        loss_of $rows.jsonl --prefix $held
        same first.measured measured
    done
done
run 1 eval --base model --prefix mapped.h5 --data nested.jsonl --map prompt=n
has err 'nested.jsonl:1: "prompt" is not a string; the row has translation.en, translation.de, n'
printf '{"translation": {"en": "a"}}\n' >half.jsonl
run 1 eval --base model --prefix mapped.h5 --data half.jsonl
has err '"completion" is missing; the row has translation.en; it has no "translation.de", which the run'"'"'s --map names for completion'
run 0 generate --base model --prefix mapped.h5 --data nested.jsonl --max-tokens 1 --threads 2
run 0 report mapped.h5 --base model --data nested.jsonl --out page.html

# ---- errors of a template name the row

printf '{"messages": [{"role": "user", "content": "a"}]}\n{"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "a"}]}\n' >bad.jsonl
run 1 eval --base model --data bad.jsonl --chat-template gemma
has err '^kvfold: eval: bad.jsonl:2: message 2 has role "tool"'

# ---- the first rows

head -n 7 train.jsonl >seven.jsonl
loss_of seven.jsonl
cp measured first.measured
loss_of train.json --limit 7
same first.measured measured
train 0 --limit 7 --steps 2 --out seven.h5 --json
[ "$(value examples)" = 7 ] || fail "$(cat out)"
train 2 --limit 8 --steps 3 --out seven.h5 --resume
has err 'seven.h5: --limit differs from that of the run'

# ---- plain text

for i in 1 2 3 4 5 6 7 8 9; do echo "Line $i of the text."; done >book.txt
gzip -c book.txt >book.txt.gz
same_rows book.txt book.txt.gz --split-text 16
tokens=$(value label_tokens)
rows=$(value examples)
[ $((tokens + rows)) -gt $((16 * (rows - 1))) ] || fail "$rows rows with $tokens labels"
[ $((tokens + rows)) -le $((16 * rows)) ] || fail "$rows rows with $tokens labels"
run 0 train --base model --data book.txt --split-text 16 --method direct --prefix-length 4 --steps 2 \
    --schedule constant --out book.h5 --threads 2 --precision f32 --quiet
run 0 train --base model --data book.txt --method direct --prefix-length 4 --steps 3 --out book.h5 \
    --schedule constant \
    --threads 2 --precision f32 --resume --quiet
run 1 eval --base model --data book.txt
has err 'book.txt:1: cannot tell the format from name or content.*--split-text N'
{ cat book.txt; printf '</s>'; } >ended.txt # a text that ends in EOS gets no second one
for text in book.txt ended.txt; do
    run 0 eval --base model --data $text --split-text 16 --json
    value label_tokens
done >counts
[ "$(uniq counts | wc -l)" = 1 ] || fail "EOS behind EOS: $(cat counts)"
run 2 eval --base model --data train.jsonl --split-text 16
has err 'train.jsonl:1: looks like jsonl, but --split-text is for plain text'
run 2 eval --base model --data book.txt --split-text 16 --format csv
has err 'split-text is for plain text, not --format csv'
run 2 eval --base model --data book.txt --format text
has err 'book.txt: plain text needs --split-text N'
run 2 train --base model --task seq-cls --data book.txt --split-text 16 --out x.h5
has err 'split-text is for --task lm'

# ---- a share for validation

split='--valid-split 0.25 --schedule constant --schedule-steps 4 --eval-every 2 --json'
train 0 $split --steps 4 --out whole.h5
[ "$(value examples)" = 18 ] || fail "$(cat out)"
valid=$(value valid_loss)
[ "$valid" != null ] || fail 'no validation'
run 0 inspect whole.h5 --json
has out '"valid-split":0.25'
has out '"valid_examples":6'
train 0 $split --steps 2 --out parts.h5
train 0 $split --steps 4 --out parts.h5 --resume
same whole.h5 parts.h5
cp parts.h5 before.h5
train 0 $split --steps 4 --out seed.h5 --seed 5
[ "$(value valid_loss)" != "$valid" ] || fail 'another seed draws the same rows'
train 2 --valid-split 0.5 --steps 5 --out parts.h5 --resume
has err 'parts.h5: --valid-split differs from that of the run'
sed 's/after 3:/after 4:/' train.jsonl >changed.jsonl
train 1 $split --data changed.jsonl --steps 5 --out parts.h5 --resume
has err 'parts.h5: the run was created with a different data file'
same before.h5 parts.h5
train 2 --valid-split 0.25 --valid valid.jsonl --steps 2 --out x.h5
has err 'valid-split: not with --valid'
train 2 --valid-split 1 --steps 2 --out x.h5
has err 'valid-split "1": want a number from 0 to below 1'
absent x.h5
"$MAKE_TINY" bert 1 bert || exit 1
for i in 1 2 3 4 5 6 7 8; do printf 'good film %d\tyes\nbad film %d\tno\n' $i $i; done >classes.tsv
run 0 train --base bert --task seq-cls --data classes.tsv --valid-split 0.25 --steps 4 --early-stop 2 \
    --method direct --prefix-length 4 --out classes.h5 --precision f32 --threads 2 --json
[ "$(value examples)" = 12 ] || fail "$(cat out)"
has out '"best_metric":"accuracy"'

# the columns are those of both parts
sed 's/\t/;/' classes.tsv >split.csv
run 0 train --base bert --task seq-cls --data split.csv --no-header --delimiter ';' --valid-split 0.25 --steps 1 \
    --method head --out columns.h5 --threads 2 --json
[ "$(value examples)" = 12 ] || fail "$(cat out)"

# ---- chosen rows: the same for any number of threads, resumed to the bit, and stored with the run

rows='--rows 10 --valid-split 0.25 --schedule constant --schedule-steps 4 --json'
train 0 $rows --steps 4 --out chosen.h5
[ "$(value examples)" = 10 ] || fail "$(cat out)"
run 0 inspect chosen.h5 --json
has out '"rows":10'
has out '"valid_examples":6'
train 0 $rows --steps 2 --out half.h5
train 0 $rows --steps 4 --out half.h5 --resume
same chosen.h5 half.h5
train 2 --rows 11 --steps 5 --out half.h5 --resume
has err 'half.h5: --rows differs from that of the run'
train 0 $rows --steps 4 --seed 5 --out other.h5
cmp -s chosen.h5 other.h5 && fail 'another seed chooses the same rows'
train 0 --rows 24 --steps 2 --out all.h5 --json
[ "$(value examples)" = 24 ] || fail "$(cat out)"
train 2 --rows 25 --steps 2 --out x.h5
err_is 'kvfold: train: train.jsonl: --rows 25: there are 24 rows to train on; try kvfold train --help'
train 2 --rows 19 --valid-split 0.25 --steps 2 --out x.h5
has err 'train.jsonl: --rows 19: there are 18 rows to train on'
train 2 --rows x --steps 2 --out x.h5
has err 'rows "x": want a whole number'
absent x.h5
cls='--base bert --task seq-cls --data classes.tsv --method head --steps 2 --force'
run 0 train $cls --rows 5 --out few.h5 --threads 1
has out '^classes.tsv: no 3, yes 2; the largest of 2 classes has 60.0 %$\|^classes.tsv: no 2, yes 3;'
for threads in 1 2; do
    run 0 train $cls --rows 5 --out few.h5 --threads $threads --json
    value train_loss
done | uniq >losses
[ "$(wc -l <losses)" -eq 1 ] || fail "the threads change the rows: $(cat losses)"
run 2 train $cls --rows 1 --out few.h5
has err 'classes.tsv: --rows 1: want a row of each of the 2 classes'
# several tasks: so many rows of each
run 0 train --base bert --task seq-cls --data a=classes.tsv --data b=classes.tsv --rows 4 --steps 2 --method direct \
    --prefix-length 2 --out several.h5 --json
[ "$(value examples)" = 8 ] || fail "$(cat out)"

# ---- the first row as read, with the tokens that carry loss in brackets

printf '{"messages": [{"role": "user", "content": "a\\tb"}, {"role": "assistant", "content": "c\\u001b[1m"}]}\n' >first.jsonl
run 0 train --base model --data first.jsonl --chat-template chatml --out first.h5 --dry-run
has out "^first row as chatml: .*user\\\\na\\\\tb.*assistant\\\\n⟦c\\\\u001b\[1m"
