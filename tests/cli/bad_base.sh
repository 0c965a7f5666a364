# Damaged and foreign bases and files: each gets one line with the file and the error, exit status
# 1, and no output file.
make_inputs

# broken PATTERN: evaluating base `bad` and training on it both fail with one line like this.
broken() {
    run 1 eval --base bad --data valid.jsonl
    out_is
    has err "^kvfold: eval: bad.*$1"
    [ "$(wc -l <err)" -eq 1 ] || fail "not one line: $(cat err)"
    run 1 train --base bad --data train.jsonl --out new.h5
    has err "^kvfold: train: bad.*$1"
    absent new.h5
    rm -rf bad
}

copy_base() {
    rm -rf bad
    cp -r model bad
}

# a field of config.json
config() {
    copy_base
    sed "s/$1/$2/" model/config.json >bad/config.json
    cmp -s model/config.json bad/config.json && fail "config.json has no $1"
}

# weights
copy_base
head -c 20000 model/model.safetensors >bad/model.safetensors
broken 'model.safetensors: '
copy_base
: >bad/model.safetensors
broken 'model.safetensors: '
copy_base
printf '\377\377\377\377\377\377\377\377{}' >bad/model.safetensors
broken 'model.safetensors: '
copy_base
rm bad/model.safetensors
broken 'safetensors'
for pickle in pytorch_model.bin pytorch_model.bin.index.json; do
    copy_base
    mv bad/model.safetensors "bad/$pickle"
    broken "$pickle: is a torch pickle, .*: python -m kvfold.from_pickle 'bad/$pickle' 'bad/model.safetensors'\$"
done
mkdir lora
echo '{"peft_type": "LORA"}' >lora/adapter_config.json
: >lora/adapter_model.bin
run 1 eval --base model --lora lora --data valid.jsonl
has err "python -m kvfold.from_pickle 'lora/adapter_model.bin' 'lora/adapter_model.safetensors'\$"

# config
copy_base
printf '{"model_type": "llama", ' >bad/config.json
broken 'config.json'
config '"model_type": *"llama"' '"model_type": "mamba"'
broken 'config.json: .*mamba'
config '"hidden_size": *[0-9]*' '"hidden_size": 72'
broken ''
config '"num_attention_heads": *[0-9]*' '"num_attention_heads": 0'
broken 'config.json: '
config '"hidden_act": *"silu"' '"hidden_act": "mish"'
broken 'config.json: .*mish'

# tokenizer
copy_base
head -c 300 model/tokenizer.json >bad/tokenizer.json
broken 'tokenizer.json'
copy_base
sed 's/"BPE"/"WordLevel"/' model/tokenizer.json >bad/tokenizer.json
broken 'tokenizer.json: .*WordLevel'
copy_base
rm bad/tokenizer.json
broken 'tokenizer.json'

# GGUF: cut at any byte, of another version, or not a GGUF
for bytes in 3 20 200 1000; do
    head -c $bytes "$SOURCE/tests/golden/tiny.gguf" >bad
    broken ''
done
{ printf 'GGUF\001\000\000\000'; tail -c +9 "$SOURCE/tests/golden/tiny.gguf"; } >bad
broken 'version'

# HDF5 files made by other programs
for file in v0 external soft format2 virtual big_endian; do
    cp "$SOURCE/tests/golden/h5_$file.h5" bad
    run 1 eval --base model --data valid.jsonl --prefix bad
    out_is
    has err '^kvfold: eval: bad: '
    [ "$(wc -l <err)" -eq 1 ] || fail "not one line: $(cat err)"
done
cp "$SOURCE/tests/golden/h5_v0.h5" bad
run 1 inspect bad
has err '^kvfold: inspect: bad: .*libver'

# rows that do not fit
printf '{"input_ids": [1, 999999], "labels": [1, 1]}\n' >ids.jsonl
run 1 eval --base model --data ids.jsonl
err_is "kvfold: eval: ids.jsonl:1: id 999999 is outside the vocabulary of $(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' model/config.json)"
printf '{"text": "%2000s"}\n' x >long.jsonl
run 1 eval --base model --data long.jsonl
has err '^kvfold: eval: long.jsonl:1: the row has [0-9]* tokens, at most [0-9]* fit (see --overlong)'
run 0 eval --base model --data long.jsonl --overlong truncate
cat valid.jsonl long.jsonl >mixed.jsonl
run 0 eval --base model --data mixed.jsonl --overlong skip --json
[ "$(value examples)" = "$(wc -l <valid.jsonl)" ] || fail "examples: $(value examples)"
