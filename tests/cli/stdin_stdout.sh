# `-` is standard input or output: data, prompts, predictions and logs give the results of files. It
# is refused for files that are read twice or must appear as a whole.
make_inputs
train 0 --out run.h5 --method direct --steps 2 --quiet
"$MAKE_TINY" llama 2 || exit 1
printf '{"text": "good film", "label": "yes"}\n{"text": "bad film", "label": "no"}\n' >rows.jsonl
run 0 train --base llama --task seq-cls --data rows.jsonl --method direct --prefix-length 4 --steps 2 \
    --threads 2 --precision f32 --out classes.h5 --quiet
use='--threads 2 --precision f32'

# alike ARGUMENTS...: FILE, and - with FILE on standard input, print the same except for times
alike() {
    file=$1
    shift
    run 0 "$@" "$file"
    sed 's/[0-9.]* s$//' out >want_out
    "$KVFOLD" "$@" - <"$file" >out 2>err || fail "kvfold $* -: $(cat err)"
    sed 's/[0-9.]* s$//' out >got_out
    same want_out got_out
    "$KVFOLD" "$@" - <"$file" 2>err | cat >out || fail "kvfold $* -: $(cat err)"
}
# shellcheck disable=SC2086
alike valid.jsonl eval --base model --prefix run.h5 $use --data
# shellcheck disable=SC2086
alike valid.jsonl generate --base model --prefix run.h5 $use --max-tokens 3 --data

# a prompt, except for its last newline
# shellcheck disable=SC2086
run 0 generate --base model $use --max-tokens 3 --prompt 'after 1:'
mv out want_out
for text in 'after 1:' 'after 1:\n' 'after 1:\r\n'; do
    # shellcheck disable=SC2059,SC2086
    printf "$text" | "$KVFOLD" generate --base model $use --max-tokens 3 --prompt - >out 2>err ||
        fail "prompt: $(cat err)"
    same want_out out
done
# shellcheck disable=SC2086
printf 'a\0b' | "$KVFOLD" generate --base model $use --prompt - >out 2>err && fail 'a zero byte'
err_is 'kvfold: generate: /dev/stdin: is not a text file, because it contains a zero byte'

# predictions, into a pipe and into a file opened by the shell
# shellcheck disable=SC2086
run 0 predict --base llama --prefix classes.h5 --data rows.jsonl $use --out predictions.jsonl
# shellcheck disable=SC2086
"$KVFOLD" predict --base llama --prefix classes.h5 --data - --out - $use <rows.jsonl 2>err | cat >out
same predictions.jsonl out
has err '^/dev/stdout: 2 examples, '
# shellcheck disable=SC2086
run 0 predict --base llama --prefix classes.h5 --data rows.jsonl --out - $use --quiet
err_is
same predictions.jsonl out
# shellcheck disable=SC2086
run 2 predict --base llama --prefix classes.h5 --data rows.jsonl --out - $use --json
err_is 'kvfold: predict: --json and --out both write to standard output; try kvfold predict --help'

# the log of a run alone on standard output, in a pipe or a file; other output on standard error
train 0 --out logged.h5 --method direct --schedule constant --steps 3 --log -
grep -v '^{"event":".*}$' out >other && fail "not of the log: $(cat other)"
[ "$(grep -c '^{"event":"step"' out)" -eq 3 ] || fail "log: $(cat out)"
has err '^logged.h5: 3 steps'
train 0 --out logged.h5 --method direct --steps 4 --resume --log - --quiet
err_is
has out '^{"event":"step","step":4,'
mkfifo log
head -n 1 <log >first &
"$KVFOLD" train --base model --data train.jsonl --threads 2 --prefix-length 4 --precision f32 \
    --method direct --steps 100000 --log - --out unread.h5 >log 2>err
code=$?
[ $code -eq 141 ] || fail "a log that nobody reads: exit status $code"
run 0 inspect unread.h5
train 2 --out logged.h5 --log - --json
err_is 'kvfold: train: --json and --log both write to standard output; try kvfold train --help'

# refused, with the reason
again='--resume must read it again, but standard input can be read only once: want a file'
run 2 train --base model --data - --out o.h5
err_is "kvfold: train: --data -: $again; try kvfold train --help"
run 2 train --base model --data a=- --out o.h5
err_is "kvfold: train: --data a=-: $again; try kvfold train --help"
run 2 train --base model --data train.jsonl --out -
err_is 'kvfold: train: --out -: it is written as a whole: want a file; try kvfold train --help'
run 2 eval --base model --data - --prefix -
err_is 'kvfold: eval: --prefix -: standard input can be read only once, in order: want a file; try kvfold eval --help'
printf 'data = -\n' >recipe.txt
run 2 train --base model --recipe recipe.txt --out o.h5
err_is "kvfold: train: recipe.txt:1: --data -: $again; try kvfold train --help"
printf 'steps = 1\n' | "$KVFOLD" train --base model --data train.jsonl --method direct --recipe - \
    --precision f32 --out piped.h5 --json >out 2>err || fail "a recipe on standard input: $(cat err)"
[ "$(value steps)" = 1 ] || fail "steps: $(value steps)"
absent o.h5 ./-
