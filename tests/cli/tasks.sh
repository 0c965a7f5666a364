# Tasks with a head: each is trained, resumed, merged, evaluated and predicted on a tiny BERT and a
# tiny Llama. Also tests invalid rows and options.
# shellcheck disable=SC2086,SC2129 # names of tasks and files without spaces
"$MAKE_TINY" bert 1 bert || exit 1
"$MAKE_TINY" llama 2 || exit 1

for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i >>seq-cls.tsv
    printf '{"text": "size %d", "label": %d.5}\n' $i $i >>numbers.jsonl
    printf 'Ann\tB-PER\nwent\tO\nto\tO\nRome%d\tB-LOC\n\nI\tO\nsaw\tO\nBob\tB-PER\nLee\tI-PER\n\n' $i \
        >>token-cls.conll
    printf '{"text": "pick %d", "choices": ["%d", "x", "yy"], "label": %d}\n' $i $i $((i % 3)) \
        >>multiple-choice.jsonl
    printf '{"id": "q%d", "context": "Long ago the %d men met here and ate bread.", ' $i $i >>qa.jsonl
    printf '"question": "Who met?", "answers": [{"text": "the %d men", "start": 9}]}\n' $i >>qa.jsonl
    printf '{"context": "Nobody came.", "question": "Who met %d?", "answers": []}\n' $i >>qa.jsonl
done

# fit BASE TASK DATA ARGUMENTS...: a short run with validation, into run.h5 unless --out is given
fit() {
    base=$1
    shift
    task=$1
    shift
    data=$1
    shift
    run 0 train --base "$base" --task "$task" --data "$data" --valid "$data" --method direct \
        --prefix-length 4 --threads 2 --precision f32 --schedule constant --schedule-steps 8 \
        --eval-every 4 --batch-size 4 --head-dropout 0.2 --max-length 64 --json "$@"
}

# measure FILE DATA ARGUMENTS...: the JSON line without its time, into measured
measure() {
    file=$1
    shift
    data=$1
    shift
    run 0 eval --base "$base" --prefix "$file" --data "$data" --threads 2 --precision f32 --json "$@"
    sed 's/"seconds":[^,}]*//' out >measured
}

predict() {
    run 0 predict --base "$base" --threads 2 --precision f32 --force "$@"
}

metric_of() {
    case $1 in
    seq-cls | multiple-choice) echo accuracy ;;
    token-cls | qa) echo f1 ;;
    esac
}

for base in bert llama; do
    for data in seq-cls.tsv token-cls.conll qa.jsonl multiple-choice.jsonl; do
        task=${data%.*}
        fit $base "$task" $data --out run.h5 --steps 8 --force
        [ "$(value best_metric)" = "\"$(metric_of "$task")\"" ] || fail "$task: $(value best_metric)"
        best=$(value best_value)

        # resumed: the same bytes, head, moments and dropout included
        fit $base "$task" $data --out parts.h5 --steps 4 --force
        fit $base "$task" $data --out parts.h5 --steps 8 --resume
        same run.h5 parts.h5
        fit $base "$task" $data --out accum.h5 --steps 8 --force --grad-accum 3

        # the folded prefix has the run's results, and the run those of its validation
        run 0 merge run.h5 --out prefix.h5 --force --base $base --probe $data --json
        [ "$(value max_abs_diff)$(value probe_max_abs_diff)" = 0.00.0 ] || fail "$(cat out)"
        measure run.h5 $data
        cp measured run.measured
        [ "$(value "$(metric_of "$task")")" = "$best" ] ||
            fail "$base $task: eval $(value "$(metric_of "$task")"), best $best"
        measure prefix.h5 $data
        same run.measured measured
        measure prefix.h5 $data --prefix prefix.h5 # averaged with itself: nearly the same
        predict --prefix prefix.h5 --data $data --out "$base-$task.jsonl"
        run 0 inspect prefix.h5
        has out '^  head/'
    done
done
[ "$(wc -l <bert-seq-cls.jsonl)" -eq 24 ] || fail 'predictions of seq-cls'
has bert-seq-cls.jsonl '^{"text":"good film 1","label":"yes","prediction":"[a-z]*","probabilities":{"no":'
has bert-token-cls.jsonl '^{"tokens":\["Ann","went","to","Rome1"\],"tags":\["B-PER","O","O","B-LOC"\],"pre'
has bert-qa.jsonl '^{"id":"q1","question":"Who met?","answers":\["the 1 men"\],"prediction":".*"no_answer_'
has bert-multiple-choice.jsonl '"choices":\["1","x","yy"\],"label":1,"prediction":[012],"probabilities":\['

