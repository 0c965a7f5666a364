# The forecast, and the line of progress: for people, and for scripts that ask.
make_inputs
run_options='--valid valid.jsonl --steps 6 --eval-every 3'

# shellcheck disable=SC2086
train 0 $run_options --out dry.h5 --dry-run
err_is
absent dry.h5
has out '^forecast: 6 steps of [0-9.e-]* s, 2 validations of [0-9.e-]* s: 0:0[0-9] in all, peak memory [0-9.]* MiB$'
has out '^forecast: [0-9]* tokens, [0-9]* trainable parameters, run file of [0-9.]* KiB$'
# shellcheck disable=SC2086
train 0 $run_options --out dry.h5 --dry-run --json
[ "$(wc -l <out)" -eq 1 ] || fail "not one line: $(cat out)"
has out '"forecast":{"steps":6,"validations":2,"seconds_per_step":.*"seconds":.*"peak_rss_bytes":.*"tokens":.*"trainable_parameters":.*"file_bytes":'

# a script pays nothing and sees nothing; one that asks has it in front of the run, and the bits stay
# shellcheck disable=SC2086
train 0 $run_options --out plain.h5
err_is
grep -q forecast out && fail "a forecast nobody asked for: $(cat out)"
# shellcheck disable=SC2086
train 0 $run_options --out asked.h5 --forecast on
err_is
has out '^forecast [0-9.]* s and [0-9.]* MiB, actual [0-9.]* s and [0-9.]* MiB$'
same plain.h5 asked.h5

# on a terminal: one line, drawn over; none with --quiet
if command -v script >/dev/null; then
    script -qec "$KVFOLD train --base model --data train.jsonl --prefix-length 4 --encoder-hidden 16 \
        --precision f32 --threads 2 $run_options --out seen.h5" /dev/null >typed </dev/null
    has typed 'step 6/6  loss [0-9.]*  valid [0-9.]*  [0-9]* tokens/s  0:0[0-9] left  [0-9.]* MiB'
    has typed '^forecast: 6 steps of '
    has typed '^forecast [0-9.]* s and .*, actual '
    same plain.h5 seen.h5
    script -qec "$KVFOLD train --base model --data train.jsonl --prefix-length 4 --encoder-hidden 16 \
        --precision f32 --threads 2 $run_options --out quiet.h5 --quiet" /dev/null >typed </dev/null
    grep -E 'step 6/6|forecast' typed && fail 'progress with --quiet'
    same plain.h5 quiet.h5
else
    echo 'no script(1): the line on a terminal is not tried'
fi
