# sweep: the runs of a grid in one pass, one table, and files that other commands read.
make_inputs
cat >grid.txt <<'G'
# two by two, and one more
lr = 0.01, 0.03
prefix-length = 4, 6
[mine]
method = direct
steps = 2
G
shared="--base model --data train.jsonl --precision f32 --threads 2 --steps 4 --schedule constant"

# shellcheck disable=SC2086 # words
run 0 sweep $shared --valid valid.jsonl --grid grid.txt --out runs --quiet
has out '^rank  name  *lr  *prefix-length  *method  *loss  *steps  *seconds  status$'
has out '^   1  '
has out '^ .*mine  *0.03  *64  *direct .* 2  .* done$'
has out '^runs: 5 runs, 4 passes, '
[ "$(grep -c ' done$' out)" -eq 5 ] || fail "not five runs: $(cat out)"
[ "$(wc -l <runs/sweep.csv)" -eq 6 ] || fail "sweep.csv: $(cat runs/sweep.csv)"
[ "$(grep -c '<tr><th scope="row">' runs/sweep.html)" -eq 5 ] || fail "sweep.html has not five runs"
has runs/sweep.html 'data-column="loss-mean-4">'
has runs/sweep.html '<h3>Validation loss</h3>'
has runs/sweep.csv '^rank,name,lr,prefix-length,method,metric,value,'
run 0 merge runs/lr-0.01_prefix-length-6.h5 --out folded.h5
has out 'folded.h5: \[2, 2, 1, [0-9]*, 6, '
run 0 eval --base model --data valid.jsonl --prefix runs/mine.h5 --precision f32 --threads 2

# existing files stay; --resume has nothing to do; train continues one of them
# shellcheck disable=SC2086
run 1 sweep $shared --valid valid.jsonl --grid grid.txt --out runs
err_is 'kvfold: sweep: runs/lr-0.01_prefix-length-4.h5: exists (--force replaces it, --resume continues it)'
# shellcheck disable=SC2086
run 0 sweep $shared --valid valid.jsonl --grid grid.txt --out runs --resume --json
[ "$(grep -o '"finished_before":true' out | wc -l)" -eq 5 ] || fail "not five finished: $(cat out)"
has out '"passes":0'
run 0 train --base model --data train.jsonl --valid valid.jsonl --out runs/mine.h5 --threads 2 --resume --steps 4
has out '^runs/mine.h5: 4 steps'

# notes name their runs; one object with --json
# shellcheck disable=SC2086
run 0 sweep $shared --grid grid.txt --out other --max-runs 2 --verbose
has out '^lr-0.03_prefix-length-6: encoder fits the initial prefix of --init match'
has out '^other: 5 runs, 10 passes, '
has out 'last_train_loss'
# shellcheck disable=SC2086
run 0 sweep $shared --grid grid.txt --out dry --dry-run --max-runs 2
has out '^mine: dry run: 24 examples, '
has out ' waiting$'
absent dry

# a failing run
printf 'lr = 0.01, 1e38\nmethod = direct\n' >wild.txt
# shellcheck disable=SC2086
run 1 sweep $shared --grid wild.txt --out wild --quiet
err_is 'kvfold: sweep: 1 of 2 runs failed'
has out '^   1  lr-0.01 .* done$'
has out '^   -  lr-1e38 .* failed$'
has out '^lr-1e38: step [0-9]*: '

# several seeds: mean and range of runs that differ only in their seed
printf 'lr = 0.01, 0.05\nseed = 0, 1, 2\nmethod = direct\n' >seeds.txt
# shellcheck disable=SC2086
run 0 sweep $shared --grid seeds.txt --out seeds --quiet
has out '^name  *runs  last_train_loss over seeds$'
has seeds/sweep.html '<h2>Over seeds</h2>'
for lr in 0.01 0.05; do
    awk -F, -v lr=$lr '$3 == lr { n++; x = $6; sum += x; if (n == 1 || x < low) low = x; if (n == 1 || x > high) high = x }
        END { printf "lr=%s  %d  %.4f (%.4f to %.4f)\n", lr, n, sum / n, low, high }' seeds/sweep.csv >want
    grep "^lr=$lr " out | sed 's/  */  /; s/  */  /' | tr -s ' ' >got
    tr -s ' ' <want | cmp -s - got || fail "want $(cat want), got $(cat got), of $(cat seeds/sweep.csv)"
