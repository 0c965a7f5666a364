# Sourced by the scripts on virtual neurons: bases of every kind of feed-forward block, rows, and the
# options of a small run.
# shellcheck disable=SC2034 # for the scripts
"$MAKE_TINY" bert 1 bert || exit 1
"$MAKE_TINY" tokens 1 || exit 1
# config NAME TOKENIZER KEYS
config() {
    printf '{"model_type": "%s", "vocab_size": 258, "initializer_range": 0.3, %s}\n' "${1%%.*}" "$3" >"$1.json"
    run 0 new-base --config "$1.json" --tokenizer "$2" --out "$1.h5" --quiet
}
common='"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4'
config bert bert "$common"
config modernbert bert "$common, \"local_attention\": 8, \"max_position_embeddings\": 128"
config llama tokens "$common, \"num_key_value_heads\": 2, \"max_position_embeddings\": 128, \"bos_token_id\": 256, \"eos_token_id\": 257"
config gpt2 tokens '"n_embd": 32, "n_inner": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "eos_token_id": 257'
config gpt_neox tokens "$common, \"max_position_embeddings\": 128, \"eos_token_id\": 257"
config gemma2 tokens "$common, \"num_key_value_heads\": 2, \"head_dim\": 8, \"sliding_window\": 16, \"max_position_embeddings\": 128, \"bos_token_id\": 256, \"eos_token_id\": 257"
config olmo2 tokens "$common, \"max_position_embeddings\": 128, \"eos_token_id\": 257"
multipliers='"embedding_multiplier": 3.0, "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 1.5'
config granite tokens "$common, $multipliers, \"max_position_embeddings\": 128, \"eos_token_id\": 257"
config granitemoehybrid tokens "$common, $multipliers, \"shared_intermediate_size\": 64, \"num_local_experts\": 0, \"layer_types\": [\"attention\", \"attention\"], \"max_position_embeddings\": 128, \"eos_token_id\": 257"
config gemma4_text tokens "$(echo "$common" | sed "s/layers\": 2/layers\": 4/"), \"num_key_value_heads\": 2, \"head_dim\": 8, \"global_head_dim\": 16, \"sliding_window\": 16, \"num_kv_shared_layers\": 2, \"use_double_wide_mlp\": true, \"hidden_size_per_layer_input\": 8, \"vocab_size_per_layer_input\": 258, \"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"], \"max_position_embeddings\": 128, \"bos_token_id\": 256, \"eos_token_id\": 257"
hybrid="$common, \"num_key_value_heads\": 2, \"max_position_embeddings\": 128, \"eos_token_id\": 257"
config lfm2 tokens "$hybrid, \"block_ff_dim\": 96, \"block_multiple_of\": 64, \"layer_types\": [\"conv\", \"full_attention\"]"
config qwen3_5_text tokens "$hybrid, \"head_dim\": 8, \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 8, \"linear_value_head_dim\": 12"
config t5 tokens '"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 257'
for i in 1 2 3 4 5 6 7 8; do
    printf 'good film %d\tyes\nbad film %d\tno\n' $i $i >>class.tsv
    printf '{"prompt": "copy %d and %d", "completion": "%d"}\n' $i $((i * 7)) $((i * 7)) >>lm.jsonl
done
how='--ffn-length 5 --batch-size 3 --threads 2 --precision f32 --seed 2 --force --quiet'
