# Every option of eval, predict, score and generate changes the output, or is refused as misuse. A
# row of the table below gives its arguments; an option without a row fails.
# shellcheck disable=SC2086 # words
make_inputs
"$MAKE_TINY" bert 1 bert || exit 1
"$MAKE_TINY" lora 5 lora || exit 1
for i in 1 2 3 4 5 6; do
    printf '{"text": "good film %d", "label": "yes"}\n{"text": "bad film %d and long", "label": "no"}\n' $i $i
done >cls.jsonl
sed 's/"text"/"body"/' cls.jsonl >body.jsonl
printf 'good film\tyes\nbad film\tno\n' >bare.tsv
printf 'good film;yes;and,yes,long\nbad film;no;and,no,long\n' >some.csv
printf 'It was long ago, and nobody came to see them.\n' >text.txt
printf '{"prompt": "q", "completion": "zqzq zqqz"}\n' >far.jsonl # which training is bad for
run 0 train --base model --data train.jsonl --valid far.jsonl --method direct --prefix-length 2 --init vocab --steps 6 --eval-every 1 --lr 0.5 --beta1 0.9 --schedule constant --precision f32 \
    --threads 1 --out lm.h5
run 0 train --base bert --task seq-cls --data cls.jsonl --valid cls.jsonl --method direct --prefix-length 2 --steps 6 --eval-every 1 --lr 9 --head-lr 9 --beta1 0.9 --schedule constant \
    --precision f32 --threads 1 --out cls.h5
run 0 merge lm.h5 --out other.h5 --checkpoint last
run 0 merge cls.h5 --out cls2.h5 --checkpoint last

lm='--base model --prefix lm.h5 --threads 1'
cls='--base bert --prefix cls.h5 --threads 1'
# command|option|with|value|how: change, same, refuse, or the script that tests it
cat >table <<TABLE
eval|base|||every
eval|lora|$lm --data valid.jsonl --allow-other-base|lora|change
eval|lora|$lm --data valid.jsonl|lora|refuse
eval|data|||every
eval|prefix|$lm --data valid.jsonl|other.h5|change
eval|checkpoint|$lm --data valid.jsonl|last|change
eval|head|$lm --data valid.jsonl|x|refuse
eval|allow-other-base|||unmerge
eval|drop-layers|$lm --data valid.jsonl|0-0|refuse
eval|format|$lm --data valid.jsonl|csv|refuse
eval|no-header|$cls --data bare.tsv --columns text,label||change
eval|no-header|$cls --data cls.jsonl||refuse
eval|columns|$cls --data bare.tsv --no-header|text,label|same
eval|columns|$cls --data bare.tsv --no-header|label,text|refuse
eval|columns|$cls --data cls.jsonl|text,label|refuse
eval|delimiter|$cls --data some.csv --no-header --columns text,label,-|;|change
eval|delimiter|$cls --data cls.jsonl|;|refuse
eval|max-length|$cls --data cls.jsonl --overlong truncate|6|change
eval|overlong|$cls --data cls.jsonl --max-length 16 --overlong truncate|skip|change
eval|split-text|$lm --data text.txt --split-text 8|6|change
eval|split-text|$cls --data cls.jsonl|8|refuse
eval|limit|$cls --data cls.jsonl|3|change
eval|no-answer-above|$cls --data cls.jsonl|1|refuse
eval|max-answer|$cls --data cls.jsonl|1|refuse
eval|n-best|$cls --data cls.jsonl|1|refuse
eval|vote|$cls --data cls.jsonl|majority|change
eval|vote|$lm --data valid.jsonl|majority|refuse
eval|chat-template|$lm --data valid.jsonl|chatml|change
eval|chat-template|$cls --data cls.jsonl|chatml|refuse
eval|map|$lm --data valid.jsonl|prompt=completion|change
eval|weight-dtype|$lm --data valid.jsonl|int8|change
eval|stream-layers|$lm --data valid.jsonl|on|same
eval|precision|$lm --data valid.jsonl --precision f32|bf16|change
eval|generate|$lm --data valid.jsonl|2|change
eval|generate|$cls --data cls.jsonl|2|refuse
eval|per-class|$cls --data cls.jsonl||change
eval|per-class|$lm --data valid.jsonl||refuse
predict|base|||every
predict|lora|$cls --data cls.jsonl|lora|refuse
predict|data|||every
predict|text|$cls --data cls.jsonl|x|refuse
predict|out|||every
predict|prefix|$cls --data cls.jsonl|cls2.h5|change
predict|checkpoint|$cls --data cls.jsonl|last|change
predict|head|$cls --data cls.jsonl|x|refuse
predict|allow-other-base|||unmerge
predict|drop-layers|$cls --data cls.jsonl|0-0|refuse
predict|format|$cls --data cls.jsonl|csv|refuse
predict|no-header|$cls --data cls.jsonl||refuse
predict|columns|$cls --data cls.jsonl|text,label|refuse
predict|delimiter|$cls --data cls.jsonl|;|refuse
predict|max-length|$cls --data cls.jsonl --overlong truncate|6|change
predict|overlong|$cls --data cls.jsonl --max-length 16 --overlong truncate|skip|change
predict|split-text|$cls --data cls.jsonl|8|refuse
predict|limit|$cls --data cls.jsonl|3|change
predict|no-answer-above|$cls --data cls.jsonl|1|refuse
predict|max-answer|$cls --data cls.jsonl|1|refuse
predict|n-best|$cls --data cls.jsonl|1|refuse
predict|vote|$cls --data cls.jsonl|majority|change
predict|chat-template|$cls --data cls.jsonl|chatml|refuse
predict|map|$cls --data cls.jsonl|text=label|change
predict|weight-dtype|$cls --data cls.jsonl|int8|change
predict|stream-layers|$cls --data cls.jsonl|on|same
predict|precision|$cls --data cls.jsonl --precision f32|bf16|change
predict|out-format|$cls --data cls.jsonl|conll|refuse
predict|force|||inputs_kept
score|base|||every
score|lora|--base model --data valid.jsonl --threads 1|lora|change
score|data|||every
score|out|||every
score|prefix|$lm --data valid.jsonl|other.h5|refuse
score|prefix|--base model --threads 1 --data valid.jsonl|lm.h5|change
score|checkpoint|$lm --data valid.jsonl|last|change
score|head|$lm --data valid.jsonl|x|refuse
score|allow-other-base|||unmerge
score|drop-layers|$lm --data valid.jsonl|0-0|refuse
score|format|$lm --data valid.jsonl|csv|refuse
score|no-header|$lm --data valid.jsonl||refuse
score|columns|$lm --data valid.jsonl|text,label|refuse
score|delimiter|$lm --data valid.jsonl|;|refuse
score|max-length|$lm --data valid.jsonl --overlong truncate|6|change
score|overlong|$lm --data valid.jsonl --max-length 11 --overlong truncate|skip|change
score|split-text|$lm --data text.txt --split-text 8|6|change
score|limit|$lm --data valid.jsonl|3|change
score|chat-template|$lm --data valid.jsonl|chatml|change
score|map|$lm --data valid.jsonl|prompt=completion|change
score|weight-dtype|$lm --data valid.jsonl|int8|change
score|stream-layers|$lm --data valid.jsonl|on|same
score|precision|$lm --data valid.jsonl --precision f32|bf16|change
score|force|||inputs_kept
generate|base|||every
generate|lora|--base model --prompt after --threads 1|lora|change
generate|prefix|$lm --prompt after|other.h5|change
generate|prompt|||every
generate|data|$lm|valid.jsonl|change
generate|interactive|||chat
generate|max-tokens|$lm --prompt after|3|change
generate|temperature|$lm --prompt after|1.5|change
generate|top-k|$lm --prompt after --temperature 2|1|change
generate|top-p|$lm --prompt after --temperature 2|0.01|change
generate|min-p|$lm --prompt after --temperature 2|1|change
generate|repetition-penalty|$lm --prompt after --max-tokens 20|5|change
generate|presence-penalty|$lm --prompt after --max-tokens 20|2|change
generate|frequency-penalty|$lm --prompt after --max-tokens 20|2|change
generate|logit-bias|$lm --prompt after|20=100|change
generate|beams|$lm --prompt after --max-tokens 20|4|change
generate|length-penalty|$lm --prompt after --max-tokens 20 --beams 4 --stop p|3|change
generate|draft|$lm --data train.jsonl --max-tokens 40|6|same
generate|stop|$lm --data train.jsonl --temperature 3|e|change
generate|seed|$lm --prompt after --temperature 2|7|change
generate|chat-template|$lm --prompt after|chatml|change
generate|map|$lm --data valid.jsonl|prompt=completion|change
generate|batch-size|$lm --data valid.jsonl|1|same
generate|checkpoint|$lm --prompt after|last|change
generate|head|$lm --prompt after|x|refuse
generate|allow-other-base|||unmerge
generate|weight-dtype|$lm --prompt after|int8|change
generate|stream-layers|$lm --prompt after|on|same
generate|precision|$lm --data train.jsonl --temperature 2 --precision f32|bf16|change
TABLE

