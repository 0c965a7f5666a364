/* DeBERTa v2 and v3 (modeling_deberta_v2.py): BERT's post-norm blocks without positions in the
 * embeddings; distances between tokens are terms of attention's scores (relative.c). */
#include "arch.h"

#define MASKED_LM (KVF__W_OPTIONAL | KVF__W_OUTSIDE | KVF__W_ASIDE)

static const kvf__weight weights[] = {
    {KVF__W_TOKENS, "embeddings.word_embeddings.weight", NULL, "V C", 0},
    {KVF__W_EMBED_NORM, "embeddings.LayerNorm.weight", NULL, "C", 0},
    {KVF__W_EMBED_NORM_BETA, "embeddings.LayerNorm.bias", NULL, "C", 0},
    {KVF__W_RELATIVE, "encoder.rel_embeddings.weight", NULL, "R C", 0},
    {KVF__W_RELATIVE_NORM, "encoder.LayerNorm.weight", NULL, "C", 0},
    {KVF__W_RELATIVE_NORM_BETA, "encoder.LayerNorm.bias", NULL, "C", 0},
    {KVF__W_Q, "encoder.layer.#.attention.self.query_proj.weight", NULL, "HD C", 0},
    {KVF__W_Q_BIAS, "encoder.layer.#.attention.self.query_proj.bias", NULL, "HD", 0},
    {KVF__W_K, "encoder.layer.#.attention.self.key_proj.weight", NULL, "GD C", 0},
    {KVF__W_K_BIAS, "encoder.layer.#.attention.self.key_proj.bias", NULL, "GD", 0},
    {KVF__W_V, "encoder.layer.#.attention.self.value_proj.weight", NULL, "GD C", 0},
    {KVF__W_V_BIAS, "encoder.layer.#.attention.self.value_proj.bias", NULL, "GD", 0},
    {KVF__W_OUT, "encoder.layer.#.attention.output.dense.weight", NULL, "C HD", 0},
    {KVF__W_OUT_BIAS, "encoder.layer.#.attention.output.dense.bias", NULL, "C", 0},
    {KVF__W_NORM1, "encoder.layer.#.attention.output.LayerNorm.weight", NULL, "C", 0},
    {KVF__W_NORM1_BETA, "encoder.layer.#.attention.output.LayerNorm.bias", NULL, "C", 0},
    {KVF__W_UP, "encoder.layer.#.intermediate.dense.weight", NULL, "F C", 0},
    {KVF__W_UP_BIAS, "encoder.layer.#.intermediate.dense.bias", NULL, "F", 0},
    {KVF__W_DOWN, "encoder.layer.#.output.dense.weight", NULL, "C F", 0},
    {KVF__W_DOWN_BIAS, "encoder.layer.#.output.dense.bias", NULL, "C", 0},
    {KVF__W_NORM2, "encoder.layer.#.output.LayerNorm.weight", NULL, "C", 0},
    {KVF__W_NORM2_BETA, "encoder.layer.#.output.LayerNorm.bias", NULL, "C", 0},
    {KVF__W_MLM_DENSE, "cls.predictions.transform.dense.weight", NULL, "C C", MASKED_LM},
    {KVF__W_MLM_DENSE_BIAS, "cls.predictions.transform.dense.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM, "cls.predictions.transform.LayerNorm.weight", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM_BETA, "cls.predictions.transform.LayerNorm.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_BIAS, "cls.predictions.bias", NULL, "V", MASKED_LM},
};

static const char *const buffers[] = {"embeddings.position_ids",
                                      "embeddings.position_embeddings.weight",
                                      "cls.predictions.bias",
                                      "cls.predictions.decoder.weight",
                                      "cls.predictions.decoder.bias",
                                      "cls.predictions.transform.dense.weight",
                                      "cls.predictions.transform.dense.bias",
                                      "cls.predictions.transform.LayerNorm.weight",
                                      "cls.predictions.transform.LayerNorm.bias",
                                      "lm_predictions.lm_head.bias",
                                      "lm_predictions.lm_head.dense.weight",
                                      "lm_predictions.lm_head.dense.bias",
                                      "lm_predictions.lm_head.LayerNorm.weight",
                                      "lm_predictions.lm_head.LayerNorm.bias",
                                      "mask_predictions.dense.weight",
                                      "mask_predictions.dense.bias",
                                      "mask_predictions.LayerNorm.weight",
                                      "mask_predictions.LayerNorm.bias",
                                      "mask_predictions.classifier.weight",
                                      "mask_predictions.classifier.bias",
                                      NULL};

/* The head as the first authors' files, and `legacy` false, have it. */
static const char *const renamed[] = {"cls.predictions.transform.dense.weight",
                                      "lm_predictions.lm_head.dense.weight",
                                      "cls.predictions.transform.dense.bias",
                                      "lm_predictions.lm_head.dense.bias",
                                      "cls.predictions.transform.LayerNorm.weight",
                                      "lm_predictions.lm_head.LayerNorm.weight",
                                      "cls.predictions.transform.LayerNorm.bias",
                                      "lm_predictions.lm_head.LayerNorm.bias",
                                      "cls.predictions.bias",
                                      "lm_predictions.lm_head.bias",
                                      NULL};

static const char *const fixed[] = {"pooler_hidden_act", "\"gelu\"", NULL};

static const kvf__config_keys keys = {
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .kv_heads = {{NULL}, KVF__DERIVED},
    .head_dim = {{NULL}, KVF__DERIVED},
    .ffn = {{"intermediate_size"}, 0},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"max_position_embeddings"}, 512},
    .eps = "layer_norm_eps",
    .eps_otherwise = 1e-7,
    .act = "hidden_act",
    .attention_dropout = {"attention_probs_dropout_prob", 0.1},
    .pooled = {"cls_dropout", -1},
    .fixed = fixed,
};

static const kvf__arch rows[] = {{
    .name = "deberta-v2",
    .heads = "deberta",
    .class_stem = "DebertaV2",
    .prefix = "deberta.",
    .keys = &keys,
    .weights = weights,
    .n_weights = KVF__COUNT(weights),
    .buffers = buffers,
    .renamed = renamed,
    .block.norm = KVF__LAYERNORM,
    .block.act = KVF__GELU_ERF,
    .act_name = "gelu",
    .block.post_norm = true,
    .block.qkv_bias = true,
    .block.out_bias = true,
    .block.mlp_bias = true,
    .positions = KVF__POS_RELATIVE,
    .tied = true,
    .starts_at_0 = true,
    .takes_no_cache = true,
}};

const kvf__arch_family kvf__arch_deberta = {rows, KVF__COUNT(rows)};
