# score: a JSON line for every row, with the figures of eval, and the same for a row alone.
make_inputs
run 0 train --base model --data train.jsonl --method direct --prefix-length 2 --steps 4 --precision f32 --threads 1 --out run.h5
cat >rows.jsonl <<'END'
{"prompt": "after 3:", "completion": " 4"}
{"text": "a longer text that is left out where rows are short"}
{"messages": [{"role": "user", "content": "after 5:"}, {"role": "assistant", "content": " 6"}]}
END
how='--base model --prefix run.h5 --precision f32 --threads 1 --chat-template chatml'

# shellcheck disable=SC2086 # words
run 0 score $how --data rows.jsonl --out all.jsonl
has out '^all.jsonl: 3 rows, [0-9]* tokens, log-likelihood -[0-9.]*, '
[ "$(wc -l <all.jsonl)" -eq 3 ] || fail 'not a line for each row'
has all.jsonl '^{"loglikelihood":-[0-9.]*,"tokens":[0-9]*,"ids":\[[0-9,]*\],"logprobs":\[[-0-9.,e]*\],"greedy":\[[a-z,]*\]}$'
for i in 1 2 3; do
    sed -n ${i}p rows.jsonl >one.jsonl
    # shellcheck disable=SC2086
    run 0 score $how --data one.jsonl --out one.out --force
    sed -n ${i}p all.jsonl >want.out
    same one.out want.out
done

# the sum equals eval's loss, if rows end without an end token
printf '{"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]}\n' >ids.jsonl
run 0 score --base model --prefix run.h5 --precision f32 --threads 1 --data ids.jsonl --out ids.out --json
sum=$(value loglikelihood)
run 0 eval --base model --prefix run.h5 --precision f32 --threads 1 --data ids.jsonl --json
loss=$(value loss)
awk -v sum="$sum" -v loss="$loss" 'BEGIN { d = sum / 2 + loss; exit !(d < 1e-5 && d > -1e-5) }' || fail "score $sum of 2 tokens, eval $loss"

# rows that do not fit keep their place
run 0 score --base model --data rows.jsonl --max-length 40 --overlong skip --out short.jsonl --chat-template none --limit 2
[ "$(sed -n 2p short.jsonl)" = '{"loglikelihood":null}' ] || fail "a row left out: $(sed -n 2p short.jsonl)"
has out ', 1 skipped, '

# streams, and refusals
# shellcheck disable=SC2086
"$KVFOLD" score $how --data - --out - <rows.jsonl >piped 2>err
same piped all.jsonl
has err '^/dev/stdout: 3 rows, '
# shellcheck disable=SC2086
run 2 score $how --data rows.jsonl --out rows.jsonl --force
has err 'rows.jsonl: is read by this command'
# shellcheck disable=SC2086
run 1 score $how --data rows.jsonl --out all.jsonl
has err 'all.jsonl: exists'
run 2 score --base model --prefix run.h5 --prefix run.h5 --data rows.jsonl --out new.jsonl
err_is 'kvfold: score: --prefix can be given only once: score uses one prefix; try kvfold score --help'
"$MAKE_TINY" bert 1 bert || exit 1
run 2 score --base bert --data ids.jsonl --out new.jsonl
has err 'a bert does not predict the next token'
absent new.jsonl
