# shellcheck shell=sh
# The runs whose files are kept here. make_old_files.sh makes them with the kvfold of commit df66115, tests/cli/old_files.sh
# reads them with the kvfold of today. Options have the names of that commit.

# Instructions that most machines have: other ones give other last bits.
KVF_CPU=avx2
export KVF_CPU

CASES="mlp infix adapter prompt tasks full direct mood-mlp mood-direct"
STEPS=4   # of run_CASE.h5, which validates and saves at 2 and 4
RESUMED=6 # of resumed_CASE.h5

# make_bases MAKE_TINY: model, bert, and small, whose files make a base file of less than 100 KB
make_bases() {
    "$1" model && "$1" bert 1 bert && mkdir small && cp model/tokenizer.json model/tokenizer_config.json small &&
        sed 's/"hidden_size":32/"hidden_size":8/; s/"intermediate_size":64/"intermediate_size":16/
            s/"num_hidden_layers":2/"num_hidden_layers":1/' model/config.json >small/config.json
}

# base_of CASE: small.h5 is a base file of before too.
base_of() {
    case $1 in
    mlp | infix | adapter | direct) echo model ;;
    prompt | tasks | mood-*) echo bert ;;
    full) echo small.h5 ;;
    esac
}

# data_of CASE: what it is trained on
data_of() {
    case $1 in
    prompt | mood-*) echo --data mood.tsv --valid mood.tsv --task seq-cls ;;
    tasks) echo --data mood=mood.tsv --task mood=seq-cls --data names=names.conll --task names=token-cls \
        --valid mood=mood.tsv --valid names=names.conll ;;
    *) echo --data train.jsonl --valid valid.jsonl ;;
    esac
}

# needs_of CASE: what --resume wants again
needs_of() {
    [ "$1" != mlp ] || echo --meter valid.jsonl
}

# options_of CASE
options_of() {
    case $1 in
    mlp) echo --encoder-hidden 8 --prefix-length 4 --kl-to-base 0.5 --share-leads auto --prefix-dropout 0.1 ;;
    infix) echo --method direct --infix --prefix-length 3 --layers 1-1 --schedule cosine --clip 0.5 ;;
    adapter) echo --method adapter --adapter-size 2 --adapter-placement parallel ;;
    prompt) echo --method p-tuning --p-encoder mlp --encoder-hidden 4 --prefix-length 3 --metric loss ;;
    tasks) echo --method direct --prefix-length 3 --task-prefix low-rank --mix equal --grad-accum 2 ;;
    full) echo --method full ;;
    direct) echo --method direct --prefix-length 3 --weight-decay 0.01 ;;
    mood-mlp) echo --encoder-hidden 8 --prefix-length 4 ;;
    mood-direct) echo --method direct --prefix-length 3 --init-scheme ptuning-v2 --lr-units parameter --lr 0.01 ;;
    esac
    echo --threads 2 --precision f32 --batch-size 4 --eval-every 2 --save-every 2 --schedule-steps 8 --seed 3 --quiet
}

# measured_with CASE: data and head for eval
measured_with() {
    case $1 in
    prompt | mood-*) echo --data mood.tsv ;;
    tasks) echo --data names.conll --head names ;;
    *) echo --data valid.jsonl ;;
    esac
    echo --threads 2 --precision f32 --json
}
