/* BERT, RoBERTa, XLM-R, ELECTRA and DistilBERT: post-norm encoders with learned positions
 * (modeling_bert.py, modeling_roberta.py, modeling_electra.py, modeling_distilbert.py), and Nomic
 * BERT (modeling_nomic_bert.py), which has rope, a gate and no biases in its place. RoBERTa's
 * and ELECTRA's weights are BERT's, but for the head of pretraining, and a dense layer behind
 * ELECTRA's embeddings where these have a width of their own. DistilBERT has other names, and no
 * token types.
 */
#include "arch.h"

/* GGUF names are those of llama.cpp's converter (gguf-py, constants.py), which drops the pooler. */
#define BERT_BODY                                                                                  \
    {KVF__W_TOKENS, "embeddings.word_embeddings.weight", "token_embd.weight", "V E", 0},           \
        {KVF__W_POSITIONS, "embeddings.position_embeddings.weight", "position_embd.weight", "X E", \
         0},                                                                                       \
        {KVF__W_TYPES, "embeddings.token_type_embeddings.weight", "token_types.weight", "Y E", 0}, \
        {KVF__W_EMBED_NORM, "embeddings.LayerNorm.weight", "token_embd_norm.weight", "E", 0},      \
        {KVF__W_EMBED_NORM_BETA, "embeddings.LayerNorm.bias", "token_embd_norm.bias", "E", 0},     \
        {KVF__W_Q, "encoder.layer.#.attention.self.query.weight", "blk.#.attn_q.weight", "HD C",   \
         0},                                                                                       \
        {KVF__W_Q_BIAS, "encoder.layer.#.attention.self.query.bias", "blk.#.attn_q.bias", "HD",    \
         0},                                                                                       \
        {KVF__W_K, "encoder.layer.#.attention.self.key.weight", "blk.#.attn_k.weight", "GD C", 0}, \
        {KVF__W_K_BIAS, "encoder.layer.#.attention.self.key.bias", "blk.#.attn_k.bias", "GD", 0},  \
        {KVF__W_V, "encoder.layer.#.attention.self.value.weight", "blk.#.attn_v.weight", "GD C",   \
         0},                                                                                       \
        {KVF__W_V_BIAS, "encoder.layer.#.attention.self.value.bias", "blk.#.attn_v.bias", "GD",    \
         0},                                                                                       \
        {KVF__W_OUT, "encoder.layer.#.attention.output.dense.weight", "blk.#.attn_output.weight",  \
         "C HD", 0},                                                                               \
        {KVF__W_OUT_BIAS, "encoder.layer.#.attention.output.dense.bias", "blk.#.attn_output.bias", \
         "C", 0},                                                                                  \
        {KVF__W_NORM1, "encoder.layer.#.attention.output.LayerNorm.weight",                        \
         "blk.#.attn_output_norm.weight", "C", 0},                                                 \
        {KVF__W_NORM1_BETA, "encoder.layer.#.attention.output.LayerNorm.bias",                     \
         "blk.#.attn_output_norm.bias", "C", 0},                                                   \
        {KVF__W_UP, "encoder.layer.#.intermediate.dense.weight", "blk.#.ffn_up.weight", "F C", 0}, \
        {KVF__W_UP_BIAS, "encoder.layer.#.intermediate.dense.bias", "blk.#.ffn_up.bias", "F", 0},  \
        {KVF__W_DOWN, "encoder.layer.#.output.dense.weight", "blk.#.ffn_down.weight", "C F", 0},   \
        {KVF__W_DOWN_BIAS, "encoder.layer.#.output.dense.bias", "blk.#.ffn_down.bias", "C", 0},    \
        {KVF__W_NORM2, "encoder.layer.#.output.LayerNorm.weight",                                  \
         "blk.#.layer_output_norm.weight", "C", 0},                                                \
        {KVF__W_NORM2_BETA, "encoder.layer.#.output.LayerNorm.bias",                               \
         "blk.#.layer_output_norm.bias", "C", 0},                                                  \
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

