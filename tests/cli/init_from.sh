# train --init-from takes the whole content of a file, including the head if the labels agree.
# Otherwise the start line gives the reason for a new head.
# shellcheck disable=SC2086 # options without spaces
"$MAKE_TINY" bert 1 bert || exit 1
"$MAKE_TINY" llama 2 || exit 1
"$MAKE_TINY" other 3 || exit 1

for i in 1 2 3 4 5 6 7 8; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i >>mood.tsv
    printf 'Ann\tB-PER\nwent\tO\n\nI\tO\nsaw\tO\nBob\tB-PER\n\n' >>names.conll
    printf '{"prompt": "size %d is", "completion": " %d"}\n' $i $i >>lm.jsonl
done
sed 's/no$/maybe/' mood.tsv >other.tsv
common="--threads 2 --precision f32 --batch-size 4 --force --json"
mood="--task seq-cls --data mood.tsv --prefix-length 4 $common"

# loss FILE DATA: the loss of a file on its base, into $loss
loss() {
    run 0 eval --base $base --prefix "$1" --data "$2" --threads 2 --precision f32 --json
    loss=$(value loss)
}

# goes_on START ARGUMENTS...: an untrained run begins with this line, and has the loss of its
# source, in $expected.
goes_on() {
    line=$1
    shift
    run 0 train --base $base "$@" --out next.h5 --steps 1 --lr 1e-30 --head-lr 1e-30
    has out "\"initialized from $line\""
    loss next.h5 mood.tsv
    awk -v a="$loss" -v b="$expected" 'BEGIN { exit !(a - b < 2e-6 && b - a < 2e-6) }' ||
        fail "$line: loss $loss, want $expected"
}

# learnt FILE: source files to continue from
learnt() {
    loss "$1" mood.tsv
    expected=$loss
}

# ---- one task: a run, its folded file, another method, another form
for base in bert llama; do
    run 0 train --base $base $mood --method mlp --encoder-hidden 16 --out run.h5 --steps 12 --lr 0.03
    run 0 merge run.h5 --out folded.h5 --force
    learnt run.h5
    goes_on 'run.h5: its encoder and head' $mood --method mlp --encoder-hidden 16 --init-from run.h5
    target='its keys and values (relative error [0-9.e+-]*) and head'
    goes_on "run.h5: $target" $mood --method direct --init-from run.h5
    goes_on "folded.h5: $target" $mood --method direct --init-from folded.h5
    goes_on "folded.h5: $target" $mood --method mlp --encoder-hidden 16 --init-from folded.h5
done
base=bert
run 0 train --base bert $mood --method prompt --out run.h5 --steps 12
run 0 merge run.h5 --out folded.h5 --force
learnt folded.h5
goes_on 'folded.h5: its virtual tokens (relative error [0-9.e+-]*) and head' $mood --method prompt \
    --init-from folded.h5
for method in adapter full; do
    mine="--task seq-cls --data mood.tsv $common --method $method"
    run 0 train --base bert $mine --out run.h5 --steps 12 --lr 1e-3
    learnt run.h5
    case $method in adapter) what='its adapters' ;; *) what='its weights' ;; esac
    goes_on "run.h5: $what and head" $mine --init-from run.h5
    if [ $method = full ]; then # folds to a base with a head
        run 0 merge run.h5 --base bert --out base.h5
        base=base.h5
        goes_on 'base.h5: its weights and head' $mine --init-from base.h5
        base=bert
        continue
    fi
    run 0 merge run.h5 --out folded.h5 --force
    goes_on "folded.h5: $what and head" $mine --init-from folded.h5
    run 2 train --base bert $mood --method direct --init-from run.h5 --out next.h5
    has err 'run.h5: method adapter changes the base, but method direct does not'
done

