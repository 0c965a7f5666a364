# words: names the tokens of a prefix that holds the keys and values of real tokens.
make_inputs

# every layer of the first token, and layer 0 of the others, depend on no earlier token
train 0 --method direct --init text --init-text abcd --lr 1e-30 --steps 1 --out run.h5 --quiet
run 0 words run.h5 --base model --top 2 --json
err_is
has out '^{"kind":"prefix","top":2,"layers":\[{"layer":0,"tokens":\[{"key":\[{"text":'
sed 's/{"layer":1/\n&/' out >lines
[ "$(sed -n 1p lines | grep -oE '(key|value)":\[\{"text":"[^"]*","id":[0-9]+,"cosine":(1\.0|0\.99999)' | wc -l)" -eq 8 ] ||
    fail "layer 0 does not name the text: $(sed -n 1p lines)"
sed -n 1p lines | grep -oE '"key":\[\{"text":"[^"]*"' | cut -d'"' -f6 | tr -d '\n' >letters
[ "$(cat letters)" = abcd ] || fail "keys of layer 0 name $(cat letters)"
sed -n 1p lines | grep -oE '"value":\[\{"text":"[^"]*"' | cut -d'"' -f6 | tr -d '\n' >letters
[ "$(cat letters)" = abcd ] || fail "values of layer 0 name $(cat letters)"
[ "$(sed -n 2p lines | grep -oE '^[{]"layer":1,"tokens":\[\{"key":\[\{"text":"[^"]*","id":[0-9]+,"cosine":(1\.0|0\.99999)' | wc -l)" -eq 1 ] ||
    fail "layer 1 does not name the first token: $(sed -n 2p lines)"
run 0 merge run.h5 --out prefix.h5
run 0 words prefix.h5 --base model
has out '^layer 1$'
has out '^   0  key   "'
has out '^      value "'

train 0 --method prompt --init text --init-text abcd --lr 1e-30 --steps 1 --out prompt.h5 --quiet
run 0 words prompt.h5 --base model --top 1 --json
[ "$(grep -oE '"cosine":(1\.0|0\.99999)' out | wc -l)" -eq 4 ] || fail "not the text: $(cat out)"
run 0 words prompt.h5 --base model --precision auto
run 2 words run.h5
has err "^kvfold: words: "
