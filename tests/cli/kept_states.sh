# Kept states of rows (--keep-states): the same run, its messages, and no file left.
make_inputs

# same_values A B: all values except the option itself.
same_values() { run 0 diff --tensors-only "$1" "$2"; }

states='^--keep-states: layer 0 is computed once for each row; later steps take 1/[1-9][.][0-9]* of the multiply-adds of a prefix in all layers, and 1/1[.][0-9]* of those without --keep-states$'
set -- --method direct --layers 1 --epochs 3 --batch-size 6
train 0 --out plain.h5 "$@" --share-prefixes off
train 0 --out again.h5 "$@" --keep-states 1M
if ! can avx2; then
    has out 'off, on this CPU'
    skip 'states of rows: at KVF_CPU=ref their bits depend on other rows'
    exit 77
fi
for size in 1G 2K 0; do
    train 0 --out kept.h5 --force "$@" --keep-states $size --share-prefixes off
    has out "$states"
    same_values plain.h5 kept.h5
    # a shared beginning with short rest has equal bits at any place
    train 0 --out kept.h5 --force "$@" --keep-states $size
    same_values again.h5 kept.h5
done
[ "$(find . -name '*states*')" = '' ] || fail 'a file is left'
run 0 inspect kept.h5
has out 'keep-states.*0'

# If no states can be kept, a line gives the reason, and the run is the ordinary one.
off() {
    reason=$1
    shift
    train 0 --out on.h5 --force --method direct --steps 2 "$@" --keep-states 1M
    has out "^--keep-states is off: $reason\$"
    train 0 --out off.h5 --force --method direct --steps 2 "$@"
    same_values on.h5 off.h5
}
off 'layer 0 has a prefix (--layers, --places)'
off '--base-dropout.*' --layers 1 --base-dropout 0.1
off '--stream-layers and --weight-dtype do not support it' --layers 1 --weight-dtype bf16
for method in adapter prompt full; do
    run 2 train --base model --data train.jsonl --out no.h5 --method $method --keep-states 1M
    err_is "kvfold: train: --keep-states: not for method $method; try kvfold train --help"
done
train 2 --out no.h5 --layers 1 --keep-states 2GB
err_is 'kvfold: train: --keep-states "2GB": want off, or a size such as 500M or 2G; try kvfold train --help'
absent no.h5

