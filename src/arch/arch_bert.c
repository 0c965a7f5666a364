/* BERT, RoBERTa, XLM-R, ELECTRA and DistilBERT: post-norm encoders with learned positions
 * (modeling_bert.py, modeling_roberta.py, modeling_electra.py, modeling_distilbert.py). Nomic BERT
 * (modeling_nomic_bert.py) has rope and a gate instead, and no biases. The weights of RoBERTa and
 * ELECTRA are BERT's except for the pretraining head and, in ELECTRA, a dense layer after narrower
 * embeddings. DistilBERT has other names, and no token types. */
#include "arch.h"

/* GGUF names are those of llama.cpp's converter (gguf-py, constants.py), which drops the pooler. */
#define BERT_BODY                                                                                  \
    {KVF__W_TOKENS, "embeddings.word_embeddings.weight", "token_embd.weight", "V E", 0},           \
        {KVF__W_POSITIONS, "embeddings.position_embeddings.weight", "position_embd.weight", "X E", \
         0},                                                                                       \
        {KVF__W_TYPES, "embeddings.token_type_embeddings.weight", "token_types.weight", "Y E", 0}, \
        KVF__NORM(EMBED_NORM, "embeddings.LayerNorm", "token_embd_norm", "E"),                     \
        KVF__DENSE(Q, "encoder.layer.#.attention.self.query", "blk.#.attn_q", "HD C", "HD", 0, 0), \
        KVF__DENSE(K, "encoder.layer.#.attention.self.key", "blk.#.attn_k", "GD C", "GD", 0, 0),   \
        KVF__DENSE(V, "encoder.layer.#.attention.self.value", "blk.#.attn_v", "GD C", "GD", 0, 0), \
        KVF__DENSE(OUT, "encoder.layer.#.attention.output.dense", "blk.#.attn_output", "C HD",     \
                   "C", 0, 0),                                                                     \
        KVF__NORM(NORM1, "encoder.layer.#.attention.output.LayerNorm", "blk.#.attn_output_norm",   \
                  "C"),                                                                            \
        KVF__DENSE(UP, "encoder.layer.#.intermediate.dense", "blk.#.ffn_up", "F C", "F", 0, 0),    \
        KVF__DENSE(DOWN, "encoder.layer.#.output.dense", "blk.#.ffn_down", "C F", "C", 0, 0),      \
        KVF__NORM(NORM2, "encoder.layer.#.output.LayerNorm", "blk.#.layer_output_norm", "C"),      \
        KVF__HF_DENSE(POOLER, "pooler.dense", "C C", "C", KVF__W_OPTIONAL, KVF__W_OPTIONAL)

