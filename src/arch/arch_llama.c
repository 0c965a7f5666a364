/* Llama and relatives: pre-norm blocks with RMSNorm, RoPE and a gated feed-forward
 * (modeling_llama.py, modeling_mistral.py, modeling_qwen2.py, modeling_qwen3.py,
 * modeling_smollm3.py, modeling_granite.py, modeling_granitemoehybrid.py, modeling_ministral3.py).
 * The weights of Mistral, Qwen, SmolLM3 and Granite are Llama's, except for q_norm and k_norm.
 * SmolLM3 has layers without rope, Granite factors on embeddings, halves, logits and scores,
 * Ministral 3 one on queries. GGUF names are those of llama.cpp's converter (gguf-py,
 * constants.py). */
#include "arch.h"

static const kvf__weight llama_weights[] = {
    {KVF__W_TOKENS, "embed_tokens.weight", "token_embd.weight", "V C", 0},
    {KVF__W_NORM1, "layers.#.input_layernorm.weight", "blk.#.attn_norm.weight", "C", 0},
    KVF__DENSE(Q, "layers.#.self_attn.q_proj", "blk.#.attn_q", "HD C", "HD", KVF__W_PERMUTED_H,
               KVF__W_PERMUTED_H | KVF__W_IF_QKV),
    KVF__DENSE(K, "layers.#.self_attn.k_proj", "blk.#.attn_k", "GD C", "GD", KVF__W_PERMUTED_G,
               KVF__W_PERMUTED_G | KVF__W_IF_QKV),
    KVF__DENSE(V, "layers.#.self_attn.v_proj", "blk.#.attn_v", "GD C", "GD", 0, KVF__W_IF_QKV),
    {KVF__W_Q_NORM, "layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", "D",
     KVF__W_IF_QK_NORM},
    {KVF__W_K_NORM, "layers.#.self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", "D",
     KVF__W_IF_QK_NORM},
    KVF__DENSE(OUT, "layers.#.self_attn.o_proj", "blk.#.attn_output", "C HD", "C", 0,
               KVF__W_IF_OUT),
    {KVF__W_NORM2, "layers.#.post_attention_layernorm.weight", "blk.#.ffn_norm.weight", "C", 0},
    KVF__DENSE(GATE, "layers.#.mlp.gate_proj", "blk.#.ffn_gate", "F C", "F", 0, KVF__W_IF_MLP),
    KVF__DENSE(UP, "layers.#.mlp.up_proj", "blk.#.ffn_up", "F C", "F", 0, KVF__W_IF_MLP),
    KVF__DENSE(DOWN, "layers.#.mlp.down_proj", "blk.#.ffn_down", "C F", "C", 0, KVF__W_IF_MLP),
    {KVF__W_FINAL, "norm.weight", "output_norm.weight", "C", 0},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

/* Granite 4 without Mamba and experts. A GGUF calls it granite, with Llama's names. */
static const kvf__weight granite_hybrid_weights[] = {
    {KVF__W_TOKENS, "embed_tokens.weight", NULL, "V C", 0},
    {KVF__W_NORM1, "layers.#.input_layernorm.weight", NULL, "C", 0},
    KVF__HF_DENSE(Q, "layers.#.self_attn.q_proj", "HD C", "HD", 0, KVF__W_IF_QKV),
    KVF__HF_DENSE(K, "layers.#.self_attn.k_proj", "GD C", "GD", 0, KVF__W_IF_QKV),
    KVF__HF_DENSE(V, "layers.#.self_attn.v_proj", "GD C", "GD", 0, KVF__W_IF_QKV),
    KVF__HF_DENSE(OUT, "layers.#.self_attn.o_proj", "C HD", "C", 0, KVF__W_IF_OUT),
    {KVF__W_NORM2, "layers.#.post_attention_layernorm.weight", NULL, "C", 0},
    {KVF__W_GATE_UP, "layers.#.shared_mlp.input_linear.weight", NULL, "2F C", 0},
    {KVF__W_DOWN, "layers.#.shared_mlp.output_linear.weight", NULL, "C F", 0},
    {KVF__W_FINAL, "norm.weight", NULL, "C", 0},
    {KVF__W_HEAD, "lm_head.weight", NULL, "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

static const char *const llama_buffers[] = {"layers.#.self_attn.rotary_emb.inv_freq",
                                            "rotary_emb.inv_freq", "rope_freqs.weight", NULL};

/* Keys that all of them share. */
#define LLAMA_USUAL                                                                                \
    .eps = "rms_norm_eps", .eps_otherwise = 1e-6, .act = "hidden_act",                             \
    .attention_dropout.name = "attention_dropout"
#define LLAMA_KEYS KVF__USUAL_SIZES, LLAMA_USUAL

/* All keys of Llama. */
#define LLAMA_WHOLE                                                                                \
    LLAMA_KEYS, .kv_heads = {{"num_key_value_heads"}, KVF__DERIVED},                               \
                .head_dim = {{"head_dim"}, KVF__DERIVED},                                          \
                .positions = {{"max_position_embeddings"}, 2048},                                  \
                .attention_bias = "attention_bias", .mlp_bias = "mlp_bias"

static const kvf__config_keys llama_keys = {LLAMA_WHOLE};

static const kvf__config_keys mistral_keys = {
    LLAMA_KEYS,
    .kv_heads = {{"num_key_value_heads"}, 8},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .positions = {{"max_position_embeddings"}, 131072},
    .sliding_window = {{"sliding_window"}, 4096},
};

static const kvf__config_keys ministral3_keys = {
    KVF__USUAL_SIZES,
    .eps = "rms_norm_eps",
    .eps_otherwise = 1e-5,
    .act = "hidden_act",
    .attention_dropout.name = "attention_dropout",
    .kv_heads = {{"num_key_value_heads"}, 8},
    .head_dim = {{"head_dim"}, 128},
    .positions = {{"max_position_embeddings"}, 262144},
    .sliding_window = {{"sliding_window"}, KVF__DERIVED},
    .query_growth = "llama_4_scaling_beta",
};

static const kvf__config_keys qwen2_keys = {
    LLAMA_KEYS,
    .kv_heads = {{"num_key_value_heads"}, 32},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .positions = {{"max_position_embeddings"}, 32768},
    .sliding_window = {{"sliding_window"}, 4096},
    .sliding_window_switch = "use_sliding_window",
    .local.first = "max_window_layers",
};

static const kvf__config_keys qwen3_keys = {
    LLAMA_KEYS,
    .kv_heads = {{"num_key_value_heads"}, 32},
    .head_dim = {{"head_dim"}, 128},
    .positions = {{"max_position_embeddings"}, 32768},
    .attention_bias = "attention_bias",
    .sliding_window = {{"sliding_window"}, 4096},
    .sliding_window_switch = "use_sliding_window",
    .local.first = "max_window_layers",
};

static const kvf__pair smollm3_fixed[] = {{"use_sliding_window", "false"}, {NULL, NULL}};

static const kvf__config_keys smollm3_keys = {
    LLAMA_KEYS,
    .kv_heads = {{"num_key_value_heads"}, 4},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .positions = {{"max_position_embeddings"}, 32768},
    .attention_bias = "attention_bias",
    .mlp_bias = "mlp_bias",
    .no_rope = {"no_rope_layers", "no_rope_layer_interval", 4, NULL},
    .theta_otherwise = 2e6,
    .fixed = smollm3_fixed,
};

static const kvf__config_keys granite_keys = {LLAMA_WHOLE, .multipliers = true};

static const kvf__pair granite_hybrid_fixed[] = {{"num_local_experts", "0"}, {NULL, NULL}};

static const kvf__config_keys granite_hybrid_keys = {
    LLAMA_USUAL,
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .ffn = {{"shared_intermediate_size"}, 1024},
    .vocab = {{"vocab_size"}, 0},
    .kv_heads = {{"num_key_value_heads"}, KVF__DERIVED},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .positions = {{"max_position_embeddings"}, 2048},
    .attention_bias = "attention_bias",
    .no_rope.type = "position_embedding_type",
    .multipliers = true,
    .no_defaults = true,
    .fixed = granite_hybrid_fixed,
};

/* Values that do not depend on the row. */
#define LLAMA_BLOCK                                                                                \
    .prefix = "model.", .buffers = llama_buffers, .block.norm = KVF__RMSNORM,                      \
    .positions = KVF__POS_ROPE, .block.act = KVF__SILU, .act_name = "silu", .block.gated = true,   \
    .block.causal = true
#define LLAMA_ROW .heads = "llama", KVF__WEIGHTS(llama_weights), LLAMA_BLOCK

static const kvf__arch rows[] = {
    {
        .name = "llama",
        .class_stem = "Llama",
        .gguf = "llama",
        LLAMA_ROW,
        .keys = &llama_keys,
        .gguf_permuted = true,
    },
    {
        .name = "mistral",
        .class_stem = "Mistral",
        LLAMA_ROW,
        .keys = &mistral_keys,
    },
    {
        .name = "ministral3",
        .inside = "mistral3",
        .class_stem = "Ministral3",
        .gguf = "mistral3",
        LLAMA_ROW,
        .keys = &ministral3_keys,
        .gguf_permuted = true,
    },
    {
        .name = "qwen2",
        .class_stem = "Qwen2",
        .gguf = "qwen2",
        LLAMA_ROW,
        .keys = &qwen2_keys,
        .block.qkv_bias = true,
    },
    {
        .name = "qwen3",
        .class_stem = "Qwen3",
        .gguf = "qwen3",
        LLAMA_ROW,
        .keys = &qwen3_keys,
        .block.qk_norm = KVF__QK_BY_HEAD,
    },
    {
        .name = "smollm3",
        .class_stem = "SmolLM3",
        .gguf = "smollm3",
        LLAMA_ROW,
        .keys = &smollm3_keys,
        .tied = true,
        .gguf_permuted = true,
    },
    {
        .name = "granite",
        .class_stem = "Granite",
        .gguf = "granite",
        KVF__WEIGHTS(llama_weights),
        LLAMA_BLOCK,
        .keys = &granite_keys,
        .gguf_permuted = true,
    },
    {
        .name = "granitemoehybrid",
        .class_stem = "GraniteMoeHybrid",
        KVF__WEIGHTS(granite_hybrid_weights),
        LLAMA_BLOCK,
        .keys = &granite_hybrid_keys,
    },
};

const kvf__arch_family kvf__arch_llama = {rows, KVF__COUNT(rows)};
