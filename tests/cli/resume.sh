# A run that is continued ends as one that never stopped, byte for byte.
make_inputs
run_options='--valid valid.jsonl --schedule constant --schedule-steps 10 --eval-every 5'

# shellcheck disable=SC2086
train 0 $run_options --out straight.h5 --steps 10
# shellcheck disable=SC2086
train 0 $run_options --out parts.h5 --steps 5
# shellcheck disable=SC2086
train 0 $run_options --out parts.h5 --steps 10 --resume --json
[ "$(value steps)" = 10 ] || fail "steps: $(value steps)"
[ "$(value finished_before)" = false ] || fail 'said to be finished before'
same straight.h5 parts.h5

# finished: nothing is done
cp parts.h5 before.h5
# shellcheck disable=SC2086
train 0 $run_options --out parts.h5 --steps 10 --resume --json
[ "$(value finished_before)" = true ] || fail 'not said to be finished before'
same before.h5 parts.h5

# no file: the run is started
# shellcheck disable=SC2086
train 0 $run_options --out fresh.h5 --steps 10 --resume
same straight.h5 fresh.h5

# what the run does not say again is the run's own
train 0 --out parts.h5 --valid valid.jsonl --steps 11 --resume --json
[ "$(value steps)" = 11 ] || fail "steps: $(value steps)"

# rows that begin alike in the same steps: stored, and the same order on every way there
# shellcheck disable=SC2086
train 0 $run_options --group-by lead --out lead.h5 --steps 10
# shellcheck disable=SC2086
train 0 $run_options --group-by lead --out lead_parts.h5 --steps 5
train 0 --out lead_parts.h5 --valid valid.jsonl --steps 10 --resume
same lead.h5 lead_parts.h5
# shellcheck disable=SC2086
train 2 $run_options --out straight.h5 --steps 12 --resume --group-by lead
has err '^kvfold: train: straight.h5: --group-by was another when the run was created'

# refused: another option, another data file
cp straight.h5 before.h5
# shellcheck disable=SC2086
train 2 $run_options --out straight.h5 --steps 12 --resume --lr 0.5
has err '^kvfold: train: straight.h5: --lr was another when the run was created'
head -n 20 train.jsonl >fewer.jsonl
# shellcheck disable=SC2086
train 1 $run_options --out straight.h5 --steps 12 --resume --data fewer.jsonl
has err '^kvfold: train: straight.h5: the run was created with another data file'
same before.h5 straight.h5
