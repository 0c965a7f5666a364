# No command replaces its own input file, even with --force, under any name.
make_inputs
train 0 --out run.h5 --steps 2 --quiet
run 0 merge run.h5 --out prefix.h5
run 0 export prefix.h5 --out peft
printf '{"text": "a b", "label": "x"}\n{"text": "c", "label": "y"}\n' >rows.jsonl
run 0 train --base model --data rows.jsonl --task seq-cls --method direct --prefix-length 2 --threads 2 --steps 1 \
    --out classes.h5 --quiet
"$MAKE_TINY" lora 5 lora || exit 1
printf 'x\ny\n' >labels.txt
printf 'steps = 2\n' >recipe.txt
printf '[a]\nlr = 0.1\n' >grid.txt
printf 'Some text to know by heart.\n' >document.txt
cp -r model inputs
for file in run.h5 prefix.h5 recipe.txt grid.txt document.txt train.jsonl valid.jsonl; do
    ln "$file" "other.$file"
    cp "$file" inputs
done

# OUTPUT ARGUMENTS...: the output is one of the inputs
refused() {
    output=$1
    shift
    run 2 "$@" --force
    has err "^kvfold: $1: $output: is read by this command, it will not be replaced"
}
while read -r output arguments; do
    # shellcheck disable=SC2086 # words
    refused "$output" $arguments
done <<END
prefix.h5 export prefix.h5 --format safetensors --out prefix.h5
other.prefix.h5 export prefix.h5 --format safetensors --out other.prefix.h5
other.run.h5 export run.h5 --format peft --out other.run.h5
other.prefix.h5 import prefix.h5 --out other.prefix.h5
model/config.json import peft --base model --out model/config.json
peft/adapter_config.json import peft --base model --out peft/adapter_config.json
model/config.json new-base --config model/config.json --tokenizer model --out model/config.json
model/tokenizer.json new-base --config model/config.json --tokenizer model --out model/tokenizer.json
run.h5 merge run.h5 --out run.h5
valid.jsonl merge run.h5 --base model --probe valid.jsonl --out valid.jsonl
model/model.safetensors merge run.h5 --base model --probe valid.jsonl --out model/model.safetensors
other.prefix.h5 compose run.h5 prefix.h5 --base model --out other.prefix.h5
model/config.json compose run.h5 prefix.h5 --base model --out model/config.json
prefix.h5 prune prefix.h5 --base model --data valid.jsonl --keep 2 --out prefix.h5
valid.jsonl prune prefix.h5 --base model --data valid.jsonl --keep 2 --out new.h5 --curve valid.jsonl
prefix.h5 quantize prefix.h5 --dtype int8 --out prefix.h5
valid.jsonl quantize prefix.h5 --dtype int8 --base model --data valid.jsonl --out valid.jsonl
model/config.json quantize prefix.h5 --dtype int8 --base model --out model/config.json
prefix.h5 unmerge prefix.h5 --base model --out prefix.h5
other.prefix.h5 convert-position prefix.h5 --base model --position-start 0 --out other.prefix.h5
document.txt distill --base model --document document.txt --out document.txt
valid.jsonl distill --base model --document document.txt --valid valid.jsonl --out valid.jsonl
prefix.h5 report prefix.h5 --base model --data valid.jsonl --out prefix.h5
valid.jsonl report prefix.h5 --base model --data valid.jsonl --out valid.jsonl
model/config.json report prefix.h5 --base model --out model/config.json
other.train.jsonl train --base model --data train.jsonl --out other.train.jsonl
recipe.txt train --base model --data train.jsonl --recipe recipe.txt --out recipe.txt
valid.jsonl train --base model --data train.jsonl --valid valid.jsonl --out new.h5 --log valid.jsonl
model/config.json train --base model --data train.jsonl --out model/config.json
valid.jsonl train --base model --data a=train.jsonl --valid a=valid.jsonl --task a=lm --out valid.jsonl
lora/adapter_model.safetensors train --base model --lora lora --data train.jsonl --out lora/adapter_model.safetensors
lora/adapter_model.safetensors merge run.h5 --base model --lora lora --out lora/adapter_model.safetensors
labels.txt train --base model --data rows.jsonl --task seq-cls --labels @labels.txt --out labels.txt
prefix.h5 predict --base model --prefix prefix.h5 --data valid.jsonl --out prefix.h5
other.valid.jsonl predict --base model --prefix prefix.h5 --data valid.jsonl --out other.valid.jsonl
prefix.h5 score --base model --prefix prefix.h5 --data valid.jsonl --out prefix.h5
other.valid.jsonl score --base model --prefix prefix.h5 --data valid.jsonl --out other.valid.jsonl
model/tokenizer.json score --base model --data valid.jsonl --out model/tokenizer.json
model/tokenizer.json predict --base model --prefix classes.h5 --data rows.jsonl --out model/tokenizer.json
END

# a sweep chooses the names of its outputs
mkdir runs
cp train.jsonl runs/a.h5
cp grid.txt runs/sweep.csv
refused runs/a.h5 sweep --base model --data runs/a.h5 --grid grid.txt --out runs
rm runs/a.h5
refused runs/sweep.csv sweep --base model --data train.jsonl --grid runs/sweep.csv --out runs

for file in run.h5 prefix.h5 recipe.txt grid.txt document.txt train.jsonl valid.jsonl; do
    same "$file" "inputs/$file"
done
for file in model/*; do
    same "$file" "inputs/${file#model/}"
done
absent new.h5