# CoNLL in, CoNLL out: as many lines, beginning with the words and tags of the input
fit bert token-cls token-cls.conll --out tags.h5 --steps 4 --force
predict --prefix tags.h5 --data token-cls.conll --out tags.conll
cut -f 1,2 tags.conll >columns
same token-cls.conll columns

# rows without labels are predicted, but not scored
printf 'good film\nbad one\n' >new.txt
fit bert seq-cls seq-cls.tsv --out run.h5 --steps 4 --force
has err '^step 4/4  loss [0-9.]*  valid [0-9.]*  accuracy [01]\.[0-9]* (best)  '
predict --prefix run.h5 --data new.txt --format tsv --no-header --columns text --out new.jsonl
[ "$(wc -l <new.jsonl)" -eq 2 ] || fail 'two rows'
run 1 eval --base bert --prefix run.h5 --data new.txt --format tsv --no-header --columns text
has err 'new.txt:1: .*label'

# the counts, and the error for a run of another task
run 0 eval --base bert --prefix run.h5 --data seq-cls.tsv
has out '^24 examples, '
run 0 eval --base bert --prefix tags.h5 --data token-cls.conll
has out '^24 examples with 96 labelled words, '
sed 's/no$/maybe/' seq-cls.tsv >multiple.tsv
fit bert seq-cls seq-cls.tsv --out from.h5 --steps 1 --force --init-from run.h5
has out 'initialized from run.h5: its encoder and head"'
fit bert seq-cls multiple.tsv --out from.h5 --steps 1 --force --init-from run.h5
has out 'initialized from run.h5: its encoder; the head is new: other labels"'
fit bert token-cls token-cls.conll --out from.h5 --steps 1 --force --init-from run.h5
has out 'initialized from run.h5: its encoder; the head is new: another task"'

# decided OPTION VALUE TASK DATA ARGUMENTS...: the value stored by a run on bert
decided() {
    option=$1
    stored=$2
    shift 2
    fit bert "$@" --out decided.h5 --steps 1 --force
    run 0 inspect decided.h5
    has out "^ *$option *$stored\$"
}

# the head's rate: 0.01 (K - 1) for K classes, at most 0.05, unless set by another option
for case in '2 0.01' '3 0.02' '5 0.04' '9 0.05' '9 0.3 --head-lr 0.3' '9 0.01 --lr-units parameter'; do
    set -- $case
    classes=$1
    rate=$2
    shift 2
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do
        printf 'row %d\tc%d\n' $i $((i % classes))
    done >classes.tsv
    decided head-lr $rate seq-cls classes.tsv "$@"
done

