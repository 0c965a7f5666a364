# The metric of docs/contributing.md: it is reported, and the lowest value is best.
make_inputs
printf 'text\tlabel\na good film\tyes\na bad film\tno\n' >mood.tsv
shared="--base model --data mood.tsv --valid mood.tsv --task seq-cls --method direct --prefix-length 4 --threads 2 --precision f32"
# shellcheck disable=SC2086 # words
run 0 train $shared --metric error --steps 20 --eval-every 1 --out run.h5 --json
has out '"best_metric":"error"'
[ "$(value best_value)" = 0.0 ] || fail "best: $(value best_value), want 0.0"
