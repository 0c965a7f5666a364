# Classes and tags: listed if the training data lacks some, and scored one by one.
"$MAKE_TINY" bert 1 bert || exit 1
printf 'text\tlabel\n' >train.tsv
for i in 1 2 3 4 5 6; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i >>train.tsv
    printf 'Ann\tB-PER\nwent\tO\nto\tO\nRome%d\tB-LOC\n\n' $i >>train.conll
done
printf 'text\tlabel\ngood film\tyes\nso so\tmaybe\n' >valid.tsv
printf 'Ann\tB-PER\nLee\tI-PER\nwent\tO\n\n' >valid.conll
train() {
    want=$1
    shift
    run "$want" train --base bert --method direct --prefix-length 2 --threads 1 --precision f32 --steps 4 \
        --schedule constant --schedule-steps 9 --batch-size 4 --force --out run.h5 "$@"
}
tags='--task token-cls --data train.conll --valid valid.conll'
classes='--task seq-cls --data train.tsv --valid valid.tsv'

# the score of always giving the largest class or tag
printf 'text\tlabel\ngood film\tyes\nbad film\tno\nbad one\tno\n' >known.tsv
{ cat train.tsv && printf 'bad old film\tno\n'; } >more.tsv
train 0 --task seq-cls --data more.tsv --valid known.tsv
has out '^always the largest class 0.6667, best accuracy '
printf 'Ann\tB-PER\nwent\tO\n\n' >known.conll
train 0 --task token-cls --data train.conll --valid known.conll --json
has out '"largest_class":0.0'

# a label that only validation has: the message names it and the remedy
# shellcheck disable=SC2086 # words
train 1 $classes
err_is 'kvfold: train: valid.tsv:3: label "maybe" is not one of no, yes, the labels of the training data: list all labels with --labels'
# shellcheck disable=SC2086
train 1 $tags
has err '^kvfold: train: valid.conll:2: label "I-PER" is not one of .* list all labels with --labels$'

# listed: in the given order, by a list or a file
# shellcheck disable=SC2086
train 0 $classes --labels yes,maybe,no --json
run 0 eval --base bert --prefix run.h5 --data valid.tsv --per-class --json
has out '"classes":{"yes":{.*"maybe":{.*"no":{'
# shellcheck disable=SC2086
train 0 $classes --labels yes,maybe,no --resume --steps 6
# shellcheck disable=SC2086
train 0 $classes --resume --steps 8
# shellcheck disable=SC2086
train 2 $classes --labels yes,no,maybe --resume --steps 9
has err 'run.h5: --labels differ from those of the run; --resume cannot change them'
printf 'yes\r\nmaybe\n\nno' >names
# shellcheck disable=SC2086
train 0 $classes --labels yes,maybe,no
mv run.h5 list.h5
# shellcheck disable=SC2086
train 0 $classes --labels @names
run 0 diff run.h5 list.h5
printf 'B-PER\nI-PER\nB-LOC\nO\n' >tags
# shellcheck disable=SC2086
train 0 $tags --labels @tags
mv run.h5 tags.h5

# listed in the order of the data: the same file
# shellcheck disable=SC2086
train 0 --task seq-cls --data train.tsv
mv run.h5 learnt.h5
train 0 --task seq-cls --data train.tsv --labels no,yes
run 0 diff run.h5 learnt.h5

# several tasks, each with its own
both='--data mood=train.tsv --data names=train.conll --task mood=seq-cls --task names=token-cls --valid mood=valid.tsv'
# shellcheck disable=SC2086
train 1 $both
has err '"maybe" is not one of .* list all labels with --labels$'
# shellcheck disable=SC2086
train 0 $both --labels mood=yes,maybe,no
# shellcheck disable=SC2086
train 0 $both --resume --steps 6 # whose labels are those of the run
run 0 eval --base bert --prefix run.h5 --head mood --data valid.tsv --per-class --json
has out '"classes":{"yes":{.*"maybe":{.*"no":{'
# shellcheck disable=SC2086
train 2 $both --labels yes,maybe,no
has err 'labels: with --data NAME=FILE every list needs the name of its task'
train 2 --task seq-cls --data train.tsv --labels mood=yes,no
has err 'need --data NAME=FILE'

# sizes of classes, rare ones with their place, and rows without a label
printf 'text\tlabel\na\tno\nb\tyes\nc\t-\nd\tyes \ne\tno\nf\tno\ng\tyes\nh\tyess\n' >sizes.tsv
train 0 --task seq-cls --data sizes.tsv --dry-run
has out '^sizes.tsv: no 3, yes 3, yess 1; the largest of 3 classes has 42.9 %$'
has out '^warning: yess: 1 row, sizes.tsv:9$'
has out '^sizes.tsv:4: label "-" means no label: 1 row left out (list it in --labels if it is a class)$'
printf '{"tokens": ["Ann", "went"], "tags": [1, 0]}\n' >numbers.jsonl
train 0 --task token-cls --data numbers.jsonl --valid numbers.jsonl
has out '^numbers.jsonl: no tag has a type such as B-PER'
train 0 --task token-cls --data numbers.jsonl --valid numbers.jsonl --labels O,B-PER
has out '^numbers.jsonl: labels are numbers: 0 is O, 1 is B-PER, ...$'
run 0 eval --base bert --prefix run.h5 --data numbers.jsonl --per-class --json
has out '"PER":{.*"support":1}'
printf 'a\tO\nb\tO\nc\tO\n' >outside.conll
run 0 eval --base bert --prefix tags.h5 --data outside.conll --json
grep -q 'nan\|null' out && fail "$(cat out)"

