# Files of an earlier kvfold (golden/old_files): each is read and measures as it did, runs go on as they went on then, and merge
# to the same values. Measures and merges are compared to the bit where this machine gives the earlier bits of the bare base.
old=$SOURCE/tests/golden/old_files
# shellcheck source=tests/golden/old_files/cases.sh
. "$old/cases.sh"
make_bases "$MAKE_TINY" || exit 1
cp "$old"/*.h5 "$old"/*.jsonl "$old/mood.tsv" "$old/names.conll" .
tab=$(printf '\t')

# near WHAT GOT WANT: products with AVX2 sum in another order than the kvfold that made the files
near() {
    awk "BEGIN { d = $2 - $3; exit !(d * d < 1e-10 * $3 * $3) }" || fail "$1: $2, want $3"
}

# same_values A B MOST: tensors of two files, which differ by less than that; 0: not at all.
same_values() {
    "$KVFOLD" diff "$1" "$2" --tensors-only --json >out 2>err
    code=$?
    [ $code -eq 0 ] && return
    [ $code -eq 1 ] && grep -q '"removed":\[\],"added":\[\]' out &&
        awk "BEGIN { exit !($(sed 's/.*"max_abs":\([^}]*\)}}$/\1/' out) < $3) }" && return
    fail "$1 and $2 differ: $(cat out err)"
}

# measure FILE: how it measures today
measure() {
    case $1 in
    model | small.h5 | full.h5) set -- --base "$1" ;;
    mlp_*.h5) set -- --base model --prefix "$1" ;;
    *) set -- --base "$(base_of "$case")" --prefix "$1" ;;
    esac
    # shellcheck disable=SC2046 # words
    run 0 eval "$@" $(measured_with "$case")
}

while IFS=$tab read -r file loss; do
    case=${file%.h5}
    case=${case#*_}
    measure "$file"
    near "loss of $file" "$(value loss)" "$loss"
done <"$old/losses"

# Six steps sum gradients in another order than before, by shapes and not by threads.
# shellcheck disable=SC2046 # words
for case in $CASES; do
    base=$(base_of "$case")
    run 0 merge "run_$case.h5" --base "$base" --out merged.h5 --force
    same_values merged.h5 "$case.h5" 0
    run 0 train --base "$base" $(data_of "$case") $(needs_of "$case") $(options_of "$case") --steps $RESUMED \
        --out "run_$case.h5" --resume
    same_values "run_$case.h5" "resumed_$case.h5" 1e-5
done

# a recipe of before
cat >recipe.txt <<'EOF'
base = model
data = train.jsonl
method = direct
prefix-length = 4
steps = 1
meter = valid.jsonl
kl-to-base = 0.5
share-leads = off
group-by = lead
EOF
run 0 train --recipe recipe.txt --out recipe.h5 --quiet
run 0 inspect recipe.h5 --json
has out '"share-leads":"off","group-by":"lead"'
