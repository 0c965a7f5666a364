/* OLMo 2 and 3 (modeling_olmo2.py, modeling_olmo3.py): Llama's weights, but norms apply to the
 * output of each half, and queries and keys have one norm over all their heads. OLMo 3 has local
 * layers, whose rope is not scaled; a GGUF calls it olmo2 too. GGUF names are those of llama.cpp's
 * converter (gguf-py, constants.py), which does not permute q and k. */
#include "arch.h"

static const kvf__weight olmo2_weights[] = {
    {KVF__W_TOKENS, "embed_tokens.weight", "token_embd.weight", "V C", 0},
    KVF__DENSE(Q, "layers.#.self_attn.q_proj", "blk.#.attn_q", "HD C", "HD", 0, KVF__W_IF_QKV),
    KVF__DENSE(K, "layers.#.self_attn.k_proj", "blk.#.attn_k", "GD C", "GD", 0, KVF__W_IF_QKV),
    KVF__DENSE(V, "layers.#.self_attn.v_proj", "blk.#.attn_v", "GD C", "GD", 0, KVF__W_IF_QKV),
    {KVF__W_Q_NORM, "layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", "HD", 0},
    {KVF__W_K_NORM, "layers.#.self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", "GD", 0},
    KVF__DENSE(OUT, "layers.#.self_attn.o_proj", "blk.#.attn_output", "C HD", "C", 0,
               KVF__W_IF_OUT),
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

#define OLMO_KEYS                                                                                  \
    KVF__USUAL_SIZES, .kv_heads = {{"num_key_value_heads"}, KVF__DERIVED},                         \
                      .head_dim = {{"head_dim"}, KVF__DERIVED},                                    \
                      .positions = {{"max_position_embeddings"}, 2048}, .eps = "rms_norm_eps",     \
                      .eps_otherwise = 1e-5, .act = "hidden_act",                                  \
                      .attention_dropout.name = "attention_dropout",                               \
                      .attention_bias = "attention_bias"

static const kvf__config_keys olmo2_keys = {OLMO_KEYS};

static const kvf__config_keys olmo3_keys = {
    OLMO_KEYS,
    .sliding_window = {{"sliding_window"}, 4096},
    .local = {.global_every = 4, .unscaled = true},
    .theta_otherwise = 5e5,
};

/* Values that do not depend on the row. */
#define OLMO_ROW                                                                                   \
    .heads = "scored", .gguf = "olmo2", .prefix = "model.", KVF__WEIGHTS(olmo2_weights),           \
    .buffers = olmo2_buffers, .block.norm = KVF__RMSNORM, .block.qk_norm = KVF__QK_WHOLE,          \
    .block.act = KVF__SILU, .act_name = "silu", .block.gated = true, .block.causal = true,         \
    .positions = KVF__POS_ROPE

static const kvf__arch rows[] = {
    {.name = "olmo2", .class_stem = "Olmo2", OLMO_ROW, .keys = &olmo2_keys},
    {
        .name = "olmo3",
        .class_stem = "Olmo3",
        OLMO_ROW,
        .keys = &olmo3_keys,
        .gguf_local = true,
    },
};

const kvf__arch_family kvf__arch_olmo = {rows, KVF__COUNT(rows)};
