/* Gemma 2, 3 and 4 (modeling_gemma2.py, modeling_gemma3.py, modeling_gemma4.py; arXiv 2408.00118,
 * 2503.19786): norms before and after each half, whose weights are stored less 1, scaled
 * embeddings, and local layers. Gemma 2 has caps; Gemma 3 has norms of queries and keys and a
 * separate rope for local layers. GGUF names are those of llama.cpp's converter (gguf-py,
 * constants.py), which stores the full norm weights. */
#include "arch.h"

static const kvf__weight gemma_weights[] = {
    {KVF__W_TOKENS, "embed_tokens.weight", "token_embd.weight", "V C", 0},
    {KVF__W_NORM1, "layers.#.input_layernorm.weight", "blk.#.attn_norm.weight", "C",
     KVF__W_PLUS_ONE},
    KVF__DENSE(Q, "layers.#.self_attn.q_proj", "blk.#.attn_q", "HD C", "HD", 0, KVF__W_IF_QKV),
    KVF__DENSE(K, "layers.#.self_attn.k_proj", "blk.#.attn_k", "GD C", "GD", 0, KVF__W_IF_QKV),
    KVF__DENSE(V, "layers.#.self_attn.v_proj", "blk.#.attn_v", "GD C", "GD", 0, KVF__W_IF_QKV),
    {KVF__W_Q_NORM, "layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", "D",
     KVF__W_PLUS_ONE | KVF__W_IF_QK_NORM},
    {KVF__W_K_NORM, "layers.#.self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", "D",
     KVF__W_PLUS_ONE | KVF__W_IF_QK_NORM},
    KVF__DENSE(OUT, "layers.#.self_attn.o_proj", "blk.#.attn_output", "C HD", "C", 0,
               KVF__W_IF_OUT),
    {KVF__W_OUT_NORM1, "layers.#.post_attention_layernorm.weight",
     "blk.#.post_attention_norm.weight", "C", KVF__W_PLUS_ONE},
    {KVF__W_NORM2, "layers.#.pre_feedforward_layernorm.weight", "blk.#.ffn_norm.weight", "C",
     KVF__W_PLUS_ONE},
    {KVF__W_GATE, "layers.#.mlp.gate_proj.weight", "blk.#.ffn_gate.weight", "F C", 0},
    {KVF__W_UP, "layers.#.mlp.up_proj.weight", "blk.#.ffn_up.weight", "F C", 0},
    {KVF__W_DOWN, "layers.#.mlp.down_proj.weight", "blk.#.ffn_down.weight", "C F", 0},
    {KVF__W_OUT_NORM2, "layers.#.post_feedforward_layernorm.weight", "blk.#.post_ffw_norm.weight",
     "C", KVF__W_PLUS_ONE},
    {KVF__W_FINAL, "norm.weight", "output_norm.weight", "C", KVF__W_PLUS_ONE},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

static const char *const gemma_buffers[] = {"layers.#.self_attn.rotary_emb.inv_freq",
                                            "rotary_emb.inv_freq", NULL};

/* Keys shared by all versions; keys of 2 and 3. */
#define GEMMA_KEYS                                                                                 \
    KVF__USUAL_SIZES, .kv_heads = {{"num_key_value_heads"}, 4}, .head_dim = {{"head_dim"}, 256},   \
                      .eps = "rms_norm_eps", .eps_otherwise = 1e-6, .act = "hidden_activation",    \
                      .attention_dropout.name = "attention_dropout",                               \
                      .attention_bias = "attention_bias",                                          \
                      .logit_cap.name = "final_logit_softcapping"

#define GEMMA_SCORES                                                                               \
    .sliding_window = {{"sliding_window"}, 4096}, .query_scalar = {"query_pre_attn_scalar", 256},  \
    .score_cap.name = "attn_logit_softcapping"

static const kvf__config_keys gemma2_keys = {
    GEMMA_KEYS,
    GEMMA_SCORES,
    .positions = {{"max_position_embeddings"}, 8192},
    .local.global_every = 2,
    .score_cap.otherwise = 50,
    .logit_cap.otherwise = 30,
};

static const kvf__config_keys gemma3_keys = {
    GEMMA_KEYS,
    GEMMA_SCORES,
    .positions = {{"max_position_embeddings"}, 131072},
    .local = {.pattern = "sliding_window_pattern",
              .global_every = 6,
              .theta = "rope_local_base_freq"},
    .theta_otherwise = 1e6,
};

/* Gemma 4: norm weights are not reduced by 1, and values are normed too. Layers have heads of two
 * kinds; the last ones may read keys and values of earlier ones. Layers have inputs of their own
 * (pass_inputs.c). */
static const kvf__weight gemma4_weights[] = {
    {KVF__W_TOKENS, "embed_tokens.weight", "token_embd.weight", "V C", 0},
    {KVF__W_INPUT_TOKENS, "embed_tokens_per_layer.weight", "per_layer_token_embd.weight", "V LI",
     KVF__W_IF_INPUTS},
    {KVF__W_INPUT_PROJECTION, "per_layer_model_projection.weight", "per_layer_model_proj.weight",
     "LI C", KVF__W_IF_INPUTS},
    {KVF__W_INPUT_NORM, "per_layer_projection_norm.weight", "per_layer_proj_norm.weight", "I",
     KVF__W_IF_INPUTS},
    {KVF__W_NORM1, "layers.#.input_layernorm.weight", "blk.#.attn_norm.weight", "C", 0},
    KVF__DENSE(Q, "layers.#.self_attn.q_proj", "blk.#.attn_q", "HD C", "HD", 0, KVF__W_IF_QKV),
    KVF__DENSE(K, "layers.#.self_attn.k_proj", "blk.#.attn_k", "GD C", "GD", KVF__W_IF_KV,
               KVF__W_IF_QKV | KVF__W_IF_KV),
    KVF__DENSE(V, "layers.#.self_attn.v_proj", "blk.#.attn_v", "GD C", "GD",
               KVF__W_IF_KV | KVF__W_IF_V, KVF__W_IF_QKV | KVF__W_IF_KV | KVF__W_IF_V),
    {KVF__W_Q_NORM, "layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", "D", 0},
    {KVF__W_K_NORM, "layers.#.self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", "D",
     KVF__W_IF_KV},
    KVF__DENSE(OUT, "layers.#.self_attn.o_proj", "blk.#.attn_output", "C HD", "C", 0,
               KVF__W_IF_OUT),
    {KVF__W_OUT_NORM1, "layers.#.post_attention_layernorm.weight",
     "blk.#.post_attention_norm.weight", "C", 0},
    {KVF__W_NORM2, "layers.#.pre_feedforward_layernorm.weight", "blk.#.ffn_norm.weight", "C", 0},
    {KVF__W_GATE, "layers.#.mlp.gate_proj.weight", "blk.#.ffn_gate.weight", "F C", 0},
    {KVF__W_UP, "layers.#.mlp.up_proj.weight", "blk.#.ffn_up.weight", "F C", 0},
    {KVF__W_DOWN, "layers.#.mlp.down_proj.weight", "blk.#.ffn_down.weight", "C F", 0},
    {KVF__W_OUT_NORM2, "layers.#.post_feedforward_layernorm.weight", "blk.#.post_ffw_norm.weight",
     "C", 0},
    {KVF__W_INPUT_GATE, "layers.#.per_layer_input_gate.weight", "blk.#.inp_gate.weight", "I C",
     KVF__W_IF_INPUTS},
    {KVF__W_INPUT_DOWN, "layers.#.per_layer_projection.weight", "blk.#.proj.weight", "C I",
     KVF__W_IF_INPUTS},
    {KVF__W_OUT_NORM3, "layers.#.post_per_layer_input_norm.weight", "blk.#.post_norm.weight", "C",
     KVF__W_IF_INPUTS},
    {KVF__W_SCALE, "layers.#.layer_scalar", "blk.#.layer_output_scale.weight", "1", 0},
    {KVF__W_FINAL, "norm.weight", "output_norm.weight", "C", 0},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

static const kvf__layer_keys gemma4_layers = {
    .list = "per_layer_config",
    .global_head_dim = {"global_head_dim", 512},
    .global_kv_heads = "num_global_key_value_heads",
    .k_is_v = "attention_k_eq_v",
    .shared = "num_kv_shared_layers",
    .wide = "use_double_wide_mlp",
    .inputs = {"hidden_size_per_layer_input", 256},
    .inputs_vocab = "vocab_size_per_layer_input",
};

static const kvf__pair gemma4_fixed[] = {{"enable_moe_block", "false"}, {NULL, NULL}};

/* Scores are not divided, because the norms of queries and keys set their size. */
static const kvf__config_keys gemma4_keys = {
    GEMMA_KEYS,
    .positions = {{"max_position_embeddings"}, 131072},
    .sliding_window = {{"sliding_window"}, 512},
    .local = {.pattern = "sliding_window_pattern",
              .global_every = 6,
              .theta = "rope_local_base_freq"},
    .theta_otherwise = 1e6,
    .query_scalar = {"query_pre_attn_scalar", 1},
    .proportional = {"partial_rotary_factor", 0.25},
    .by_layer = &gemma4_layers,
    .fixed = gemma4_fixed,
};

/* Values that do not depend on the row. */
#define GEMMA_ROW                                                                                  \
    .prefix = "model.", .buffers = gemma_buffers, .block.norm = KVF__RMSNORM,                      \
    .block.act = KVF__GELU_TANH, .act_name = "gelu_pytorch_tanh", .block.gated = true,             \
    .block.causal = true, .positions = KVF__POS_ROPE, .tied = true, .scaled_embed = true

static const kvf__arch rows[] = {
    {
        .name = "gemma2",
        .class_stem = "Gemma2",
        .heads = "generic",
        .gguf = "gemma2",
        KVF__WEIGHTS(gemma_weights),
        GEMMA_ROW,
        .keys = &gemma2_keys,
        .gguf_wide = 46,
    },
    {
        .name = "gemma3_text",
        .class_stem = "Gemma3",
        .heads = "scored",
        .gguf = "gemma3",
        KVF__WEIGHTS(gemma_weights),
        GEMMA_ROW,
        .keys = &gemma3_keys,
        .block.qk_norm = KVF__QK_BY_HEAD,
        .gguf_wide = 62,
    },
    {
        .name = "gemma4_text",
        .inside = "gemma4",
        .class_stem = "Gemma4",
        KVF__WEIGHTS(gemma4_weights),
        GEMMA_ROW,
        .keys = &gemma4_keys,
        .block.qk_norm = KVF__QK_BY_HEAD,
        .block.v_norm = true,
    },
};

const kvf__arch_family kvf__arch_gemma = {rows, KVF__COUNT(rows)};
