# PEFT itself opens the output of `export --base-id`: needs torch, transformers and peft
# (KVF_PYTHON).
python=${KVF_PYTHON:-python3}
if ! "$python" -c 'import peft, torch, transformers' 2>/dev/null; then
    echo 'no torch, transformers and peft (KVF_PYTHON)'
    exit 77
fi
make_inputs
"$MAKE_TINY" bert 1 bert || exit 1
printf 'text\tlabel\ngood day\tyes\nbad day\tno\nfine thing\tyes\nso so\tper\xc3\xa9haps "so"\n' >classes.tsv

# exported NAME BASE: the run of this name as an adapter that names its base.
exported() {
    run 0 export "$1.h5" --out "$1" --base-id "$PWD/$2"
}
for method in direct prompt; do
    train 0 --method $method --steps 4 --out $method.h5 --quiet
    exported $method model
    run 0 generate --base model --prefix $method.h5 --prompt 'after 3:' --max-tokens 20 --precision f32
    cp out $method.txt
done
for base in model bert; do
    run 0 train --base $base --task seq-cls --data classes.tsv --method direct --prefix-length 4 --steps 4 --precision f32 --out of_$base.h5 --quiet
    exported of_$base $base
    run 0 predict --base $base --prefix of_$base.h5 --data classes.tsv --out of_$base.jsonl --precision f32
done
"$python" "$SOURCE/tests/peers/auto_peft.py" text:model:direct:direct.txt text:model:prompt:prompt.txt \
    classes:model:of_model:of_model.jsonl classes:bert:of_bert:of_bert.jsonl >said 2>err ||
    fail "$(cat said err)"
cat said
