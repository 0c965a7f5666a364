# --log-weight: methods, initial values, resuming, support by every command, and refusals.
make_inputs
loss() { # FILE
    run 0 eval --base model --prefix "$1" --data valid.jsonl --precision f32 --threads 2 --json
    value loss
}

# off is the default, and the file needs no feature
train 0 --out off.h5 --steps 1 --quiet
run 0 inspect off.h5
has out '^off.h5: run$'
train 0 --out said.h5 --log-weight off --steps 1 --quiet
same off.h5 said.h5

# every prefix method: fixed near zero, the loss equals the bare base's up to 1e-3
run 0 eval --base model --data valid.jsonl --precision f32 --threads 2 --json
bare=$(value loss)
for method in mlp direct projected; do
    train 0 --out fixed-$method.h5 --valid valid.jsonl --method $method --log-weight fixed --start-mass -10 --lr 1e-30 --steps 1
    has out 'log-weights: initial loss [0-9.]*, [0-9.]* with the bare base ([-+][0-9.]*e-0[4-9])'
    run 0 merge fixed-$method.h5 --base model --out fixed-$method-folded.h5
    live=$(run 0 eval --base model --prefix fixed-$method.h5 --data valid.jsonl --precision f32 --threads 2 --json; value loss)
    [ "$(loss fixed-$method-folded.h5)" = "$live" ] || fail "$method: folded $(loss fixed-$method-folded.h5), live $live"
    awk -v a="$live" -v b="$bare" 'BEGIN { exit !(a - b < 1e-3 && b - a < 1e-3) }' || fail "$method: $live, the bare base $bare"
done
run 0 inspect fixed-direct-folded.h5
has out '^fixed-direct-folded.h5: prefix, features log-weight$'
has out '^  prefix/log_weight  *\[2, 2, 4\] '
has out '^  start-mass  *-10.0$'

# trained: it moves at its own rate; a resumed run equals an unbroken one; folding keeps the values
for method in mlp direct; do
    set -- --method $method --log-weight train --start-mass -2 --schedule-steps 6 --eval-every 3 --save-every 3 --valid valid.jsonl --quiet
    train 0 "$@" --out whole.h5 --steps 6 --force
    train 0 "$@" --out parts.h5 --steps 3 --force
    run 0 train --base model --data train.jsonl --valid valid.jsonl --out parts.h5 --steps 6 --resume --threads 2 --quiet
    same whole.h5 parts.h5
    train 0 "$@" --out slow.h5 --steps 6 --log-weight-lr 1e-30 --force
    run 1 diff whole.h5 slow.h5
    has out 'encoder/log_weight'
done
run 2 train --base model --data train.jsonl --out parts.h5 --resume --log-weight fixed
has err 'parts.h5: --log-weight differs from that of the run'
run 0 merge whole.h5 --out p.h5 --json
has out '"max_abs_diff":0'
[ "$(loss whole.h5)" = "$(loss p.h5)" ] || fail 'folded is not live'
for command in 'generate --prompt ab --max-tokens 6' 'score --data valid.jsonl --out -'; do
    # shellcheck disable=SC2086 # words
    run 0 $command --base model --prefix whole.h5
    mv out live
    # shellcheck disable=SC2086
    run 0 $command --base model --prefix p.h5
    same live out
done

# the tools
run 0 merge off.h5 --out plain.h5
run 0 compose p.h5 plain.h5 --base model --out both.h5
run 0 inspect both.h5
has out '^  prefix/log_weight  *\[2, 2, 8\] '
run 0 compose p.h5 p.h5 --mode average --out same.h5
[ "$(loss same.h5)" = "$(loss p.h5)" ] || fail 'a mean with itself is another'
run 0 prune p.h5 --base model --data valid.jsonl --out two.h5 --keep 2 --precision f32 --threads 2 --json
after=$(value loss_after)
[ "$(loss two.h5)" = "$after" ] || fail "eval says $(loss two.h5), prune $after"
run 0 quantize p.h5 --dtype int8 --out small.h5
run 0 inspect small.h5
has out '^  prefix/log_weight  *\[2, 2, 4\] '
run 0 unmerge p.h5 --out back.h5 --encoder-hidden 16
awk -v a="$(loss back.h5)" -v b="$(loss p.h5)" 'BEGIN { exit !(a - b < 1e-4 && b - a < 1e-4) }' || fail 'unmerged is another'
run 0 convert-position p.h5 --base model --position-start 0 --out moved.h5
awk -v a="$(loss moved.h5)" -v b="$(loss p.h5)" 'BEGIN { exit !(a - b < 1e-4 && b - a < 1e-4) }' || fail 'converted is another'
run 1 diff p.h5 plain.h5
has out 'prefix/log_weight'
run 0 report whole.h5 --out page.html --base model --data valid.jsonl
for format in peft safetensors llamacpp mlx; do
    run 1 export p.h5 --format $format --out exported
    err_is 'kvfold: export: p.h5: its virtual tokens have log-weights (--log-weight), which other programs do not support'
