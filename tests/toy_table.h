/* Tables of named tensors built in memory, like the files of a tiny Llama or GPT-2, for the tests
 * of binding and packing.
 *
 * Values are small multiples of 2^-10, exact in every float type of a table, so that hashes of the
 * bytes are constants. */
#ifndef TOY_TABLE_H
#define TOY_TABLE_H

#include "ck.h"
#include "rng.h"
#include "slot.h"

#include <stdlib.h>
#include <string.h>

#define TOY_LLAMA_OF(ffn)                                                                          \
    "{\"model_type\":\"llama\",\"vocab_size\":50,\"hidden_size\":24,\"intermediate_size\":" ffn    \
    ",\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8," \
    "\"max_position_embeddings\":64"
#define TOY_LLAMA  TOY_LLAMA_OF("40")
#define TOY_TIED   TOY_LLAMA ",\"tie_word_embeddings\":true}"
#define TOY_UNTIED TOY_LLAMA "}"
#define TOY_BIASED TOY_LLAMA ",\"attention_bias\":true,\"mlp_bias\":true}"
#define TOY_WIDE   TOY_LLAMA_OF("3104") "}" /* three planes, not all equal */
#define TOY_GPT2                                                                                   \
    "{\"model_type\":\"gpt2\",\"vocab_size\":1600,\"n_embd\":16,\"n_layer\":2,\"n_head\":2,"       \
    "\"n_positions\":20,\"n_inner\":1568}"

enum { TOY_TENSORS = 64 };

typedef struct toy_table {
    kvf_ctx *ctx;
    kvf__table table;
    kvf__rng rng;
    const char *prefix; /* in front of base-model names */
    int64_t F;          /* of Llama */
    bool gguf;
    float *data[TOY_TENSORS];
    size_t n;
} toy_table;

static inline float *toy_put(toy_table *t, const char *name, int64_t rows, int64_t cols)
{
    size_t n = (size_t)(rows * (cols ? cols : 1));
    kvf__view view = {.dtype = KVF__F32, .rank = cols ? 2 : 1, .dim = {rows, cols}};
    float *data = malloc(n * sizeof *data);

    ck_assert_uint_lt(t->n, TOY_TENSORS);
    for (size_t i = 0; i < n; i++)
        data[i] = (float)((double)kvf__rng_below(&t->rng, 2001) - 1000) / 1024;
    view.data = data;
    t->data[t->n++] = data;
    ck_assert_msg(!kvf__table_add(t->ctx, &t->table, name, view), "%s", kvf_ctx_error(t->ctx));
    return data;
}

/* A weight of the base model; '#' in its name is the layer. */
static inline float *toy_weight(toy_table *t, const char *pattern, int64_t layer, int64_t rows,
                                int64_t cols)
{
    const char *mark = strchr(pattern, '#');
    char name[128];

    if (mark)
        snprintf(name, sizeof name, "%s%.*s%lld%s", t->prefix, (int)(mark - pattern), pattern,
                 (long long)layer, mark + 1);
    else
        snprintf(name, sizeof name, "%s%s", t->prefix, pattern);
    return toy_put(t, name, rows, cols);
}

/* Rows of q and k as a GGUF has them: of each head 0, 4, 1, 5, 2, 6, 3, 7 (head size 8). */
static inline void toy_permute(float *data, int64_t rows, int64_t cols)
{
    static const int order[] = {0, 4, 1, 5, 2, 6, 3, 7};
    size_t row = (size_t)cols * sizeof *data;
    float *copy = malloc((size_t)rows * row);

    memcpy(copy, data, (size_t)rows * row);
    for (int64_t r = 0; r < rows; r++)
        memcpy(data + r * cols, copy + (r / 8 * 8 + order[r % 8]) * cols, row);
    free(copy);
}

static inline void toy_llama_biases(toy_table *t, int64_t layer)
{
    float *q = toy_weight(t, t->gguf ? "blk.#.attn_q.bias" : "layers.#.self_attn.q_proj.bias",
                          layer, 32, 0);
    float *k = toy_weight(t, t->gguf ? "blk.#.attn_k.bias" : "layers.#.self_attn.k_proj.bias",
                          layer, 16, 0);

    toy_weight(t, t->gguf ? "blk.#.attn_v.bias" : "layers.#.self_attn.v_proj.bias", layer, 16, 0);
    toy_weight(t, t->gguf ? "blk.#.attn_output.bias" : "layers.#.self_attn.o_proj.bias", layer, 24,
               0);
    toy_weight(t, t->gguf ? "blk.#.ffn_gate.bias" : "layers.#.mlp.gate_proj.bias", layer, t->F, 0);
    toy_weight(t, t->gguf ? "blk.#.ffn_up.bias" : "layers.#.mlp.up_proj.bias", layer, t->F, 0);
    toy_weight(t, t->gguf ? "blk.#.ffn_down.bias" : "layers.#.mlp.down_proj.bias", layer, 24, 0);
    if (!t->gguf) return;
    toy_permute(q, 32, 1);
    toy_permute(k, 16, 1);
}

/* The same values in both kinds of file, because tensors come in the same order; a GGUF's q and k
 * are permuted. */
