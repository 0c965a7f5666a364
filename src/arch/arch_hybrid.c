/* Hybrids, whose layers without attention mix tokens by a recurrence (desc.h): LFM2's short
 * convolutions (modeling_lfm2.py) and Qwen3.5's gated delta rule (modeling_qwen3_5.py; the text
 * model, also inside a multimodal one). Norms of Qwen3.5 are stored less 1, except those of the
 * delta rule. GGUF names are those of llama.cpp's converter, which also reorders value heads
 * (bind.c). */
#include "arch.h"

#define IN_ATTENTION KVF__W_IF_ATTENTION
#define IN_MIXER     KVF__W_IF_MIXER
#define LESS_1       KVF__W_PLUS_ONE

static const kvf__weight lfm2_weights[] = {
    {KVF__W_TOKENS, "embed_tokens.weight", "token_embd.weight", "V C", 0},
    {KVF__W_NORM1, "layers.#.operator_norm.weight", "blk.#.attn_norm.weight", "C", 0},
    {KVF__W_MIXER_IN, "layers.#.conv.in_proj.weight", "blk.#.shortconv.in_proj.weight", "J C",
     IN_MIXER},
    {KVF__W_MIXER_CONV, "layers.#.conv.conv.weight", "blk.#.shortconv.conv.weight", "Q 1 W",
     IN_MIXER},
    {KVF__W_OUT, "layers.#.conv.out_proj.weight", "blk.#.shortconv.out_proj.weight", "C A",
     IN_MIXER},
    {KVF__W_Q, "layers.#.self_attn.q_proj.weight", "blk.#.attn_q.weight", "HD C", IN_ATTENTION},
    {KVF__W_K, "layers.#.self_attn.k_proj.weight", "blk.#.attn_k.weight", "GD C", IN_ATTENTION},
    {KVF__W_V, "layers.#.self_attn.v_proj.weight", "blk.#.attn_v.weight", "GD C", IN_ATTENTION},
    {KVF__W_Q_NORM, "layers.#.self_attn.q_layernorm.weight", "blk.#.attn_q_norm.weight", "D",
     IN_ATTENTION},
    {KVF__W_K_NORM, "layers.#.self_attn.k_layernorm.weight", "blk.#.attn_k_norm.weight", "D",
     IN_ATTENTION},
    {KVF__W_OUT, "layers.#.self_attn.out_proj.weight", "blk.#.attn_output.weight", "C HD",
     IN_ATTENTION},
    {KVF__W_NORM2, "layers.#.ffn_norm.weight", "blk.#.ffn_norm.weight", "C", 0},
    {KVF__W_GATE, "layers.#.feed_forward.w1.weight", "blk.#.ffn_gate.weight", "F C", 0},
    {KVF__W_UP, "layers.#.feed_forward.w3.weight", "blk.#.ffn_up.weight", "F C", 0},
    {KVF__W_DOWN, "layers.#.feed_forward.w2.weight", "blk.#.ffn_down.weight", "C F", 0},
    {KVF__W_FINAL, "embedding_norm.weight", "token_embd_norm.weight", "C", 0},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

static const kvf__weight qwen3_5_weights[] = {
    {KVF__W_TOKENS, "embed_tokens.weight", "token_embd.weight", "V C", 0},
    {KVF__W_NORM1, "layers.#.input_layernorm.weight", "blk.#.attn_norm.weight", "C", LESS_1},
    {KVF__W_MIXER_IN, "layers.#.linear_attn.in_proj_qkv.weight", "blk.#.attn_qkv.weight", "Q C",
     IN_MIXER},
    {KVF__W_MIXER_GATE, "layers.#.linear_attn.in_proj_z.weight", "blk.#.attn_gate.weight", "A C",
     IN_MIXER},
    {KVF__W_MIXER_BETA, "layers.#.linear_attn.in_proj_b.weight", "blk.#.ssm_beta.weight", "N C",
     IN_MIXER},
    {KVF__W_MIXER_DECAY, "layers.#.linear_attn.in_proj_a.weight", "blk.#.ssm_alpha.weight", "N C",
     IN_MIXER},
    {KVF__W_MIXER_CONV, "layers.#.linear_attn.conv1d.weight", "blk.#.ssm_conv1d.weight", "Q 1 W",
     IN_MIXER},
    {KVF__W_MIXER_STEP, "layers.#.linear_attn.dt_bias", "blk.#.ssm_dt.bias", "N", IN_MIXER},
    {KVF__W_MIXER_RATE, "layers.#.linear_attn.A_log", "blk.#.ssm_a", "N", IN_MIXER | KVF__W_LOG},
    {KVF__W_MIXER_NORM, "layers.#.linear_attn.norm.weight", "blk.#.ssm_norm.weight", "M", IN_MIXER},
    {KVF__W_OUT, "layers.#.linear_attn.out_proj.weight", "blk.#.ssm_out.weight", "C A", IN_MIXER},
    {KVF__W_Q, "layers.#.self_attn.q_proj.weight", "blk.#.attn_q.weight", "2HD C",
     IN_ATTENTION | KVF__W_AND_GATE},
    {KVF__W_K, "layers.#.self_attn.k_proj.weight", "blk.#.attn_k.weight", "GD C", IN_ATTENTION},
    {KVF__W_V, "layers.#.self_attn.v_proj.weight", "blk.#.attn_v.weight", "GD C", IN_ATTENTION},
    {KVF__W_Q_NORM, "layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", "D",
     IN_ATTENTION | LESS_1},
    {KVF__W_K_NORM, "layers.#.self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", "D",
     IN_ATTENTION | LESS_1},
    {KVF__W_OUT, "layers.#.self_attn.o_proj.weight", "blk.#.attn_output.weight", "C HD",
     IN_ATTENTION},
    {KVF__W_NORM2, "layers.#.post_attention_layernorm.weight", "blk.#.post_attention_norm.weight",
     "C", LESS_1},
    {KVF__W_GATE, "layers.#.mlp.gate_proj.weight", "blk.#.ffn_gate.weight", "F C", 0},
    {KVF__W_UP, "layers.#.mlp.up_proj.weight", "blk.#.ffn_up.weight", "F C", 0},
    {KVF__W_DOWN, "layers.#.mlp.down_proj.weight", "blk.#.ffn_down.weight", "C F", 0},
    {KVF__W_FINAL, "norm.weight", "output_norm.weight", "C", LESS_1},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

static const char *const hybrid_buffers[] = {"rotary_emb.inv_freq", NULL};

static const kvf__pair lfm2_fixed[] = {
    {"conv_bias", "false"}, {"tie_embedding", "true"}, {NULL, NULL}};

static const kvf__mixer_keys lfm2_mixer = {
    .type = "conv",
    .attention = "full_attn_idxs",
    .kernel = {{"conv_L_cache"}, 3},
    .gguf = {.kernel = "shortconv.l_cache"},
    .ffn = {"block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of"},
};

static const kvf__config_keys lfm2_keys = {
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .ffn = {{"block_ff_dim", "intermediate_size"}, 0},
    .vocab = {{"vocab_size"}, 0},
    .kv_heads = {{"num_key_value_heads"}, 8},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .positions = {{"max_position_embeddings"}, 128000},
    .eps = "norm_eps",
    .eps_otherwise = 1e-5,
    .act = "hidden_act",
    .theta_otherwise = 1e6,
    .mixer = &lfm2_mixer,
    .fixed = lfm2_fixed,
};

static const kvf__pair qwen3_5_fixed[] = {
    {"attention_bias", "false"}, {"hidden_act", "\"silu\""}, {NULL, NULL}};

static const kvf__mixer_keys qwen3_5_mixer = {
    .type = "linear_attention",
    .every = {"full_attention_interval", 4},
    .delta = true,
    .gguf = {"ssm.conv_kernel", "ssm.group_count", "ssm.time_step_rank", "ssm.state_size",
             "ssm.inner_size"},
    .kernel = {{"linear_conv_kernel_dim"}, 4},
    .key_heads = {{"linear_num_key_heads"}, 16},
    .value_heads = {{"linear_num_value_heads"}, 32},
    .key_dim = {{"linear_key_head_dim"}, 128},
    .value_dim = {{"linear_value_head_dim"}, 128},
};

static const kvf__config_keys qwen3_5_keys = {
    KVF__USUAL_SIZES,
    .eps = "rms_norm_eps",
    .eps_otherwise = 1e-6,
    .act = "hidden_act",
    .attention_dropout.name = "attention_dropout",
    .kv_heads = {{"num_key_value_heads"}, 4},
    .head_dim = {{"head_dim"}, 256},
    .positions = {{"max_position_embeddings"}, 32768},
    .rotary = {"partial_rotary_factor", 0.25},
    .mixer = &qwen3_5_mixer,
    .fixed = qwen3_5_fixed,
};

#define HYBRID_BLOCK                                                                               \
    .prefix = "model.", .buffers = hybrid_buffers, .positions = KVF__POS_ROPE, .act_name = "silu", \
    .block.norm = KVF__RMSNORM, .block.qk_norm = KVF__QK_BY_HEAD, .block.act = KVF__SILU,          \
    .block.gated = true, .block.causal = true

static const kvf__arch rows[] = {
    {
        .name = "lfm2",
        .class_stem = "Lfm2",
        .gguf = "lfm2",
        KVF__WEIGHTS(lfm2_weights),
        HYBRID_BLOCK,
        .keys = &lfm2_keys,
        .tied = true,
    },
    {
        .name = "qwen3_5_text",
        .inside = "qwen3_5",
        .class_stem = "Qwen3_5",
        .gguf = "qwen35",
        KVF__WEIGHTS(qwen3_5_weights),
        HYBRID_BLOCK,
        .block.out_gate = true,
        .keys = &qwen3_5_keys,
    },
};

const kvf__arch_family kvf__arch_hybrid = {rows, KVF__COUNT(rows)};
