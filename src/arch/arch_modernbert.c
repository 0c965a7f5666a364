/* ModernBERT (modeling_modernbert.py; Warner et al. 2024, arXiv 2412.13663): a pre-norm encoder
 * with rope and without biases. The first layer has no norm before attention. q, k and v share one
 * weight, gate and up another. Local layers attend to a window on either side. */
#include "arch.h"

static const kvf__weight weights[] = {
    {KVF__W_TOKENS, "embeddings.tok_embeddings.weight", NULL, "V C", 0},
    {KVF__W_EMBED_NORM, "embeddings.norm.weight", NULL, "C", 0},
    {KVF__W_NORM1, "layers.#.attn_norm.weight", NULL, "C", KVF__W_NOT_FIRST},
    {KVF__W_QKV, "layers.#.attn.Wqkv.weight", NULL, "SD C", 0},
    {KVF__W_OUT, "layers.#.attn.Wo.weight", NULL, "C HD", 0},
    {KVF__W_NORM2, "layers.#.mlp_norm.weight", NULL, "C", 0},
    {KVF__W_GATE_UP, "layers.#.mlp.Wi.weight", NULL, "2F C", 0},
    {KVF__W_DOWN, "layers.#.mlp.Wo.weight", NULL, "C F", 0},
    {KVF__W_FINAL, "final_norm.weight", NULL, "C", 0},
    {KVF__W_MLM_DENSE, "head.dense.weight", NULL, "C C", KVF__MASKED_LM},
    {KVF__W_MLM_NORM, "head.norm.weight", NULL, "C", KVF__MASKED_LM},
    {KVF__W_MLM_BIAS, "decoder.bias", NULL, "V", KVF__MASKED_LM},
};

static const char *const buffers[] = {"decoder.weight", NULL};

static const kvf__pair fixed[] = {
    {"norm_bias", "false"},       {"attention_bias", "false"},           {"mlp_bias", "false"},
    {"classifier_bias", "false"}, {"classifier_activation", "\"gelu\""}, {NULL, NULL}};

static const kvf__config_keys keys = {
    .width = {{"hidden_size"}, 768},
    .layers = {{"num_hidden_layers"}, 22},
    .heads = {{"num_attention_heads"}, 12},
    .ffn = {{"intermediate_size"}, 1152},
    .vocab = {{"vocab_size"}, 50368},
    .positions = {{"max_position_embeddings"}, 8192},
    .sliding_window = {{"local_attention"}, 128},
    .eps = "norm_eps",
    .eps_otherwise = 1e-5,
    .act = "hidden_activation",
    .attention_dropout = {"attention_dropout", 0},
    .local = {.pattern = "global_attn_every_n_layers",
              .global_every = 3,
              .from_0 = true,
              .two_sided = true,
              .theta = "local_rope_theta"},
    .rope_theta = "global_rope_theta",
    .theta_otherwise = 160000,
    .fixed = fixed,
};

static const kvf__arch rows[] = {{
    .name = "modernbert",
    .heads = "modernbert",
    .class_stem = "ModernBert",
    .prefix = "model.",
    .keys = &keys,
    KVF__WEIGHTS(weights),
    .buffers = buffers,
    .block.norm = KVF__LAYERNORM,
    .block.act = KVF__GELU_ERF,
    .act_name = "gelu",
    .block.gated = true,
    .positions = KVF__POS_ROPE,
    .tied = true,
    .starts_at_0 = true,
    .mlm_gelu = true,
    .takes_no_cache = true,
}};

const kvf__arch_family kvf__arch_modernbert = {rows, KVF__COUNT(rows)};
