#!/bin/sh
# Gives hostile HDF5 files to the command. Makes a small file of every kind in a folder of its own.
# Next to each NAME.h5, NAME.commands lists the commands that read it, with FILE in place of its
# name. Then runs h5_contained, and moves files on which the command failed to the current folder.
# Usage: h5_contained.sh BUILD SEED FIRST COUNT
set -eu
build=$(realpath "$1")
kvfold=$build/kvfold
golden=$(realpath "$(dirname "$0")/../golden")
here=$PWD
LSAN_OPTIONS=suppressions=$(realpath "$(dirname "$0")/leaks_of_hdf5.txt"):print_suppressions=0 # leaks on damaged files
export LSAN_OPTIONS
work=$(mktemp -d)
trap 'cd "$here"; mv "$work"/h5_contained-*.h5 . 2>/dev/null || :; rm -rf "$work"' EXIT
cd "$work"
"$build/tests/make_tiny" llama 1
"$build/tests/make_tiny" bert 1 bert
printf '%s\n' '{"model_type": "t5", "vocab_size": 258, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2,
    "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 257, "initializer_range": 0.3}' >t5.json
"$kvfold" new-base --config t5.json --tokenizer llama --out t5.h5 >/dev/null
cat >lm.jsonl <<'END'
{"prompt": "after 5:", "completion": " 6"}
{"prompt": "after 7:", "completion": " 8"}
END
cat >classes.jsonl <<'END'
{"text": "good", "label": "yes"}
{"text": "bad", "text_pair": "film", "label": "no"}
END
cat >tags.jsonl <<'END'
{"tokens": ["Ann", "went"], "tags": ["B-PER", "O"]}
END
small='--threads 1 --precision f32 --quiet'

# reads NAME COMMAND...: a command for NAME.h5, besides those for any file
reads() {
    file=$1
    shift
    printf '%s\n' 'inspect FILE' "diff FILE $file.h5" "$@" >"$file.commands"
}

# fit NAME USE ARGUMENTS...: a run, run_NAME.h5, and its folded file, NAME.h5; USE is a command that
# takes either.
fit() {
    name=$1 use=$2
    shift 2
    set -- "$@" --base $base --batch-size 2 --schedule-steps 4 --eval-every 1 $small
    "$kvfold" train "$@" --steps 2 --out "run_$name.h5" >/dev/null
    "$kvfold" merge "run_$name.h5" --base $base --out "$name.h5" --quiet >/dev/null
    reads "run_$name" "$use" "merge FILE --base $base --out out.h5 --force --quiet" "train $* --steps 4 --out FILE --resume" \
        'report FILE --out out.html --force --quiet'
    reads "$name" "$use" 'report FILE --out out.html --force --quiet'
}

# shellcheck disable=SC2086 # words
{
    base=llama
    lm='--data lm.jsonl --valid lm.jsonl'
    write="generate --base llama --prefix FILE --allow-other-base --prompt a --max-tokens 2 $small"
    fit mlp "$write" $lm --prefix-length 4 --encoder-hidden 8
    fit weighted "$write" $lm --method direct --prefix-length 3 --log-weight train
    fit infix "$write" $lm --method direct --prefix-length 3 --infix --layers 1-1
    fit adapter "$write" $lm --method adapter --adapter-size 2
    fit base "$write" $lm --method full
    "$kvfold" merge run_mlp.h5 --dtype int8 --out int8.h5 --quiet >/dev/null

    base=t5.h5
    fit stacks "generate --base t5.h5 --prefix FILE --allow-other-base --prompt a --max-tokens 2 $small" $lm --method direct \
        --prefix-length 3

    base=bert
    classes='--task seq-cls --data classes.jsonl --valid classes.jsonl'
    answer="predict --base bert --prefix FILE --allow-other-base --data classes.jsonl --out - $small"
    fit classes "$answer" $classes --method direct --prefix-length 3
    fit embeddings "$answer" $classes --method p-tuning --p-encoder mlp --encoder-hidden 4 --prefix-length 3
    fit head "$answer" $classes --method head
    fit tasks "$answer --head a" --data a=classes.jsonl --task a=seq-cls --data b=tags.jsonl --task b=token-cls \
        --valid a=classes.jsonl --valid b=tags.jsonl --method direct --prefix-length 3 --task-prefix low-rank
}
reads base "generate --base FILE --prompt a --max-tokens 2 $small"
reads head "predict --base FILE --data classes.jsonl --out - $small"
reads int8 'quantize FILE --dtype f16 --out out.h5 --force --quiet' 'compose FILE mlp.h5 --mode average --out out.h5 --force --quiet' \
    'unmerge FILE --encoder-hidden 4 --approximate --out out.h5 --force --quiet' \
    'export FILE --format safetensors --out out.safetensors --force --quiet'
cp "$golden/h5_heads.h5" heads.h5
reads heads
"$build/tests/fuzz/h5_contained" "$kvfold" "$2" "$3" "$4"
