# The Python code of README and examples/prefix_in_transformers.py, on every kind of prefix file:
# the text of kvfold, or a refusal. Needs h5py, torch and transformers (KVF_PYTHON).
python=${KVF_PYTHON:-python3}
if ! "$python" -c 'import h5py, torch, transformers' 2>/dev/null; then
    echo 'no h5py, torch and transformers (KVF_PYTHON)'
    exit 77
fi
make_inputs
"$MAKE_TINY" bert 1 bert || exit 1

# folded NAME OPTIONS...: trained and merged to NAME.h5.
folded() {
    name=$1
    shift
    train 0 --steps 4 --init vocab --out run.h5 --force --quiet "$@"
    run 0 merge run.h5 --out "$name.h5"
}
folded plain
folded zero --position-start 0
for dtype in f16 bf16 int8; do
    run 0 quantize plain.h5 --dtype $dtype --out $dtype.h5
done
run 0 prune plain.h5 --base model --data valid.jsonl --keep 3 --out pruned.h5
run 0 quantize pruned.h5 --dtype int8 --out pruned8.h5
run 0 convert-position plain.h5 --base model --position-start 9 --out moved.h5
right='plain zero f16 bf16 int8 pruned pruned8 moved'
for name in $right; do
    run 0 generate --base model --prefix $name.h5 --prompt 'Internet, noun:' --max-tokens 40 --precision f32
    cp out $name.txt
done
[ "$(cat plain.txt pruned.txt zero.txt | sort -u | wc -l)" -ge 3 ] || fail "one text for several prefixes: $(cat plain.txt)"

folded some --layers 1-1
folded inside --method direct --infix
folded headed --train-head
folded tokens --method prompt --p-template '{prompt} {p:4} {completion}'
train 0 --steps 1 --out started.h5 --quiet
run 0 train --base model --data train.jsonl --method adapter --adapter-size 2 --steps 1 --out adapted.run.h5 --quiet
run 0 merge adapted.run.h5 --out adapted.h5
printf 'text\tlabel\ngood day\tyes\nbad day\tno\n' >classes.tsv
run 0 train --base bert --task seq-cls --data classes.tsv --method direct --prefix-length 4 --steps 1 --out classes.run.h5 --quiet
run 0 merge classes.run.h5 --out classes.h5

# shellcheck disable=SC2086 # several names
"$python" "$SOURCE/tests/peers/prefix_in_cache.py" "$SOURCE" model $right some inside headed tokens started adapted classes >said 2>err ||
    fail "$(cat said err)"
cat said