static inline void toy_llama(toy_table *t, bool untied, bool biases)
{
    bool g = t->gguf;

    toy_weight(t, g ? "token_embd.weight" : "embed_tokens.weight", 0, 50, 24);
    for (int64_t l = 0; l < 2; l++) {
        toy_weight(t, g ? "blk.#.attn_norm.weight" : "layers.#.input_layernorm.weight", l, 24, 0);
        float *q = toy_weight(t, g ? "blk.#.attn_q.weight" : "layers.#.self_attn.q_proj.weight", l,
                              32, 24);
        float *k = toy_weight(t, g ? "blk.#.attn_k.weight" : "layers.#.self_attn.k_proj.weight", l,
                              16, 24);
        toy_weight(t, g ? "blk.#.attn_v.weight" : "layers.#.self_attn.v_proj.weight", l, 16, 24);
        toy_weight(t, g ? "blk.#.attn_output.weight" : "layers.#.self_attn.o_proj.weight", l, 24,
                   32);
        toy_weight(t, g ? "blk.#.ffn_norm.weight" : "layers.#.post_attention_layernorm.weight", l,
                   24, 0);
        toy_weight(t, g ? "blk.#.ffn_gate.weight" : "layers.#.mlp.gate_proj.weight", l, t->F, 24);
        toy_weight(t, g ? "blk.#.ffn_up.weight" : "layers.#.mlp.up_proj.weight", l, t->F, 24);
        toy_weight(t, g ? "blk.#.ffn_down.weight" : "layers.#.mlp.down_proj.weight", l, 24, t->F);
        if (biases) toy_llama_biases(t, l);
        if (!g) continue;
        toy_permute(q, 32, 24);
        toy_permute(k, 16, 24);
    }
    toy_weight(t, g ? "output_norm.weight" : "norm.weight", 0, 24, 0);
    if (untied) toy_put(t, g ? "output.weight" : "lm_head.weight", 50, 24);
}

static inline void toy_gpt2(toy_table *t)
{
    toy_weight(t, "wte.weight", 0, 1600, 16);
    toy_weight(t, "wpe.weight", 0, 20, 16);
    for (int64_t l = 0; l < 2; l++) {
        toy_weight(t, "h.#.ln_1.weight", l, 16, 0);
        toy_weight(t, "h.#.ln_1.bias", l, 16, 0);
        toy_weight(t, "h.#.attn.c_attn.weight", l, 16, 48);
        toy_weight(t, "h.#.attn.c_attn.bias", l, 48, 0);
        toy_weight(t, "h.#.attn.c_proj.weight", l, 16, 16);
        toy_weight(t, "h.#.attn.c_proj.bias", l, 16, 0);
        toy_weight(t, "h.#.ln_2.weight", l, 16, 0);
        toy_weight(t, "h.#.ln_2.bias", l, 16, 0);
        toy_weight(t, "h.#.mlp.c_fc.weight", l, 16, 1568);
        toy_weight(t, "h.#.mlp.c_fc.bias", l, 1568, 0);
        toy_weight(t, "h.#.mlp.c_proj.weight", l, 1568, 16);
        toy_weight(t, "h.#.mlp.c_proj.bias", l, 16, 0);
    }
    toy_weight(t, "ln_f.weight", 0, 16, 0);
    toy_weight(t, "ln_f.bias", 0, 16, 0);
}

static inline toy_table toy_begin(kvf_ctx *ctx, const char *prefix)
{
    return (toy_table){.ctx = ctx, .rng = kvf__rng_make(5, 0), .prefix = prefix, .F = 40};
}

static inline void toy_end(toy_table *t)
{
    kvf__table_done(&t->table);
    for (size_t i = 0; i < t->n; i++)
        free(t->data[i]);
    *t = (toy_table){0};
}

static inline kvf__desc toy_desc(kvf_ctx *ctx, const char *config)
{
    kvf__desc desc = {0};
    kvf_json *root = NULL;

    ck_assert_int_eq(kvf_json_parse(ctx, "toy", config, strlen(config), &root), KVF_OK);
    ck_assert_msg(!kvf__desc_from_hf(ctx, "toy", root, &desc), "%s", kvf_ctx_error(ctx));
    kvf_json_free(root);
    return desc;
}

/* The description of the same Llama in a GGUF. */
static inline kvf__desc toy_desc_gguf(kvf_ctx *ctx, const kvf__table *table)
{
    static const char meta[] =
        "{\"general.architecture\":\"llama\",\"llama.block_count\":2,\"llama.context_length\":64,"
        "\"llama.embedding_length\":24,\"llama.feed_forward_length\":40,"
        "\"llama.attention.head_count\":4,\"llama.attention.head_count_kv\":2,"
        "\"llama.attention.key_length\":8,\"llama.attention.layer_norm_rms_epsilon\":1e-6}";
    kvf__desc desc = {0};
    kvf_json *root = NULL;

    ck_assert_int_eq(kvf_json_parse(ctx, "toy", meta, strlen(meta), &root), KVF_OK);
    ck_assert_msg(!kvf__desc_from_gguf(ctx, "toy", root, table, &desc), "%s", kvf_ctx_error(ctx));
    kvf_json_free(root);
    return desc;
}

#endif
