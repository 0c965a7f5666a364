# The method of docs/contributing.md, with its defaults: it learns, resumes, folds and is evaluated
# like other methods.
make_inputs
shared="--base model --data train.jsonl --valid valid.jsonl --method tied --threads 2 --precision f32"

# shellcheck disable=SC2086 # words
run 0 train $shared --out run.h5 --steps 8 --json
has out '"finished_before":false'
has out '"notes":.*parameters'
first=$(value valid_loss)
# shellcheck disable=SC2086
run 0 train $shared --out parts.h5 --steps 4 --schedule-steps 8 --quiet
run 0 train --base model --data train.jsonl --valid valid.jsonl --out parts.h5 --steps 8 --resume --threads 2 --json
[ "$(value valid_loss)" = "$first" ] || fail "resumed: $(value valid_loss), want $first"
run 0 merge run.h5 --out prefix.h5 --base model
has out 'prefix.h5: \['
run 0 eval --base model --prefix prefix.h5 --data valid.jsonl --threads 2 --precision f32 --json
[ "$(value loss)" = "$first" ] || fail "folded: $(value loss), want $first"
run 0 inspect run.h5
has out 'vector.weight'
# shellcheck disable=SC2086
run 0 train $shared --out trained.h5 --steps 60 --lr 0.1 --json
awk "BEGIN {exit !($(value valid_loss) < $first)}" || fail "60 steps: $(value valid_loss), 8 steps: $first"
for start in match text kv; do
    # shellcheck disable=SC2086
    run 2 train $shared --out no.h5 --init $start --init-text abc
done
printf 'lr = 0.01, 0.1\n' >grid.txt
run 0 sweep --base model --data train.jsonl --grid grid.txt --out runs --method tied --steps 2 --quiet