# the optimizer of values: Muon for tags from centroids, unless set by another option
tags='token-cls token-cls.conll'
decided value-optimizer muon $tags
decided value-optimizer muon $tags --method mlp
decided value-optimizer muon seq-cls seq-cls.tsv --value-optimizer muon
decided value-optimizer adamw seq-cls seq-cls.tsv
decided value-optimizer adamw $tags --value-optimizer adamw
decided value-optimizer adamw $tags --init random
decided value-optimizer adamw $tags --lr-units parameter
decided value-optimizer adamw $tags --method mlp --optimizer adamw
decided value-optimizer adamw $tags --method projected
for case in 'natural --method mlp --optimizer adamw' 'prefix --method mlp --lr-units parameter'; do
    run 2 train --base bert --task token-cls --data token-cls.conll --out x.h5 --value-optimizer muon ${case#* }
    has err "value-optimizer muon: want --[a-z-]* ${case%% *};"
done
run 2 train --base bert --task token-cls --data token-cls.conll --out x.h5 --value-optimizer muon --method projected
has err 'value-optimizer: not for method projected'

# P of tags, by the base, unless set by another option
for case in 'bert 40' 'llama 20' 'bert 20 --lr-units parameter' 'bert 3 --prefix-length 3'; do
    set -- $case
    base=$1
    P=$2
    shift 2
    run 0 train --base $base --task token-cls --data token-cls.conll --out length.h5 --method direct --steps 0 --force "$@"
    run 0 inspect length.h5
    has out "^ *prefix-length *$P\$"
done
run 2 train --base bert --task token-cls --data token-cls.conll --out x.h5 --prefix-length 0
has err '--prefix-length 0: want a whole number from 1, or --ffn-length'

# numbers
fit bert seq-cls numbers.jsonl --out numbers.h5 --steps 4 --regression on --force
[ "$(value best_metric)" = '"pearson"' ] || fail "$(value best_metric)"
predict --prefix numbers.h5 --data numbers.jsonl --out numbers.out
run 0 inspect numbers.h5
has out '^ *head-lr *0.01$'
has numbers.out '^{"text":"size 1","label":1.5,"prediction":-*[0-9.e-]*}$'

# early stop: after that many validations without improvement, and not again on --resume
fit bert seq-cls seq-cls.tsv --out early.h5 --steps 8 --eval-every 1 --early-stop 2 \
    --lr 1e-9 --head-lr 1e-9 --force
[ "$(value stopped_early)" = true ] || fail "not stopped early: $(cat out)"
steps=$(value steps)
[ "$steps" -lt 8 ] || fail "$steps steps"
fit bert seq-cls seq-cls.tsv --out early.h5 --steps 8 --eval-every 1 --early-stop 2 \
    --lr 1e-9 --head-lr 1e-9 --resume
[ "$(value steps) $(value finished_before)" = "$steps true" ] || fail "$(cat out)"

# ---- rows that do not fit: one line with file and line number

printf 'good\tyes\nfine\tmaybe\n' >bad.tsv
run 1 eval --base bert --prefix run.h5 --data bad.tsv --columns text,label --no-header
err_is 'kvfold: eval: bad.tsv:2: label "maybe" is not one of no, yes'
printf '{"text": "a", "label": "yes"}\n{"label": "no"}\n' >bad.jsonl
run 1 train --base bert --task seq-cls --data bad.jsonl --out x.h5
has err '^kvfold: train: bad.jsonl:2: .*text'
printf '{"tokens": ["a", "b"], "tags": ["O"]}\n' >bad.jsonl
run 1 train --base bert --task token-cls --data bad.jsonl --out x.h5
has err '^kvfold: train: bad.jsonl:1: '
printf '{"context": "abc", "question": "?", "answers": [{"text": "xyz", "start": 0}]}\n' >bad.jsonl
run 1 train --base bert --task qa --data bad.jsonl --out x.h5
has err '^kvfold: train: bad.jsonl:1: answer "xyz" is not at offset 0 of its context'
absent x.h5

# ---- options that do not fit

run 2 train --base bert --data seq-cls.tsv --task lm --out x.h5
has err 'a bert does not predict the next token'
for method in mlp direct projected; do
    fit bert seq-cls seq-cls.tsv --out words.h5 --method $method --init text --init-text abcd --steps 1 --force
    run 0 words words.h5 --base bert --top 1
    has out '^   3  key  '
done
run 2 train --base bert --task seq-cls --data seq-cls.tsv --out x.h5 --metric exact_match
has err 'metric "exact_match": task seq-cls has no such metric'
run 2 train --base bert --task seq-cls --data seq-cls.tsv --out x.h5 --early-stop 2
has err 'early-stop needs --valid'
run 2 train --base bert --task seq-cls --data seq-cls.tsv --out x.h5 --doc-stride 9
has err 'doc-stride is for --task qa'
run 2 train --base llama --data seq-cls.tsv --out x.h5 --head-lr 1
has err 'head-lr needs --task seq-cls or token-cls'
fit bert seq-cls seq-cls.tsv --out parts.h5 --steps 4 --force
run 2 train --base bert --task token-cls --data token-cls.conll --out parts.h5 --resume
has err 'task differs from that of the run'
run 2 eval --base bert --prefix run.h5 --prefix tags.h5 --data seq-cls.tsv
has err 'prefix 2 has another task or other labels'
run 2 predict --base bert --prefix run.h5 --data seq-cls.tsv --out p.conll
has err 'CoNLL output is for task token-cls'
run 1 predict --base bert --prefix run.h5 --data seq-cls.tsv --out new.jsonl
has err 'new.jsonl: exists'
absent p.conll x.h5

# ---- PEFT: out with the head and back

run 0 merge run.h5 --out prefix.h5 --force
run 0 export prefix.h5 --format peft --out adapter
has adapter/adapter_config.json '"task_type": "SEQ_CLS"'
out_is_not_found='the folder does not say where to find the base: AutoPeftModelFor... needs --base-id ID'
has out "^$out_is_not_found$"
has adapter/adapter_config.json '"base_model_name_or_path": "bert"'
has adapter/labels.json '"0": "no"'
has adapter/README.md '^pipeline_tag: text-classification$'
has adapter/README.md '"run_hash": "'
grep -q '^base_model:' adapter/README.md && fail 'a card names a base that nobody can find'
run 0 export prefix.h5 --out adapter --base-id some-org/Base.v1 --force
out_is 'adapter: peft'
has adapter/adapter_config.json '"base_model_name_or_path": "some-org/Base.v1"'
has adapter/README.md '^base_model: "some-org/Base.v1"$'
has adapter/README.md 'AutoPeftModelForSequenceClassification.from_pretrained(".", \*\*labels)'
run 0 export prefix.h5 --out adapter --base-id "$PWD/bert" --force
has adapter/adapter_config.json "\"base_model_name_or_path\": \"$PWD/bert\""
for id in nowhere/to/be/found '' '../no-model' 'a b' /nowhere 'org/'; do
    run 2 export prefix.h5 --out refused --base-id "$id"
    has err "^kvfold: export: --base-id \"$id\": want an id of the Hugging Face Hub"
done
run 2 export prefix.h5 --out refused --format safetensors --base-id org/base
has err '--base-id is for --format peft'
absent refused
run 0 import adapter --base bert --out named.h5
run 0 inspect named.h5
has out '^  labels  *\["no","yes"\]$'
run 0 import adapter --base bert --out back.h5 --labels no,yes
base=bert
measure prefix.h5 seq-cls.tsv
cp measured prefix.measured
measure back.h5 seq-cls.tsv
same prefix.measured measured
run 2 import adapter --base bert --out back.h5 --force --labels a,b,c
has err 'labels names 3 labels, but the head has 2 outputs'
fit bert multiple-choice multiple-choice.jsonl --out choice.h5 --steps 2 --force
run 1 export choice.h5 --format peft --out no_adapter
has err 'PEFT has no type for task multiple-choice'
absent no_adapter

# ---- every weight: the base file has the head, and answers like the run

base=bert
run 0 train --base bert --task seq-cls --data seq-cls.tsv --valid seq-cls.tsv --method full --lr 1e-3 --steps 8 \
    --batch-size 4 --threads 2 --precision f32 --out full.h5 --quiet
run 0 merge full.h5 --base bert --out full_base.h5
measure full.h5 seq-cls.tsv
cp measured full.measured
run 0 eval --base full_base.h5 --data seq-cls.tsv --precision f32 --json
[ "$(value accuracy)" = "$(sed -n 's/.*"accuracy":\([0-9.]*\).*/\1/p' full.measured)" ] || fail "$(cat out)"
for base in bert full_base.h5; do
    set --
    [ $base = bert ] && set -- --prefix full.h5
    predict "$@" --data seq-cls.tsv --out answers.jsonl
    sed 's/,"probabilities.*//' answers.jsonl >$base.answers
done
same bert.answers full_base.h5.answers
run 0 inspect full_base.h5
has out 'head/classifier.weight'
run 2 predict --base bert --data seq-cls.tsv --out none.jsonl
has err 'task lm has no head'
absent none.jsonl

# ---- texts scored with references

for i in 1 1 2; do printf '{"prompt": "after %d:", "completion": " %d"}\n' $i $((i + 1)); done >lm.jsonl
run 0 eval --base llama --data lm.jsonl --precision f32 --generate 4 --json
has out '"bleu":[0-9.e-]*,"rouge_l":[0-9.e-]*,'
[ "$(value examples)" = 3 ] || fail "$(cat out)"
run 2 eval --base bert --prefix run.h5 --data seq-cls.tsv --generate 4
has err 'generate is for prefixes of task lm'
run 2 train --base llama --data lm.jsonl --metric bleu --out x.h5
has err 'only in eval --generate'
absent x.h5

# ---- raw text: --text and lines of a .txt file are rows without labels

printf '{"text": "a b", "label": "x"}\n{"text": "c", "label": "y"}\n' >words.jsonl
printf 'Ann O\nof O\n\nRome B-LOC\n' >words.conll
run 0 train --base bert --task seq-cls --data words.jsonl --steps 1 --threads 2 --precision f32 --out classes.h5 --quiet --force
run 0 train --base bert --task token-cls --data words.conll --steps 1 --threads 2 --precision f32 --out tags.h5 --quiet --force
printf 'a, b\n\nc\n' >lines.txt
printf '{"text": "a, b"}\n{"text": "c"}\n' >rows.jsonl
for base in classes tags; do
    run 0 predict --base bert --prefix $base.h5 --data lines.txt --out - --precision f32
    cp out from_lines
    run 0 predict --base bert --prefix $base.h5 --data rows.jsonl --out - --precision f32
    same out from_lines
    run 0 predict --base bert --prefix $base.h5 --text 'a, b' --text c --precision f32
    same out from_lines
done
has out '^{"tokens":\["a,","b"\]'
run 0 predict --base bert --prefix tags.h5 --text "$(printf ' Ann \tof')" --out-format conll --precision f32
has out '^of'
run 2 predict --base bert --prefix tags.h5
has err '^kvfold: predict: --data FILE or --text TEXT is needed'
run 2 predict --base bert --prefix tags.h5 --text a --data lines.txt
has err '^kvfold: predict: --text and --data exclude each other'
run 1 eval --base bert --prefix tags.h5 --data lines.txt --format text
has err '^kvfold: eval: lines.txt:1: "tokens" is missing'
