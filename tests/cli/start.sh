# Before the first step: runs of no steps, options that imply --init, field names in --map.
make_inputs

# --steps 0: an initialised run that can be merged; --resume trains it like a run begun with steps
for method in mlp direct projected prompt p-tuning adapter full; do
    size='--prefix-length 3'
    case $method in
    mlp | p-tuning) size="$size --encoder-hidden 4" ;;
    adapter | full) size= ;;
    esac
    # shellcheck disable=SC2086 # words
    set -- --base model --data train.jsonl --valid valid.jsonl --method $method $size --threads 1 \
        --precision f32 --quiet
    run 0 train "$@" --steps 0 --out run.h5 --force --json
    [ "$(value steps) $(value train_loss)" = '0 null' ] || fail "$(cat out)"
    run 0 merge run.h5 --base model --out folded.h5 --force
    run 0 train "$@" --steps 0 --out run.h5 --resume --json
    [ "$(value finished_before)" = true ] || fail "$(cat out)"
    run 0 train "$@" --steps 2 --out run.h5 --resume
    run 0 train "$@" --steps 2 --out whole.h5 --force
    same run.h5 whole.h5
done
train 0 --steps 0 --dry-run --out none.h5
has out '0 steps to do'
absent none.h5
run 0 train --base model --data train.jsonl --method direct --steps 0 --out epochs.h5 --batch-size 12
run 0 train --base model --data train.jsonl --out epochs.h5 --resume --epochs 2 --json
[ "$(value steps)" = 4 ] || fail "$(cat out)"
printf 'steps = 0\nlr = 0.01, 0.03\n' >grid
run 2 sweep --base model --data train.jsonl --grid grid --out runs
has err 'steps must be at least 1 in a sweep'
run 2 train --base model --data train.jsonl --epochs 0 --out none.h5
has err 'steps or --epochs must be at least 1'

# the source of an initial prefix implies --init, and excludes other values
set -- --method direct --steps 1 --force --verbose
train 0 "$@" --init text --init-text 'once upon' --out said.h5
train 0 "$@" --init-text 'once upon' --out implied.h5
has out 'initial prefix of --init text, '
same said.h5 implied.h5
run 0 merge said.h5 --base model --out start.h5
train 0 "$@" --init kv --init-kv start.h5 --out said.h5
train 0 "$@" --init-kv start.h5 --out implied.h5
has out '^initialized from start.h5: '
same said.h5 implied.h5
for init in vocab random zero kv; do
    train 2 "$@" --init $init --init-text 'once upon' --out none.h5
    has err "init-text is for --init text, not $init"
done
train 2 "$@" --init text --init-text once --init-kv start.h5 --out none.h5
has err 'init-kv is for --init kv, not text'
train 2 "$@" --init-text once --init-kv start.h5 --out none.h5
has err 'init-kv is for --init kv, not text'

# training rows as the context
train 0 "$@" --init match --out matched.h5
has out '^initialized from [0-9]* training rows ([0-9]* tokens) '
has out 'initial prefix of --init match, relative error 0.0e+00$'
train 0 --prefix-length 4 --data train.jsonl --out open.h5 --verbose
has out 'initial prefix of --init match, '
head -2 train.jsonl >two.jsonl # half of them are read: fewer tokens than virtual ones
run 0 train --base model --data two.jsonl --prefix-length 40 --threads 2 --steps 1 --out few.h5 --verbose
has out 'initial prefix of --init vocab, '
run 0 train --base model --data two.jsonl --prefix-length 40 --threads 2 --steps 1 --init vocab --out words.h5
same few.h5 words.h5
run 2 train --base model --data two.jsonl --prefix-length 40 --threads 2 --steps 1 --init match --out none.h5
has err 'init match: 1 of 2 rows give .*; want 40 tokens (--prefix-length) and one'
train 2 "$@" --init match --method projected --out none.h5
has err 'init match: want method mlp or direct'

# a sliding window hides the document from queries: such bases start from words
cp -R model local
sed 's/"llama"/"mistral","sliding_window":8/' model/config.json >local/config.json
run 0 train --base local --data train.jsonl --prefix-length 4 --steps 1 --out local.h5 --verbose
has out 'initial prefix of --init vocab, relative error '
run 2 train --base local --data train.jsonl --prefix-length 4 --steps 1 --init match --out none.h5
has err 'init match: want a base without a sliding window'

# keys at centroids of the rows' queries: the default of bidirectional bases
"$MAKE_TINY" bert 1 bert || exit 1
for i in 1 2 3 4 5 6; do printf 'good film %d\tyes\nbad film %d\tno\n' $i $i >>films.tsv; done
films='--base bert --task seq-cls --data films.tsv --prefix-length 4 --steps 1 --threads 2 --precision f32'
for method in mlp direct; do
    # shellcheck disable=SC2086 # words
    run 0 train $films --method $method --out open.h5 --force --verbose
    has out '^initialized at centroids of the queries of [0-9]* tokens in 12 '
    has out 'initial prefix of --init centroids, relative error '
done
starts_at_random() { # starts_at_random OPTIONS...: a run on bert
    run 0 train $films --out open.h5 --force "$@"
    run 0 inspect open.h5 --json
    [ "$(value init)" = '"random"' ] || fail "$*: starts from $(value init)"
}
starts_at_random --lr-units parameter
starts_at_random --log-weight train
starts_at_random --encoder-hidden 3 # fewer than virtual tokens
run 0 train --base model --data train.jsonl --init centroids --prefix-length 4 --steps 1 --out causal.h5 --verbose
has out 'initial prefix of --init centroids, '
train 2 "$@" --init centroids --method projected --out none.h5
has err 'init centroids: want method mlp or direct'

# kvfold's field names
train 2 "$@" --map foo=bar --out none.h5
has err 'map: "foo" is not a field; the fields are text, text_pair, choices, label, prompt, completion,.* input_ids'
train 2 "$@" --map prompt=prompt,Completion=completion --out none.h5
has err 'map "Completion=completion": the field comes first.*: write completion=Completion'
run 2 eval --base model --data train.jsonl --map bar=prompt
has err 'map "bar=prompt": the field comes first.*: write prompt=bar'
train 0 "$@" --map prompt=prompt,completion=completion --out run.h5
absent none.h5
