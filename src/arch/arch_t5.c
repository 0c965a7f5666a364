/* T5 and Flan-T5 (modeling_t5.py): an encoder-decoder of pre-norm blocks without biases. A relative
 * position bias, the same in all layers of a stack, is added to scores (relative.c), which are not
 * scaled. */
#include "arch.h"

/* The attention weights of a place; GGUF names are those of llama.cpp's converter (gguf-py,
 * constants.py). */
#define ATTENTION(place, hf, gguf)                                                                 \
    {KVF__W_Q, hf ".q.weight", gguf "_q.weight", "HD C", place},                                   \
        {KVF__W_K, hf ".k.weight", gguf "_k.weight", "GD C", place},                               \
        {KVF__W_V, hf ".v.weight", gguf "_v.weight", "GD C", place},                               \
    {                                                                                              \
        KVF__W_OUT, hf ".o.weight", gguf "_o.weight", "C HD", place                                \
    }

/* The feed-forward half, plain (T5) or gated (T5 v1.1, Flan-T5). */
#define FEED_FORWARD(place, hf, gguf)                                                              \
    {KVF__W_NORM2, hf ".layer_norm.weight", gguf "_norm.weight", "C", place},                      \
        {KVF__W_UP, hf ".DenseReluDense.wi.weight", gguf "_up.weight", "F C",                      \
         place | KVF__W_IF_PLAIN},                                                                 \
        {KVF__W_GATE, hf ".DenseReluDense.wi_0.weight", gguf "_gate.weight", "F C",                \
         place | KVF__W_IF_GATED},                                                                 \
        {KVF__W_UP, hf ".DenseReluDense.wi_1.weight", gguf "_up.weight", "F C",                    \
         place | KVF__W_IF_GATED},                                                                 \
    {                                                                                              \
        KVF__W_DOWN, hf ".DenseReluDense.wo.weight", gguf "_down.weight", "C F", place             \
    }

static const kvf__weight weights[] = {
    {KVF__W_TOKENS, "shared.weight", "token_embd.weight", "V C", 0},
    {KVF__W_RELATIVE, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "enc.blk.0.attn_rel_b.weight", "R H", KVF__W_IN_ENCODER},
    {KVF__W_RELATIVE, "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     "dec.blk.0.attn_rel_b.weight", "R H", KVF__W_IN_DECODER},
    {KVF__W_NORM1, "encoder.block.#.layer.0.layer_norm.weight", "enc.blk.#.attn_norm.weight", "C",
     KVF__W_IN_ENCODER},
    ATTENTION(KVF__W_IN_ENCODER, "encoder.block.#.layer.0.SelfAttention", "enc.blk.#.attn"),
    FEED_FORWARD(KVF__W_IN_ENCODER, "encoder.block.#.layer.1", "enc.blk.#.ffn"),
    {KVF__W_NORM1, "decoder.block.#.layer.0.layer_norm.weight", "dec.blk.#.attn_norm.weight", "C",
     KVF__W_IN_DECODER},
    ATTENTION(KVF__W_IN_DECODER, "decoder.block.#.layer.0.SelfAttention", "dec.blk.#.attn"),
    {KVF__W_NORM1, "decoder.block.#.layer.1.layer_norm.weight", "dec.blk.#.cross_attn_norm.weight",
     "C", KVF__W_IN_CROSS},
    ATTENTION(KVF__W_IN_CROSS, "decoder.block.#.layer.1.EncDecAttention", "dec.blk.#.cross_attn"),
    FEED_FORWARD(KVF__W_IN_CROSS, "decoder.block.#.layer.2", "dec.blk.#.ffn"),
    {KVF__W_ENCODER_FINAL, "encoder.final_layer_norm.weight", "enc.output_norm.weight", "C", 0},
    {KVF__W_FINAL, "decoder.final_layer_norm.weight", "dec.output_norm.weight", "C", 0},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

/* Copies of the embeddings, and an unused bias. */
static const char *const buffers[] = {
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    "dec.blk.0.cross_attn_rel_b.weight", NULL};

/* Rows may be longer than in pretraining: distances beyond the farthest share a bucket. */
static const kvf__config_keys keys = {
    .width = {{"d_model"}, 512},
    .layers = {{"num_layers"}, 6},
    .decoder_layers = "num_decoder_layers",
    .heads = {{"num_heads"}, 8},
    .head_dim = {{"d_kv"}, 64},
    .ffn = {{"d_ff"}, 2048},
    .vocab = {{"vocab_size"}, 32128},
    .positions = {{NULL}, 1 << 20},
    .eps = "layer_norm_epsilon",
    .eps_otherwise = 1e-6,
    .act = "feed_forward_proj",
    .attention_dropout = {"dropout_rate", 0.1},
    .hidden_dropout = "dropout_rate",
};

static const kvf__arch rows[] = {{
    .name = "t5",
    .heads = "bart",
    .gguf = "t5",
    .class_stem = "T5",
    .prefix = "",
    .keys = &keys,
    KVF__WEIGHTS(weights),
    .buffers = buffers,
    .block.norm = KVF__RMSNORM,
    .block.act = KVF__RELU,
    .block.causal = true,
    .act_name = "relu",
    .act_says_gated = true,
    .positions = KVF__POS_BIAS,
    .tied = true,
    .starts_at_0 = true,
}};

const kvf__arch_family kvf__arch_t5 = {rows, KVF__COUNT(rows)};