/* That of ELECTRA's generator; a discriminator has none. */
static const kvf__weight electra_weights[] = {
    BERT_BODY,
    {KVF__W_EMBED_OUT, "embeddings_project.weight", NULL, "C E", KVF__W_IF_EMBED_OUT},
    {KVF__W_EMBED_OUT_BIAS, "embeddings_project.bias", NULL, "C", KVF__W_IF_EMBED_OUT},
    {KVF__W_MLM_DENSE, "generator_predictions.dense.weight", NULL, "E C", MASKED_LM},
    {KVF__W_MLM_DENSE_BIAS, "generator_predictions.dense.bias", NULL, "E", MASKED_LM},
    {KVF__W_MLM_NORM, "generator_predictions.LayerNorm.weight", NULL, "E", MASKED_LM},
    {KVF__W_MLM_NORM_BETA, "generator_predictions.LayerNorm.bias", NULL, "E", MASKED_LM},
    {KVF__W_MLM_BIAS, "generator_lm_head.bias", NULL, "V", MASKED_LM},
};

static const kvf__weight distilbert_weights[] = {
    {KVF__W_TOKENS, "embeddings.word_embeddings.weight", NULL, "V C", 0},
    {KVF__W_POSITIONS, "embeddings.position_embeddings.weight", NULL, "X C", 0},
    {KVF__W_EMBED_NORM, "embeddings.LayerNorm.weight", NULL, "C", 0},
    {KVF__W_EMBED_NORM_BETA, "embeddings.LayerNorm.bias", NULL, "C", 0},
    {KVF__W_Q, "transformer.layer.#.attention.q_lin.weight", NULL, "HD C", 0},
    {KVF__W_Q_BIAS, "transformer.layer.#.attention.q_lin.bias", NULL, "HD", 0},
    {KVF__W_K, "transformer.layer.#.attention.k_lin.weight", NULL, "GD C", 0},
    {KVF__W_K_BIAS, "transformer.layer.#.attention.k_lin.bias", NULL, "GD", 0},
    {KVF__W_V, "transformer.layer.#.attention.v_lin.weight", NULL, "GD C", 0},
    {KVF__W_V_BIAS, "transformer.layer.#.attention.v_lin.bias", NULL, "GD", 0},
    {KVF__W_OUT, "transformer.layer.#.attention.out_lin.weight", NULL, "C HD", 0},
    {KVF__W_OUT_BIAS, "transformer.layer.#.attention.out_lin.bias", NULL, "C", 0},
    {KVF__W_NORM1, "transformer.layer.#.sa_layer_norm.weight", NULL, "C", 0},
    {KVF__W_NORM1_BETA, "transformer.layer.#.sa_layer_norm.bias", NULL, "C", 0},
    {KVF__W_UP, "transformer.layer.#.ffn.lin1.weight", NULL, "F C", 0},
    {KVF__W_UP_BIAS, "transformer.layer.#.ffn.lin1.bias", NULL, "F", 0},
    {KVF__W_DOWN, "transformer.layer.#.ffn.lin2.weight", NULL, "C F", 0},
    {KVF__W_DOWN_BIAS, "transformer.layer.#.ffn.lin2.bias", NULL, "C", 0},
    {KVF__W_NORM2, "transformer.layer.#.output_layer_norm.weight", NULL, "C", 0},
    {KVF__W_NORM2_BETA, "transformer.layer.#.output_layer_norm.bias", NULL, "C", 0},
    {KVF__W_MLM_DENSE, "vocab_transform.weight", NULL, "C C", MASKED_LM},
    {KVF__W_MLM_DENSE_BIAS, "vocab_transform.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM, "vocab_layer_norm.weight", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM_BETA, "vocab_layer_norm.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_BIAS, "vocab_projector.bias", NULL, "V", MASKED_LM},
};

