# Broadcasts, gathers and sums of src/dist, over 2 to 5 processes.
# shellcheck disable=SC1091
. "$SOURCE/tests/dist/mpi.sh"
for n in 2 4 5; do
    timeout 60 "$MPIRUN" -n $n "$CHECK_SUMS" >out 2>err || fail "$n ranks: $(cat out err)"
    has out "$n ranks: sums are those of the tree"
done