done
# shellcheck disable=SC2086
run 0 sweep $shared --grid grid.txt --out one --quiet
grep -q 'over seeds' out && fail 'one seed has no range'

# values decided by the data are shown as decided
"$MAKE_TINY" bert 1 bert
for i in 1 2 3 4 5 6 7 8 9; do printf 'row %d\tc%d\n' $i $((i % 3)); done >classes.tsv
printf 'head-lr = 0.3\n\n[open]\nlr = 0.02\n' >heads.txt
run 0 sweep --base bert --task seq-cls --data classes.tsv --method direct --prefix-length 2 --steps 1 --grid heads.txt --out heads --quiet
has heads/sweep.csv ',open,0.02,'

# misuse
# shellcheck disable=SC2086
run 2 sweep $shared --out bad
err_is 'kvfold: sweep: --grid FILE is needed; try kvfold sweep --help'
bad() {
    printf '%b' "$1" >bad.txt
    # shellcheck disable=SC2086
    run 2 sweep $shared --grid bad.txt --out bad
    out_is
    err_is "kvfold: sweep: bad.txt:$2; try kvfold sweep --help"
    absent bad
}
bad 'lr = 0.1\nlr 3\n' '2: want "option = value" or "[NAME]", found "lr 3"'
bad 'lr = fast\n' '1: --lr "fast": want a number above 0'
bad '[a]\nlr = 1\n[a]\n' '3: run "a" is already defined on line 1'
bad 'precision = f32, bf16\n' '1: precision cannot differ between the runs of a sweep: the runs of a sweep share the base'
bad 'method = mlp, full\n' '1: run method-full: --method full: the runs of a sweep share the base'
# shellcheck disable=SC2086
run 2 sweep $shared --grid grid.txt --out bad --log log.jsonl
err_is 'kvfold: sweep: --log: the runs would write to one file; --tensorboard gives each run a folder; try kvfold sweep --help'
bad 'lr = 0.1\ninfix = true\n' '2: --infix: not available in a sweep'
# options in --help are accepted, all others are refused with a reason
run 0 sweep --help all
has out '^  --method mlp|direct|projected|prompt|p-tuning$'
for option in log forecast unfreeze base-lr base-dropout prefix-dropout-per-row infix adapter-size \
    adapter-activation adapter-norms adapter-placement task-prefix mix; do
    run 0 sweep --help all
    grep -e "^  --$option\( \|$\)" out && fail "sweep --help offers --$option"
    run 2 sweep --$option x
    has err "^kvfold: sweep: --$option: .* sweep\|^kvfold: sweep: --$option: the runs would"
done
# shellcheck disable=SC2086
run 0 sweep $shared --grid grid.txt --out board --tensorboard events --quiet
[ "$(find events/mine -name 'events*' | wc -l)" -eq 1 ] || fail "no events of mine: $(find events)"

# --batch-tokens auto is a value of a grid; the run's file has the resulting number
printf 'method = direct\nsteps = 2\nbatch-tokens = 40, auto\n' >tokens.txt
# shellcheck disable=SC2086
run 0 sweep $shared --grid tokens.txt --out tokens --quiet
run 0 inspect tokens/batch-tokens-auto.h5
has out 'batch-tokens *[1-9][0-9][0-9]'

export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2
# shellcheck disable=SC2086
run 2 sweep $shared --grid grid.txt --out bad
err_is 'kvfold: sweep: a sweep runs in one process, but Open MPI started 2; try kvfold sweep --help'
