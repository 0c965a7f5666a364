/* BART (modeling_bart.py): an encoder-decoder of post-norm blocks. Each stack has learned
 * positions, whose table begins with two rows of no use, and a norm on its embeddings. Neither has
 * a final norm. */
#include "arch.h"

#define DENSE(place, role, hf, shape, n)                                                           \
    {role, hf ".weight", NULL, shape, place},                                                      \
    {                                                                                              \
        role##_BIAS, hf ".bias", NULL, n, place                                                    \
    }

#define NORM(place, role, hf)                                                                      \
    {role, hf ".weight", NULL, "C", place},                                                        \
    {                                                                                              \
        role##_BETA, hf ".bias", NULL, "C", place                                                  \
    }

#define ATTENTION(place, hf)                                                                       \
    DENSE(place, KVF__W_Q, hf ".q_proj", "HD C", "HD"),                                            \
        DENSE(place, KVF__W_K, hf ".k_proj", "GD C", "GD"),                                        \
        DENSE(place, KVF__W_V, hf ".v_proj", "GD C", "GD"),                                        \
        DENSE(place, KVF__W_OUT, hf ".out_proj", "C HD", "C"),                                     \
        NORM(place, KVF__W_NORM1, hf "_layer_norm")

#define FEED_FORWARD(place, hf)                                                                    \
    DENSE(place, KVF__W_UP, hf ".fc1", "F C", "F"),                                                \
        DENSE(place, KVF__W_DOWN, hf ".fc2", "C F", "C"),                                          \
        NORM(place, KVF__W_NORM2, hf ".final_layer_norm")

#define EMBEDDINGS(place, hf)                                                                      \
    {KVF__W_POSITIONS, hf ".embed_positions.weight", NULL, "X C", place},                          \
        NORM(place, KVF__W_EMBED_NORM, hf ".layernorm_embedding")

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

static const char *const alike[] = {"encoder_attention_heads", "decoder_attention_heads",
                                    "encoder_ffn_dim", "decoder_ffn_dim", NULL};

/* What the first files of the family say, for models that are others in transformers now. */
static const char *const fixed[] = {"normalize_before",
                                    "false",
                                    "add_final_layer_norm",
                                    "false",
                                    "normalize_embedding",
                                    "true",
                                    "static_position_embeddings",
                                    "false",
                                    NULL};

static const kvf__config_keys keys = {
    .width = {{"d_model"}, 1024},
    .layers = {{"encoder_layers"}, 12},
    .decoder_layers = "decoder_layers",
    .heads = {{"encoder_attention_heads"}, 16},
    .kv_heads = {{NULL}, KVF__DERIVED},
    .head_dim = {{NULL}, KVF__DERIVED},
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
    .weights = weights,
    .n_weights = KVF__COUNT(weights),
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
