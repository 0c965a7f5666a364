/* Phi-3 and Phi-4 (modeling_phi3.py): Llama's block with q, k and v in one weight and gate and up
 * in another. Some models rotate a part of each head only. GGUF names are those of llama.cpp's
 * converter (gguf-py, constants.py). */
#include "arch.h"

static const kvf__weight phi3_weights[] = {
    {KVF__W_TOKENS, "embed_tokens.weight", "token_embd.weight", "V C", 0},
    {KVF__W_NORM1, "layers.#.input_layernorm.weight", "blk.#.attn_norm.weight", "C", 0},
    {KVF__W_QKV, "layers.#.self_attn.qkv_proj.weight", "blk.#.attn_qkv.weight", "SD C", 0},
    {KVF__W_OUT, "layers.#.self_attn.o_proj.weight", "blk.#.attn_output.weight", "C HD", 0},
    {KVF__W_NORM2, "layers.#.post_attention_layernorm.weight", "blk.#.ffn_norm.weight", "C", 0},
    {KVF__W_GATE_UP, "layers.#.mlp.gate_up_proj.weight", "blk.#.ffn_up.weight", "2F C", 0},
    {KVF__W_DOWN, "layers.#.mlp.down_proj.weight", "blk.#.ffn_down.weight", "C F", 0},
    {KVF__W_FINAL, "norm.weight", "output_norm.weight", "C", 0},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

static const char *const phi3_buffers[] = {"layers.#.self_attn.rotary_emb.inv_freq",
                                           "rotary_emb.inv_freq", "rope_factors_short.weight",
                                           "rope_factors_long.weight", NULL};

static const kvf__config_keys phi3_keys = {
    KVF__USUAL_SIZES,
    .kv_heads = {{"num_key_value_heads"}, KVF__DERIVED},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .positions = {{"max_position_embeddings"}, 4096},
    .sliding_window = {{"sliding_window"}, KVF__DERIVED},
    .eps = "rms_norm_eps",
    .eps_otherwise = 1e-5,
    .act = "hidden_act",
    .attention_dropout.name = "attention_dropout",
    .rotary = {"partial_rotary_factor", 1},
};

static const kvf__arch rows[] = {
    {
        .name = "phi3",
        .class_stem = "Phi3",
        .heads = "generic",
        .gguf = "phi3",
        .prefix = "model.",
        .keys = &phi3_keys,
        KVF__WEIGHTS(phi3_weights),
        .buffers = phi3_buffers,
        .block.norm = KVF__RMSNORM,
        .block.act = KVF__SILU,
        .act_name = "silu",
        .block.gated = true,
        .block.causal = true,
        .positions = KVF__POS_ROPE,
    },
};

const kvf__arch_family kvf__arch_phi = {rows, KVF__COUNT(rows)};
