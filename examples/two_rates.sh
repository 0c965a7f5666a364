#!/bin/sh
# Two learning rates on one budget; the better prefix stays. Each run is resumed where it was, should this be run again.
#   two_rates.sh BASE TRAIN.jsonl VALID.jsonl FOLDER RATE RATE [OPTION OF TRAIN...]
set -eu
kvfold=${KVFOLD:-kvfold}
base=$1 train=$2 valid=$3 folder=$4 one=$5 two=$6
shift 6
mkdir -p "$folder"
for rate in "$one" "$two"; do
  "$kvfold" train --base "$base" --data "$train" --valid "$valid" --out "$folder/lr-$rate.h5" --lr "$rate" --resume --json \
    "$@" >"$folder/lr-$rate.json"
  loss=$(sed -n 's/.*"best_valid_loss":\([^,}]*\).*/\1/p' "$folder/lr-$rate.json")
  echo "$loss $rate"
done | sort -g >"$folder/ranking"
cat "$folder/ranking"
best=$(sed -n '1s/.* //p' "$folder/ranking")
"$kvfold" merge "$folder/lr-$best.h5" --out "$folder/prefix.h5" --force
