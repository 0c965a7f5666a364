# report in a browser: a run with every feature, one with hostile texts, a task with a metric. Run
# by ../cli/run.sh; skipped without a browser, or without Python to drive it.
browser=
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v $name || true)
done
if [ -z "$browser" ] || ! command -v python3 >/dev/null; then
    echo "skipped: no Chromium, or no python3 to drive it"
    exit 77
fi
make_inputs

train 0 --valid valid.jsonl --retain valid.jsonl --kl-to-base 0.1 --steps 60 --eval-every 12 --out run.h5 --quiet
run 0 report run.h5 --out run.html --base model --data valid.jsonl --words 2 --samples 2 --max-tokens 8

# large values everywhere, and texts with markup
long=wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww
name="<img src=x onerror=alert(1)>'\"$long.h5"
for i in 1 2 3; do
    printf '{"prompt": "<script>alert(2)</script>%s\\u202e %d", "completion": "</pre></article><b onclick=alert(3)>"}\n' $long $i
done >'<b>evil.jsonl'
run 0 train --base model --data '<b>evil.jsonl' --out "$name" --method direct --prefix-length 40 --steps 3 --quiet \
    --init text --init-text "\"></td></table><script>alert(4)</script><iframe src=//x.invalid>"
run 0 report "$name" --out hostile.html --base model --data '<b>evil.jsonl' --words 3 --samples 2 --max-tokens 8
run 0 merge "$name" --out prefix.h5
run 0 report prefix.h5 --out prefix.html

printf 'text\tlabel\n' >labels.tsv
for i in 1 2 3 4 5 6; do printf 'good %d\tyes\nbad %d\tno\n' $i $i; done >>labels.tsv
run 0 train --base model --task seq-cls --data labels.tsv --valid labels.tsv --method direct --prefix-length 4 \
    --steps 6 --eval-every 2 --out cls.h5 --quiet
run 0 report cls.h5 --out cls.html --base model --data labels.tsv --words 0

timeout 300 python3 "$SOURCE/tests/report/browser.py" "$browser" run.html hostile.html prefix.html cls.html >seen ||
    fail "$(cat seen)"
