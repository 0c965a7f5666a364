#!/bin/sh
# Trains a prefix on a small random base, merges it and generates with it, with an installed command.
# Usage: smoke.sh KVFOLD FOLDER; FOLDER/prefix.h5 is the prefix, FOLDER/base.h5 the base
set -eu
kvfold=$(realpath "$(command -v "$1")")
tokenizer=$(realpath "$(dirname "$0")/golden/saved/t5/tokenizer.json")
mkdir -p "$2"
cd "$2"
cat >config.json <<'END'
{"model_type": "llama", "vocab_size": 9, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
 "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "eos_token_id": 2}
END
for words in 'a b' 'b c' 'c d' 'd e'; do
    printf '{"prompt": "%s", "completion": " %s"}\n' "${words% *}" "${words#* }"
done >rows.jsonl
"$kvfold" --version
"$kvfold" new-base --config config.json --tokenizer "$tokenizer" --out base.h5 --force --quiet
"$kvfold" train --base base.h5 --data rows.jsonl --prefix-length 4 --steps 3 --out run.h5 --force --quiet
"$kvfold" merge run.h5 --out prefix.h5 --force --quiet
"$kvfold" inspect prefix.h5 >inspected
grep -q 'prefix' inspected
"$kvfold" generate --base base.h5 --prefix prefix.h5 --prompt a --max-tokens 4 --quiet >answer
"$kvfold" train --help | grep -q -- --prefix-length
