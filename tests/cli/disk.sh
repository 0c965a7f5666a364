# Full disks, unwritable folders and files, limits on file length, two writers: each gives one line,
# keeps the existing file whole, and leaves no other file.
make_inputs

# failing PATTERN COMMAND...: exit status 1, nothing on standard output, one line.
failing() {
    line=$1
    shift
    run 1 "$@"
    has err "^kvfold: $line"
    [ "$(wc -l <err)" -eq 1 ] || fail "not one line: $(cat err)"
}

# only FOLDER NAMES...: the folder contains exactly these files.
only() {
    found=$(ls -A "$1" | tr '\n' ' ')
    folder_name=$1
    shift
    [ "$found" = "${*:+$* }" ] || fail "$folder_name holds: $found, want: $*"
}

train 0 --out run.h5 --steps 2 --schedule constant
run 0 merge run.h5 --out prefix.h5
"$MAKE_TINY" classes 3 bert || exit 1
printf '{"text":"a b","label":"x"}\n{"text":"c d","label":"y"}\n' >classes.jsonl
run 0 train --base classes --data classes.jsonl --task seq-cls --out classes.h5 --steps 2 --quiet
bytes=$(wc -c <run.h5)

# every_write FOLDER PATTERN: runs each writing command, into a folder without free space
every_write() {
    where=$1
    pattern=$2
    failing "train: $where/new.h5: $pattern" train --base model --data train.jsonl --threads 2 \
        --encoder-hidden 128 --out "$where/new.h5" --quiet
    failing "merge: $where/prefix.h5: $pattern" merge run.h5 --out "$where/prefix.h5" --force
    failing "export: $where.*: $pattern" export prefix.h5 --out "$where/adapter"
    failing "predict: $where/out.jsonl: $pattern" predict --base classes --prefix classes.h5 \
        --data classes.jsonl --out "$where/out.jsonl"
}

# A full disk: a tmpfs, if mounting is allowed.
mkdir small
if mount -t tmpfs -o size=$((bytes * 3)) tmpfs small 2>/dev/null; then
    cp prefix.h5 run.h5 small
    # the first save fits next to the existing file; a larger run is refused before its first step
    failing 'train: small/run.h5: No space left on device: the run file takes [0-9.]* MB, [0-9.]* MB are free' train --base model --data train.jsonl \
        --threads 2 --encoder-hidden 128 --out small/run.h5 --force --quiet
    same run.h5 small/run.h5
    only small prefix.h5 run.h5
    head -c $((bytes * 4)) /dev/zero >small/filler 2>/dev/null
    every_write small '.*No space left on device'
    same prefix.h5 small/prefix.h5
    only small filler prefix.h5 run.h5
    # with free space again, the failed run continues
    rm small/filler small/prefix.h5
    train 0 --out small/run.h5 --steps 3 --schedule constant --resume
    only small run.h5
    cp prefix.h5 small
    mount -o remount,ro small
    every_write small '.*Read-only file system'
    same prefix.h5 small/prefix.h5
    umount small
else
    skip 'a full and a read-only disk: no tmpfs can be mounted'
fi

# A limit on the length of files, as from a quota: 512 bytes.
mkdir limited
cp prefix.h5 limited
ulimit -S -f 2 # 1 KiB: less than any of the files, and what LLVM's OpenMP writes for itself as it starts
for command in merge export; do
    case $command in
    merge) "$KVFOLD" merge run.h5 --out limited/prefix.h5 --force >/dev/null 2>message ;;
    export) "$KVFOLD" export prefix.h5 --out limited/adapter >/dev/null 2>message ;;
    esac
    code=$?
    [ $code -eq 1 ] || fail "limited file: $command ends with $code"
done
ulimit -S -f unlimited
has message '^kvfold: export: limited.*: .*File too large'
same prefix.h5 limited/prefix.h5
only limited prefix.h5

# Folders and files without permission. Root may write everywhere, but not into a read-only file.
cp prefix.h5 kept.h5
cp run.h5 kept_run.h5
chmod 444 kept.h5 kept_run.h5
failing 'merge: kept.h5: is read-only, it will not be replaced' merge run.h5 --out kept.h5 --force
same prefix.h5 kept.h5
train 1 --out kept_run.h5 --steps 9 --schedule constant --resume
err_is 'kvfold: train: kept_run.h5: is read-only, it will not be replaced'
same run.h5 kept_run.h5
run 0 inspect kept_run.h5
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed
    chmod 555 closed
    every_write closed '.*Permission denied'
    chmod 755 closed
    only closed
else
    skip 'a folder without permission: root may write everywhere'
fi

# Two trainers on one output: the second is refused while the first runs.
mkfifo pipe
"$KVFOLD" train --base model --data pipe --threads 2 --prefix-length 4 --encoder-hidden 16 \
    --precision f32 --schedule constant --out two.h5 --steps 1 >first 2>&1 &
pid=$!
tries=0
until [ -e two.h5.lock ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { fail 'no lock after 10 s'; break; }
done
train 1 --out two.h5 --steps 1
err_is "kvfold: train: two.h5: is being written by another process, number $pid"
cat train.jsonl >pipe
wait "$pid" || fail "the first trainer: $(cat first)"
absent two.h5.lock
run 0 inspect two.h5

# A lock and a temporary left by a killed run block nothing.
"$KVFOLD" train --base model --data pipe --threads 2 --out dead.h5 >first 2>&1 &
pid=$!
tries=0
until [ -e dead.h5.lock ] || [ $tries -gt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -s KILL "$pid"
wait "$pid" 2>/dev/null
printf 'half a file' >dead.h5.tmp.0badcafe
printf 'half a file' >dead.h5.tmp.0000beef
flock --no-fork dead.h5.tmp.0000beef sleep 20 &
until ! flock -n dead.h5.tmp.0000beef true; do sleep 0.1; done
[ -e dead.h5.lock ] || fail 'the lock of the killed run is gone'
train 0 --out dead.h5 --steps 1
absent dead.h5.lock dead.h5.tmp.0badcafe
[ -e dead.h5.tmp.0000beef ] || fail 'a temporary that another process holds was removed'
kill $!