static const kvf__weight bert_weights[] = {
    BERT_BODY,
    KVF__MASKED_LM_HEAD("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                        "cls.predictions.bias", "C"),
};

static const kvf__weight roberta_weights[] = {
    BERT_BODY,
    KVF__MASKED_LM_HEAD("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "C"),
};

/* The weights of ELECTRA's generator; a discriminator has no such head. */
static const kvf__weight electra_weights[] = {
    BERT_BODY,
    KVF__HF_DENSE(EMBED_OUT, "embeddings_project", "C E", "C", KVF__W_IF_EMBED_OUT,
                  KVF__W_IF_EMBED_OUT),
    KVF__MASKED_LM_HEAD("generator_predictions.dense", "generator_predictions.LayerNorm",
                        "generator_lm_head.bias", "E"),
};

static const kvf__weight distilbert_weights[] = {
    {KVF__W_TOKENS, "embeddings.word_embeddings.weight", NULL, "V C", 0},
    {KVF__W_POSITIONS, "embeddings.position_embeddings.weight", NULL, "X C", 0},
    KVF__HF_NORM(EMBED_NORM, "embeddings.LayerNorm", "C", 0),
    KVF__HF_DENSE(Q, "transformer.layer.#.attention.q_lin", "HD C", "HD", 0, 0),
    KVF__HF_DENSE(K, "transformer.layer.#.attention.k_lin", "GD C", "GD", 0, 0),
    KVF__HF_DENSE(V, "transformer.layer.#.attention.v_lin", "GD C", "GD", 0, 0),
    KVF__HF_DENSE(OUT, "transformer.layer.#.attention.out_lin", "C HD", "C", 0, 0),
    KVF__HF_NORM(NORM1, "transformer.layer.#.sa_layer_norm", "C", 0),
    KVF__HF_DENSE(UP, "transformer.layer.#.ffn.lin1", "F C", "F", 0, 0),
    KVF__HF_DENSE(DOWN, "transformer.layer.#.ffn.lin2", "C F", "C", 0, 0),
    KVF__HF_NORM(NORM2, "transformer.layer.#.output_layer_norm", "C", 0),
    KVF__MASKED_LM_HEAD("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "C"),
};

/* Names as in transformers 5; nomic_renamed has those of the first files. */
static const kvf__weight nomic_weights[] = {
    {KVF__W_TOKENS, "embeddings.word_embeddings.weight", "token_embd.weight", "V C", 0},
    {KVF__W_TYPES, "embeddings.token_type_embeddings.weight", "token_types.weight", "Y C", 0},
    KVF__NORM(EMBED_NORM, "embeddings.LayerNorm", "token_embd_norm", "C"),
    {KVF__W_Q, "layers.#.self_attn.q_proj.weight", "blk.#.attn_qkv.weight", "HD C", KVF__W_OF_QKV},
    {KVF__W_K, "layers.#.self_attn.k_proj.weight", "blk.#.attn_qkv.weight", "GD C", KVF__W_OF_QKV},
    {KVF__W_V, "layers.#.self_attn.v_proj.weight", "blk.#.attn_qkv.weight", "GD C", KVF__W_OF_QKV},
    {KVF__W_OUT, "layers.#.self_attn.o_proj.weight", "blk.#.attn_output.weight", "C HD", 0},
    KVF__NORM(NORM1, "layers.#.post_attention_layernorm", "blk.#.attn_output_norm", "C"),
    {KVF__W_GATE, "layers.#.mlp.gate_proj.weight", "blk.#.ffn_gate.weight", "F C", 0},
    {KVF__W_UP, "layers.#.mlp.up_proj.weight", "blk.#.ffn_up.weight", "F C", 0},
    {KVF__W_DOWN, "layers.#.mlp.down_proj.weight", "blk.#.ffn_down.weight", "C F", 0},
    KVF__NORM(NORM2, "layers.#.post_mlp_layernorm", "blk.#.layer_output_norm", "C"),
    KVF__HF_DENSE(POOLER, "pooler.dense", "C C", "C", KVF__W_OPTIONAL, KVF__W_OPTIONAL),
    KVF__MASKED_LM_HEAD("cls.predictions.transform.dense", "cls.predictions.transform.layer_norm",
                        "cls.predictions.bias", "C"),
};

static const char *const bert_buffers[] = {"embeddings.position_ids",
                                           "embeddings.token_type_ids",
                                           "cls.predictions.decoder.weight",
                                           "cls.predictions.decoder.bias",
                                           "cls.predictions.transform.LayerNorm.gamma",
                                           "cls.predictions.transform.LayerNorm.beta",
                                           "cls.seq_relationship.weight",
                                           "cls.seq_relationship.bias",
                                           NULL};
static const char *const roberta_buffers[] = {"embeddings.position_ids",
                                              "embeddings.token_type_ids", "lm_head.decoder.weight",
                                              "lm_head.decoder.bias", NULL};
static const char *const electra_buffers[] = {"embeddings.position_ids",
                                              "embeddings.token_type_ids",
                                              "generator_lm_head.weight",
                                              "discriminator_predictions.dense.weight",
                                              "discriminator_predictions.dense.bias",
                                              "discriminator_predictions.dense_prediction.weight",
                                              "discriminator_predictions.dense_prediction.bias",
                                              NULL};
static const char *const distilbert_buffers[] = {"embeddings.position_ids",
                                                 "vocab_projector.weight", NULL};
static const char *const nomic_buffers[] = {"embeddings.position_ids",
                                            "embeddings.token_type_ids",
                                            "rotary_emb.inv_freq",
                                            "layers.#.attn.rotary_emb.inv_freq",
                                            "cls.predictions.decoder.weight",
                                            "cls.predictions.decoder.bias",
                                            NULL};
/* Names follow the reference implementation, with the prefix "encoder.". */
static const kvf__pair nomic_renamed[] = {{"embeddings.LayerNorm.weight", "emb_ln.weight"},
                                          {"embeddings.LayerNorm.bias", "emb_ln.bias"},
                                          {"self_attn.q_proj.weight", "attn.Wqkv.weight"},
                                          {"self_attn.k_proj.weight", "attn.Wqkv.weight"},
                                          {"self_attn.v_proj.weight", "attn.Wqkv.weight"},
                                          {"self_attn.o_proj.weight", "attn.out_proj.weight"},
                                          {"post_attention_layernorm.weight", "norm1.weight"},
                                          {"post_attention_layernorm.bias", "norm1.bias"},
                                          {"mlp.gate_proj.weight", "mlp.fc12.weight"},
                                          {"mlp.up_proj.weight", "mlp.fc11.weight"},
                                          {"mlp.down_proj.weight", "mlp.fc2.weight"},
                                          {"post_mlp_layernorm.weight", "norm2.weight"},
                                          {"post_mlp_layernorm.bias", "norm2.bias"},
                                          {NULL, NULL}};
/* Names in the first files of BERT, converted from TensorFlow. */
static const kvf__pair bert_renamed[] = {
    {"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}, {NULL, NULL}};

/* Keys that BERT and its descendants share. */
#define BERT_KEYS                                                                                  \
    KVF__USUAL_SIZES, .positions = {{"max_position_embeddings"}, 512},                             \
                      .types = {{"type_vocab_size"}, 2}, .eps = "layer_norm_eps",                  \
                      .eps_otherwise = 1e-12, .act = "hidden_act",                                 \
                      .attention_dropout = {"attention_probs_dropout_prob", 0.1}

static const kvf__config_keys bert_keys = {BERT_KEYS};

static const kvf__pair electra_fixed[] = {{"summary_type", "\"first\""},
                                          {"summary_use_proj", "true"},
                                          {"summary_activation", "\"gelu\""},
                                          {NULL, NULL}};

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

/* Keys that the reference implementation reads, if present. */
static const kvf__pair nomic_fixed[] = {{"activation_function", "\"swiglu\""},
                                        {"prenorm", "false"},
                                        {"qkv_proj_bias", "false"},
                                        {"mlp_fc1_bias", "false"},
                                        {"mlp_fc2_bias", "false"},
                                        {"parallel_block", "false"},
                                        {"rotary_emb_base", "1000"},
                                        {"rotary_emb_fraction", "1.0"},
                                        {NULL, NULL}};

static const kvf__config_keys nomic_keys = {
    .width = {{"hidden_size", "n_embd"}, 768},
    .layers = {{"num_hidden_layers", "n_layer"}, 12},
    .heads = {{"num_attention_heads", "n_head"}, 12},
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

/* Values that do not depend on the row. */
#define ENCODER_ROW                                                                                \
    .renamed = bert_renamed, .block.norm = KVF__LAYERNORM, .positions = KVF__POS_LEARNED,          \
    .block.act = KVF__GELU_ERF, .act_name = "gelu", .tied = true, .block.post_norm = true,         \
    .block.qkv_bias = true, .block.out_bias = true, .block.mlp_bias = true

#define BERT_ROW ENCODER_ROW, .keys = &bert_keys

/* RoBERTa: BERT's body with positions counted from the padding, and a head of its own. */
#define ROBERTA_ROW                                                                                \
    BERT_ROW, .prefix = "roberta.", KVF__WEIGHTS(roberta_weights), .buffers = roberta_buffers,     \
              .heads = "roberta", .pad_positions = true, .mlm_gelu = true, .pad = 1

static const kvf__arch rows[] = {
    {
        .name = "bert",
        .heads = "bert",
        .class_stem = "Bert",
        .gguf = "bert",
        .prefix = "bert.",
        BERT_ROW,
        KVF__WEIGHTS(bert_weights),
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
        KVF__WEIGHTS(electra_weights),
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
        KVF__WEIGHTS(distilbert_weights),
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
        KVF__WEIGHTS(nomic_weights),
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
