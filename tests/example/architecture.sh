# The model family of docs/contributing.md: Llama's blocks under other names, with Llama's results.
make_inputs
sed 's/"model_type":"llama"/"model_type":"example"/' model/config.json >example.json
run 0 new-base --config example.json --tokenizer model --out example.h5
has out 'example.h5: example, '
run 0 new-base --config model/config.json --tokenizer model --out llama.h5
for base in example llama; do
    run 0 train --base $base.h5 --data train.jsonl --valid valid.jsonl --steps 2 --out $base-run.h5 --threads 2 --precision f32 --json
    value valid_loss >$base.txt
done
run 0 inspect example.h5
has out 'model.blocks.0.attention.q.weight'
cmp example.txt llama.txt || fail "other losses: $(cat example.txt llama.txt)"
