/* BERT, RoBERTa and XLM-R: post-norm encoders with learned positions (modeling_bert.py,
 * modeling_roberta.py). RoBERTa's weights are BERT's, but for the head of pretraining. */
#include "arch.h"

/* Read from Hugging Face files only: llama.cpp's converter drops the pooler. */
#define BERT_BODY                                                                                  \
    {KVF__W_TOKENS, "embeddings.word_embeddings.weight", NULL, "V C", 0},                          \
        {KVF__W_POSITIONS, "embeddings.position_embeddings.weight", NULL, "X C", 0},               \
        {KVF__W_TYPES, "embeddings.token_type_embeddings.weight", NULL, "Y C", 0},                 \
        {KVF__W_EMBED_NORM, "embeddings.LayerNorm.weight", NULL, "C", 0},                          \
        {KVF__W_EMBED_NORM_BETA, "embeddings.LayerNorm.bias", NULL, "C", 0},                       \
        {KVF__W_Q, "encoder.layer.#.attention.self.query.weight", NULL, "HD C", 0},                \
        {KVF__W_Q_BIAS, "encoder.layer.#.attention.self.query.bias", NULL, "HD", 0},               \
        {KVF__W_K, "encoder.layer.#.attention.self.key.weight", NULL, "GD C", 0},                  \
        {KVF__W_K_BIAS, "encoder.layer.#.attention.self.key.bias", NULL, "GD", 0},                 \
        {KVF__W_V, "encoder.layer.#.attention.self.value.weight", NULL, "GD C", 0},                \
        {KVF__W_V_BIAS, "encoder.layer.#.attention.self.value.bias", NULL, "GD", 0},               \
        {KVF__W_OUT, "encoder.layer.#.attention.output.dense.weight", NULL, "C HD", 0},            \
        {KVF__W_OUT_BIAS, "encoder.layer.#.attention.output.dense.bias", NULL, "C", 0},            \
        {KVF__W_NORM1, "encoder.layer.#.attention.output.LayerNorm.weight", NULL, "C", 0},         \
        {KVF__W_NORM1_BETA, "encoder.layer.#.attention.output.LayerNorm.bias", NULL, "C", 0},      \
        {KVF__W_UP, "encoder.layer.#.intermediate.dense.weight", NULL, "F C", 0},                  \
        {KVF__W_UP_BIAS, "encoder.layer.#.intermediate.dense.bias", NULL, "F", 0},                 \
        {KVF__W_DOWN, "encoder.layer.#.output.dense.weight", NULL, "C F", 0},                      \
        {KVF__W_DOWN_BIAS, "encoder.layer.#.output.dense.bias", NULL, "C", 0},                     \
        {KVF__W_NORM2, "encoder.layer.#.output.LayerNorm.weight", NULL, "C", 0},                   \
        {KVF__W_NORM2_BETA, "encoder.layer.#.output.LayerNorm.bias", NULL, "C", 0},                \
        {KVF__W_POOLER, "pooler.dense.weight", NULL, "C C", KVF__W_OPTIONAL},                      \
    {                                                                                              \
        KVF__W_POOLER_BIAS, "pooler.dense.bias", NULL, "C", KVF__W_OPTIONAL                        \
    }

/* The head of pretraining, but for its decoder: that is the word embeddings. */
#define MASKED_LM (KVF__W_OPTIONAL | KVF__W_OUTSIDE | KVF__W_ASIDE)

static const kvf__weight bert_weights[] = {
    BERT_BODY,
    {KVF__W_MLM_DENSE, "cls.predictions.transform.dense.weight", NULL, "C C", MASKED_LM},
    {KVF__W_MLM_DENSE_BIAS, "cls.predictions.transform.dense.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM, "cls.predictions.transform.LayerNorm.weight", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM_BETA, "cls.predictions.transform.LayerNorm.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_BIAS, "cls.predictions.bias", NULL, "V", MASKED_LM},
};

