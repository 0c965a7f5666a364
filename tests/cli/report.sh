# report: one page about each kind of file, alone, on a base, on data; and its refusals.
make_inputs
page() { # page FILE ARGUMENTS...: the report of FILE as page.html
    run 0 report "$@" --out page.html --force --threads 2
    err_is
    out_is "page.html: $(awk -v n="$(wc -c <page.html)" 'BEGIN { printf n < 1024 ? "%d bytes" : "%.1f KiB", n < 1024 ? n : n / 1024 }')"
}
shows() { grep -q -e "$1" page.html || fail "the page has no line like: $1"; }
section() { shows "^<section id=\"$1\">\$"; }
no_section() { ! grep -q "<section id=\"$1\">" page.html || fail "there is a section $1"; }

train 0 --valid valid.jsonl --steps 12 --eval-every 4 --out run.h5 --quiet
page run.h5
for name in curves norms options lineage attributes tensors; do section $name; done
for name in attention words samples; do no_section $name; done
for chart in loss lr grad norm keys values; do shows "<figure class=\"[a-z]*\" id=\"$chart\""; done
shows '<title>run.h5 &ndash; kvfold report</title>'
shows '<p>Best step: <strong>[0-9]*</strong>, valid_loss <strong>[0-9.]*</strong>.</p>'
shows '<span class="mark'
shows '<span class="axis y">nats per label</span><span class="axis x">step</span>'
shows '<ul class="legend"><li class="raw" data-column="train_loss">'
shows '<ul class="legend" hidden><li class="smooth" data-column="lr">'
shows '<dt>seed</dt><dd>0</dd>'
shows '<dt>written</dt><dd>2[0-9-]* [0-9:]* UTC</dd>'
shows '<dt>by kvfold</dt><dd>[0-9.]*</dd>'
[ "$(sed -n '/<table id="steps">/,/<\/table>/p' page.html | grep -c '^<tr><td>')" -eq 12 ] || fail "not a row for each step"
cp page.html first.html
page run.h5
same first.html page.html

run 0 report run.h5 --out json.html --json
[ "$(value bytes)" -eq "$(wc -c <json.html)" ] || fail "bytes: $(cat out)"
same first.html json.html

# with base and data
page run.h5 --base model
section words
no_section attention
page run.h5 --base model --data valid.jsonl --words 2 --samples 2 --rows 3 --max-tokens 5
for name in curves norms attention words samples; do section $name; done
shows 'the mean over [0-9]* labels in 3 rows of <code>valid.jsonl</code>'
[ "$(grep -c '^<article class="sample">' page.html)" -eq 2 ] || fail "not two samples"
shows '^after 3:</pre>'
shows '<h4>In the data</h4>'
cp page.html first.html
page run.h5 --base model --data valid.jsonl --words 2 --samples 2 --rows 3 --max-tokens 5
same first.html page.html
page run.h5 --base model --data valid.jsonl --words 0 --samples 0 --rows 3
no_section words
no_section samples
section attention

# the page contains the text of generate
run 0 merge run.h5 --out prefix.h5
run 0 generate --base model --prefix prefix.h5 --prompt "after 3:" --max-tokens 5 --precision f32
LC_ALL=C tr -dc 'a-zA-Z0-9' <out >said
page prefix.h5 --base model --data valid.jsonl --samples 1 --max-tokens 5
# consistent numbers: the losses equal those of eval
for with in '' '--prefix prefix.h5'; do
    # shellcheck disable=SC2086 # words
    run 0 eval --base model $with --data valid.jsonl --threads 2 --json
    shows "<strong>$(printf %.4f "$(value loss)")</strong>"
done
no_section curves
section norms
sed -n '/<div class="after">/,/<\/pre>/p' page.html | sed 's/<[^>]*>//g; s/After training//' | tr -dc 'a-zA-Z0-9' >after
same said after

# other methods and files
train 0 --method prompt --steps 2 --out prompt.h5 --quiet
page prompt.h5 --base model --data valid.jsonl --words 1
for name in curves norms words attention samples; do section $name; done
train 0 --method projected --steps 2 --out projected.h5 --quiet
page projected.h5
no_section norms
shows '<li>No norms: the method of this run needs the base'
page projected.h5 --base model
section norms
run 0 train --base model --data train.jsonl --threads 2 --method adapter --adapter-size 4 --steps 2 --out adapter.run.h5 --quiet
page adapter.run.h5 --base model --data valid.jsonl
section curves
section samples
no_section attention
run 0 merge adapter.run.h5 --base model --out adapter.h5
page adapter.h5
no_section curves
shows '<li>Method adapter trains parameters of the base'
train 0 --method direct --layers 1-1 --steps 2 --out layers.h5 --quiet
page layers.h5 --base model --data valid.jsonl --words 1
shows '<tr><th scope="row">0</th><td>&ndash;</td>'

