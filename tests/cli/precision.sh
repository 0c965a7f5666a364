# --precision auto is a rule on the CPU's flags and the base's width: what else the machine does makes no
# difference, a run keeps what it began with, and bf16 on a CPU without it is one line.
make_inputs
sed 's/"hidden_size": *32/"hidden_size":64/; s/"intermediate_size": *64/"intermediate_size":160/; s/"head_dim": *8/"head_dim":16/' \
    model/config.json >wide.json
run 0 new-base --config wide.json --tokenizer model --out wide.h5

# What the rule gives on this machine, and under a cap.
flags=$(sed -n '/^flags/{s/.*: / /;s/$/ /;p;q;}' /proc/cpuinfo)
case $flags in
*' amx_bf16 '*) native=bf16 ;; # kernels that know the flag save its state
*' avx512_fp16 '*) native=f32 ;;
*' avx512_bf16 '*) native=bf16 ;;
*) native=f32 ;;
esac

# short BASE ARGUMENTS...: a short run on it, into $made
made=run.h5
short() {
    base=$1
    shift
    run 0 train --base "$base" --data train.jsonl --method direct --prefix-length 4 --steps 2 --threads 2 \
        --out $made --force --json "$@"
}

short wide.h5
[ "$(value precision)" = "\"$native\"" ] || fail "auto is $(value precision), want $native"
short model # narrow
[ "$(value precision)" = '"f32"' ] || fail "auto of a narrow base is $(value precision)"
for cap in avx2 avx512; do
    KVF_CPU=$cap
    export KVF_CPU
    short wide.h5
    [ "$(value precision)" = '"f32"' ] || fail "auto under $cap is $(value precision)"
done
unset KVF_CPU

# under load
loads=
for i in 1 2 3 4; do
    timeout 60 sh -c 'while :; do :; done' &
    loads="$loads $!"
done
made=first.h5
short wide.h5
for i in 1 2 3 4 5 6; do
    made=again.h5
    short wide.h5
    same first.h5 again.h5
done
# shellcheck disable=SC2086 # several
kill $loads

# a run keeps what it began with
made=kept.h5
short wide.h5 --precision f32 --schedule-steps 4
run 0 train --base wide.h5 --data train.jsonl --out kept.h5 --resume --steps 4 --threads 2 --json
[ "$(value precision)" = '"f32"' ] || fail "resumed as $(value precision)"
KVF_CPU=avx2
export KVF_CPU
no_bf16='precision bf16: this CPU (avx2) has no bf16 products; use f32'
run 1 train --base wide.h5 --data train.jsonl --out none.h5 --precision bf16 --steps 1
err_is "kvfold: train: $no_bf16"
absent none.h5
unset KVF_CPU
[ $native = bf16 ] || exit $failures
short wide.h5 --schedule-steps 4
KVF_CPU=avx2
export KVF_CPU
run 1 train --base wide.h5 --data train.jsonl --out kept.h5 --resume --steps 4 --threads 2
err_is "kvfold: train: $no_bf16"
