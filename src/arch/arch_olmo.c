/* OLMo 2 (modeling_olmo2.py): Llama's weights, but the norms are those of what each half gives, and
 * queries and keys have one norm over all their heads. GGUF names are those of llama.cpp's
 * converter (gguf-py, constants.py), which leaves q and k as they are. */
#include "arch.h"

static const kvf__weight olmo2_weights[] = {
    {KVF__W_TOKENS, "embed_tokens.weight", "token_embd.weight", "V C", 0},
    {KVF__W_Q, "layers.#.self_attn.q_proj.weight", "blk.#.attn_q.weight", "HD C", 0},
    {KVF__W_Q_BIAS, "layers.#.self_attn.q_proj.bias", "blk.#.attn_q.bias", "HD", KVF__W_IF_QKV},
    {KVF__W_K, "layers.#.self_attn.k_proj.weight", "blk.#.attn_k.weight", "GD C", 0},
    {KVF__W_K_BIAS, "layers.#.self_attn.k_proj.bias", "blk.#.attn_k.bias", "GD", KVF__W_IF_QKV},
    {KVF__W_V, "layers.#.self_attn.v_proj.weight", "blk.#.attn_v.weight", "GD C", 0},
    {KVF__W_V_BIAS, "layers.#.self_attn.v_proj.bias", "blk.#.attn_v.bias", "GD", KVF__W_IF_QKV},
    {KVF__W_Q_NORM, "layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", "HD", 0},
    {KVF__W_K_NORM, "layers.#.self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", "GD", 0},
    {KVF__W_OUT, "layers.#.self_attn.o_proj.weight", "blk.#.attn_output.weight", "C HD", 0},
    {KVF__W_OUT_BIAS, "layers.#.self_attn.o_proj.bias", "blk.#.attn_output.bias", "C",
     KVF__W_IF_OUT},
    {KVF__W_OUT_NORM1, "layers.#.post_attention_layernorm.weight",
     "blk.#.post_attention_norm.weight", "C", 0},
    {KVF__W_GATE, "layers.#.mlp.gate_proj.weight", "blk.#.ffn_gate.weight", "F C", 0},
    {KVF__W_UP, "layers.#.mlp.up_proj.weight", "blk.#.ffn_up.weight", "F C", 0},
    {KVF__W_DOWN, "layers.#.mlp.down_proj.weight", "blk.#.ffn_down.weight", "C F", 0},
    {KVF__W_OUT_NORM2, "layers.#.post_feedforward_layernorm.weight", "blk.#.post_ffw_norm.weight",
     "C", 0},
    {KVF__W_FINAL, "norm.weight", "output_norm.weight", "C", 0},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

static const char *const olmo2_buffers[] = {"layers.#.self_attn.rotary_emb.inv_freq",
                                            "rotary_emb.inv_freq", NULL};

static const kvf__config_keys olmo2_keys = {
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .kv_heads = {{"num_key_value_heads"}, KVF__DERIVED},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .ffn = {{"intermediate_size"}, 0},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"max_position_embeddings"}, 2048},
    .eps = "rms_norm_eps",
    .eps_otherwise = 1e-5,
    .act = "hidden_act",
    .attention_dropout.name = "attention_dropout",
    .attention_bias = "attention_bias",
};

static const kvf__arch rows[] = {
    {
        .name = "olmo2",
        .class_stem = "Olmo2",
        .gguf = "olmo2",
        .prefix = "model.",
        .keys = &olmo2_keys,
        .weights = olmo2_weights,
        .n_weights = KVF__COUNT(olmo2_weights),
        .buffers = olmo2_buffers,
        .block.norm = KVF__RMSNORM,
        .block.qk_norm = KVF__QK_WHOLE,
        .block.act = KVF__SILU,
        .act_name = "silu",
        .block.gated = true,
        .block.causal = true,
        .positions = KVF__POS_ROPE,
    },
};

const kvf__arch_family kvf__arch_olmo = {rows, KVF__COUNT(rows)};
