# A base whose folder has a tokenizer.model but no tokenizer.json, and its base file.
"$MAKE_TINY" model 1 || exit 1
rm model/tokenizer.json
cp "$SOURCE/tests/golden/sentencepiece/unigram.model" model/tokenizer.model
printf '{"prompt":"the  bridge","completion":" over the river…"}\n' >rows.jsonl
run 0 eval --base model --data rows.jsonl --precision f32 --threads 1 --json
loss=$(value loss)
tokens=$(value label_tokens)
run 0 import model --out base.h5
run 0 eval --base base.h5 --data rows.jsonl --precision f32 --threads 1 --json
[ "$(value loss)" = "$loss" ] && [ "$(value label_tokens)" = "$tokens" ] || fail "the base file: $(cat out), want loss $loss"

# Tokens of added_tokens.json; a special token without id in any file, and without a row in the
# base.
printf '{"<r> v": 257, "</e>": 256}' >model/added_tokens.json
printf '{"eos_token": "</e>"}' >model/special_tokens_map.json
printf '{"text":"the<r> v"}\n' >added.jsonl
for base in model added.h5; do
    [ $base = model ] || run 0 import model --out $base
    run 0 train --base $base --data added.jsonl --dry-run --out x.h5
    sed -n 's/^first row: //p' out
done >shown
[ "$(uniq -c shown | tr -s ' ')" = ' 2 ⟦the<r> v</e>⟧' ] || fail "added tokens: $(cat shown)"
printf '{"pad_token": "[PAD]"}' >model/special_tokens_map.json
run 1 eval --base model --data rows.jsonl
has err 'kvfold: eval: model: the tokenizer has 259 tokens, but the model'"'s"' embedding has 258 rows and none for "[[]PAD[]]", 258'
rm model/added_tokens.json model/special_tokens_map.json

# tiktoken's lines under the same name; a damaged file gets one line.
printf 'IQ== 0\n' >model/tokenizer.model
run 1 eval --base model --data rows.jsonl
err_is 'kvfold: eval: model/tokenizer.model: no token for the byte 0x00'
head -c 100 "$SOURCE/tests/golden/sentencepiece/unigram.model" >model/tokenizer.model
run 1 eval --base model --data rows.jsonl
has err '^kvfold: eval: model/tokenizer.model: .* is damaged or cut short$'
rm model/tokenizer.model
run 1 eval --base model --data rows.jsonl
err_is 'kvfold: eval: model: has none of tokenizer.json, vocab.txt, tokenizer.model, spiece.model, and vocab.json with merges.txt'

# T5's own name for it: EOS and, with extra_ids, sentinels come after the pieces; the base file
# equals the folder
mkdir t5
cp "$SOURCE"/tests/golden/model_t5/*.json "$SOURCE/tests/golden/model_t5/model.safetensors" t5
cp "$SOURCE/tests/golden/model_t5/tokenizer.model" t5/spiece.model
printf '{"prompt":"a dene","completion":"nnnsc ceded"}\n' >rows.jsonl
run 1 eval --base t5 --data rows.jsonl
err_is "kvfold: eval: t5: the tokenizer has 148 tokens, but the model's embedding has 48 rows and none for \"<extra_id_99>\", 48"
printf '{"extra_ids": 0}' >t5/tokenizer_config.json
for base in t5 t5.h5 "$SOURCE/tests/golden/model_t5"; do
    [ $base != t5.h5 ] || run 0 import t5 --out t5.h5
    run 0 eval --base $base --data rows.jsonl --precision f32 --threads 1 --json
    value loss
    value label_tokens
done >losses
[ "$(sort losses | uniq -c | awk '$1 == 3' | wc -l)" = 2 ] || fail "T5's spiece.model: $(cat losses)"

# A GGUF of Phi-3 is recognised by its name: white space after its special tokens is removed
LC_ALL=C sed 's/gguf_spm/my-Phi-3/' "$SOURCE/tests/golden/gguf_spm.gguf" >phi.gguf
printf '{"text":"in</s>   the"}\n' >rows.jsonl
for base in "$SOURCE/tests/golden/gguf_spm.gguf" phi.gguf; do
    run 0 eval --base "$base" --data rows.jsonl --precision f32 --threads 1 --json
    value label_tokens
done >counts
[ "$(tr '\n' ' ' <counts)" = '10 7 ' ] || fail "tokens of Phi-3: $(cat counts)"
LC_ALL=C sed 's/tokenizer.ggml.pre/tokenizer.ggml.old/' "$SOURCE/tests/golden/gguf_bpe.gguf" >old.gguf
run 0 train --base old.gguf --data rows.jsonl --dry-run --out x.h5
has err "old.gguf: tokenizer.ggml.pre is missing: words are split by llama.cpp's default"
