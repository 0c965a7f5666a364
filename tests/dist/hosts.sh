# Two machines, simulated by network namespaces with a virtual cable, host names and temporary
# folders of their own, and an agent in place of ssh. Open MPI only; needs root. The result equals
# that of two processes on one machine, bit for bit.
# shellcheck disable=SC1091,SC2086 # no spaces in names
. "$SOURCE/tests/dist/mpi.sh"
"$MPIRUN" --version 2>/dev/null | grep -q 'Open MPI' || { echo 'not Open MPI: skipped'; exit 77; }
[ "$(id -u)" -eq 0 ] && command -v ip >/dev/null && command -v unshare >/dev/null ||
    { echo 'needs root, ip and unshare: skipped'; exit 77; }
left=kvfl$$ right=kvfr$$
ip netns add $left 2>/dev/null || { echo 'no network namespaces here: skipped'; exit 77; }
trap 'ip netns del $left 2>/dev/null; ip netns del $right 2>/dev/null; rm -rf "$folder"' EXIT
{
    ip netns add $right &&
        ip link add kl$$ netns $left type veth peer name kr$$ netns $right &&
        ip -n $left addr add 10.213.7.1/24 dev kl$$ && ip -n $left link set kl$$ up &&
        ip -n $right addr add 10.213.7.2/24 dev kr$$ && ip -n $right link set kr$$ up &&
        ip -n $left link set lo up && ip -n $right link set lo up
} 2>difference || { echo "no cable: $(cat difference): skipped"; exit 77; }

make_inputs
common="--base model --data train.jsonl --prefix-length 4 --method direct --threads 1 --precision f32"

# agent HOST COMMAND...: replaces ssh.
cat >agent <<END
#!/bin/sh
shift
mkdir -p "$folder/tmp_right"
exec ip netns exec $right unshare --uts sh -c 'hostname kvfold-right && exec env TMPDIR='"$folder"'/tmp_right sh -c "\$0"' "\$*"
END
chmod +x agent
mkdir -p tmp_left
ranks 2 0 train $common --steps 4 --batch-size 6 --out one.h5 --quiet
timeout 100 ip netns exec $left unshare --uts sh -c 'hostname kvfold-left && exec "$@"' sh \
    env TMPDIR="$folder/tmp_left" "$MPIRUN" --mca plm_rsh_agent "$folder/agent" \
    --mca btl tcp,self --mca btl_tcp_if_include 10.213.7.0/24 --mca oob_tcp_if_include 10.213.7.0/24 \
    -H 10.213.7.1:1,10.213.7.2:1 -n 2 --wdir "$folder" \
    -x OMP_WAIT_POLICY=passive "$KVFOLD" train $common --steps 4 --batch-size 6 --out two.h5 --json \
    >out 2>err </dev/null || fail "two hosts: $(cat err)"
[ "$(value ranks)" = 2 ] || fail "ranks: $(cat out)"
same one.h5 two.h5

# files on only one machine are reported with the machine's name
head -n 20 train.jsonl >other.jsonl
timeout 100 ip netns exec $left unshare --uts sh -c 'hostname kvfold-left && exec "$@"' sh \
    env TMPDIR="$folder/tmp_left" "$MPIRUN" --mca plm_rsh_agent "$folder/agent" \
    --mca btl tcp,self --mca btl_tcp_if_include 10.213.7.0/24 --mca oob_tcp_if_include 10.213.7.0/24 \
    -H 10.213.7.1:1,10.213.7.2:1 --wdir "$folder" \
    -n 1 "$KVFOLD" train $common --out three.h5 : -n 1 "$KVFOLD" train $common --data other.jsonl --out three.h5 \
    >out 2>err </dev/null && fail 'another data file is taken'
said 'kvfold: train: rank 1 on kvfold-right has a different data file than rank 0 on kvfold-left'
absent three.h5
