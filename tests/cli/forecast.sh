# The forecast and the progress line, on terminals and in scripts.
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

# a script prints validations without extra cost; on request, the forecast comes before the run; the
# bits are the same
validation='^step 6/6  loss [0-9.]*  valid [0-9.]*\( (best)\)\?  0:0[0-9] left  [0-9.]* MiB$'
# shellcheck disable=SC2086
train 0 $run_options --out plain.h5
[ "$(grep -c '^step [36]/6 ' err)/$(wc -l <err)" = 2/2 ] || fail "not two validations: $(cat err)"
has err "$validation"
grep -q forecast out && fail "a forecast nobody asked for: $(cat out)"
# shellcheck disable=SC2086
train 0 $run_options --out asked.h5 --forecast on
[ "$(wc -l <err)" -eq 4 ] || fail "not a forecast and two validations: $(cat err)"
[ "$(sed -n '1p;3p' err | cut -c 1-9 | tr '\n' ' ')" = 'forecast: step 3/6  ' ] || fail "order: $(cat err)"
has out '^forecast [0-9.]* s and [0-9.]* MiB, actual [0-9.]* s and [0-9.]* MiB$'
same plain.h5 asked.h5
# shellcheck disable=SC2086
train 0 $run_options --out quiet.h5 --forecast on --quiet --force
err_is
# shellcheck disable=SC2086
train 0 $run_options --out json.h5 --forecast on --json
[ "$(wc -l <out)/$(wc -l <err)" = 1/4 ] || fail "with --json: $(cat out err)"

# on a terminal: one line, redrawn below the validation lines, which stay; no line with --quiet
if command -v script >/dev/null; then
    script -qec "$KVFOLD train --base model --data train.jsonl --prefix-length 4 --encoder-hidden 16 \
        --precision f32 --threads 2 $run_options --out seen.h5" /dev/null >typed </dev/null
    has typed 'step 6/6  loss [0-9.]*  valid [0-9.]*  [0-9]* tokens/s  0:0[0-9] left  [0-9.]* MiB'
    has typed '^forecast: 6 steps of '
    tr '\r' '\n' <typed | sed 's/\x1b\[K//' >lines
    [ "$(grep -c '^step 6/6 [^/]*$' lines)" -eq 1 ] || fail "validations do not stay: $(cat typed)"
    has typed '^forecast [0-9.]* s and .*, actual '
    same plain.h5 seen.h5
    script -qec "$KVFOLD train --base model --data train.jsonl --prefix-length 4 --encoder-hidden 16 \
        --precision f32 --threads 2 $run_options --out quiet.h5 --force --quiet" /dev/null >typed </dev/null
    grep -E 'step 6/6|forecast' typed && fail 'progress with --quiet'
    same plain.h5 quiet.h5
else
    skip 'the line on a terminal: no script(1)'
fi
