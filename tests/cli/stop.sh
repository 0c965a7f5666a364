# Signals: the first ends the run after a step and saves everything; the second ends it at once.
# After kill -9 the last saved file is whole.
#
# The command reads its data from a pipe without a writer, so that a signal always arrives while it
# waits. The following run has exactly one step. A shell's `&` lets its commands ignore SIGINT;
# `env` resets that.
make_inputs
mkfifo pipe
attend='env --default-signal=INT'

# The process is the command, no longer this shell's fork, and catches SIGTERM (bit 4000).
has_handler() {
    grep -q '^Name:.*kvfold' /proc/$pid/status 2>/dev/null &&
        grep -q '^SigCgt:.*[4567c-f]...$' /proc/$pid/status 2>/dev/null
}

# begin ARGUMENTS...: in the background, its id in $pid, once it waits for the pipe.
begin() {
    $attend "$KVFOLD" train --base model --data pipe --threads 2 --prefix-length 4 --encoder-hidden 16 \
        --precision f32 --schedule constant --warmup 0 --schedule-steps 3 --json "$@" >out 2>err &
    pid=$!
    tries=0
    until has_handler; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { fail 'no handler of signals after 10 s'; break; }
    done
}

# end CODE: waits, and compares the exit status.
end() {
    wait "$pid"
    code=$?
    [ $code -eq "$1" ] || fail "exit status $code, want $1"
}

for signal in INT:130 TERM:143; do
    rm -f run.h5
    begin --out run.h5 --steps 3
    kill -s "${signal%:*}" "$pid"
    cat train.jsonl >pipe
    end "${signal#*:}"
    [ "$(value steps)" = 1 ] || fail "steps: $(value steps)"
    err_is 'kvfold: train: stopped after step 1 of 3; --resume continues'
    begin --out run.h5 --steps 3 --resume
    cat train.jsonl >pipe
    end 0
    [ "$(value steps)" = 3 ] || fail "resumed: steps: $(value steps)"
    begin --out whole.h5 --steps 3 --force
    cat train.jsonl >pipe
    end 0
    same whole.h5 run.h5
done

# Any other command ends at the first signal, and leaves no partial output.
cat >big.json <<'EOF'
{"model_type": "gpt2", "vocab_size": 1000, "n_positions": 64, "n_embd": 512, "n_layer": 12, "n_head": 8}
EOF
$attend "$KVFOLD" new-base --config big.json --tokenizer model --out big.h5 >out 2>err &
pid=$!
tries=0
begun() { ls big.h5.tmp.* >listed 2>&1; }
until begun || [ $tries -eq 400 ]; do
    sleep 0.02
    tries=$((tries + 1))
done
begun || fail 'no output has begun'
kill -s INT "$pid"
end 130
absent big.h5
absent big.h5.tmp.*

begin --out second.h5 --steps 3
kill -s TERM "$pid"
sleep 0.2
kill -0 "$pid" || fail 'the first signal ended it'
kill -s TERM "$pid"
end 143
absent second.h5

# A closed reader of its output ends a run like a signal, but without a line.
mkfifo results
true <results & # closes its end at once
{
    wait $!
    "$KVFOLD" train --base model --data train.jsonl --threads 2 --prefix-length 4 --encoder-hidden 16 \
        --precision f32 --schedule constant --warmup 0 --schedule-steps 3 --steps 3 --out unread.h5
    echo $? >code
} >results 2>err
[ "$(cat code)" -eq 141 ] || fail "closed pipe: exit status $(cat code)"
err_is
run 0 inspect unread.h5 --json
has out '"state":{"step":1,'
train 0 --out unread.h5 --steps 3 --resume
same whole.h5 unread.h5
head -n 1 <results >first & # validations on standard error count, too
"$KVFOLD" train --base model --data train.jsonl --valid train.jsonl --eval-every 1 --threads 2 \
    --prefix-length 4 --method direct --precision f32 --steps 100000 --out unread.h5 --force \
    >results 2>&1
code=$?
[ $code -eq 141 ] || fail "exit status $code"
run 0 inspect unread.h5

# Signals ignored at the start stay ignored, as with nohup or a script's `&`, except for SIGTERM.
attend='env --ignore-signal=INT'
begin --out ignored.h5 --steps 3
grep -q '^SigIgn:.*[2367abef]$' "/proc/$pid/status" || fail 'SIGINT is not ignored'
kill -s INT "$pid"
kill -s INT "$pid"
kill -s TERM "$pid"
cat train.jsonl >pipe
end 143
[ "$(value steps)" = 1 ] || fail "steps: $(value steps)"

# killed between and within saves; each save is a whole file
train 0 --out killed.h5 --schedule constant --steps 1 --save-every 1
cp killed.h5 first.h5
"$KVFOLD" train --base model --data train.jsonl --threads 2 --prefix-length 4 --encoder-hidden 16 \
    --precision f32 --schedule constant --out killed.h5 --steps 100000 --save-every 1 --resume \
    >out 2>err &
pid=$!
tries=0 # until it has saved a step of its own; then at no instant in particular
while cmp -s first.h5 killed.h5; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { fail 'no save after 30 s'; break; }
done
sleep 0.3
kill -s KILL "$pid"
wait "$pid"
run 0 inspect killed.h5 --json
steps=$(sed -n 's/.*"state":{"step":\([0-9]*\),.*/\1/p' out)
[ "${steps:-0}" -gt 1 ] || fail "no step was saved: $steps"
train 0 --out killed.h5 --schedule constant --steps $((steps + 1)) --resume --json
[ "$(value steps)" = $((steps + 1)) ] || fail "steps: $(value steps)"
