# Early ends of a run over several processes. An error on one rank ends all of them with one line. A
# signal to any rank saves. A killed rank leaves the last saved file whole.
# shellcheck disable=SC1091,SC2086 # no spaces in names
. "$SOURCE/tests/dist/mpi.sh"
make_inputs
common="--prefix-length 4 --method direct --threads 1 --precision f32 --schedule constant --quiet"
good="train --base model --data train.jsonl $common --steps 2 --out run.h5"

# ---- errors: on one rank, and differences between two ranks
{
    cat train.jsonl
    echo '{"prompt"'
} >bad.jsonl
head -n 20 train.jsonl >other.jsonl

# one_differs OPTIONS...: rank 1 of 2 also has these options.
one_differs() {
    timeout 100 "$MPIRUN" -n 1 "$KVFOLD" $good : -n 1 "$KVFOLD" $good "$@" >out 2>err </dev/null
    code=$?
    [ $code -eq 1 ] || fail "exit status $code, want 1: rank 1 with $*"
    absent run.h5
}
host=$(uname -n)
one_differs --data bad.jsonl
said "kvfold: train: rank 1 on $host: bad.jsonl:25: ':' expected near end of file"
one_differs --data other.jsonl
said "kvfold: train: rank 1 on $host has a different data file than rank 0 on $host"
one_differs --seed 5
said "kvfold: train: rank 1 on $host has a different list of options than rank 0 on $host"
one_differs --data nowhere.jsonl
said "kvfold: train: rank 1 on $host: nowhere.jsonl: cannot open: No such file or directory"
ranks 2 1 train --base model --data bad.jsonl $common --out run.h5
said "kvfold: train: bad.jsonl:25: ':' expected near end of file"
absent run.h5

# ---- a launcher whose processes are not connected by MPI: the same run must not start twice
export SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2
run 1 $good
has err '^kvfold: train: Slurm started 2 processes, but MPI connects 1 of them'
absent run.h5
unset SLURM_PROCID SLURM_STEP_NUM_TASKS

# ---- signals and kills
# begin N ARGUMENTS...: until a step has been saved; the processes' ids in $1, $2, ...
begin() {
    n=$1
    shift
    rm -f long.h5
    timeout 100 "$MPIRUN" -n "$n" "$KVFOLD" train --base model --data train.jsonl $common \
        --steps 100000 --save-every 1 --out long.h5 "$@" >out 2>err </dev/null &
    launcher=$!
    tries=0
    until [ -e long.h5 ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 300 ] || { fail 'no save after 30 s'; break; }
    done
    pids=$(processes $launcher)
    [ "$(echo "$pids" | wc -w)" = "$n" ] || fail "processes: $pids, want $n"
}

# ended CODE: status of the launcher, 0 for any but success; a single process then resumes the run.
ended() {
    wait $launcher
    code=$?
    if [ "$1" -eq 0 ]; then
        [ $code -ne 0 ] || fail 'exit status 0'
    else
        [ $code -eq "$1" ] || fail "exit status $code, want $1"
    fi
    cp err first_err
    cat err out >all_said
    run 0 inspect long.h5 --json
    steps=$(sed -n 's/.*"state":{"step":\([0-9]*\),.*/\1/p' out)
    [ "${steps:-0}" -gt 0 ] || fail "steps: $steps"
    run 0 train --base model --data train.jsonl $common --steps $((steps + 1)) --out long.h5 --resume
    cp first_err err
}

begin 2
kill -s TERM ${pids##*
}
ended 143
grep -c '^kvfold: train: stopped after step [0-9]* of 100000; --resume continues$' err >count
[ "$(cat count)" = 1 ] || fail "one line, want $(cat count): $(cat err)"
begin 4
kill -s INT ${pids%%
*}
ended 130
begin 2
kill -s KILL ${pids##*
}
ended 0
# the leading rank notices it, if the launcher does not end it first
grep -q 'rank 1 of 2 has ended.*resume continues\|signal 9' all_said || fail "no line: $(cat all_said)"
begin 2
kill -s KILL ${pids%%
*}
ended 0