# --class-weights: each 1 has no effect, balanced equals a file with its numbers, and invalid files
for weights in 'same no 1\nyes 1\nyess 1' 'balanced no 0.7777778\nyes 0.7777778\nyess 2.3333333'; do
    printf "${weights#* }\n" >weights.txt
    [ "${weights%% *}" = same ] && set -- || set -- --class-weights balanced
    train 0 --task seq-cls --data sizes.tsv "$@" --json
    value train_loss >want
    train 0 --task seq-cls --data sizes.tsv --class-weights weights.txt --json
    value train_loss >found
    awk 'NR == FNR { want = $1; next } { exit !(want - $1 < 1e-6 && $1 - want < 1e-6) }' want found ||
        fail "${weights%% *}: $(cat want found)"
    mv want "${weights%% *}"
done
cmp -s same balanced && fail 'balanced is as without'
while read -r line message; do
    printf "$line\n" >weights.txt
    train 1 --task seq-cls --data train.tsv --class-weights weights.txt
    has err "^kvfold: train: weights.txt$message"
done <<'WEIGHTS'
yes\t1 : no weight for class "no"$
yes\tmany :1: want NAME WEIGHT, found "yes.many"$
yes\t1\nmaybe\t2 :2: the training data has no class "maybe"$
yes\t1\nyes\t2 :2: class "yes" is given twice$
WEIGHTS
train 2 --task qa --data train.tsv --class-weights balanced
has err 'class-weights is for --task seq-cls|token-cls'

# invalid lists
train 1 --task seq-cls --data train.tsv --labels yes,maybe
has err 'train.tsv:3: label "no" is not one of yes, maybe$'
while read -r list message; do
    train 2 --task seq-cls --data train.tsv --labels "$list"
    has err "^kvfold: train: --labels$message; try"
done <<'LISTS'
yes,,no : name 2 is empty
yes,no,yes : "yes" is given twice
yes .*"yes": want two names or more
LISTS
train 1 --task seq-cls --data train.tsv --labels @nothing
has err 'nothing: '
train 2 --task seq-cls --data train.tsv --regression on --labels yes,no
has err 'labels: not with --regression'
train 2 --task qa --data train.tsv --labels yes,no
has err 'labels is for --task seq-cls|token-cls'
cp names out.h5
run 2 train --base bert --task seq-cls --data train.tsv --labels @out.h5 --out out.h5 --force
has err 'out.h5: is read by this command'

# ---- eval --per-class compared with predict

run 0 eval --base bert --prefix tags.h5 --data train.conll --threads 1 --per-class --json
cp out scores
run 0 predict --base bert --prefix tags.h5 --data train.conll --threads 1 --out said.conll
for tag in B-PER I-PER B-LOC O; do
    awk -v tag=$tag 'NF { gold += $2 == tag; said += $3 == tag; both += $2 == tag && $3 == tag }
        END { printf "\"%s\":{\"precision\":%.1f,\"recall\":%.1f", tag, said ? both / said : 0, gold ? both / gold : 0
              printf " %d\n", gold }' said.conll >want
    support=$(sed 's/.* //' want)
    sed 's/.*\("'$tag'":{"precision":[0-9.]*,"recall":[0-9.]*\),"f1":[0-9.]*,"support":\([0-9]*\).*/\1 \2/' scores |
        awk -F'[:, ]' -v tag=$tag '{ printf "\"%s\":{\"precision\":%.1f,\"recall\":%.1f %d\n", tag, $3, $5, $6 }' >found
    same want found
    [ "$tag $support" != "O 0" ] || fail "no O in $(cat said.conll)"
done
has scores '"entity_types":{"LOC":{.*"support":6},"PER":{.*"support":6}}'
run 0 eval --base bert --prefix tags.h5 --data train.conll --threads 1 --per-class
has out '^tag  *precision  *recall  *f1  *support$'
has out '^entity type  *precision  *recall  *f1  *support$'
has out '^PER  .* 6$'
run 0 eval --base bert --prefix learnt.h5 --data train.tsv --threads 1 --per-class
has out '^class  *precision'
has out '^yes  .* 6$'
# names with terminal control characters
printf 'text\tlabel\na\t\033[2Jx\nb\t\302\233y\n' >steered.tsv
train 0 --task seq-cls --data steered.tsv --out steered.h5
run 0 eval --base bert --prefix steered.h5 --data steered.tsv --threads 1 --per-class
has out '^?\[2Jx .* 1$'
has out '^?y .* 1$'
run 0 eval --base bert --prefix learnt.h5 --data train.tsv --threads 1 --json
grep -q classes out && fail "$(cat out)"
printf '{"text": "a", "label": 1.5}\n{"text": "b", "label": 2}\n' >numbers.jsonl
train 0 --task seq-cls --data numbers.jsonl --regression on
run 2 eval --base bert --prefix run.h5 --data numbers.jsonl --per-class
has err 'per-class is for prefixes with classes (seq-cls) or tags (token-cls), not for task seq-cls, a regression'
