# Several processes against one. Repeating a command gives the same bits. The gradient of step 1 and
# the first 5 losses equal those of one process, for every port and kind of head. Later steps resume
# from the first one.
# shellcheck disable=SC1091,SC2086 # no spaces in names
. "$SOURCE/tests/dist/mpi.sh"
make_inputs
"$MAKE_TINY" bert 1 bert || exit 1
for i in 1 2 3 4 5 6 7 8; do
    printf 'good film %d\tyes\nbad film %d, and a long one at that\tno\n' $i $i >>mood.tsv
    printf 'Ann\tB-PER\nwent\tO\n\nI\tO\nsaw\tO\nBob\tB-PER\n\n' >>names.conll
done
common="--threads 1 --precision f32 --schedule constant --warmup 0 --schedule-steps 5 --quiet"

lm="--base model --data train.jsonl --batch-size 7"
prefix="--prefix-length 4"
parity mlp 2 $lm $prefix --encoder-hidden 16
parity direct 4 $lm $prefix --method direct --prefix-dropout 0.2 --prefix-dropout-per-row --grad-accum 2
parity prompt 2 $lm $prefix --method prompt
parity adapter 2 $lm --method adapter --adapter-size 4
parity full 4 $lm --method full --lr 1e-4
parity seq 2 --base bert --task seq-cls --data mood.tsv $prefix --method direct --head-dropout 0.1
parity multi 2 --base bert --data mood=mood.tsv --data names=names.conll --task mood=seq-cls \
    --task names=token-cls --task-prefix low-rank $prefix --method direct

# ---- the same bits in any order of arrival; and the same file as an unbroken run
ranks 4 0 train $lm $prefix --method direct --prefix-dropout 0.2 --prefix-dropout-per-row --grad-accum 2 \
    $common --steps 5 --valid valid.jsonl --out twice.h5
ranks 4 0 train $lm $prefix --method direct --prefix-dropout 0.2 --prefix-dropout-per-row --grad-accum 2 \
    $common --steps 5 --valid valid.jsonl --out again.h5
same twice.h5 again.h5
ranks 4 0 train $lm $prefix --method direct --prefix-dropout 0.2 --prefix-dropout-per-row --grad-accum 2 \
    $common --steps 5 --out whole.h5
same whole.h5 direct.h5

# ---- several batches of held-out rows, divided: the results of one process, for every kind
for i in 1 2 3 4 5 6 7 8 9 10; do
    cat train.jsonl >>many.jsonl
    sed "s/film/film, it is said by $i of $i who saw it to its very end,/" mood.tsv >>moods.tsv
    sed "s/went/went$i/" names.conll >>more.conll
done
for n in 2 4; do
    ranks $n 0 train $lm $prefix --method direct $common --steps 2 --valid many.jsonl --retain many.jsonl --json --out lm$n.h5
    got=$(value valid_loss)
    [ "$(value retention_loss)" = "$got" ] || fail "the retention loss is $(value retention_loss), not $got"
    run 0 eval --base model --prefix lm$n.h5 --data many.jsonl --precision f32 --threads 1 --json
    [ "$(value loss)" = "$got" ] || fail "$n ranks: validation loss $got, alone $(value loss)"
    ranks $n 0 train --base bert --task seq-cls --data mood.tsv $prefix --method direct $common --steps 2 \
        --valid moods.tsv --metric accuracy --json --out seq$n.h5
    got="$(value valid_loss) $(value best_value)"
    run 0 eval --base bert --prefix seq$n.h5 --data moods.tsv --precision f32 --threads 1 --json
    [ "$(value loss) $(value accuracy)" = "$got" ] || fail "$n ranks: $got, alone $(value loss) $(value accuracy)"
done
ranks 3 0 train --base bert --data mood=mood.tsv --data names=names.conll --task mood=seq-cls \
    --task names=token-cls --valid mood=moods.tsv --valid names=more.conll $prefix --method direct $common --steps 2 --out tasks.h5
said

# ---- more processes than rows; one of several processes, running alone; contents of the result
ranks 4 0 train $lm $prefix --method direct $common --steps 2 --batch-size 2 --json --out few.h5
[ "$(value ranks)" = 4 ] || fail "ranks: $(value ranks)"
[ "$(wc -l <out)" = 1 ] || fail "more than one line: $(cat out)"
ranks 1 0 train $lm $prefix --method direct $common --steps 2 --batch-size 2 --out single.h5
run 0 train $lm $prefix --method direct $common --steps 2 --batch-size 2 --out alone.h5
same single.h5 alone.h5
ranks 2 0 train $lm $prefix --method direct $common --steps 2 --dry-run --out dry.h5
absent dry.h5
ranks 2 0 train $lm $prefix --method direct $common --steps 2 --batch-size 2 --resume --out few.h5
has out 'already finished'
