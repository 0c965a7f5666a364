# compare: methods and starting values on one budget, a process each, beside the bare base and the head alone; one table,
# one JSON object, one page.
# shellcheck disable=SC2086 # words
make_inputs
printf 'prefix-length = 4\nprecision = f32\n' >small.txt
shared="--base model --data train.jsonl --valid valid.jsonl --options small.txt --steps 3 --threads 2"

run 0 compare $shared --methods direct,projected --out runs --quiet --json
has out '^{"out":"runs","steps":3,"runs":\[{"method":"direct","init":null,"seed":0,"trainable_parameters":'
[ "$(grep -o '"best_valid_loss":[0-9]' out | wc -l)" -eq 2 ] || fail "not two losses: $(cat out)"
[ "$(grep -o '"peak_rss_bytes":[1-9][0-9]*,"precision' out | wc -l)" -eq 2 ] || fail "not two peaks: $(cat out)"
has out "\"bytes\":$(wc -c <runs/direct-0.h5)"
# the bare base has the loss that eval says, and no head is trained for task lm
bare=$(sed -n 's/.*"bare":{"loss":\([0-9.]*\).*/\1/p' out)
grep -q '"method":"head"' out && fail 'task lm has no head of its own'
# validated at every step: a tenth of three
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

# one line for each start, whatever the number of seeds
run 0 compare $shared --methods direct --inits random,vocab,text --init-text abc --seeds 2 --out inits --quiet
[ "$(wc -l <out)" -eq 6 ] || fail "not a heading, the bare base, three rows and an end: $(cat out)"
has out '^bare base  *0  *0.0000%  *-  *-  *-  [0-9.]*$'
has out '^direct init=text  *256  .* (.* to .*)  *[-+][0-9.]* +- [0-9.]*$'

# mean and range over seeds, and the paired differences with their standard error, by hand
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

# a task with a head: the head alone first, the bare base says why it has no score, full trains all there is
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
# asked for by name it is there once, where it stands
run 0 compare $cls --methods direct,head --steps 2 --out named
[ "$(grep -c '^head ' out)" -eq 1 ] || fail "$(cat out)"
sed -n '4p' out | grep -q '^head ' || fail "the head is not where it stands: $(cat out)"

# refusals, before anything is trained
run 2 compare $shared --methods lora --out other --quiet
has err '--methods "lora": want mlp|'
run 2 compare $shared --methods , --out other --quiet
has err '^kvfold: compare: --methods names nothing'
run 2 compare $shared --methods direct,direct:lr --out other --quiet
has err 'after direct want option=value, found "lr"'
run 2 compare $shared --methods direct:learning=1 --out other --quiet
has err 'direct: "learning" is no option of train to vary'
run 2 compare $shared --methods direct:steps=1 --out other --quiet
has err 'direct: "steps" is no option of train to vary'
run 2 compare $shared --methods full:prefix-length=3 --out other --quiet
has err '--methods: --prefix-length: not for method full'
run 2 compare $shared --methods mlp,mlp --out other --quiet
has err '--methods: mlp stands there twice'
run 2 compare $shared --methods mlp --inits words --out other --quiet
has err '--inits "words": want vocab|'
run 2 compare $shared --methods adapter,full --out other --quiet
has err 'small.txt:1: prefix-length: not for the methods compared'
absent other
run 1 compare $shared --methods direct --out runs --quiet
has err '^kvfold: compare: runs/compare.html: exists'
rm runs/compare.html
run 1 compare $shared --methods direct --out runs --quiet
has err '^kvfold: train: runs/direct-0.run.h5: exists '
has err '^kvfold: compare: train for direct-0 failed'

# what was done before a failure is printed
run 1 compare $shared --methods direct,mlp:init-encoder=nothing.h5 --out partly --quiet
has err '^kvfold: compare: train for mlp-init-encoder=nothing.h5-0 failed'
has out '^direct '
[ "$(wc -l <out)" -eq 4 ] || fail "not a heading, the bare base, one row and an end: $(cat out)"
has partly/compare.html '>direct</li>'

export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2
run 2 compare $shared --methods direct --out ranks --quiet
err_is 'kvfold: compare: a comparison is one process, Open MPI started 2; try kvfold compare --help'
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE

# a run that merge refuses has a row all the same
echo 'unfreeze = base' >both.txt
run 0 compare --base model --data train.jsonl --valid valid.jsonl --options both.txt --steps 2 --methods p-tuning --out both
has err '^kvfold: compare: merge for .*failed'
has out '^p-tuning .* - '
