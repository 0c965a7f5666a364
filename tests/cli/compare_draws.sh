# compare --draws: methods on rows drawn by each seed, with mean, standard deviation and paired
# differences; and --resume: a comparison that was killed ends with the files of one that was not.
# shellcheck disable=SC2086 # words
"$MAKE_TINY" bert 1 bert || exit 1
for i in 1 2 3 4 5 6 7 8 9 10; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i
done >rows.tsv
printf 'task = seq-cls\nprefix-length = 2\nprecision = f32\n' >options.txt
shared="--base bert --data rows.tsv --valid rows.tsv --options options.txt --methods direct,mlp:encoder-hidden=8 --quiet"

# ---- draws

run 0 compare $shared --rows 6 --draws 3 --seed 4 --steps 4 --threads 2 --out draws --json
cp out draws.json
has out '"draws":3'
for seed in 4 5 6; do
    run 0 train --base bert --data rows.tsv --valid rows.tsv --task seq-cls --prefix-length 2 --precision f32 \
        --method direct --rows 6 --seed $seed --steps 4 --eval-every 1 --threads 2 --out one.h5 --force --json
    value best_valid_loss >>losses
    [ "$(value examples)" = 6 ] || fail "$(cat out)"
    run 0 diff one.h5 draws/direct-$seed.run.h5 # the run of train alone
done
# mean and standard deviation by hand
awk '{ x[NR] = $1; sum += $1 } END { mean = sum / NR; for (i in x) square += (x[i] - mean) ^ 2
       printf "%.9f %.9f\n", mean, sqrt(square / (NR - 1)) }' losses >want
sed -n 's/.*"name":"direct","method".*"runs":3,[^{]*"loss":{"mean":\([0-9.e-]*\),[^}]*"sd":\([0-9.e-]*\)}.*"name":"mlp enc.*/\1 \2/p' draws.json |
    awk '{ printf "%.9f %.9f\n", $1, $2 }' >got
cmp -s want got || fail "want $(cat want), got $(cat got): $(cat draws.json)"
has draws.json '"difference":{"mean":[-0-9.e]*,"standard_error":[0-9.e-]*,"pairs":3}'
run 0 compare $shared --rows 6 --draws 3 --seed 4 --steps 4 --threads 2 --out draws --resume
has out '^direct  *322 .* [0-9.]* (sd [0-9.]*)  *[0-9.]* (sd [0-9.]*)  *-$'
has out '^mlp encoder-hidden=8 .* (sd [0-9.]*) .*[-+][0-9.]* +- [0-9.]*$'
has out '^3 draws of 4 steps, '
has draws/compare.html '<small>sd [0-9.]*</small>'
# one draw has no deviation; the head alone draws, too
run 0 compare $shared --rows 2 --draws 1 --steps 1 --threads 2 --out single
has out '^1 draw of 1 steps, '
grep -q 'sd' out && fail "$(cat out)"
[ "$(grep -c '^head ' out)" -eq 1 ] || fail "$(cat out)"

run 2 compare $shared --draws 2 --seeds 2 --out bad
has err '^kvfold: compare: --draws and --seeds exclude each other'
run 2 compare $shared --draws 0 --out bad
has err '--draws "0": want a whole number from 1'
run 2 compare $shared --draws 2 --seed 2147483648 --out bad
has err '--seed "2147483648": want a whole number from 0 to 2147483647'
run 2 compare $shared --force --resume --out bad
has err '^kvfold: compare: --force and --resume exclude each other'
absent bad
run 1 compare $shared --rows 21 --draws 1 --steps 1 --out many
has err 'rows.tsv: --rows 21: there are 20 rows to train on'
has err '^kvfold: compare: 3 of 3 runs failed$'

# ---- killed half-way: the first run is finished, the second is not

