# compare: methods and initial values on one budget, each in a process of its own, next to the bare
# base and the head alone. Output: one table, one JSON object, one page.
# shellcheck disable=SC2086 # words
make_inputs
printf 'prefix-length = 4\nprecision = f32\n' >small.txt
shared="--base model --data train.jsonl --valid valid.jsonl --options small.txt --steps 3 --threads 2"

run 0 compare $shared --methods direct,projected --out runs --quiet --json
has out '^{"out":"runs","steps":3,"runs":\[{"method":"direct","init":null,"seed":0,"trainable_parameters":'
[ "$(grep -o '"best_valid_loss":[0-9]' out | wc -l)" -eq 2 ] || fail "not two losses: $(cat out)"
[ "$(grep -o '"peak_rss_bytes":[1-9][0-9]*,"precision' out | wc -l)" -eq 2 ] || fail "not two peaks: $(cat out)"
has out "\"bytes\":$(wc -c <runs/direct-0.h5)"
# the bare base has the loss of eval, and no head is trained for task lm
bare=$(sed -n 's/.*"bare":{"loss":\([0-9.]*\).*/\1/p' out)
grep -q '"method":"head"' out && fail 'task lm has no head of its own'
# validated at every step: one tenth of three steps
has out '"curve_steps":\[1,2,3\]'
# V * C for the tied embedding, then the rest of the tiny model; direct: 2 * L * G * D * P values more
parameters=$(value base_parameters) trained=$((2 * 2 * 1 * 16 * 4))
has out "\"name\":\"direct\",\"method\":\"direct\",\"init\":null,\"bytes\":[0-9]*,\"trainable_parameters\":$trained,"
share=$(sed -n 's/.*"name":"direct","method".*"share":\([0-9.e-]*\),"runs".*"name":"projected","method".*/\1/p' out)
awk "BEGIN { exit !(($share - $trained / ($parameters + $trained)) ^ 2 < 1e-12) }" || fail "share $share of $parameters"
run 0 eval --base model --data valid.jsonl --prefix runs/projected-0.h5 --precision f32 --threads 2
run 0 eval --base model --data valid.jsonl --precision f32 --threads 2 --json
[ "$(value loss)" = "$bare" ] || fail "bare base: $bare, eval says $(value loss)"
has runs/compare.html '>direct</li><li class="c1" data-column="loss-mean-1">projected</li>'

# one line for each initial value, with any number of seeds
run 0 compare $shared --methods direct --inits random,vocab,text --init-text abc --seeds 2 --out inits --quiet
[ "$(wc -l <out)" -eq 6 ] || fail "not a heading, the bare base, three rows and an end: $(cat out)"
has out '^bare base  *0  *0.0000%  *-  *-  *-  [0-9.]*$'
has out '^direct init=text  *256  .* (.* to .*)  *[-+][0-9.]* +- [0-9.]*$'

# mean and range over seeds, and the paired differences with their standard error, computed by hand
numbers() {
    awk 'function of(name, key,    n, rest) { # the key of the runs with this name
             n = 0; rest = $0; sub(/"seeds":[0-9].*/, "", rest)
             while (match(rest, "\"" key "\":[-0-9.e]*")) {
                 x = substr(rest, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
                 rest = substr(rest, RSTART + RLENGTH)
                 if (match(rest, /"name":"[^"]*"/) && substr(rest, RSTART + 8, RLENGTH - 9) == name) v[name, ++n] = x
             }
             return n
         }
         { n = of("direct", "best_valid_loss"); m = of("mlp encoder-hidden=8", "best_valid_loss")
           for (i = 1; i <= n; i++) { d[i] = v["mlp encoder-hidden=8", i] - v["direct", i]; mean += d[i] / n }
           for (i = 1; i <= n; i++) square += (d[i] - mean) ^ 2
           low = high = v["direct", 1]
           for (i = 1; i <= n; i++) { sum += v["direct", i]; if (v["direct", i] < low) low = v["direct", i]
                                      if (v["direct", i] > high) high = v["direct", i] }
           printf "%d %d %.9f %.9f %.9f %.9f %.9f\n", n, m, sum / n, low, high, mean, sqrt(square / (n - 1) / n) }' out
}
run 0 compare $shared --methods direct,mlp:encoder-hidden=8 --seeds 3 --out seeds --quiet --json
object='{"mean":\([-0-9.e]*\),"min":\([-0-9.e]*\),"max":\([-0-9.e]*\)}'
numbers >want
{
    sed -n "s/.*\"name\":\"direct\",\"method\".*\"runs\":3,.*\"loss\":$object,\"score\":null,\"difference\":null.*/3 3 \1 \2 \3/p" out
    sed -n 's/.*"difference":{"mean":\([-0-9.e]*\),"standard_error":\([-0-9.e]*\),"pairs":3}.*/ \1 \2/p' out
} | tr -d '\n' | awk '{ printf "%d %d %.9f %.9f %.9f %.9f %.9f\n", $1, $2, $3, $4, $5, $6, $7 }' >got
cmp -s want got || fail "want $(cat want), got $(cat got)"

# a task with a head: the head alone comes first, the bare base has no score with a reason, full
# trains all parameters
"$MAKE_TINY" bert 1 bert || exit 1
for i in 1 2 3 4 5 6; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i
done >rows.tsv
printf 'task = seq-cls\nprefix-length = 4\nprecision = f32\n' >cls.txt
cls="--base bert --data rows.tsv --valid rows.tsv --options cls.txt --threads 2 --quiet"
run 0 compare $cls --methods direct,full:lr=1e-3 --steps 4 --eval-every 2 --out cls
has out '^bare base  *0  *0.0000%  *no score: a base has no head for task seq-cls$'
has out '^head  *66  .*  [-+0][.0-9]*'
has out '^full lr=1e-3  *[0-9]*  *97.5429% ' # all but the base's pooler, which stays as it is
sed -n '3p' out | grep -q '^head ' || fail "the head is not the first method: $(cat out)"
has out ' to direct$'
has cls/compare.html 'id="score"'
has cls/compare.html '<tr><td>2</td>'
# a method named explicitly appears once, in its given place
run 0 compare $cls --methods direct,head --steps 2 --out named
[ "$(grep -c '^head ' out)" -eq 1 ] || fail "$(cat out)"
sed -n '4p' out | grep -q '^head ' || fail "the head is not where it stands: $(cat out)"

# refusals before any training
run 2 compare $shared --methods lora --out other --quiet
has err '--methods "lora": want mlp|'
run 2 compare $shared --methods , --out other --quiet
has err '^kvfold: compare: --methods is empty'
run 2 compare $shared --methods direct,direct:lr --out other --quiet
has err 'after direct want option=value, found "lr"'
run 2 compare $shared --methods direct:learning=1 --out other --quiet
has err 'direct: "learning" is not an option of train that can vary'
run 2 compare $shared --methods direct:steps=1 --out other --quiet
has err 'direct: "steps" is not an option of train that can vary'
run 2 compare $shared --methods full:prefix-length=3 --out other --quiet
has err '--methods: --prefix-length is not for method full'
run 2 compare $shared --methods mlp,mlp --out other --quiet
has err '--methods: mlp is listed twice'
run 2 compare $shared --methods mlp --inits words --out other --quiet
has err '--inits "words": want vocab|'
run 2 compare $shared --methods adapter,full --out other --quiet
has err 'small.txt:1: prefix-length: none of the compared methods has this option'
absent other
run 1 compare $shared --methods direct --out runs --quiet
has err '^kvfold: compare: runs/compare.html: exists'
rm runs/compare.html runs/compare.svg
run 1 compare $shared --methods direct --out runs --quiet
has err '^kvfold: train: runs/direct-0.run.h5: exists '
has err '^kvfold: compare: train for direct-0 failed'

# a failed run does not stop the others, and gets a line with the reason
run 1 compare $shared --methods direct,mlp:init-encoder=nothing.h5 --out partly --quiet
has err '^kvfold: compare: train for mlp-init-encoder=nothing.h5-0 failed'
has out '^direct '
has err '^kvfold: compare: 1 of 2 runs failed$'
has out '^mlp init-encoder=nothing.h5  seed 0 failed: nothing.h5: cannot open: No such file or directory$'
[ "$(wc -l <out)" -eq 5 ] || fail "not a heading, the bare base, two rows and an end: $(cat out)"
has partly/compare.html '>direct</li>'
has partly/compare.html '>seed 0 failed: nothing.h5: cannot open: No such file or directory</td>'

export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2
run 2 compare $shared --methods direct --out ranks --quiet
err_is 'kvfold: compare: a comparison runs in one process, but Open MPI started 2; try kvfold compare --help'
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE

# a run that folds to two files: its size counts both
echo 'unfreeze = base' >both.txt
run 0 compare --base model --data train.jsonl --valid valid.jsonl --options both.txt --steps 2 --methods p-tuning --out both --json
! grep -q failed err || fail "a row failed"
[ "$(value bytes)" -eq "$(cat both/p-tuning-0.h5 both/p-tuning-0.base.h5 | wc -c)" ] ||
  fail "bytes are not those of both files"

# ---- an experiment: rows in sections, axes, common options at its top and on the command line
cat >experiment.txt <<'X'
# rows and axes
task = seq-cls
precision = f32
seeds = 2
steps = 2
[random]
method = direct
init = random
[a text]
method = direct
init-text = good, bad
steps = 1
[adapter]
method = adapter
adapter-size = 4

[*]
prefix-length = 2, 4
X
data="--base bert --data rows.tsv --valid rows.tsv --threads 2 --quiet"
run 0 compare --recipe experiment.txt $data --lr 0.01 --out experiment
sed 's/  .*//' out >names
printf '%s\n' method 'bare base' 'random prefix-length=2' 'random prefix-length=4' 'a text prefix-length=2' \
    'a text prefix-length=4' adapter '2 seeds of 2 steps, '"$(sed -n 's/.*steps, \([0-9]* parameters\).*/\1/p' out)" >want
sed 's/ in the base.*//' names | cmp -s - want || fail "rows: $(cat out)"
for name in random-prefix-length=2 a_text-prefix-length=4 adapter; do
    [ -s "experiment/$name-1.run.h5" ] || fail "no experiment/$name-1.run.h5"
done
run 0 inspect experiment/a_text-prefix-length=4-1.run.h5 --json
has out '"init-text":"good, bad"'
has out '"prefix-length":4'
has out '"lr":0.01'
has out '"steps":1'
[ "$(grep -c '<circle' experiment/compare.svg)" -eq 5 ] || fail "compare.svg has not five dots"
has experiment/compare.html '<circle'

# the command line overrides the common options; without rows, those of --methods
printf 'seeds = 3\nprefix-length = 4\nprecision = f32\nsteps = 1\n[*]\nmethod = direct, projected\nlr = 0.1, 0.2\n' >axes.txt
run 0 compare --recipe axes.txt --base model --data train.jsonl --valid-split 0.5 --methods mlp --seeds 1 --out axes --quiet
[ "$(grep -c '^mlp method=' out)" -eq 4 ] || fail "$(cat out)"
has out '^mlp method=projected lr=0.2  '
has out '^bare base .* not measured: this needs a single --valid FILE$'

# every option of train is offered, or refused with the reason
for option in $("$KVFOLD" train --help all | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p'); do
    [ $option = verbose ] && continue # its runs do not print
    "$KVFOLD" compare --help all | grep -qe "^  --$option\b" && continue
    run 2 compare "--$option=x"
    has err "^kvfold: compare: --$option: .*comparison"
done

# every error has its line number, before any training
bad() {
    printf '%b' "$1" >bad.txt
    run 2 compare --recipe bad.txt $data --task seq-cls --out bad
    out_is
    has err "^kvfold: [a-z]*: bad.txt:$2"
    absent bad
}
bad 'seeds = 2\nlearning = 1\n' '2: option "learning" is not known'
bad '[a]\nlearning = 1\n' '2: option "learning" is not known'
bad '[a\n' '1: want \[NAME\], found "\[a"'
bad '[a]\nlr 3\n' '2: want "option = value", found "lr 3"'
bad '[a/b]\n' '1: section "a/b": want letters'
bad '[a]\n[a]\n' '2: a is listed twice'
bad '[a]\nmethod = lora\n' '2: method "lora": want mlp|'
bad '[a]\nseed = 3\n' '2: seed: it applies to all rows'
bad '[a]\nbase = other\n' '2: base: it applies to all rows'
bad '[a]\nlr = fast\n' '2: --lr "fast": want a number'
bad '[a]\nmethod = adapter\n\nprefix-length = 3\n' '4: --prefix-length: not for method adapter'
bad '[a]\nmethod = direct\n[b]\nmethod = full\n[c]\nlr = 1\ntrain-head = true\n' '7: --train-head is for --task lm'
bad '[a]\nmethod = direct\n[*]\nlr = 1,, 2\n' '4: lr has an empty value'
bad '[a]\nmethod = direct\n[*]\nlr = 1, fast\n' '4: --lr "fast": want a number'
bad 'methods = mlp\n[a]\nmethod = direct\n' '2: --methods and sections exclude each other, because the sections are the rows'
bad 'encoder-hidden = 3\n[a]\nmethod = direct\n' '1: encoder-hidden: none of the compared methods has this option'
run 2 compare --base model --data train.jsonl --out bad
has err '^kvfold: compare: --valid FILE or --valid-split X is needed'

# ---- ensembles: the results of eval for the same files
printf 'task = seq-cls\nprecision = f32\nprefix-length = 2\nsteps = 3\nseeds = 4\nensembles = 1,2,4\n[direct]\nmethod = direct\n' >many.txt
run 0 compare --recipe many.txt $data --out many --json
mv out many.json
for seeds in '0 1' '2 3' '0 1 2 3'; do
    list=
    for seed in $seeds; do list="$list --prefix many/direct-$seed.run.h5"; done
    for vote in mean majority; do
        run 0 eval --base bert --data rows.tsv $list --vote $vote --precision f32 --threads 2 --json
        value accuracy
    done
done >each
{
    awk 'NR == 1 { a = $1 } NR == 3 { printf "%.9f\n", (a + $1) / 2 }' each
    awk 'NR == 2 { a = $1 } NR == 4 { printf "%.9f\n", (a + $1) / 2 }' each
    awk 'NR > 4 { printf "%.9f\n", $1 }' each
} >want
grep -o '"name":"direct, m[^}]*"mean":[0-9.e-]*' many.json | sed 's/.*"mean"://' | awk '{ printf "%.9f\n", $1 }' >got
cmp -s want got || fail "ensembles: $(diff want got)"
has many.json '"name":"direct, alone","prompts":1,"vote":"mean","groups":4,'
has many/compare.html '>direct, majority of 4</th>'
[ "$(grep -c '<circle' many/compare.svg)" -eq 6 ] || fail 'compare.svg has not a dot for the row and each ensemble'
run 2 compare --recipe many.txt $data --ensembles 5 --out other
has err '--ensembles "5": want numbers from 1 to --seeds 4'
run 2 compare $data --task seq-cls --methods adapter --ensembles 1 --out other
has err '--ensembles does not support method adapter, because its runs do not share the base'

# several tasks share a prefix: no head alone, and no method without a prefix
several='--base bert --task seq-cls --data a=rows.tsv --data b=rows.tsv --valid a=rows.tsv --valid b=rows.tsv --threads 2 --quiet'
run 0 compare $several --methods mlp,direct --prefix-length 2 --precision f32 --steps 2 --out several
has out '^direct .*[0-9]\.[0-9]'
if grep -q "^head " out; then fail "several tasks have a head alone"; fi
run 2 compare $several --methods mlp,full --steps 2 --out other
has err 'compare: full: --data NAME=FILE: method full has no prefix'

# the installed experiments: train accepts every row
for file in "$SOURCE"/recipes/experiments/*.txt; do
    run 2 compare --recipe "$file" --base model --data train.jsonl --valid valid.jsonl --ensembles 99 --out other
    has err '^kvfold: compare: --ensembles'
    grep -q "^#   kvfold compare --recipe recipes/experiments/${file##*/} " "$file" || fail "$file does not say how it is run"
done
