# prune: fewer virtual tokens, the curve, and the file's loss.
make_inputs
train 0 --out run.h5 --valid valid.jsonl --steps 4 --quiet
run 0 merge run.h5 --out prefix.h5

run 0 prune prefix.h5 --base model --data valid.jsonl --out two.h5 --keep 2 --curve curve.csv --threads 2 --json
err_is
has out '^{"score":"leave-one-out","loss_before":'
has out '"curve":\[{"length":4,"dropped":null,"loss":.*{"length":3,"dropped":[0-3],"loss":.*{"length":2,"dropped":[0-3],'
has out '"next":null,"shape":\[2,2,1,2,2,8\],"position_start":4,'
after=$(value loss_after)
[ "$(wc -l <curve.csv)" -eq 4 ] || fail "curve: $(cat curve.csv)"
[ "$(tail -n 1 curve.csv | cut -d, -f1)" = 2 ] || fail "curve: $(cat curve.csv)"
run 0 eval --base model --prefix two.h5 --data valid.jsonl --precision f32 --threads 2 --json
[ "$(value loss)" = "$after" ] || fail "eval says $(value loss), prune $after"
run 0 inspect two.h5
has out '^  position_start  *4$'
has out '^  pruned_kept  *[0-3],[0-3]$'
run 0 generate --base model --prefix two.h5 --prompt 'after 3:' --max-tokens 2
# trained further at its positions: nothing has changed before the first step
train 0 --out on.h5 --method direct --init-from two.h5 --prefix-length 2 --position-start 4 --lr 1e-30 --steps 1 --quiet
run 0 eval --base model --prefix on.h5 --data valid.jsonl --precision f32 --threads 2 --json
[ "$(value loss)" = "$after" ] || fail "trained on from $(value loss), prune left $after"
train 0 --out moved.h5 --method direct --init-from two.h5 --prefix-length 2 --steps 1
has out 'two.h5: text after its prefix starts at position 4, but in this run at 2; use --position-start 4 to keep it'
run 1 export two.h5 --format peft --out peft
has err 'position_start'

# a run, by gradient, as text
run 0 prune run.h5 --base model --data valid.jsonl --out one.h5 --keep 1 --score gradient --dtype f16
has out '^length  dropped         loss       change$'
has out '^     4        -  .* *+0.000000$'
has out '^one.h5: 1 virtual tokens, .*, text from position 4$'
run 0 prune run.h5 --base model --data valid.jsonl --out all.h5 --max-loss-rise -100
has out '^dropping token [0-3] too would change the loss by [-+]'
has out '^all.h5: 4 virtual tokens, '

# a task with a head
printf '{"text": "ab", "label": "x"}\n{"text": "cd", "label": "y"}\n' >labels.jsonl
run 0 train --base model --data labels.jsonl --task seq-cls --method direct --prefix-length 3 --steps 1 --out cls.h5 --quiet
for score in gradient leave-one-out; do
    run 0 prune cls.h5 --base model --data labels.jsonl --out $score.h5 --keep 2 --score $score
    run 0 predict --base model --prefix $score.h5 --data labels.jsonl --out $score.jsonl
done
# a trained language-model head
train 0 --out head.h5 --method direct --train-head --steps 1 --quiet
for score in gradient leave-one-out; do
    run 0 prune head.h5 --base model --data valid.jsonl --out head-$score.h5 --keep 2 --score $score
done

run 2 prune prefix.h5 --base model --data valid.jsonl --out no.h5
err_is 'kvfold: prune: one of --keep and --max-loss-rise is needed; try kvfold prune --help'
run 2 prune prefix.h5 --base model --data valid.jsonl --out no.h5 --keep 2 --max-loss-rise 1
err_is 'kvfold: prune: one of --keep and --max-loss-rise is needed; try kvfold prune --help'
run 2 prune prefix.h5 --base model --data valid.jsonl --out no.h5 --keep 5
err_is 'kvfold: prune: --keep 5: prefix.h5 has only 4 virtual tokens; try kvfold prune --help'
run 1 prune prefix.h5 --base model --data valid.jsonl --out two.h5 --keep 3
has err 'two.h5: exists'
run 1 prune prefix.h5 --base model --data valid.jsonl --out no.h5 --keep 3 --curve curve.csv
has err 'curve.csv: exists'
absent no.h5
