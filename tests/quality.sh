#!/bin/sh
# The small fixed set of trainings of quality.txt, against the ranges stored there: a change that costs points is seen.
#
#   quality.sh KVFOLD MINILM SMOLLM2 DICTIONARY SHARED WORK [measure]
#
# KVFOLD: the command. MINILM, SMOLLM2: bases. DICTIONARY: a folder with train.jsonl and valid.jsonl. SHARED: a folder
# with sst2, wnut17, superglue, xquad_en; a run whose data is not there is counted as skipped. WORK: a folder for what
# the runs write. Equal builds give equal scores on one machine: each run has one thread, and two run at a time.
#
# One line a run, exit status 1 if a score is worse than its range. measure: WORK/quality.txt has the ranges of this build,
# mean +- 3 standard errors, at least 0.01 (one run alone: 0.02).
set -eu
here=$(cd "$(dirname "$0")" && pwd)

# run NAME SEED METRIC OPTION...: trains in the current folder; NAME-SEED.json is there where that went well.
run() {
  name=$1-$2 seed=$2 metric=$3
  shift 3
  OMP_NUM_THREADS=1 ./kvfold train "$@" --metric "$metric" --eval-every 1000000 --seed "$seed" --threads 1 \
    --out "$name.h5" --force --quiet --json >"$name.part" 2>"$name.err" && mv "$name.part" "$name.json"
  rm -f "$name.h5" "$name.part"
}

if [ "$1" = run ]; then
  shift
  run "$@"
  exit 0
fi

work=$6 what=${7:-check}
mkdir -p "$work"
rm -f "$work"/*.json "$work"/*.err "$work/verdicts"
link() { ln -sfn "$(realpath -m "$1")" "$work/$2"; }
link "$1" kvfold
link "$2" minilm
link "$3" smollm2.gguf
link "$4" dictionary
link "$5" shared
cd "$work"
begin=$(date +%s)

# rows: lines "NAME METRIC SEEDS LOWER UPPER OPTION..." of the table.
rows() { grep -v '^#' "$here/quality.txt" | sed 's/ *| */ /g'; }

# has_data NAME: its files are there.
has_data() {
  for word in $(rows | grep "^$1 "); do
    case $word in shared/* | dictionary/* | minilm | smollm2.gguf) [ -e "$word" ] || return 1 ;; esac
  done
}

# The longest runs come first, so that none is left alone at the end.
rows | sort -k1,1 | while read -r name metric seeds lower upper options; do
  has_data "$name" || continue
  for seed in $(seq "$seeds"); do echo "$name $seed $metric $options"; done
done | xargs -P 2 -L 1 "$here/quality.sh" run

# judge NAME METRIC SEEDS LOWER UPPER: its line; its new range as the last words of a line of the file `ranges`.
judge() {
  for seed in $(seq "$3"); do
    sed -n 's/.*"best_value":\([-+.0-9e]*\).*/\1/p' "$1-$seed.json" 2>/dev/null || true
  done | awk -v name="$1" -v metric="$2" -v seeds="$3" -v lower="$4" -v upper="$5" '
    { x[NR] = $1; sum += $1 }
    END {
      if (NR < seeds) { printf "%-16s FAILED: %d of %d runs ended well\n", name, NR, seeds; exit }
      mean = sum / NR
      for (i = 1; i <= NR; i++) square += (x[i] - mean) ^ 2
      margin = NR > 1 ? 3 * sqrt(square / (NR - 1) / NR) : 0.02
      if (margin < 0.01) margin = 0.01
      below = mean < lower; above = mean > upper
      worse = metric == "loss" ? above : below
      text = worse ? "WORSE than" : below || above ? "better than (measure again)" : "within"
      printf "%-16s %-8s %.4f  %s %.4f to %.4f\n", name, metric, mean, text, lower, upper
      printf "%s %.4f %.4f\n", name, mean - margin, mean + margin >"ranges.part"
    }'
  if [ -e ranges.part ]; then cat ranges.part >>ranges; fi
  rm -f ranges.part
}

: >ranges
rows | while read -r name metric seeds lower upper options; do
  if has_data "$name"; then judge "$name" "$metric" "$seeds" "$lower" "$upper"; else echo "$name: skipped, no data"; fi
done | tee verdicts
[ "$what" != measure ] || awk -F ' [|] ' -v OFS=' | ' 'FNR == NR { split($0, w, " "); low[w[1]] = w[2]; high[w[1]] = w[3]; next }
  $1 in low { $4 = low[$1]; $5 = high[$1] } { print }' ranges "$here/quality.txt" >quality.txt
count() { grep -c "$1" verdicts || true; }
failed=$(count ' FAILED') worse=$(count ' WORSE ')
echo "$(count ' within ') within their ranges, $(count ' better ') better, $worse worse, $failed failed, $(count ': skipped') skipped;" \
  "$(($(date +%s) - begin)) s"
for name in $(sed -n 's/ *FAILED.*//p' verdicts); do tail -n 1 "$name"-*.err >&2; done
if [ "$what" = measure ]; then
  echo "$work/quality.txt has the ranges of this build"
  [ "$failed" = 0 ]
else
  [ "$failed$worse" = 00 ]
fi