# ---- heads for other answers than requested
says() {
    line=$1
    shift
    run 0 train "$@" --prefix-length 4 $common --method direct --out next.h5 --steps 1
    has out "\"initialized from folded.h5: its keys and values ([^)]*)$line\""
}
run 0 train --base llama $mood --method direct --out run.h5 --steps 2
run 0 merge run.h5 --out folded.h5 --force
says '; the head is new: other labels' --base llama --task seq-cls --data other.tsv --init-from folded.h5
says '; the head is new: another task' --base llama --task token-cls --data names.conll --init-from folded.h5
says '; head not used: another task' --base llama --data lm.jsonl --init-from folded.h5
says '; head not used (--init-from uses it)' --base llama --task seq-cls --data mood.tsv \
    --init kv --init-kv folded.h5
run 1 train --base other $mood --method direct --init-from run.h5 --out next.h5
has err 'the prefix is for base llama'

# ---- a trained language-model head
own="--base llama --data lm.jsonl --prefix-length 4 $common --method direct"
run 0 train $own --train-head --out run.h5 --steps 2
run 0 merge run.h5 --out folded.h5 --force
says ' and head' --base llama --data lm.jsonl --train-head --init-from folded.h5
run 2 train $own --init-from folded.h5 --out next.h5
has err 'folded.h5: has a trained language-model head: use --train-head too'
run 0 train $own --out run.h5 --steps 2
run 0 merge run.h5 --out folded.h5 --force
says "; head of the base" --base llama --data lm.jsonl --train-head --init-from folded.h5

# ---- weights of the base and virtual tokens
beside="--task seq-cls --data mood.tsv --prefix-length 4 $common --method p-tuning --unfreeze base"
run 0 train --base bert $beside --out run.h5 --steps 4 --base-lr 1e-3
base=bert
learnt run.h5
goes_on 'run.h5: its encoder, its base and head' $beside --base-lr 1e-30 --init-from run.h5
run 2 train --base bert $mood --method p-tuning --init-from run.h5 --out next.h5
has err "run.h5: includes trained weights of the base: use --unfreeze base"

# ---- several tasks
both="--data mood=mood.tsv --data names=names.conll --task mood=seq-cls --task names=token-cls"
for form in shared low-rank; do
    run 0 train --base bert $both --task-prefix $form --mix equal --method mlp --encoder-hidden 16 \
        --prefix-length 4 $common --out several.h5 --steps 12 --lr 0.03
    run 0 merge several.h5 --head mood --out folded.h5 --force
    learnt folded.h5
    goes_on 'folded.h5: .* and head' $mood --method direct --init-from folded.h5
    goes_on 'folded.h5: .* and head' $mood --method mlp --encoder-hidden 16 --init-from folded.h5
    run 0 merge several.h5 --out all.h5 --force
    for from in several.h5 all.h5; do
        if [ $form = shared ]; then
            goes_on "$from: .* and head mood" $mood --method direct --init-from $from
            goes_on "$from: .* and head mood" $mood --method mlp --encoder-hidden 16 --init-from $from
        else
            run 2 train --base bert $mood --method mlp --encoder-hidden 16 --init-from $from --out next.h5
            has err "$from: each task has its own prefix (low-rank): use the file that merge --head NAME makes"
        fi
    done
done
run 0 train --base bert $both --method direct --prefix-length 4 $common --init-from folded.h5 \
    --out next.h5 --steps 1
has out 'initialized from folded.h5: its keys and values ([^)]*) and head"'
has out 'initialized from folded.h5: its keys and values ([^)]*); the head of names is new: another task"'

# ---- labels in another order than the head has
run 0 train --base llama $mood --method direct --out run.h5 --steps 2
run 0 merge run.h5 --out folded.h5 --force
run 0 export folded.h5 --out adapter
for order in no,yes yes,no; do
    run 0 import adapter --base llama --labels $order --out folded.h5 --force
    [ $order = no,yes ] && line=' and head' || line='; the head is new: the order of the labels differs'
    says "$line" --base llama --task seq-cls --data mood.tsv --init-from folded.h5
done
