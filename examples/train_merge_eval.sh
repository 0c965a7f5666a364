#!/bin/sh
# Trains a prefix, folds it, and measures the base without and with it.
#   train_merge_eval.sh BASE TRAIN.jsonl VALID.jsonl FOLDER [OPTION OF TRAIN...]
set -eu
kvfold=${KVFOLD:-kvfold}
base=$1 train=$2 valid=$3 folder=$4
shift 4
mkdir -p "$folder"
"$kvfold" train --base "$base" --data "$train" --valid "$valid" --out "$folder/run.h5" --log "$folder/log.jsonl" "$@"
"$kvfold" merge "$folder/run.h5" --out "$folder/prefix.h5"
echo 'without:'
"$kvfold" eval --base "$base" --data "$valid" --quiet
echo 'with:'
"$kvfold" eval --base "$base" --data "$valid" --prefix "$folder/prefix.h5" --quiet
