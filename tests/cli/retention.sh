# --retain and --kl-to-base: messages, keys, and requirements of --resume.
make_inputs
printf '{"text": "xyz zyx xyz"}\n{"text": "some other text, to stay as it is"}\n' >text.jsonl
train 0 --method direct --steps 4 --schedule-steps 4 --eval-every 2 --retain text.jsonl --kl-to-base 2 --log log.jsonl \
    --out run.h5 --quiet
has out '^retention: loss [0-9.]* with the bare base, [0-9.]* with the initial prefix$'
has out '^retention loss [0-9.]*; [0-9.]* of the bare base, [0-9.]* at the start$'
[ "$(grep -c '"event":"retention"' log.jsonl)" -eq 3 ] || fail "not three readings: $(cat log.jsonl)"
has log.jsonl '"event":"retention","step":4,.*"retention_loss":[0-9.]*,"retention_base_loss":[0-9.]*,"kl_to_base":[0-9]'
has log.jsonl '"event":"step","step":4,.*"kl_to_base":[0-9]'
if command -v h5ls >/dev/null; then
    h5ls run.h5/history | grep -q retention_loss || fail 'no /history/retention_loss'
else
    skip 'names in /history: no h5ls'
fi

train 0 --method direct --steps 2 --schedule-steps 4 --eval-every 2 --retain text.jsonl --kl-to-base 2 --out half.h5 --json
for key in retention_loss retention_start_loss retention_base_loss; do
    has out "\"$key\":[0-9]"
done
train 0 --method direct --steps 4 --eval-every 2 --retain text.jsonl --out half.h5 --resume --quiet
same run.h5 half.h5
cp train.jsonl other.jsonl
train 1 --method direct --steps 4 --retain other.jsonl --out half.h5 --resume
has err 'created with a different retention file'
train 0 --method direct --steps 4 --eval-every 2 --retain prompts --kl-to-base 2 --out whole.h5 --quiet
has out '^retention loss [0-9.]*; [0-9.]* of the bare base, [0-9.]* at the start$'
train 0 --method direct --steps 2 --schedule-steps 4 --eval-every 2 --retain prompts --kl-to-base 2 --out parts.h5 --quiet
train 0 --method direct --steps 4 --eval-every 2 --retain prompts --out parts.h5 --resume --quiet
same whole.h5 parts.h5
train 2 --kl-to-base 1 --out other.h5
has err '^kvfold: train: --kl-to-base needs --retain; '
train 2 --retain text.jsonl --method prompt --out other.h5
has err '^kvfold: train: --retain: not for method prompt'
