/* GPT-NeoX and Pythia (modeling_gpt_neox.py). LayerNorms have biases, both halves of a block read
 * the same input, and rope applies to a part of each head. One weight holds q, k and v, head by
 * head. GGUF names are those of llama.cpp's converter (gguf-py, constants.py), which stores q, k
 * and v one after the other. */
#include "arch.h"

static const kvf__weight neox_weights[] = {
    {KVF__W_TOKENS, "embed_in.weight", "token_embd.weight", "V C", 0},
    KVF__NORM(NORM1, "layers.#.input_layernorm", "blk.#.attn_norm", "C"),
    KVF__DENSE(QKV, "layers.#.attention.query_key_value", "blk.#.attn_qkv", "SD C", "SD",
               KVF__W_BY_HEAD, KVF__W_BY_HEAD | KVF__W_IF_QKV),
    KVF__DENSE(OUT, "layers.#.attention.dense", "blk.#.attn_output", "C HD", "C", 0, KVF__W_IF_OUT),
    KVF__NORM(NORM2, "layers.#.post_attention_layernorm", "blk.#.ffn_norm", "C"),
    KVF__DENSE(UP, "layers.#.mlp.dense_h_to_4h", "blk.#.ffn_up", "F C", "F", 0, 0),
    KVF__DENSE(DOWN, "layers.#.mlp.dense_4h_to_h", "blk.#.ffn_down", "C F", "C", 0, 0),
    KVF__NORM(FINAL, "final_layer_norm", "output_norm", "C"),
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

static const char *const neox_buffers[] = {
    "layers.#.attention.bias", "layers.#.attention.masked_bias",
    "layers.#.attention.rotary_emb.inv_freq", "rotary_emb.inv_freq", NULL};

/* The head's name in transformers 4. */
static const kvf__pair neox_renamed[] = {{"lm_head.weight", "embed_out.weight"}, {NULL, NULL}};

static const kvf__config_keys neox_keys = {
    KVF__USUAL_SIZES,
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
        .heads = "neox",
        .gguf = "gptneox",
        .prefix = "gpt_neox.",
        .keys = &neox_keys,
        KVF__WEIGHTS(neox_weights),
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
