#!/bin/sh
# Runs the small fixed set of trainings of quality.txt and compares their scores with the ranges
# stored there.
#
#   quality.sh KVFOLD MINILM SMOLLM2 DICTIONARY SHARED WORK [measure]
#
# KVFOLD: the command. MINILM, SMOLLM2: bases. DICTIONARY: a folder with train.jsonl and valid.jsonl. SHARED: a folder
# with sst2, wnut17, superglue, xquad_en; a run whose data is not there is counted as skipped. WORK: a folder for what
# the runs write. Each run has one thread, and two run at a time; equal builds give equal scores on one machine.
#
# One line a score; exit status 1 if one is worse than its range, or a run failed. measure: WORK/quality.txt has the ranges
# of this build, mean +- 3 standard errors, at least 0.01 (of one run alone: 0.02).
set -eu
here=$(cd "$(dirname "$0")" && pwd)

# run NAME SEED METRIC OPTION...: trains in the current folder; NAME-SEED.json is there where that went well.
run() {
  name=$1-$2 seed=$2 metric=$3
  shift 3
  OMP_NUM_THREADS=1 ./kvfold train "$@" --metric "$metric" --eval-every 1000000 --seed "$seed" --threads 1 \
    --out "$name.h5" --force --quiet --json >"$name.part" 2>"$name.err" && mv "$name.part" "$name.json"
  rm -f "$name.h5" "$name.h5.lock" "$name.part"
}

if [ "$1" = run ]; then
  shift
  run "$@"
  exit 0
fi

work=$6 what=${7:-check}
mkdir -p "$work"
rm -f "$work"/*.json "$work"/*.err "$work"/verdicts
link() {
  target=$(realpath -m "$1")
  ln -sfn "$target" "$work/$2"
}
link "$1" kvfold
link "$2" minilm
link "$3" smollm2.gguf
link "$4" dictionary
link "$5" shared
cd "$work"
begin=$(date +%s)

# rows: lines "NAME METRIC SEEDS LOWER UPPER OPTION..." of the table.
rows() { grep -v '^#' "$here/quality.txt" | sed 's/ *| */ /g'; }

# has_data OPTION...: the files that they name are there.
has_data() {
  for word; do
    case $word in shared/* | dictionary/* | minilm | smollm2.gguf) [ -e "$word" ] || return 1 ;; esac
  done
}

rows | while read -r name metric seeds lower upper options; do
  # shellcheck disable=SC2086 # words
  has_data $options || continue
  for seed in $(seq "$seeds"); do echo "$name $seed $metric $options"; done
done | xargs -P 2 -L 1 "$here/quality.sh" run

# scores: lines "NAME METRIC LOWER UPPER RUNS SCORE..."; RUNS 0: its data is not there.
scores() {
  rows | while read -r name metric seeds lower upper options; do
    # shellcheck disable=SC2086
    has_data $options || seeds=0
    [ "$name" != mean ] || seeds=mean
    printf '%s %s %s %s %s' "$name" "$metric" "$lower" "$upper" "$seeds"
    for seed in $(seq "$seeds" 2>/dev/null); do
      [ ! -e "$name-$seed.json" ] || sed -n 's/.*"best_value":\([-+.0-9e]*\).*/ \1/p' "$name-$seed.json" | tr -d '\n'
    done
    echo
  done
}

scores | awk '
  # the line of a score, and its new range; half: of that range
  function judge(name, metric, score, half, lower, upper,    worse, better, verdict) {
    if (half < 0.01) half = 0.01
    better = metric == "loss" ? score < lower : score > upper
    worse = metric == "loss" ? score > upper : score < lower
    verdict = worse ? "WORSE than" : better ? "better than" : "within"
    count[verdict]++
    printf "%-15s %-8s %.4f  %s %.4f to %.4f\n", name, metric, score, verdict, lower, upper
    printf "%s %.4f %.4f\n", name, score - half, score + half >"ranges"
  }
  BEGIN { printf "" >"ranges" }
  $5 == "mean" {
    if (lost) printf "%-15s not taken: scores are missing\n", $1
    else judge($1, $2, total / n, 3 * sqrt(errors) / n, $3, $4)
    next
  }
  $5 == 0 { printf "%-15s skipped: no data\n", $1; skipped++; lost++; next }
  NF < 5 + $5 { printf "%-15s FAILED: %d of %d runs ended well\n", $1, NF - 5, $5; failed++; lost++; next }
  {
    sum = squares = 0
    for (i = 6; i <= NF; i++) sum += $i
    score = sum / $5
    for (i = 6; i <= NF; i++) squares += ($i - score) ^ 2
    error = $5 > 1 ? sqrt(squares / ($5 - 1) / $5) : 0.02 / 3
    if ($2 != "loss") { total += score; errors += error ^ 2; n++ }
    judge($1, $2, score, 3 * error, $3, $4)
  }
  END {
    printf "%d within their ranges, %d better, %d worse, %d failed, %d skipped", count["within"], count["better than"],
      count["WORSE than"], failed, skipped
    if (count["better than"]) printf "; better ones want new ranges: ./setup.sh quality measure"
    printf "\n"
  }' >verdicts
cat verdicts
for name in $(sed -n 's/ *FAILED.*//p' verdicts); do cat "$name"-*.err >&2; done
echo "$(($(date +%s) - begin)) s"
if [ "$what" = measure ]; then
  awk -F ' [|] ?' -v OFS=' | ' 'FNR == NR { split($0, w, " "); low[w[1]] = w[2]; high[w[1]] = w[3]; next }
    $1 in low { $4 = low[$1]; $5 = high[$1] } { print }' ranges "$here/quality.txt" >quality.txt
  echo "$work/quality.txt has the ranges of this build"
  ! grep -q ' FAILED' verdicts
else
  ! grep -q -e ' FAILED' -e ' WORSE ' verdicts
fi
