# compare --quick: three methods by task and rows, as many steps as fit into the time, the winner and
# its command, which a shell reads back.
# shellcheck disable=SC2086 # words
"$MAKE_TINY" model || exit 1
"$MAKE_TINY" bert 1 bert || exit 1
mkdir "my data"
for i in 1 2 3 4 5 6 7 8 9 10; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i
done >"my data/it's.tsv"
quick='compare --quick --base bert --task seq-cls --precision f32 --threads 1'
# shellcheck disable=SC2329 # called by the printed command
kvfold() { "$KVFOLD" "$@"; }

out="the user's \"\$HOME\" runs"
run 0 $quick --data "my data/it's.tsv" --steps 20 --out "$out" --prefix-length 2 --encoder-hidden 32
has err '^20 steps of each method, about [0-9.]* minutes$'
grep -q '^head ' out && fail 'quick trains the head alone'
for name in mlp mlp-ffn-length=32 adapter; do
    [ -s "$out/$name-0.run.h5" ] || fail "no $name-0.run.h5"
done
[ "$(find "$out" -name '*.run.h5' | wc -l)" -eq 3 ] || fail "$(ls "$out")"
has out '^winner: [a-z0-9= -]*, accuracy [01][.][0-9]*, ahead of [a-z0-9= -]* by [0-9.]* in one run (--seeds 3 shows the spread)$'
# the command has the options of the run, hence its bytes
tail -n 1 out >command
has command "^kvfold train --method=.* --data='my data/it'.''s.tsv' --valid-split=0.2 .*--out='the user'.''s .* runs/winner.h5' "
eval "$(cat command)" >trained 2>err || fail "$(cat command): $(cat err)"
name=$(sed -n 's/^winner: \([^,]*\),.*/\1/p' out | tr ' ' -)
same "$out/winner.h5" "$out/$name-0.run.h5"

# the winner has the best score, or among equal ones the lowest loss
run 0 $quick --data "my data/it's.tsv" --valid "my data/it's.tsv" --steps 8 --seeds 2 --out two --json --quiet
err_is
cp out two.json
for name in mlp 'mlp ffn-length=32' adapter; do
    sed -n "s/.*\"name\":\"$name\",\"method\":\"[a-z]*\",\"init\":null,\"bytes\"[^{]*\"loss\":{\"mean\":\([0-9.e-]*\)[^}]*},\"best_metric\":\"accuracy\",\"score\":{\"mean\":\([0-9.]*\).*/\2 \1 $name/p" two.json
done | sort -k1,1nr -k2,2n >order
[ "$(wc -l <order)" -eq 3 ] || fail "$(cat order two.json)"
best=$(sed -n '1s/^[^ ]* [^ ]* //p' order) second=$(sed -n '2s/^[^ ]* [^ ]* //p' order)
has two.json "\"winner\":{\"name\":\"$best\",\"metric\":\"accuracy\",\"value\":[0-9.]*,\"command\":\"kvfold train .*\",\"second\":\"$second\",\"ahead\":[0-9.e-]*}"

# a language model: less loss wins; rows that the file lacks are validation rows
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    printf '{"prompt": "after %d:", "completion": " %d"}\n' $i $((i + 1))
done >train.jsonl
run 0 compare --quick --base model --data train.jsonl --steps 10 --prefix-length 4 --encoder-hidden 32 --threads 1 --out lm --quiet
for name in mlp 'mlp ffn-length=32' adapter; do
    has out "^$name  *[0-9]"
    sed -n "s/^$name  *[0-9].*[BM]  *\([0-9.]*\)  *[-+][+0-9. -]*$/\1 $name/p" out
done | sort -n | head -n 1 >least
has out '^winner: [a-z0-9= -]*, loss [0-9.]*, ahead of [a-z0-9= -]* by [0-9.]* in one run'
best=$(sed -n 's/^winner: \([^,]*\),.*/\1/p' out)
grep -q " $best$" least || fail "winner $best, least loss $(cat least): $(cat out)"
has out "^kvfold train --method=${best%% *} "

# more than 5000 rows: 128 neurons, which this base refuses; the others are compared
awk 'BEGIN { for (i = 0; i < 6300; i++) printf "%s %d\t%s\n", i % 2 ? "good" : "bad", i % 90, i % 2 ? "yes" : "no" }' >many.tsv
run 1 $quick --data many.tsv --steps 2 --prefix-length 2 --max-length 16 --out many --quiet
has err '^kvfold: compare: 1 of 3 runs failed$'
has out '^mlp ffn-length=128  seed 0 failed: --ffn-length 128: layer 0 of the base has 64 neurons of its own$'
has out '^winner: [a-z]*, accuracy '

# too little time, and options that exclude it; nothing is trained
run 2 $quick --data many.tsv --minutes 0.001 --out short --quiet
has err '^kvfold: compare: --minutes 0.001: 10 steps of each method take about [0-9.e+-]* minutes; try '
[ -z "$(ls short)" ] || fail "$(ls short)"
run 2 $quick --data many.tsv --minutes 0 --out bad
has err '--minutes "0": want a number above 0'
run 2 compare --base bert --data many.tsv --valid many.tsv --minutes 3 --out bad
has err '^kvfold: compare: --minutes needs --quick'
for option in methods=mlp inits=random ensembles=1 options=x.txt; do
    run 2 $quick --data many.tsv --$option --out bad
    has err "^kvfold: compare: --quick and --${option%=*} exclude each other"
done
run 2 $quick --data many.tsv --resume --out bad
has err '^kvfold: compare: --quick and --resume exclude each other'
printf '[a]\nmethod = mlp\n' >rows.txt
run 2 $quick --data many.tsv --recipe rows.txt --out bad
has err 'rows.txt:1: --quick and sections exclude each other'
run 2 compare --quick --base bert --out bad
has err '^kvfold: compare: --data FILE is needed'
run 1 $quick --data missing.tsv --out none
has err 'missing.tsv: '
absent bad
