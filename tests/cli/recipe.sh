# Recipes: option = value lines; the command line overrides them; errors name file and line.
make_inputs

cat >good.txt <<'R'
# what all runs share
base = model
data=train.jsonl
   prefix-length =   4
encoder-hidden = 16
precision = f32
threads = 2
schedule = constant

dry-run = false
steps = 2
R
printf 'seed = 7\r\njson = true' >>good.txt

run 0 train --recipe good.txt --out recipe.h5
[ "$(value steps)" = 2 ] || fail "steps: $(value steps)"
train 0 --out options.h5 --schedule constant --steps 2 --seed 7
same options.h5 recipe.h5

run 0 train --steps 3 --recipe=good.txt --out longer.h5
[ "$(value steps)" = 3 ] || fail "the command line did not win: $(value steps) steps"

# From a pipe, which can be read only once, before any computation of the command.
cat good.txt | (
    unset OMP_WAIT_POLICY GOMP_SPINCOUNT
    run 0 train --recipe /dev/stdin --out piped.h5
    exit $failures
) || fail 'a recipe from a pipe'
same recipe.h5 piped.h5

# bad FILE LINE: exit status 2, one line.
bad() {
    printf '%b' "$1" >bad.txt
    run 2 train --recipe bad.txt --base model --data train.jsonl --out bad.h5
    out_is
    err_is "kvfold: train: bad.txt:$2; try kvfold train --help"
    absent bad.h5
}
bad 'seed = 1\n\nlearning-rate = 3\n' '3: option "learning-rate" is not known'
bad 'seed = 1\nlr\n' '2: want "option = value", found "lr"'
bad '# lr\nlr = fast\n' '2: --lr "fast": want a number above 0'
bad 'lr =\n' '1: lr has no value'
bad '--lr = 1\n' '1: option "--lr" is not known, the nearest is lr'
bad 'recipe = other.txt\n' '1: option "recipe" is not known'
bad 'resume = maybe\n' '1: --resume "maybe": want true or false'
bad 'threads = -1\n' '1: --threads "-1": want a whole number from 0 to 2147483647'

run 1 train --recipe missing.txt --out o.h5
err_is 'kvfold: train: missing.txt: cannot open: No such file or directory'
printf 'seed = 1\0\n' >zero.txt
run 1 train --recipe zero.txt --out o.h5
err_is 'kvfold: train: zero.txt: is not a text file, because it contains a zero byte'
run 1 train --recipe . --out o.h5
err_is 'kvfold: train: .: cannot read: Is a directory'
printf 'seed = 1\n' >short.txt
run 2 train --recipe short.txt --out o.h5
err_is 'kvfold: train: --base PATH is needed; try kvfold train --help'

# The recipes of the project: every line is a valid option with a valid value.
n=0
for file in "$SOURCE"/recipes/*.txt; do
    run 2 train --recipe "$file" --out o.h5
    err_is 'kvfold: train: --base PATH is needed; try kvfold train --help'
    n=$((n + 1))
done
[ $n -ge 11 ] || fail "$n recipes"
