/* BART (modeling_bart.py): an encoder-decoder of post-norm blocks. Each stack has learned
 * positions, whose table begins with two unused rows, and a norm on its embeddings. Neither has a
 * final norm. */
#include "arch.h"

#define ATTENTION(place, hf)                                                                       \
    KVF__HF_DENSE(Q, hf ".q_proj", "HD C", "HD", place, place),                                    \
        KVF__HF_DENSE(K, hf ".k_proj", "GD C", "GD", place, place),                                \
        KVF__HF_DENSE(V, hf ".v_proj", "GD C", "GD", place, place),                                \
        KVF__HF_DENSE(OUT, hf ".out_proj", "C HD", "C", place, place),                             \
        KVF__HF_NORM(NORM1, hf "_layer_norm", "C", place)

#define FEED_FORWARD(place, hf)                                                                    \
    KVF__HF_DENSE(UP, hf ".fc1", "F C", "F", place, place),                                        \
        KVF__HF_DENSE(DOWN, hf ".fc2", "C F", "C", place, place),                                  \
        KVF__HF_NORM(NORM2, hf ".final_layer_norm", "C", place)

#define EMBEDDINGS(place, hf)                                                                      \
    {KVF__W_POSITIONS, hf ".embed_positions.weight", NULL, "X C", place},                          \
        KVF__HF_NORM(EMBED_NORM, hf ".layernorm_embedding", "C", place)

static const kvf__weight weights[] = {
    {KVF__W_TOKENS, "shared.weight", NULL, "V C", 0},
    EMBEDDINGS(KVF__W_IN_ENCODER, "encoder"),
    EMBEDDINGS(KVF__W_IN_DECODER, "decoder"),
    ATTENTION(KVF__W_IN_ENCODER, "encoder.layers.#.self_attn"),
    FEED_FORWARD(KVF__W_IN_ENCODER, "encoder.layers.#"),
    ATTENTION(KVF__W_IN_DECODER, "decoder.layers.#.self_attn"),
    ATTENTION(KVF__W_IN_CROSS, "decoder.layers.#.encoder_attn"),
    FEED_FORWARD(KVF__W_IN_CROSS, "decoder.layers.#"),
    {KVF__W_HEAD, "lm_head.weight", NULL, "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
    {KVF__W_HEAD_BIAS, "final_logits_bias", NULL, "1 V", KVF__W_OPTIONAL | KVF__W_OUTSIDE},
};

/* Copies of the embeddings. */
static const char *const buffers[] = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                                      "encoder.version", "decoder.version", NULL};

static const kvf__pair alike[] = {{"encoder_attention_heads", "decoder_attention_heads"},
                                  {"encoder_ffn_dim", "decoder_ffn_dim"},
                                  {NULL, NULL}};

/* Keys in the family's first files; models with other values are other families in transformers
 * now. */
static const kvf__pair fixed[] = {{"normalize_before", "false"},
                                  {"add_final_layer_norm", "false"},
                                  {"normalize_embedding", "true"},
                                  {"static_position_embeddings", "false"},
                                  {NULL, NULL}};

static const kvf__config_keys keys = {
    .width = {{"d_model"}, 1024},
    .layers = {{"encoder_layers"}, 12},
    .decoder_layers = "decoder_layers",
    .heads = {{"encoder_attention_heads"}, 16},
    .ffn = {{"encoder_ffn_dim"}, 4096},
    .vocab = {{"vocab_size"}, 50265},
    .positions = {{"max_position_embeddings"}, 1024},
    .alike = alike,
    .fixed = fixed,
    .starts_with_eos = true,
    .embed_scaled = "scale_embedding",
    .init_std = "init_std",
    .eps_otherwise = 1e-5,
    .act = "activation_function",
    .attention_dropout = {"attention_dropout", 0},
    .hidden_dropout = "dropout",
};

static const kvf__arch rows[] = {{
    .name = "bart",
    .heads = "bart",
    .class_stem = "Bart",
    .prefix = "model.",
    .keys = &keys,
    KVF__WEIGHTS(weights),
    .buffers = buffers,
    .block.norm = KVF__LAYERNORM,
    .block.post_norm = true,
    .block.act = KVF__GELU_ERF,
    .block.causal = true,
    .block.qkv_bias = true,
    .block.out_bias = true,
    .block.mlp_bias = true,
    .act_name = "gelu",
    .positions = KVF__POS_LEARNED,
    .first_position = 2,
    .tied = true,
    .head_bias = true,
}};

const kvf__arch_family kvf__arch_bart = {rows, KVF__COUNT(rows)};
