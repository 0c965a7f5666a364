# The examples: every C program and every script, on the tiny model; each takes the output of the
# one before.
make_inputs
programs=$(dirname "$KVFOLD")/examples
scripts=$SOURCE/examples
export KVFOLD

# example CODE NAME ARGUMENTS...: a program or a script of the folder; output in out and err.
example() {
    want=$1 name=$2
    shift 2
    case $name in
    *.sh) set -- "$scripts/$name" "$@" ;;
    *) set -- "$programs/example_$name" "$@" ;;
    esac
    OMP_NUM_THREADS=2 "$@" >out 2>err
    code=$?
    [ $code -eq "$want" ] && return
    fail "exit status $code, want $want: $*"
    sed 's/^/    /' err
}

for name in generate inspect train; do
    example 2 $name
    has err "^usage: $name "
done

example 0 train model train.jsonl valid.jsonl run.h5 prefix.h5
has out '^step 6 of 6: loss '
has out '^held out: .*, the best so far$'
has out '^folded to [0-9]* bytes, loss '
folded=$(sed -n 's/^folded.* loss //p' out)
run 0 eval --base model --prefix run.h5 --data valid.jsonl --precision f32
has out "^loss $folded"
example 1 train model train.jsonl valid.jsonl run.h5 prefix.h5
has err '^train: run.h5: exists'

example 0 inspect prefix.h5
has out '^prefix.h5: prefix$'
has out '^f32 prefix/past_key_values \[2, 2, 1, 2, 4, 8\]$'
example 1 inspect nothing.h5
has err '^inspect: nothing.h5: '

example 0 generate model prefix.h5 'after 3:'
has out '^without: '
with=$(sed -n 's/^with:    //p' out)
run 0 generate --base model --prefix prefix.h5 --prompt 'after 3:' --max-tokens 20 --precision f32
printf '%s\n' "$with" >want
head -n 1 out | cmp -s want - || fail "the example says \"$with\", the command \"$(head -n 1 out)\""

few='--prefix-length 4 --encoder-hidden 16 --precision f32 --threads 2'
# shellcheck disable=SC2086
example 0 train_merge_eval.sh model train.jsonl valid.jsonl whole $few --steps 6
has out '^without:$'
has out '^with:$'
[ "$(grep -c '^loss ' out)" -eq 2 ] || fail "not two losses: $(cat out)"
[ "$(grep -c '"event":"step"' whole/log.jsonl)" -eq 6 ] || fail 'no log of six steps'

# shellcheck disable=SC2086
example 0 two_rates.sh model train.jsonl valid.jsonl rates 0.03 0.000001 $few --steps 6
sed -n 1p rates/ranking | grep -q ' 0\.03$' || fail "ranking: $(cat rates/ranking)"
run 0 inspect rates/prefix.h5
# shellcheck disable=SC2086
example 0 two_rates.sh model train.jsonl valid.jsonl rates 0.03 0.000001 $few --steps 6

if command -v curl >/dev/null && ! "$KVFOLD" serve --base none 2>&1 | grep -q 'built without'; then
    example 0 serve_and_curl.sh model prefix.h5 'after 3:'
    has out '"id": *"mine"'
    has out '"choices"'
else
    skip 'serve_and_curl.sh: no curl or no server'
fi

# from Python: needs h5py, torch, transformers
python=${KVF_PYTHON:-python3}
if "$python" -c 'import h5py, torch, transformers' 2>/dev/null; then
    "$python" "$scripts/prefix_in_transformers.py" model prefix.h5 'after 3:' --max-tokens 20 >said 2>err ||
        fail "prefix_in_transformers.py: $(cat err)"
    run 0 generate --base model --prefix prefix.h5 --prompt 'after 3:' --max-tokens 20 --precision f32
    cmp -s said out || fail "transformers says \"$(cat said)\", kvfold \"$(cat out)\""
else
    skip 'prefix_in_transformers.py: no h5py, torch and transformers (KVF_PYTHON)'
fi