# A full disk, simulated by a file size limit: earlier states are used, the rest is computed, and
# the run is the same.
long=$(printf 'and then %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
sed "s/after/$long/" train.jsonl >long.jsonl
set -- --base model --data long.jsonl --threads 2 --prefix-length 4 --precision f32 --method direct --layers 1 --epochs 3 --batch-size 1
run 0 train --out wide.h5 "$@"
(
    trap '' XFSZ
    ulimit -f 100
    "$KVFOLD" train --out full.h5 "$@" --keep-states 0 >out 2>err
) || fail "a full disk: $(cat err)"
has out 'no space for more cached rows (File too large): the remaining rows are computed in every step$'
[ "$(grep -c 'no space' out)" -eq 1 ] || fail 'said more than once'
same_values wide.h5 full.h5

# Killed, interrupted, or failed after the first epoch: only the saved files remain. (A shell lets
# commands started with & ignore SIGINT; env resets that.)
for signal in KILL INT TERM; do
    env --default-signal=INT "$KVFOLD" train --out $signal.h5 "$@" --epochs 1000 --keep-states 0 --save-every 4 >out 2>err &
    pid=$!
    tries=0
    until [ -e $signal.h5 ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { fail "no save after 60 s"; break; }
    done
    kill -s $signal $pid
    wait $pid 2>/dev/null
    [ "$(find . -name '*states*')" = '' ] || fail "a file is left by a run that was ended by $signal"
done
run 1 train "$@" --out nan.h5 --keep-states 0 --lr 1e38 --lr-units parameter --clip 0 --schedule constant --warmup 0
[ "$(find . -name '*states*')" = '' ] || fail 'a file is left by a run that failed'

# Validation rows are kept too: losses have the bits of recomputed ones, also with a full disk.
losses() {
    grep -o '"valid_loss":[^,}]*' "$1"
}
set -- --base model --data long.jsonl --valid valid.jsonl --threads 2 --prefix-length 4 --precision f32 --method direct --layers 1 \
    --epochs 3 --batch-size 6 --eval-every 2 --share-prefixes off
run 0 train --out wide.h5 --force "$@" --log plain.log
[ "$(losses plain.log | sort -u | wc -l)" -gt 3 ] || fail "too few validations: $(losses plain.log)"
for size in 1G 3K 0; do
    run 0 train --out kept.h5 --force "$@" --keep-states $size --log $size.log
    [ "$(losses $size.log)" = "$(losses plain.log)" ] || fail "$size: validations differ"
    same_values wide.h5 kept.h5
done
(
    trap '' XFSZ
    ulimit -f 70
    "$KVFOLD" train --out full.h5 --force "$@" --keep-states 0 --log full.log >out 2>err
) || fail "a full disk: $(cat err)"
has out 'no space for more cached rows'
[ "$(losses full.log)" = "$(losses plain.log)" ] || fail 'a full disk: validations differ'
# and equal those of eval, which keeps no states
run 0 train --out kept.h5 --force "$@" --keep-states 1G --share-prefixes auto --log eval.log
run 0 eval --base model --prefix kept.h5 --data valid.jsonl --threads 2 --precision f32 --json
losses eval.log | grep -q ":$(value loss)\$" || fail "eval: $(value loss), the run: $(losses eval.log)"

# A sweep: its runs share kept states; the lowest layer of all runs counts.
printf 'lr = 0.01, 0.03\nlayers = 1\n' >grid.txt
run 0 sweep --base model --data train.jsonl --threads 2 --method direct --prefix-length 4 --precision f32 --grid grid.txt --epochs 3 --out plain --share-prefixes off
run 0 sweep --base model --data train.jsonl --threads 2 --method direct --prefix-length 4 --precision f32 --grid grid.txt --epochs 3 --out kept \
    --keep-states 3K --share-prefixes off
for file in plain/*.h5; do same_values "$file" "kept/${file#plain/}"; done
# so do runs that need several passes: the second and third find all rows and batches, and add none
sweep() {
    run 0 sweep --base model --data train.jsonl --valid valid.jsonl --threads 2 --method direct --prefix-length 4 --precision f32 --grid grid.txt \
        --epochs 2 --share-prefixes off --max-runs 1 "$@"
}
printf 'lr = 0.01, 0.02, 0.03\nlayers = 1\n' >grid.txt
sweep --out one
for size in 1G 3K 0; do
    sweep --out kept$size --keep-states $size
    [ "$(grep -c -e '--keep-states: 25 rows and batches are cached already by earlier runs' out)" -eq 2 ] || fail "$size: not shared: $(cat out)"
    for file in one/*.h5; do same_values "$file" "kept$size/${file#one/}"; done
    [ "$(find . -name '*states*')" = '' ] || fail 'a file is left by a sweep'
done
# not if another layer is the lowest: the file is known to hold layer 1
printf 'layers = 0-1, 1\n' >grid.txt
sweep --out apart --keep-states 1G
! grep -q 'by earlier runs' out || fail 'states of nobody'

# The runs of a comparison, in processes of their own, share one file.
compare() {
    want=$1 methods=$2 folder=$3
    shift 3
    run "$want" compare --base model --data train.jsonl --valid valid.jsonl --threads 2 --prefix-length 4 --precision f32 --layers 1 --steps 8 \
        --batch-size 6 --eval-every 4 --share-prefixes off --seeds 2 --methods "$methods" --out "$folder" "$@"
}
compare 0 direct,mlp:encoder-hidden=8 twice
compare 0 direct,mlp:encoder-hidden=8 shared --keep-states 1G
for file in twice/*.run.h5; do same_values "$file" "shared/${file#twice/}"; done
[ "$(find . -name '*states*')" = '' ] || fail 'a file is left by a comparison'
compare 2 direct bad --keep-states 2GB
err_is 'kvfold: compare: direct: --keep-states "2GB": want off, or a size such as 500M or 2G; try kvfold compare --help'
# likewise two trainers that inherit one, with any names and memory sizes
: >named
exec 9<>named
rm named
shared() {
    KVFOLD_STATES_FD=9 "$KVFOLD" train --base model --data train.jsonl --valid valid.jsonl --threads 2 --method direct --prefix-length 4 --layers 1 \
        --precision f32 --share-prefixes off --steps 8 --batch-size 6 --eval-every 4 --keep-states 1G "$@" >out 2>err || fail "shared: $(cat err)"
}
shared --out first.h5
! grep -q 'by earlier runs' out || fail 'the first run finds rows'
shared --out second.h5 --seed 1
has out '^--keep-states: 25 rows and batches are cached already by earlier runs$'
bytes=$(stat -L -c %s /proc/self/fd/9)
shared --out third.h5
has out '^--keep-states: 25 rows and batches are cached already by earlier runs$'
[ "$(stat -L -c %s /proc/self/fd/9)" -eq "$bytes" ] || fail 'the third run adds rows'
same_values first.h5 third.h5
shared --out other.h5 --position-start 7
[ "$(stat -L -c %s /proc/self/fd/9)" -gt "$bytes" ] || fail 'rows at other positions are taken for the same'
exec 9<&-
# a file of another kind is not touched
for fd in 9 x 77 -1; do
    KVFOLD_STATES_FD=$fd "$KVFOLD" train --base model --data train.jsonl --threads 2 --method direct --prefix-length 4 --layers 1 --steps 2 \
        --precision f32 --out fd.h5 --force --keep-states 0 9>named >out 2>err || fail "KVFOLD_STATES_FD=$fd: $(cat err)"
done
[ ! -s named ] || fail 'a file that has a name was written'

printf 'layers = 0-1, 1\n' >grid.txt
run 0 sweep --base model --data train.jsonl --threads 2 --method direct --prefix-length 4 --precision f32 --grid grid.txt --steps 2 --out mixed \
    --keep-states 3K
has out '[-]-keep-states is off: layer 0 has a prefix'

# With prefixes only in the decoder of an encoder-decoder, the encoder's states are kept. With
# prefixes in the encoder too, the inputs of the first layer with a prefix are kept.
"$MAKE_TINY" tokens 1 || exit 1
t5='"model_type": "t5", "vocab_size": 258, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 2'
bart='"model_type": "bart", "vocab_size": 258, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 128, "bos_token_id": 1'
for config in "$t5" "$bart"; do
    printf '{%s, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 257, "initializer_range": 0.3}\n' "$config" >encdec.json
    run 0 new-base --config encdec.json --tokenizer tokens --out encdec.h5 --force
    for layers in 1-5 2-5 3; do
        set -- --base encdec.h5 --data train.jsonl --threads 2 --precision f32 --method mlp --prefix-length 4 --layers $layers --epochs 3 \
            --batch-size 6 --force
        run 0 train "$@" --out plain.h5
        for size in 1G 2K; do
            run 0 train "$@" --out kept.h5 --keep-states $size
            has out '^--keep-states: .* computed once for each row'
            same_values plain.h5 kept.h5
        done
    done
    run 0 train --base encdec.h5 --data train.jsonl --threads 2 --method direct --prefix-length 4 --steps 2 --out all.h5 --force --keep-states 1M
    has out '^--keep-states is off: layer 0 has a prefix (--layers, --places)$'
done
