# Invalid files and options of tasks: one line with place and reason, and no output file.
# shellcheck disable=SC2086 # options without spaces
"$MAKE_TINY" bert 1 bert || exit 1
"$MAKE_TINY" llama 2 || exit 1
options='--method direct --prefix-length 4 --steps 2 --threads 2 --precision f32 --max-length 64'

printf 'good film\tyes\nbad film\tno\nfine film\tyes\npoor film\tno\n' >two.tsv
printf 'good\ta\nbad\tb\nmid\tc\nfine\ta\npoor\tb\nso\tc\n' >three.tsv
printf 'Ann\tB-PER\nwent\tO\n\nBob\tB-PER\nLee\tI-PER\n' >tags.conll
printf '{"context": "Long ago.", "question": "When?", "answers": ["ago"]}\n' >qa.jsonl
printf '{"prompt": "a", "completion": " b"}\n' >lm.jsonl
: >empty.tsv
mkdir folder.tsv
head -c 3000 "$KVFOLD" >binary.conll

# refuses TASK FILE LINE ARGUMENTS...: training fails with this line
refuses() {
    task=$1
    shift
    file=$1
    shift
    line=$1
    shift
    run 1 train --base bert --task $task --data $file --out x.h5 $options "$@"
    out_is
    err_is "kvfold: train: $line"
    absent x.h5
}

# row TASK NAME TEXT LINE ARGUMENTS...: the same for a file with this text
row() {
    task=$1
    shift
    file=$1
    shift
    printf '%b' "$1" >$file
    shift
    refuses $task $file "$@"
}

refuses seq-cls empty.tsv 'empty.tsv: no rows'
refuses seq-cls folder.tsv 'folder.tsv: is a folder, want a file'
refuses seq-cls none.tsv 'none.tsv: cannot open: No such file or directory'
refuses seq-cls two.tsv 'two.tsv:2: 2 columns, want 3' --columns text,label,more
refuses seq-cls two.tsv 'two.tsv:1: two columns are named "text"' --columns text,text
refuses seq-cls two.tsv 'two.tsv:1: label "yes" is not a number' --regression on
refuses seq-cls two.tsv 'three.tsv:1: label "a" is not one of no, yes, the labels of the training data: list all labels with --labels' \
    --valid three.tsv
row seq-cls x.tsv 'text\tlabel\na\tyes\nb\tno\tmore\n' 'x.tsv:3: 3 columns, want 2'
row seq-cls x.tsv 'text\na\nb\n' \
    'x.tsv:2: "label" is missing; the row has text (map other names with --map)'
row seq-cls x.tsv 'a\tone\nb\tone\n' 'x.tsv: every row has the label "one", want two labels or more'
row seq-cls x.csv 'text,label\n"open,yes\nb,no\n' \
    'x.csv:2: a quoted field that begins in this row has no closing quote'
row seq-cls x.jsonl '{"text": "a", "label": [1]}\n' \
    'x.jsonl:1: the label is a list, or has 256 bytes or more'
row token-cls x.conll 'Ann B-PER\nBob\n' 'x.conll:2: 1 column, want a word and its tag'
row token-cls x.jsonl '{"tokens": ["a", 3], "tags": ["O", "O"]}\n' \
    'x.jsonl:1: token 1 is not a string'
row token-cls x.jsonl '{"tokens": ["a"], "tags": [["O"]]}\n' 'x.jsonl:1: tag 0 is not a valid name'
row qa x.json '{"data": [{"paragraphs": 3}]}' \
    'x.json:1: a document at or after this line has no list "paragraphs"'
row qa x.jsonl '{"context": "abc", "question": "?", "answers": [{"text": "b", "start": -5}]}\n' \
    'x.jsonl:1: answer "b" is not at offset -5 of its context, which has "" there'
row multiple-choice x.jsonl '{"text": "a", "choices": ["x", "y"], "label": 2}\n' \
    'x.jsonl:1: label 2 is not one of the row'"'"'s 2 choices, counted from 0 or A'
row multiple-choice x.jsonl '{"text": "a", "choices": ["x"], "label": 0}\n' \
    'x.jsonl:1: the row needs a list of two or more choices'
run 1 train --base bert --task token-cls --data binary.conll --out x.h5 $options
[ "$(wc -l <err)" -eq 1 ] || fail 'more than a line'
run 2 train --base bert --task seq-cls --data two.tsv --out x.h5 $options --columns ,
has err '^kvfold: train: --columns "," names no column;'
absent x.h5

# ---- runs and prefixes of another task

