/* GPT-2 (modeling_gpt2.py) and the GPT before it (modeling_openai.py): learned positions,
 * LayerNorm, Conv1D weights. GGUF names are those of llama.cpp's converter (gguf-py, constants.py).
 */
#include "arch.h"

/* Shapes of Conv1D weights as Hugging Face stores them, [in, out]. */
static const kvf__weight gpt2_weights[] = {
    {KVF__W_TOKENS, "wte.weight", "token_embd.weight", "V C", 0},
    {KVF__W_POSITIONS, "wpe.weight", "position_embd.weight", "X C", 0},
    {KVF__W_NORM1, "h.#.ln_1.weight", "blk.#.attn_norm.weight", "C", 0},
    {KVF__W_NORM1_BETA, "h.#.ln_1.bias", "blk.#.attn_norm.bias", "C", 0},
    {KVF__W_QKV, "h.#.attn.c_attn.weight", "blk.#.attn_qkv.weight", "C SD", KVF__W_CONV1D},
    {KVF__W_QKV_BIAS, "h.#.attn.c_attn.bias", "blk.#.attn_qkv.bias", "SD", KVF__W_IF_QKV},
    {KVF__W_OUT, "h.#.attn.c_proj.weight", "blk.#.attn_output.weight", "HD C", KVF__W_CONV1D},
    {KVF__W_OUT_BIAS, "h.#.attn.c_proj.bias", "blk.#.attn_output.bias", "C", KVF__W_IF_OUT},
    {KVF__W_NORM2, "h.#.ln_2.weight", "blk.#.ffn_norm.weight", "C", 0},
    {KVF__W_NORM2_BETA, "h.#.ln_2.bias", "blk.#.ffn_norm.bias", "C", 0},
    {KVF__W_UP, "h.#.mlp.c_fc.weight", "blk.#.ffn_up.weight", "C F", KVF__W_CONV1D},
    {KVF__W_UP_BIAS, "h.#.mlp.c_fc.bias", "blk.#.ffn_up.bias", "F", KVF__W_IF_MLP},
    {KVF__W_DOWN, "h.#.mlp.c_proj.weight", "blk.#.ffn_down.weight", "F C", KVF__W_CONV1D},
    {KVF__W_DOWN_BIAS, "h.#.mlp.c_proj.bias", "blk.#.ffn_down.bias", "C", KVF__W_IF_MLP},
    {KVF__W_FINAL, "ln_f.weight", "output_norm.weight", "C", 0},
    {KVF__W_FINAL_BETA, "ln_f.bias", "output_norm.bias", "C", 0},
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

/* The first GPT: norms after the sums, none at the end. Hugging Face's head is tied and has no
 * bias; lm_head_bias is a key of ours, for bases made here. */
static const kvf__weight openai_gpt_weights[] = {
    {KVF__W_TOKENS, "tokens_embed.weight", NULL, "V C", 0},
    {KVF__W_POSITIONS, "positions_embed.weight", NULL, "X C", 0},
    {KVF__W_QKV, "h.#.attn.c_attn.weight", NULL, "C SD", KVF__W_CONV1D},
    {KVF__W_QKV_BIAS, "h.#.attn.c_attn.bias", NULL, "SD", 0},
    {KVF__W_OUT, "h.#.attn.c_proj.weight", NULL, "HD C", KVF__W_CONV1D},
    {KVF__W_OUT_BIAS, "h.#.attn.c_proj.bias", NULL, "C", 0},
    {KVF__W_NORM1, "h.#.ln_1.weight", NULL, "C", 0},
    {KVF__W_NORM1_BETA, "h.#.ln_1.bias", NULL, "C", 0},
    {KVF__W_UP, "h.#.mlp.c_fc.weight", NULL, "C F", KVF__W_CONV1D},
    {KVF__W_UP_BIAS, "h.#.mlp.c_fc.bias", NULL, "F", 0},
    {KVF__W_DOWN, "h.#.mlp.c_proj.weight", NULL, "F C", KVF__W_CONV1D},
    {KVF__W_DOWN_BIAS, "h.#.mlp.c_proj.bias", NULL, "C", 0},
    {KVF__W_NORM2, "h.#.ln_2.weight", NULL, "C", 0},
    {KVF__W_NORM2_BETA, "h.#.ln_2.bias", NULL, "C", 0},
    {KVF__W_HEAD, "lm_head.weight", NULL, "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
    {KVF__W_HEAD_BIAS, "lm_head.bias", NULL, "V", KVF__W_IF_HEAD_BIAS | KVF__W_OUTSIDE},
};

static const char *const gpt2_buffers[] = {"h.#.attn.bias", "h.#.attn.masked_bias", NULL};

/* What both call alike. */
#define GPT_KEYS                                                                                   \
    .width = {{"n_embd", "hidden_size"}, 0}, .layers = {{"n_layer", "num_hidden_layers"}, 0},      \
    .heads = {{"n_head", "num_attention_heads"}, 0}, .kv_heads = {{NULL}, KVF__DERIVED},           \
    .head_dim = {{NULL}, KVF__DERIVED}, .ffn = {{"n_inner"}, KVF__DERIVED},                        \
    .attention_dropout = {"attn_pdrop", 0.1}, .vocab = {{"vocab_size"}, 0},                        \
    .eps = "layer_norm_epsilon", .eps_otherwise = 1e-5

static const kvf__config_keys gpt2_keys = {
    GPT_KEYS,
    .positions = {{"n_positions", "max_position_embeddings", "n_ctx"}, 1024},
    .act = "activation_function",
};

static const kvf__config_keys openai_gpt_keys = {
    GPT_KEYS,
    .positions = {{"n_positions", "max_position_embeddings", "n_ctx"}, 512},
    .act = "afn",
    .head_bias = "lm_head_bias",
};

/* What is the same in every row. */
#define GPT_ROW                                                                                    \
    .prefix = "transformer.", .buffers = gpt2_buffers, .block.norm = KVF__LAYERNORM,               \
    .positions = KVF__POS_LEARNED, .block.act = KVF__GELU_TANH, .act_name = "gelu_new",            \
    .block.causal = true, .tied = true, .block.qkv_bias = true, .block.out_bias = true,            \
    .block.mlp_bias = true

static const kvf__arch rows[] = {
    {
        .name = "gpt2",
        .heads = "gpt2",
        .class_stem = "GPT2",
        GPT_ROW,
        .keys = &gpt2_keys,
        .weights = gpt2_weights,
        .n_weights = KVF__COUNT(gpt2_weights),
        .score_flags = true,
    },
    {
        .name = "openai-gpt",
        .class_stem = "OpenAIGPT",
        GPT_ROW,
        .keys = &openai_gpt_keys,
        .weights = openai_gpt_weights,
        .n_weights = KVF__COUNT(openai_gpt_weights),
        .gelu_is_new = true,
        .block.post_norm = true,
        .starts_at_0 = true,
    },
};

const kvf__arch_family kvf__arch_gpt = {rows, KVF__COUNT(rows)};
