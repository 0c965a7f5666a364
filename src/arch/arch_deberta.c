/* DeBERTa v2 and v3 (modeling_deberta_v2.py): BERT's post-norm blocks without position embeddings.
 * Relative positions are terms of the attention scores (relative.c). */
#include "arch.h"

static const kvf__weight weights[] = {
    {KVF__W_TOKENS, "embeddings.word_embeddings.weight", NULL, "V C", 0},
    KVF__HF_NORM(EMBED_NORM, "embeddings.LayerNorm", "C", 0),
    {KVF__W_RELATIVE, "encoder.rel_embeddings.weight", NULL, "R C", 0},
    KVF__HF_NORM(RELATIVE_NORM, "encoder.LayerNorm", "C", 0),
    KVF__HF_DENSE(Q, "encoder.layer.#.attention.self.query_proj", "HD C", "HD", 0, 0),
    KVF__HF_DENSE(K, "encoder.layer.#.attention.self.key_proj", "GD C", "GD", 0, 0),
    KVF__HF_DENSE(V, "encoder.layer.#.attention.self.value_proj", "GD C", "GD", 0, 0),
    KVF__HF_DENSE(OUT, "encoder.layer.#.attention.output.dense", "C HD", "C", 0, 0),
    KVF__HF_NORM(NORM1, "encoder.layer.#.attention.output.LayerNorm", "C", 0),
    KVF__HF_DENSE(UP, "encoder.layer.#.intermediate.dense", "F C", "F", 0, 0),
    KVF__HF_DENSE(DOWN, "encoder.layer.#.output.dense", "C F", "C", 0, 0),
    KVF__HF_NORM(NORM2, "encoder.layer.#.output.LayerNorm", "C", 0),
    KVF__MASKED_LM_HEAD("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                        "cls.predictions.bias", "C"),
};

static const char *const buffers[] = {"embeddings.position_ids",
                                      "embeddings.position_embeddings.weight",
                                      "cls.predictions.decoder.weight",
                                      "cls.predictions.decoder.bias",
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

/* Head names in the authors' first files, and with `legacy` false. */
static const kvf__pair renamed[] = {
    {"cls.predictions.transform.dense.weight", "lm_predictions.lm_head.dense.weight"},
    {"cls.predictions.transform.dense.bias", "lm_predictions.lm_head.dense.bias"},
    {"cls.predictions.transform.LayerNorm.weight", "lm_predictions.lm_head.LayerNorm.weight"},
    {"cls.predictions.transform.LayerNorm.bias", "lm_predictions.lm_head.LayerNorm.bias"},
    {"cls.predictions.bias", "lm_predictions.lm_head.bias"},
    {NULL, NULL}};

static const kvf__pair fixed[] = {{"pooler_hidden_act", "\"gelu\""}, {NULL, NULL}};

static const kvf__config_keys keys = {
    KVF__USUAL_SIZES,
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
    KVF__WEIGHTS(weights),
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