/* As transformers 5 writes them; for the names that its first files have see nomic_renamed. */
static const kvf__weight nomic_weights[] = {
    {KVF__W_TOKENS, "embeddings.word_embeddings.weight", "token_embd.weight", "V C", 0},
    {KVF__W_TYPES, "embeddings.token_type_embeddings.weight", "token_types.weight", "Y C", 0},
    {KVF__W_EMBED_NORM, "embeddings.LayerNorm.weight", "token_embd_norm.weight", "C", 0},
    {KVF__W_EMBED_NORM_BETA, "embeddings.LayerNorm.bias", "token_embd_norm.bias", "C", 0},
    {KVF__W_Q, "layers.#.self_attn.q_proj.weight", "blk.#.attn_qkv.weight", "HD C", KVF__W_OF_QKV},
    {KVF__W_K, "layers.#.self_attn.k_proj.weight", "blk.#.attn_qkv.weight", "GD C", KVF__W_OF_QKV},
    {KVF__W_V, "layers.#.self_attn.v_proj.weight", "blk.#.attn_qkv.weight", "GD C", KVF__W_OF_QKV},
    {KVF__W_OUT, "layers.#.self_attn.o_proj.weight", "blk.#.attn_output.weight", "C HD", 0},
    {KVF__W_NORM1, "layers.#.post_attention_layernorm.weight", "blk.#.attn_output_norm.weight", "C",
     0},
    {KVF__W_NORM1_BETA, "layers.#.post_attention_layernorm.bias", "blk.#.attn_output_norm.bias",
     "C", 0},
    {KVF__W_GATE, "layers.#.mlp.gate_proj.weight", "blk.#.ffn_gate.weight", "F C", 0},
    {KVF__W_UP, "layers.#.mlp.up_proj.weight", "blk.#.ffn_up.weight", "F C", 0},
    {KVF__W_DOWN, "layers.#.mlp.down_proj.weight", "blk.#.ffn_down.weight", "C F", 0},
    {KVF__W_NORM2, "layers.#.post_mlp_layernorm.weight", "blk.#.layer_output_norm.weight", "C", 0},
    {KVF__W_NORM2_BETA, "layers.#.post_mlp_layernorm.bias", "blk.#.layer_output_norm.bias", "C", 0},
    {KVF__W_POOLER, "pooler.dense.weight", NULL, "C C", KVF__W_OPTIONAL},
    {KVF__W_POOLER_BIAS, "pooler.dense.bias", NULL, "C", KVF__W_OPTIONAL},
    {KVF__W_MLM_DENSE, "cls.predictions.transform.dense.weight", NULL, "C C", MASKED_LM},
    {KVF__W_MLM_DENSE_BIAS, "cls.predictions.transform.dense.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM, "cls.predictions.transform.layer_norm.weight", NULL, "C", MASKED_LM},
    {KVF__W_MLM_NORM_BETA, "cls.predictions.transform.layer_norm.bias", NULL, "C", MASKED_LM},
    {KVF__W_MLM_BIAS, "cls.predictions.bias", NULL, "V", MASKED_LM},
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
static const char *const electra_buffers[] = {"embeddings.position_ids",
                                              "embeddings.token_type_ids",
                                              "generator_predictions.dense.weight",
                                              "generator_predictions.dense.bias",
                                              "generator_predictions.LayerNorm.weight",
                                              "generator_predictions.LayerNorm.bias",
                                              "generator_lm_head.weight",
                                              "generator_lm_head.bias",
                                              "discriminator_predictions.dense.weight",
                                              "discriminator_predictions.dense.bias",
                                              "discriminator_predictions.dense_prediction.weight",
                                              "discriminator_predictions.dense_prediction.bias",
                                              NULL};
static const char *const distilbert_buffers[] = {
    "embeddings.position_ids", "vocab_transform.weight",
    "vocab_transform.bias",    "vocab_layer_norm.weight",
    "vocab_layer_norm.bias",   "vocab_projector.weight",
    "vocab_projector.bias",    NULL};
static const char *const nomic_buffers[] = {"embeddings.position_ids",
                                            "embeddings.token_type_ids",
                                            "rotary_emb.inv_freq",
                                            "layers.#.attn.rotary_emb.inv_freq",
                                            "cls.predictions.bias",
                                            "cls.predictions.decoder.weight",
                                            "cls.predictions.decoder.bias",
                                            "cls.predictions.transform.dense.weight",
                                            "cls.predictions.transform.dense.bias",
                                            "cls.predictions.transform.layer_norm.weight",
                                            "cls.predictions.transform.layer_norm.bias",
                                            NULL};
/* As the model's own code names them, behind "encoder.". */
static const char *const nomic_renamed[] = {"embeddings.LayerNorm.weight",
                                            "emb_ln.weight",
                                            "embeddings.LayerNorm.bias",
                                            "emb_ln.bias",
                                            "self_attn.q_proj.weight",
                                            "attn.Wqkv.weight",
                                            "self_attn.k_proj.weight",
                                            "attn.Wqkv.weight",
                                            "self_attn.v_proj.weight",
                                            "attn.Wqkv.weight",
                                            "self_attn.o_proj.weight",
                                            "attn.out_proj.weight",
                                            "post_attention_layernorm.weight",
                                            "norm1.weight",
                                            "post_attention_layernorm.bias",
                                            "norm1.bias",
                                            "mlp.gate_proj.weight",
                                            "mlp.fc12.weight",
                                            "mlp.up_proj.weight",
                                            "mlp.fc11.weight",
                                            "mlp.down_proj.weight",
                                            "mlp.fc2.weight",
                                            "post_mlp_layernorm.weight",
                                            "norm2.weight",
                                            "post_mlp_layernorm.bias",
                                            "norm2.bias",
                                            NULL};
/* As the first files of BERT were converted from TensorFlow. */
static const char *const bert_renamed[] = {"LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias",
                                           "LayerNorm.beta", NULL};

/* What BERT and its descendants call alike. */
#define BERT_KEYS                                                                                  \
    .width = {{"hidden_size"}, 0}, .layers = {{"num_hidden_layers"}, 0},                           \
    .heads = {{"num_attention_heads"}, 0}, .kv_heads = {{NULL}, KVF__DERIVED},                     \
    .head_dim = {{NULL}, KVF__DERIVED}, .ffn = {{"intermediate_size"}, 0},                         \
    .vocab = {{"vocab_size"}, 0}, .positions = {{"max_position_embeddings"}, 512},                 \
    .types = {{"type_vocab_size"}, 2}, .eps = "layer_norm_eps", .eps_otherwise = 1e-12,            \
    .act = "hidden_act", .attention_dropout = {"attention_probs_dropout_prob", 0.1}

static const kvf__config_keys bert_keys = {BERT_KEYS};

static const char *const electra_fixed[] = {
    "summary_type", "\"first\"", "summary_use_proj", "true", "summary_activation",
    "\"gelu\"",     NULL};

static const kvf__config_keys electra_keys = {
    BERT_KEYS,
    .fixed = electra_fixed,
    .embed_width = {{"embedding_size"}, 128},
    .pooled = {"summary_last_dropout", 0.1},
};

static const kvf__config_keys distilbert_keys = {
    .width = {{"dim", "hidden_size"}, 768},
    .layers = {{"n_layers", "num_hidden_layers"}, 6},
    .heads = {{"n_heads", "num_attention_heads"}, 12},
    .kv_heads = {{NULL}, KVF__DERIVED},
    .head_dim = {{NULL}, KVF__DERIVED},
    .ffn = {{"hidden_dim"}, 3072},
    .vocab = {{"vocab_size"}, 30522},
    .positions = {{"max_position_embeddings"}, 512},
    .eps_otherwise = 1e-12,
    .act = "activation",
    .attention_dropout = {"attention_dropout", 0.1},
    .hidden_dropout = "dropout",
    .pooled = {"seq_classif_dropout", 0.2},
    .qa = {"qa_dropout", 0.1},
};

/* What the model's own code reads, where a config has it. */
static const char *const nomic_fixed[] = {"activation_function",
                                          "\"swiglu\"",
                                          "prenorm",
                                          "false",
                                          "qkv_proj_bias",
                                          "false",
                                          "mlp_fc1_bias",
                                          "false",
                                          "mlp_fc2_bias",
                                          "false",
                                          "parallel_block",
                                          "false",
                                          "rotary_emb_base",
                                          "1000",
                                          "rotary_emb_fraction",
                                          "1.0",
                                          NULL};

static const kvf__config_keys nomic_keys = {
    .width = {{"hidden_size", "n_embd"}, 768},
    .layers = {{"num_hidden_layers", "n_layer"}, 12},
    .heads = {{"num_attention_heads", "n_head"}, 12},
    .kv_heads = {{NULL}, KVF__DERIVED},
    .head_dim = {{"head_dim"}, KVF__DERIVED},
    .ffn = {{"intermediate_size", "n_inner"}, 3072},
    .vocab = {{"vocab_size"}, 30528},
    .positions = {{"max_position_embeddings"}, 2048},
    .types = {{"type_vocab_size"}, 2},
    .eps = "layer_norm_eps",
    .eps_otherwise = 1e-12,
    .act = "hidden_act",
    .attention_dropout = {"attention_probs_dropout_prob", 0},
    .theta_otherwise = 1000,
    .fixed = nomic_fixed,
};

/* What is the same in every row. */
#define ENCODER_ROW                                                                                \
    .renamed = bert_renamed, .block.norm = KVF__LAYERNORM, .positions = KVF__POS_LEARNED,          \
    .block.act = KVF__GELU_ERF, .act_name = "gelu", .tied = true, .block.post_norm = true,         \
    .block.qkv_bias = true, .block.out_bias = true, .block.mlp_bias = true

#define BERT_ROW ENCODER_ROW, .keys = &bert_keys

/* RoBERTa's is BERT's body with positions counted from the padding on, and a head of its own. */
#define ROBERTA_ROW                                                                                \
    BERT_ROW, .prefix = "roberta.", .weights = roberta_weights,                                    \
              .n_weights = KVF__COUNT(roberta_weights), .buffers = roberta_buffers,                \
              .heads = "roberta", .pad_positions = true, .mlm_gelu = true, .pad = 1

static const kvf__arch rows[] = {
    {
        .name = "bert",
        .heads = "bert",
        .class_stem = "Bert",
        .gguf = "bert",
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
    {
        .name = "electra",
        .heads = "electra",
        .class_stem = "Electra",
        .prefix = "electra.",
        ENCODER_ROW,
        .keys = &electra_keys,
        .weights = electra_weights,
        .n_weights = KVF__COUNT(electra_weights),
        .buffers = electra_buffers,
        .mlm_gelu = true,
    },
    {
        .name = "distilbert",
        .heads = "distilbert",
        .class_stem = "DistilBert",
        .prefix = "distilbert.",
        ENCODER_ROW,
        .keys = &distilbert_keys,
        .weights = distilbert_weights,
        .n_weights = KVF__COUNT(distilbert_weights),
        .buffers = distilbert_buffers,
        .takes_no_cache = true,
    },
    {
        .name = "nomic_bert",
        .heads = "nomic",
        .class_stem = "NomicBert",
        .gguf = "nomic-bert",
        .prefix = "nomic_bert.",
        .keys = &nomic_keys,
        .weights = nomic_weights,
        .n_weights = KVF__COUNT(nomic_weights),
        .buffers = nomic_buffers,
        .renamed = nomic_renamed,
        .block.norm = KVF__LAYERNORM,
        .block.post_norm = true,
        .block.act = KVF__SILU,
        .act_name = "silu",
        .block.gated = true,
        .positions = KVF__POS_ROPE,
        .tied = true,
        .starts_at_0 = true,
        .takes_no_cache = true,
    },
};

const kvf__arch_family kvf__arch_bert = {rows, KVF__COUNT(rows)};
