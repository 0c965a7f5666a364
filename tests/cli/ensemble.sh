# Ensembles of several prefixes, and prefixes that cannot be averaged.
make_inputs
for seed in 1 2; do
    train 0 --seed $seed --lr 0.1 --steps 20 --out run$seed.h5 --quiet
done
train 0 --method prompt --steps 2 --out prompt.h5 --quiet
run 0 train --base model --data train.jsonl --threads 2 --precision f32 --method adapter \
    --adapter-size 4 --steps 2 --out adapter.h5 --quiet
run 0 merge run1.h5 --out one.h5
run 0 merge run2.h5 --out two.h5
common="--base model --threads 2 --precision f32"
# shellcheck disable=SC2086 # no spaces in names
complete() { run "$1" generate $common --prompt 'after 5:' --max-tokens 8 "$2" "$3" "$4" "$5" --json; }

# equal prefixes answer as one of them
# shellcheck disable=SC2086
run 0 generate $common --prefix one.h5 --prompt 'after 5:' --max-tokens 8 --json
alone=$(value text)
complete 0 --prefix one.h5 --prefix one.h5
[ "$(value text)" = "$alone" ] || fail "twice: $(value text), alone: $alone"
[ "$(value new_tokens)" -ge 1 ] || fail 'no tokens'

# order and folding of the files do not matter
complete 0 --prefix one.h5 --prefix two.h5
both=$(value text)
complete 0 --prefix two.h5 --prefix run1.h5
[ "$(value text)" = "$both" ] || fail "in another order: $(value text), want $both"
# shellcheck disable=SC2086
run 0 generate $common --prefix one.h5 --prefix two.h5 --data valid.jsonl --max-tokens 3 --temperature 1
[ "$(grep -c '^==> ' out)" -eq 6 ] || fail 'not six texts'
# shellcheck disable=SC2086
run 0 eval $common --prefix one.h5 --prefix two.h5 --data valid.jsonl --generate 4 --json
has out '"bleu"'

# virtual tokens need rows of their own, an adapter changes the base itself
elsewhere='prefix 2 has its virtual tokens at other positions of the row than the first: merge both to prefix files'
complete 2 --prefix one.h5 --prefix prompt.h5
err_is "kvfold: generate: $elsewhere; try kvfold generate --help"
# shellcheck disable=SC2086
run 2 eval $common --prefix one.h5 --prefix prompt.h5 --data valid.jsonl
err_is "kvfold: eval: $elsewhere; try kvfold eval --help"
complete 2 --prefix one.h5 --prefix adapter.h5
err_is 'kvfold: generate: model: was opened with values of method adapter, so other prefixes cannot use it; try kvfold generate --help'

# folded, the same virtual tokens are an ordinary prefix
run 0 merge prompt.h5 --base model --out folded.h5
complete 0 --prefix one.h5 --prefix folded.h5
# shellcheck disable=SC2086
run 0 eval $common --prefix one.h5 --prefix folded.h5 --data valid.jsonl

# ---- classes: mean of probabilities and majority vote, compared with the outputs of each prefix
# alone
"$MAKE_TINY" bert 1 bert || exit 1
for i in 1 2 3 4 5 6 7 8; do
    printf 'good film %d\tyes\nbad %d film\tno\nfilm %d of some sort\tso\n' $i $i $i
done >rows.tsv
tiny="--base bert --threads 1 --precision f32"
list=
for seed in 0 1 2; do
    # shellcheck disable=SC2086
    run 0 train $tiny --data rows.tsv --task seq-cls --method direct --prefix-length 2 --steps 4 --seed $seed \
        --out class$seed.h5 --quiet
    # shellcheck disable=SC2086
    run 0 predict $tiny --data rows.tsv --prefix class$seed.h5 --out alone$seed.jsonl --quiet
    list="$list --prefix class$seed.h5"
done
# Computes probabilities and answers by hand, and counts the rows with a tie of votes, or with two
# votes against the mean.
paste -d '|' alone0.jsonl alone1.jsonl alone2.jsonl | awk '
    function of(text, class) { # probability of a class in one line
        sub(/.*"probabilities":/, "", text)
        match(text, "\"" class "\":[-0-9.e]*")
        return substr(text, RSTART + length(class) + 3, RLENGTH - length(class) - 3)
    }
    BEGIN { split("yes no so", classes, " ") }
    {
        split($0, one, "|"); best_mean = best_vote = 0
        for (c = 1; c <= 3; c++) mean[c] = votes[c] = 0
        for (k = 1; k <= 3; k++) {
            top = 1
            for (c = 1; c <= 3; c++) {
                p = of(one[k], classes[c]); mean[c] += p / 3
                if (p > of(one[k], classes[top])) top = c
            }
            votes[top]++
        }
        m = v = 1
        for (c = 2; c <= 3; c++) {
            if (mean[c] > mean[m]) m = c
            if (votes[c] + mean[c] > votes[v] + mean[v]) v = c
        }
        printf "%s %s", classes[m], classes[v]
        for (c = 1; c <= 3; c++) printf " %.6f %.6f", mean[c], (votes[c] + mean[c]) / 4
        print ""
        if (m != v) print "differs" >"/dev/stderr"
    }' >by_hand 2>differs
[ -s differs ] || echo 'note: the mean and the majority agree on every row'
# answers FILE: prediction and probabilities of its lines
answers() {
    awk '{ match($0, /"prediction":"[a-z]*"/); printf "%s", substr($0, RSTART + 14, RLENGTH - 15)
           for (c = 1; c <= 3; c++) { match($0, "\"" substr("yesno so ", 3 * c - 2, c == 1 ? 3 : 2) "\":[0-9.e-]*[,}]")
                                      x = substr($0, RSTART, RLENGTH - 1); sub(/.*:/, "", x); printf " %.6f", x }
           print "" }' "$1"
}
for vote in mean majority; do
    # shellcheck disable=SC2086
    run 0 predict $tiny --data rows.tsv $list --vote $vote --out $vote.jsonl --quiet
    [ $vote = mean ] && columns='$1, $3, $5, $7' || columns='$2, $4, $6, $8'
    awk "{ print $columns }" by_hand >want
    answers $vote.jsonl >got
    cmp -s want got || fail "$vote: $(diff want got)"
    # shellcheck disable=SC2086
    run 0 eval $tiny --data rows.tsv $list --vote $vote --json
    right=$(cut -f2 rows.tsv | paste -d ' ' - want | awk '$1 == $2' | wc -l)
    awk "BEGIN { exit !($(value accuracy) - $right / 24 < 1e-9 && $right / 24 - $(value accuracy) < 1e-9) }" ||
        fail "$vote: accuracy $(value accuracy), $right of 24 by hand"
done
# shellcheck disable=SC2086
run 2 eval $common --prefix one.h5 --prefix two.h5 --data valid.jsonl --vote majority
err_is 'kvfold: eval: --vote majority is for classes, tags and choices, not for task lm; try kvfold eval --help'
