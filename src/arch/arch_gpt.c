/* GPT-2 (modeling_gpt2.py) and the GPT before it (modeling_openai.py): learned positions,
 * LayerNorm, Conv1D weights. GGUF names are those of llama.cpp's converter (gguf-py, constants.py).
 */
#include "arch.h"

/* Shapes of Conv1D weights as stored by Hugging Face, [in, out]. */
static const kvf__weight gpt2_weights[] = {
    {KVF__W_TOKENS, "wte.weight", "token_embd.weight", "V C", 0},
    {KVF__W_POSITIONS, "wpe.weight", "position_embd.weight", "X C", 0},
    KVF__NORM(NORM1, "h.#.ln_1", "blk.#.attn_norm", "C"),
    KVF__DENSE(QKV, "h.#.attn.c_attn", "blk.#.attn_qkv", "C SD", "SD", KVF__W_CONV1D,
               KVF__W_IF_QKV),
    KVF__DENSE(OUT, "h.#.attn.c_proj", "blk.#.attn_output", "HD C", "C", KVF__W_CONV1D,
               KVF__W_IF_OUT),
    KVF__NORM(NORM2, "h.#.ln_2", "blk.#.ffn_norm", "C"),
    KVF__DENSE(UP, "h.#.mlp.c_fc", "blk.#.ffn_up", "C F", "F", KVF__W_CONV1D, KVF__W_IF_MLP),
    KVF__DENSE(DOWN, "h.#.mlp.c_proj", "blk.#.ffn_down", "F C", "C", KVF__W_CONV1D, KVF__W_IF_MLP),
    KVF__NORM(FINAL, "ln_f", "output_norm", "C"),
    {KVF__W_HEAD, "lm_head.weight", "output.weight", "V C", KVF__W_IF_UNTIED | KVF__W_OUTSIDE},
};

/* The first GPT: norms after the sums, no final norm. Hugging Face's head is tied and has no bias;
 * lm_head_bias is a key of kvfold, for bases made here. */
static const kvf__weight openai_gpt_weights[] = {
    {KVF__W_TOKENS, "tokens_embed.weight", NULL, "V C", 0},
    {KVF__W_POSITIONS, "positions_embed.weight", NULL, "X C", 0},
    KVF__HF_DENSE(QKV, "h.#.attn.c_attn", "C SD", "SD", KVF__W_CONV1D, 0),
    KVF__HF_DENSE(OUT, "h.#.attn.c_proj", "HD C", "C", KVF__W_CONV1D, 0),
    KVF__HF_NORM(NORM1, "h.#.ln_1", "C", 0),
    KVF__HF_DENSE(UP, "h.#.mlp.c_fc", "C F", "F", KVF__W_CONV1D, 0),
    KVF__HF_DENSE(DOWN, "h.#.mlp.c_proj", "F C", "C", KVF__W_CONV1D, 0),
    KVF__HF_NORM(NORM2, "h.#.ln_2", "C", 0),
    KVF__HF_DENSE(HEAD, "lm_head", "V C", "V", KVF__W_IF_UNTIED | KVF__W_OUTSIDE,
                  KVF__W_IF_HEAD_BIAS | KVF__W_OUTSIDE),
};

static const char *const gpt2_buffers[] = {"h.#.attn.bias", "h.#.attn.masked_bias", NULL};

/* Keys that both share. */
#define GPT_KEYS                                                                                   \
    .width = {{"n_embd", "hidden_size"}, 0}, .layers = {{"n_layer", "num_hidden_layers"}, 0},      \
    .heads = {{"n_head", "num_attention_heads"}, 0}, .ffn = {{"n_inner"}, KVF__DERIVED},           \
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

/* Values that do not depend on the row. */
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
        KVF__WEIGHTS(gpt2_weights),
        .score_flags = true,
    },
    {
        .name = "openai-gpt",
        .class_stem = "OpenAIGPT",
        .heads = "scored",
        GPT_ROW,
        .keys = &openai_gpt_keys,
        KVF__WEIGHTS(openai_gpt_weights),
        .gelu_is_new = true,
        .block.post_norm = true,
        .starts_at_0 = true,
    },
};

const kvf__arch_family kvf__arch_gpt = {rows, KVF__COUNT(rows)};
