/* GPT-NeoX and Pythia (modeling_gpt_neox.py): LayerNorms with biases, both halves of a block on the
 * same input, rope on a part of each head, and q, k and v in one weight, head by head. GGUF names
 * are those of llama.cpp's converter (gguf-py, constants.py), which puts q, k and v one after the
 * other.
 */
#include "arch.h"

static const kvf__weight neox_weights[] = {
    {KVF__W_TOKENS, "embed_in.weight", "token_embd.weight", "V C", 0},
    {KVF__W_NORM1, "layers.#.input_layernorm.weight", "blk.#.attn_norm.weight", "C", 0},
    {KVF__W_NORM1_BETA, "layers.#.input_layernorm.bias", "blk.#.attn_norm.bias", "C", 0},
    {KVF__W_QKV, "layers.#.attention.query_key_value.weight", "blk.#.attn_qkv.weight", "SD C",
     KVF__W_BY_HEAD},
    {KVF__W_QKV_BIAS, "layers.#.attention.query_key_value.bias", "blk.#.attn_qkv.bias", "SD",
     KVF__W_BY_HEAD | KVF__W_IF_QKV},
    {KVF__W_OUT, "layers.#.attention.dense.weight", "blk.#.attn_output.weight", "C HD", 0},
    {KVF__W_OUT_BIAS, "layers.#.attention.dense.bias", "blk.#.attn_output.bias", "C",
     KVF__W_IF_OUT},
    {KVF__W_NORM2, "layers.#.post_attention_layernorm.weight", "blk.#.ffn_norm.weight", "C", 0},
    {KVF__W_NORM2_BETA, "layers.#.post_attention_layernorm.bias", "blk.#.ffn_norm.bias", "C", 0},
    {KVF__W_UP, "layers.#.mlp.dense_h_to_4h.weight", "blk.#.ffn_up.weight", "F C", 0},
    {KVF__W_UP_BIAS, "layers.#.mlp.dense_h_to_4h.bias", "blk.#.ffn_up.bias", "F", 0},
    {KVF__W_DOWN, "layers.#.mlp.dense_4h_to_h.weight", "blk.#.ffn_down.weight", "C F", 0},
    {KVF__W_DOWN_BIAS, "layers.#.mlp.dense_4h_to_h.bias", "blk.#.ffn_down.bias", "C", 0},
    {KVF__W_FINAL, "final_layer_norm.weight", "output_norm.weight", "C", 0},
    {KVF__W_FINAL_BETA, "final_layer_norm.bias", "output_norm.bias", "C", 0},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

static const char *const neox_buffers[] = {
    "layers.#.attention.bias", "layers.#.attention.masked_bias",
    "layers.#.attention.rotary_emb.inv_freq", "rotary_emb.inv_freq", NULL};

/* transformers 4 called the head so. */
static const char *const neox_renamed[] = {"lm_head.weight", "embed_out.weight", NULL};

static const kvf__config_keys neox_keys = {
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .kv_heads = {{NULL}, KVF__DERIVED},
    .head_dim = {{NULL}, KVF__DERIVED},
    .ffn = {{"intermediate_size"}, 0},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"max_position_embeddings"}, 2048},
    .eps = "layer_norm_eps",
    .eps_otherwise = 1e-5,
    .act = "hidden_act",
    .attention_dropout.name = "attention_dropout",
    .attention_bias = "attention_bias",
    .parallel = "use_parallel_residual",
    .rope_theta = "rotary_emb_base",
    .rotary = {"rotary_pct", 0.25},
};

static const kvf__arch rows[] = {
    {
        .name = "gpt_neox",
        .class_stem = "GPTNeoX",
        .gguf = "gptneox",
        .prefix = "gpt_neox.",
        .keys = &neox_keys,
        .weights = neox_weights,
        .n_weights = KVF__COUNT(neox_weights),
        .buffers = neox_buffers,
        .renamed = neox_renamed,
        .block.norm = KVF__LAYERNORM,
        .block.parallel = true,
        .block.act = KVF__GELU_ERF,
        .act_name = "gelu",
        .block.causal = true,
        .block.qkv_bias = true,
        .block.out_bias = true,
        .block.mlp_bias = true,
        .positions = KVF__POS_ROPE,
    },
};

const kvf__arch_family kvf__arch_neox = {rows, KVF__COUNT(rows)};