static const kvf__weight roberta_weights[] = {
    BERT_BODY,
    {KVF__W_MLM_DENSE, "lm_head.dense.weight", NULL, "C C", MASKED_LM},
    {KVF__W_MLM_DENSE_BIAS, "lm_head.dense.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM, "lm_head.layer_norm.weight", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM_BETA, "lm_head.layer_norm.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_BIAS, "lm_head.bias", NULL, "V", MASKED_LM},
};

static const char *const bert_buffers[] = {"embeddings.position_ids",
                                           "embeddings.token_type_ids",
                                           "cls.predictions.bias",
                                           "cls.predictions.decoder.weight",
                                           "cls.predictions.decoder.bias",
                                           "cls.predictions.transform.dense.weight",
                                           "cls.predictions.transform.dense.bias",
                                           "cls.predictions.transform.LayerNorm.weight",
                                           "cls.predictions.transform.LayerNorm.bias",
                                           "cls.predictions.transform.LayerNorm.gamma",
                                           "cls.predictions.transform.LayerNorm.beta",
                                           "cls.seq_relationship.weight",
                                           "cls.seq_relationship.bias",
                                           NULL};
static const char *const roberta_buffers[] = {"embeddings.position_ids",
                                              "embeddings.token_type_ids",
                                              "lm_head.bias",
                                              "lm_head.dense.weight",
                                              "lm_head.dense.bias",
                                              "lm_head.layer_norm.weight",
                                              "lm_head.layer_norm.bias",
                                              "lm_head.decoder.weight",
                                              "lm_head.decoder.bias",
                                              NULL};
/* As the first files of BERT were converted from TensorFlow. */
static const char *const bert_renamed[] = {"LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias",
                                           "LayerNorm.beta", NULL};

static const kvf__config_keys bert_keys = {
    .width = {{"hidden_size"}, 0},
    .layers = {{"num_hidden_layers"}, 0},
    .heads = {{"num_attention_heads"}, 0},
    .kv_heads = {{NULL}, KVF__DERIVED},
    .head_dim = {{NULL}, KVF__DERIVED},
    .ffn = {{"intermediate_size"}, 0},
    .vocab = {{"vocab_size"}, 0},
    .positions = {{"max_position_embeddings"}, 512},
    .types = {{"type_vocab_size"}, 2},
    .eps = "layer_norm_eps",
    .eps_otherwise = 1e-12,
    .act = "hidden_act",
    .attention_dropout = "attention_probs_dropout_prob",
    .dropout_otherwise = 0.1,
};

/* What is the same in every row. */
#define BERT_ROW                                                                                   \
    .keys = &bert_keys, .renamed = bert_renamed, .block.norm = KVF__LAYERNORM,                     \
    .positions = KVF__POS_LEARNED, .block.act = KVF__GELU_ERF, .act_name = "gelu", .tied = true,   \
    .block.post_norm = true, .block.qkv_bias = true, .block.out_bias = true,                       \
    .block.mlp_bias = true

/* RoBERTa's is BERT's body with positions counted from the padding on, and a head of its own. */
#define ROBERTA_ROW                                                                                \
    BERT_ROW, .prefix = "roberta.", .weights = roberta_weights,                                    \
              .n_weights = KVF__COUNT(roberta_weights), .buffers = roberta_buffers,                \
              .pad_positions = true, .mlm_gelu = true, .pad = 1

static const kvf__arch rows[] = {
    {
        .name = "bert",
        .class_stem = "Bert",
        .prefix = "bert.",
        BERT_ROW,
        .weights = bert_weights,
        .n_weights = KVF__COUNT(bert_weights),
        .buffers = bert_buffers,
    },
    {
        .name = "roberta",
        .class_stem = "Roberta",
        ROBERTA_ROW,
    },
    {
        .name = "xlm-roberta",
        .class_stem = "XLMRoberta",
        ROBERTA_ROW,
    },
};

const kvf__arch_family kvf__arch_bert = {rows, KVF__COUNT(rows)};