# several tasks on a base that is not causal; a prefix inside rows
"$MAKE_TINY" bert 1 bert || exit 1
for i in 1 2 3 4; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i >>mood.tsv
    printf 'Ann\tB-PER\nwent\tO\n\nI\tO\nsaw\tO\nBob\tB-PER\n\n' >>names.conll
done
run 0 train --base bert --data mood=mood.tsv --data names=names.conll --task mood=seq-cls --task names=token-cls \
    --valid mood=mood.tsv --method direct --prefix-length 4 --steps 4 --batch-size 4 --out multi.h5 --quiet
page multi.h5
page multi.h5 --base bert --head names --data names.conll
! grep -q 'No samples' page.html || fail 'a note on samples of a tagger'
section answers
shows '<strong>[0-9]*</strong> of 20 words (.* of <code>names.conll</code> have the right label'
shows '<tr><th scope="row">B-PER</th><td'
section attention
section words
page multi.h5 --base bert --head mood --data mood.tsv
section answers
right=$(sed -n 's/.*<strong>\([0-9]*\)<.strong> of 8 rows.*/\1/p' page.html)
run 0 eval --base bert --prefix multi.h5 --head mood --data mood.tsv --threads 2 --precision f32 --json
[ "$(awk -v r="$right" 'BEGIN { print r / 8 }')" = "$(value accuracy | awk '{ print $1 + 0 }')" ] ||
    fail "the page has $right of 8 right, eval $(value accuracy)"
[ "$right" = 8 ] || shows '<h3>Wrong answers, most confident first</h3>'
run 2 report multi.h5 --out no.html --base bert --data mood.tsv
err_is 'kvfold: report: multi.h5: holds heads of several tasks: --head names one of mood, names; try kvfold report --help'
train 0 --method direct --infix --steps 2 --out infix.h5 --quiet
page infix.h5 --base model --data valid.jsonl --words 1
section attention
section samples

# hostile names and data
name='a"b<script>alert(1)<img src=x onerror=alert(2)>&amp;.h5'
printf '%s\n' '{"prompt": "<script>alert(3)</script>\u202e\"", "completion": " </pre><b>"}' >'evil<i>.jsonl'
run 0 train --base model --data 'evil<i>.jsonl' --out "$name" --method direct --prefix-length 4 --steps 2 --quiet \
    --init text --init-text '</td></table><script>alert(4)</script>'
page "$name" --base model --data 'evil<i>.jsonl' --words 1
[ "$(grep -c '<script' page.html)" -eq 1 ] || fail "a script got in: $(grep '<script' page.html)"
! grep -q -e 'alert(1)<' -e '<img' -e '<i>\.' -e '<b>' page.html || fail "markup got in"
shows '&lt;script&gt;alert(4)&lt;/script&gt;'
# an additional line break preserves the first line break of a text
shows '<pre>$'

# refused
run 1 report run.h5 --out page.html
err_is 'kvfold: report: page.html: exists (use --force to replace it)'
absent no.html
run 2 report run.h5
run 2 report run.h5 --out no.html --data valid.jsonl
err_is 'kvfold: report: --data needs --base; try kvfold report --help'
run 2 report run.h5 --out no.html --words 2
err_is 'kvfold: report: --words needs --base; try kvfold report --help'
run 2 report run.h5 --out no.html --base model --samples 2
err_is 'kvfold: report: --samples needs --data; try kvfold report --help'
run 1 report valid.jsonl --out no.html
err_is 'kvfold: report: valid.jsonl: is not a file of kvfold, want a run, prefix, embeddings or adapter file'
run 1 report model --out no.html
run 0 import model --out base.h5
run 1 report base.h5 --out no.html
err_is 'kvfold: report: base.h5: is a base file, want a run, prefix, embeddings or adapter file'
run 1 report absent.h5 --out no.html
run 1 report run.h5 --out no.html --base model --data absent.jsonl
run 2 report run.h5 --out run.h5 --force
run 1 report run.h5 --out folder/no.html
absent no.html folder
