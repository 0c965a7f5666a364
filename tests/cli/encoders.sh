# Families of encoders, each on a base of random weights. Every task is trained, merged without
# changing a bit, and predicted. Also tests the files that PEFT can load.
"$MAKE_TINY" bert 1 bert || exit 1
# config NAME KEYS: vocabulary and special tokens come from the tokenizer
config() {
    printf '{"model_type": "%s", "vocab_size": 258, "initializer_range": 0.2, "pad_token_id": 0, %s}\n' "$1" "$2" >"$1.json"
    run 0 new-base --config "$1.json" --tokenizer bert --out "$1.h5"
}
config electra '"hidden_size": 32, "embedding_size": 16, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4'
config distilbert '"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4'
config deberta-v2 '"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "relative_attention": true, "position_biased_input": false, "share_att_key": true, "pos_att_type": "p2c|c2p",
    "norm_rel_ebd": "layer_norm", "position_buckets": 16'
config modernbert '"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "local_attention": 8,
    "max_position_embeddings": 128, "classifier_dropout": 0.1'
config nomic_bert '"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4'

for i in 1 2 3 4 5 6; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i >>seq-cls.tsv
    printf 'Ann\tB-PER\nwent\tO\nto\tO\nRome%d\tB-LOC\n\n' $i >>token-cls.conll
    printf '{"text": "pick %d", "choices": ["%d", "x", "yy"], "label": %d}\n' $i $i $((i % 3)) >>multiple-choice.jsonl
    printf '{"id": "q%d", "context": "Long ago the %d men met.", "question": "Who met?", ' $i $i >>qa.jsonl
    printf '"answers": [{"text": "the %d men", "start": 9}]}\n' $i >>qa.jsonl
done

for base in electra distilbert deberta-v2 modernbert nomic_bert; do
    for data in seq-cls.tsv token-cls.conll qa.jsonl multiple-choice.jsonl; do
        task=${data%.*}
        run 0 train --base $base.h5 --task "$task" --data $data --prefix-length 4 --encoder-hidden 8 --steps 4 --batch-size 4 \
            --threads 2 --precision f32 --max-length 64 --out run.h5 --force
        run 0 merge run.h5 --out prefix.h5 --force --base $base.h5 --probe $data --json
        [ "$(value max_abs_diff)$(value probe_max_abs_diff)" = 0.00.0 ] || fail "$base $task: $(cat out)"
        for file in run prefix; do
            run 0 predict --base $base.h5 --prefix $file.h5 --data $data --threads 2 --precision f32 --force --out $file.jsonl
        done
        same run.jsonl prefix.jsonl
        [ "$task" = multiple-choice ] && continue # PEFT has no type for it
        if [ $base = electra ]; then
            run 0 export prefix.h5 --format peft --out adapter --force
        else
            run 1 export prefix.h5 --format peft --out refused
            err_is "kvfold: export: prefix.h5: PEFT cannot load the prefix, because models of type $base in transformers take no past keys and values"
            absent refused
        fi
    done
done

# vectors at the input are as wide as the model
run 1 train --base electra.h5 --task seq-cls --data seq-cls.tsv --method prompt --prefix-length 4 --steps 1 --out x.h5
has err 'this base has embeddings of width 16'
run 0 train --base electra.h5 --task seq-cls --data seq-cls.tsv --method full --steps 2 --base-dropout 0.1 --out full.h5
run 1 train --base deberta-v2.h5 --task seq-cls --data seq-cls.tsv --method full --steps 1 --out x.h5
has err 'method full: deberta-v2 has attention by relative positions'
run 0 train --base modernbert.h5 --task seq-cls --data seq-cls.tsv --method full --steps 2 --threads 2 --precision f32 --out modern.h5
printf '{"model_type": "modernbert", "vocab_size": 258, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
    "intermediate_size": 64, "classifier_pooling": "mean"}\n' >mean.json
run 0 new-base --config mean.json --tokenizer bert --out mean.h5
# pooling takes the mean of a row's states: rows of different lengths have the same answers in any
# batch
printf 'a good film\tyes\nbad\tno\n' >>seq-cls.tsv
for data in seq-cls.tsv multiple-choice.jsonl; do
    task=${data%.*}
    run 0 train --base mean.h5 --task "$task" --data $data --valid $data --prefix-length 4 --encoder-hidden 8 --steps 4 --batch-size 4 \
        --threads 2 --precision f32 --max-length 64 --out run.h5 --force
    run 0 merge run.h5 --out prefix.h5 --force --base mean.h5 --probe $data --json
    [ "$(value max_abs_diff)$(value probe_max_abs_diff)" = 0.00.0 ] || fail "mean $task: $(cat out)"
    run 0 predict --base mean.h5 --prefix prefix.h5 --data $data --threads 2 --precision f32 --force --out all.jsonl
    tail -n 1 all.jsonl >last.jsonl
    tail -n 1 $data >last.data
    how='--format jsonl'
    [ "$task" = seq-cls ] && how='--format tsv --no-header'
    # shellcheck disable=SC2086 # words
    run 0 predict --base mean.h5 --prefix prefix.h5 --data last.data $how --threads 2 --precision f32 --force --out one.jsonl
    same last.jsonl one.jsonl
done
printf '{"model_type": "electra", "vocab_size": 9, "summary_type": "mean"}\n' >mean.json
run 1 new-base --config mean.json --tokenizer bert --out x.h5
has err 'summary_type is "mean", expected "first"'
absent x.h5