# try ARGUMENTS...: printed and written output of the command, without times, into seen
try() {
    rm -f answers.jsonl
    if [ "$command" = predict ] || [ "$command" = score ]; then set -- "$@" --out answers.jsonl; fi
    "$KVFOLD" "$command" "$@" --json >out 2>err
    code=$?
    { sed 's/"[a-z_]*second[s]*":[^,}]*//g' out; cat answers.jsonl 2>/dev/null; } >seen
}
while IFS='|' read -r command option with value how; do
    case $how in
    change | same | refuse) ;;
    *) continue ;;
    esac
    if [ "$value,$how" = bf16,change ] && ! can bf16; then
        skip "$command --$option bf16"
        continue
    fi
    try $with
    mv seen plain
    plain_code=$code
    if [ -n "$value" ]; then try $with --"$option" "$value"; else try $with --"$option"; fi
    case $how:$code in
    refuse:[12]) [ -s err ] || fail "$command --$option: refused without a word" ;;
    change:0) cmp -s plain seen && fail "$command --$option $value ($with): is ignored" ;;
    same:0) [ $plain_code -ne 0 ] || cmp -s plain seen || fail "$command --$option $value ($with): changes bits" ;;
    *) fail "$command --$option $value ($with): $how expected, exit status $code: $(cat err)" ;;
    esac
done <table
for command in eval predict score generate; do
    "$KVFOLD" $command --help all | sed -n 's/^  --\([a-z-]*\).*/\1/p' | grep -vx -e threads -e json -e quiet -e help >options
    while read -r option; do
        grep -q "^$command|$option|" table || fail "$command --$option: no row says how its effect is seen"
    done <options
done