done
absent exported

# use as initial prefix
train 0 --out on.h5 --method direct --init-from p.h5 --log-weight fixed --lr 1e-30 --steps 1 --quiet
[ "$(loss on.h5)" = "$(loss p.h5)" ] || fail 'trained on from another'
train 0 --out again.h5 --method direct --init-from whole.h5 --log-weight train --log-weight-lr 1e-30 --lr 1e-30 --steps 1 --quiet
[ "$(loss again.h5)" = "$(loss p.h5)" ] || fail 'trained on from another run'
train 2 --out no.h5 --init-kv p.h5 --steps 1
err_is 'kvfold: train: p.h5: has log-weights: use --log-weight fixed or train; try kvfold train --help'
train 2 --out no.h5 --init-kv p.h5 --log-weight train --start-mass 0 --steps 1
err_is 'kvfold: train: --start-mass: not with p.h5, which has log-weights; try kvfold train --help'
# with other features: masked layers, dropout, inside rows, several tasks
train 0 --out masked.h5 --layers 1 --log-weight train --start-mass -3 --steps 2 --prefix-dropout 0.2 --quiet
run 0 merge masked.h5 --out masked-folded.h5
[ "$(loss masked.h5)" = "$(loss masked-folded.h5)" ] || fail 'masked: folded is not live'
train 0 --out rows.h5 --prefix-dropout 0.2 --prefix-dropout-per-row --log-weight train --steps 2 --quiet
train 0 --out infix.h5 --infix --log-weight train --start-mass -3 --steps 2 --quiet
run 0 merge infix.h5 --out infix-folded.h5
[ "$(loss infix.h5)" = "$(loss infix-folded.h5)" ] || fail 'infix: folded is not live'
run 0 generate --base model --prefix infix.h5 --prompt 'ab' --max-tokens 4
run 0 train --base model --data a=train.jsonl --data b=valid.jsonl --prefix-length 4 --task-prefix low-rank --log-weight train --start-mass -3 \
    --steps 3 --out tasks.h5 --quiet

# runs of a sweep have the bits they have alone, and a server uses each row's prefix
printf '[plain]\n[weighted]\nlog-weight = train\nstart-mass = -2\n' >grid.txt
shared='--base model --data train.jsonl --precision f32 --threads 2 --quiet --method direct --prefix-length 4 --steps 4'
# shellcheck disable=SC2086 # words
run 0 sweep $shared --grid grid.txt --out swept
# shellcheck disable=SC2086
run 0 train $shared --out plain-run.h5
# shellcheck disable=SC2086
run 0 train $shared --out weighted-run.h5 --log-weight train --start-mass -2
for name in plain weighted; do
    run 0 diff swept/$name.h5 $name-run.h5 --tensors-only
done
. "$SOURCE/tests/cli/server.sh"
text() { sed -n 's/.*"text": *\("\([^"\]\|\\.\)*"\).*/\1/p' "$1"; }
serve_on --prefix weighted=p.h5 --prefix plain=plain.h5
if [ "$port" = 0 ]; then
    wait "$pid"
    skip 'the server: built without libmicrohttpd'
else
    for name in weighted plain; do
        post /v1/completions '{"model": "'$name'", "prompt": "after 5:", "max_tokens": 8, "temperature": 0}' || skip 'requests: nothing to ask with'
        text answer >$name.said
    done
    end TERM 143
    for name in weighted:p plain:plain; do
        run 0 generate --base model --prefix ${name#*:}.h5 --prompt 'after 5:' --max-tokens 8 --threads 2 --precision f32 --json
        text out >said
        [ ! -s ${name%:*}.said ] || same ${name%:*}.said said
    done
fi

train 2 --out no.h5 --start-mass -10
err_is 'kvfold: train: --start-mass needs --log-weight fixed or train; try kvfold train --help'
train 2 --out no.h5 --log-weight fixed --log-weight-lr 1
err_is 'kvfold: train: --log-weight-lr needs --log-weight train; try kvfold train --help'
train 2 --out no.h5 --log-weight fixed
err_is 'kvfold: train: --log-weight fixed: all log-weights are 0: use --start-mass, or start from a file with log-weights; try kvfold train --help'
train 2 --out no.h5 --log-weight train --start-mass 1e5
err_is 'kvfold: train: --start-mass 100000: want -10000 to 10000; try kvfold train --help'
train 2 --out no.h5 --log-weight train --start-mass x
has err '"x": want a number'
train 2 --out no.h5 --log-weight some
has err 'want off|fixed|train'
train 2 --out no.h5 --method prompt --log-weight train
err_is 'kvfold: train: --log-weight: not for method prompt; try kvfold train --help'