more='--rows 8 --draws 2 --steps 150 --save-every 1 --eval-every 50 --threads 1'
run 0 compare $shared $more --out whole --json
sed 's/"[a-z_]*seconds":[^,}]*//g; s/"[a-z_]*per_second":[^,}]*//g; s/"peak_rss_bytes":[^,}]*//g; s/whole/DIR/g' out >whole.json
"$KVFOLD" compare $shared $more --out killed --json >out 2>err &
pid=$!
tries=0
until grep -q '"merged"' killed/head-0.json 2>/dev/null && [ -s killed/head-1.run.h5 ]; do
    sleep 0.02
    tries=$((tries + 1))
    [ $tries -lt 1500 ] || { fail 'the second run did not begin in 30 s'; break; }
done
kill -s KILL $pid
wait $pid
tries=0
while ls killed/*.lock >listed 2>&1; do # its child notices within a step, saves and ends
    sleep 0.02
    tries=$((tries + 1))
    [ $tries -lt 500 ] || { fail 'the child still trains after 10 s'; break; }
done
absent killed/compare.html killed/mlp-encoder-hidden=8-1.run.h5
ls -i killed/head-0.run.h5 >inode
run 0 compare $shared $more --out killed --json --resume
ls -i killed/head-0.run.h5 >again
same inode again
sed 's/"[a-z_]*seconds":[^,}]*//g; s/"[a-z_]*per_second":[^,}]*//g; s/"peak_rss_bytes":[^,}]*//g; s/killed/DIR/g' out >killed.json
same whole.json killed.json
for name in head direct mlp-encoder-hidden=8; do
    for seed in 0 1; do
        same whole/$name-$seed.run.h5 killed/$name-$seed.run.h5
        same whole/$name-$seed.h5 killed/$name-$seed.h5
    done
done
[ -s killed/compare.html ] || fail 'no page'

# a finished comparison is read back: no run is trained or merged again, and speeds stay
grep -o '"tokens_per_second":[0-9.]*' out >speeds
ls -i killed/*.h5 >inode
run 0 compare $shared $more --out killed --json --resume
ls -i killed/*.h5 >again
same inode again
grep -o '"tokens_per_second":[0-9.]*' out >again
same speeds again
# a lost file is made again, a damaged record is none
rm killed/direct-0.run.h5 killed/direct-1.h5
echo '{' >killed/head-1.json
run 0 compare $shared $more --out killed --json --resume
for name in direct-0.run.h5 direct-0.h5 direct-1.h5 head-1.run.h5; do same whole/$name killed/$name; done

# other arguments and other data are no continuation
run 2 compare $shared $more --steps 151 --out killed --resume
has err '^kvfold: compare: killed/head-0.json: --resume: the run had --steps=150, not --steps=151; try '
run 2 compare $shared $more --lr 0.1 --out killed --resume
has err 'killed/direct-0.json: --resume: the run had --.*, not --'
run 1 compare $shared $more --out killed
has err '^kvfold: compare: killed/compare.html: exists'
cp rows.tsv kept.tsv
sed 's/good/best/' kept.tsv >rows.tsv
run 1 compare $shared $more --out killed --resume
has err 'head-0.run.h5: the run was created with a different data file'
cp kept.tsv rows.tsv
run 0 compare $shared $more --out killed --resume
same whole/mlp-encoder-hidden=8-1.run.h5 killed/mlp-encoder-hidden=8-1.run.h5

# a record is never an input, and replaces no other file
printf '{"text": "good", "label": "yes"}\n{"text": "bad", "label": "no"}\n' >single/direct-0.json
run 2 compare --base bert --data single/direct-0.json --valid rows.tsv --task seq-cls --methods direct --steps 1 --out single --force
has err '^kvfold: compare: single/direct-0.json: is read by this command, it will not be replaced'
mkdir other
cp single/direct-0.json other/
run 1 compare $shared --steps 1 --out other
has err '^kvfold: compare: other/direct-0.json: exists'
same single/direct-0.json other/direct-0.json
