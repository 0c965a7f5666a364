# Functions of the scripts in this folder, which ../cli/run.sh runs: the command with several
# processes on this machine. MPIRUN is set if the build has MPI and mpirun is installed.
# shellcheck shell=sh
[ -n "${MPIRUN:-}" ] || { echo 'no MPI in this build, or no mpirun: skipped'; exit 77; }

# More processes than cores, no binding, and root in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# MPI leaves memory allocated by modules that are unloaded at exit: leaks cannot be distinguished.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

# ranks N CODE ARGUMENTS...: N processes of the command must end with CODE.
ranks() {
    n=$1
    want=$2
    shift 2
    timeout 100 "$MPIRUN" -n "$n" "$KVFOLD" "$@" >out 2>err </dev/null
    code=$?
    [ $code -eq "$want" ] && return
    fail "exit status $code, want $want: mpirun -n $n kvfold $*"
    sed 's/^/    /' err
}

# said LINE...: standard error of the command, without the launcher's own lines.
said() {
    grep '^kvfold: ' err >words
    if [ $# -gt 0 ]; then printf '%s\n' "$@" >want; else : >want; fi
    cmp -s want words && return
    fail "the command did not say what was expected:"
    cat want err | sed 's/^/    /'
}

# close A B TOLERANCE WHAT: compares two runs.
close() {
    "$COMPARE_RUNS" "$@" >differences 2>&1 || fail "$1 and $2: $(tail -n 2 differences)"
}

# parity NAME RANKS OPTIONS...: N processes against one. Compares the gradient of step 1 and the
# first 5 losses, of which the last 4 are from a resumed run. Leaves NAME.h5.
parity() {
    name=$1
    n=$2
    shift 2
    set -- "$@" --threads 1 --precision f32 --schedule constant --warmup 0 --schedule-steps 5 --quiet
    run 0 train "$@" --steps 1 --out one.h5 --force
    ranks "$n" 0 train "$@" --steps 1 --out "$name.h5"
    said
    close one.h5 "$name.h5" 1e-5 gradients
    run 0 train "$@" --steps 5 --out one.h5 --force
    ranks "$n" 0 train "$@" --steps 5 --out "$name.h5" --resume
    close one.h5 "$name.h5" 1e-5 losses
}

# Processes of the command that descend from process $1, by rank.
processes() {
    for status in /proc/[0-9]*/status; do
        sed -n '/^Name:/{s/.*\t//;h};/^Pid:/{s/.*\t//;H};/^PPid:/{s/.*\t//;H;x;s/\n/ /g;p;q}' "$status" 2>/dev/null
    done >all_processes
    family=" $1 "
    found=
    for turn in 1 2 3 4; do
        while read -r name pid parent; do
            case $family in
            *" $pid "*) ;;
            *" $parent "*)
                family="$family$pid "
                [ "$name" != kvfold ] || found="$found$pid "
                ;;
            esac
        done <all_processes
    done
    for pid in $found; do
        rank=$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^\(OMPI_COMM_WORLD_RANK\|PMI_RANK\)=//p' | head -n 1)
        printf '%s %s\n' "${rank:-?}" "$pid"
    done | sort -n | sed 's/.* //'
}
