# --precision auto depends on the CPU's flags and the base's width, not on the load of the machine.
# A run keeps its initial precision, and bf16 on a CPU without it gets one line.
make_inputs
sed 's/"hidden_size": *32/"hidden_size":64/; s/"intermediate_size": *64/"intermediate_size":160/; s/"head_dim": *8/"head_dim":16/' \
    model/config.json >wide.json
run 0 new-base --config wide.json --tokenizer model --out wide.h5

# the levels of this CPU, and the expected precision at each
unset KVF_CPU
levels=ref
for level in avx2 avx512bw avx512_bf16 amx_bf16; do
    case $flags in *" $level "*) levels="$levels $level" ;; esac
done
levels=$(echo "$levels" | sed 's/avx512bw/avx512/; s/amx_bf16/amx/')
auto() {
    case $1,$flags in
    amx,* | avx512_bf16,*) ;;
    *) echo f32 && return ;;
    esac
    case $1,$flags in
    avx512_bf16,*' avx512_fp16 '*) echo f32 ;;
    *) echo bf16 ;;
    esac
}
native=$(auto "${levels##* }")

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
for level in $levels; do
    export KVF_CPU=$level
    short wide.h5
    [ "$(value precision)" = "\"$(auto $level)\"" ] || fail "auto at $level is $(value precision)"
    can int8 || {
        run 1 train --base wide.h5 --data train.jsonl --out none.h5 --precision int8 --steps 1
        has err "^kvfold: train: precision int8: this CPU ($level) has no eight-bit dot products (AVX512-VNNI); use "
        absent none.h5
    }
    can bf16 && short wide.h5 --precision bf16 && continue
    run 1 train --base wide.h5 --data train.jsonl --out none.h5 --precision bf16 --steps 1
    err_is "kvfold: train: precision bf16: this CPU ($level) has no bf16 products; use f32"
    absent none.h5
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

# a run keeps its initial precision
made=kept.h5
short wide.h5 --precision f32 --schedule-steps 4
run 0 train --base wide.h5 --data train.jsonl --out kept.h5 --resume --steps 4 --threads 2 --json
[ "$(value precision)" = '"f32"' ] || fail "resumed as $(value precision)"
[ $native = bf16 ] || {
    skip 'a run in bf16, resumed without it: bf16 is not the rule on this CPU'
    return
}
short wide.h5 --schedule-steps 4
export KVF_CPU=avx2
run 1 train --base wide.h5 --data train.jsonl --out kept.h5 --resume --steps 4 --threads 2
err_is 'kvfold: train: precision bf16: this CPU (avx2) has no bf16 products; use f32'