run 0 train --base bert --task seq-cls --data two.tsv --out run.h5 $options
run 0 train --base bert --task qa --data qa.jsonl --out qa.h5 $options
run 0 train --base llama --task seq-cls --data two.tsv --out causal.h5 $options
cp run.h5 before.h5
run 1 train --base bert --task seq-cls --data three.tsv --out run.h5 $options --resume
err_is 'kvfold: train: three.tsv:1: label "a" is not one of no, yes'
run 2 train --base bert --task qa --data qa.jsonl --out run.h5 $options --resume
has err 'task differs from that of the run'
same before.h5 run.h5
run 1 eval --base bert --prefix run.h5 --data lm.jsonl
has err '^kvfold: eval: lm.jsonl:1: the row needs text, or text and text_pair, and label; the row has prompt, completion'
run 1 predict --base bert --prefix run.h5 --data tags.conll --out y.jsonl
has err '^kvfold: predict: tags.conll:1: the row needs text, or text and text_pair; the row has tokens, tags'
run 1 predict --base bert --prefix run.h5 --data two.tsv --out folder.tsv
err_is 'kvfold: predict: folder.tsv: is a folder, want a file to write'
run 1 merge run.h5 --out x.h5 --base bert --probe lm.jsonl
has err 'lm.jsonl:1: the row needs text, or text and text_pair; the row has prompt, completion'
run 2 eval --base bert --prefix run.h5 --data two.tsv --n-best 4
has err '^kvfold: eval: --n-best is for prefixes of task qa;'
for n in 0 65; do
    run 2 eval --base bert --prefix qa.h5 --data qa.jsonl --n-best $n
    has err "^kvfold: eval: .*--n-best .*$n"
done
run 2 eval --base bert --data two.tsv
has err 'a bert does not predict the next token'
run 2 generate --base bert --prefix run.h5 --prompt x
has err '^kvfold: generate: bert: a bert does not predict the next token;'
run 2 generate --base llama --prefix causal.h5 --prompt x
has err '^kvfold: generate: a prefix of task seq-cls .*`predict`;'
absent x.h5 y.jsonl

# ---- files that the command reads

cp two.tsv before.tsv
ln two.tsv link.tsv
run 2 predict --base bert --prefix run.h5 --data two.tsv --out link.tsv --force
err_is 'kvfold: predict: link.tsv: is read by this command, it will not be replaced; try kvfold predict --help'
run 2 train --base bert --task seq-cls --data two.tsv --out link.tsv $options --force
has err '^kvfold: train: link.tsv: is read by this command'
run 2 predict --base bert --prefix run.h5 --data two.tsv --out run.h5 --force
has err '^kvfold: predict: run.h5: is read by this command'
run 2 merge run.h5 --out ./run.h5 --force
has err '^kvfold: merge: ./run.h5: is read by this command'
same before.tsv two.tsv
same before.h5 run.h5

# ---- eval also cuts rows that training cut

{
    cat two.tsv
    printf 'a b c d e f g h i j k l m n o p q r s t u v w x y z\tyes\n'
} >long.tsv
run 1 train --base bert --task seq-cls --data long.tsv --out cut.h5 $options --max-length 12
has err 'long.tsv:.*at most 12 fit'
run 0 train --base bert --task seq-cls --data long.tsv --out cut.h5 $options --max-length 12 \
    --overlong skip
run 0 eval --base bert --prefix cut.h5 --data long.tsv --json
has out '"skipped":1'
run 0 merge cut.h5 --out cut-prefix.h5
run 0 eval --base bert --prefix cut-prefix.h5 --data long.tsv --json
has out '"skipped":1'
run 1 eval --base bert --prefix cut.h5 --data long.tsv --overlong stop
has err 'long.tsv:.*at most 12 fit'

# ---- bytes that are not UTF-8: named, never read as U+FFFD

row seq-cls x.tsv 'good\tyes\ncaf\0351\tno\n' 'x.tsv:2: byte 4 of the line is 0xE9, want UTF-8'
row token-cls x.conll 'Ann B-PER\n\nZ\0374rich B-LOC\n' \
    'x.conll:3: byte 2 of the line is 0xFC, want UTF-8'
latin=$(printf 'ol\351')
run 1 generate --base llama --prompt "$latin"
err_is 'kvfold: generate: --prompt: byte 3 is 0xE9, want UTF-8'
run 1 train --base llama --data lm.jsonl --init text --init-text "$latin" --out x.h5 $options
err_is 'kvfold: train: --init-text: byte 3 is 0xE9, want UTF-8'
absent x.h5
printf 'yes\nn\303\n' >latin.txt
refuses seq-cls two.tsv 'latin.txt:2: byte 2 of the line is 0xC3, want UTF-8' --labels @latin.txt
refuses seq-cls two.tsv '--labels: byte 10 is 0xE9, want UTF-8' --labels "no,yes,$latin"
