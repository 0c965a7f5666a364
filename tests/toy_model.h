/* A tiny transformer with random weights, built in memory, and batches for it; used by the tests of
 * the pass.
 *
 * The description is read from a config as Hugging Face writes it, the weights go through bind and
 * create as those of a file would. Norm weights are near but not 1 and biases not 0, so that
 * folding them is tested too. */
#ifndef TOY_MODEL_H
#define TOY_MODEL_H

#include "ck.h"
#include "pass_int.h"
#include "rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* G < H, head_dim != C / H, tied head */
static const char *const toy_llama =
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":24,\"intermediate_size\":40,\"num_"
    "hidden_layers\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,\"max_position_"
    "embeddings\":300,"
    "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,\"hidden_act\":\"silu\",\"attention_bias\":"
    "false,"
    "\"mlp_bias\":false,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1000.0}}";

/* a norm on queries and keys; G = H */
static const char *const toy_qwen3 =
    "{\"model_type\":\"qwen3\",\"vocab_size\":61,\"hidden_size\":24,\"intermediate_size\":40,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":3,\"num_key_value_heads\":3,\"head_dim\":8,"
    "\"max_position_embeddings\":300,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,"
    "\"hidden_act\":\"silu\",\"attention_bias\":false,\"rope_theta\":1000.0}";

/* no norm before halves; norms of their outputs, of all queries, of all keys */
static const char *const toy_olmo2 =
    "{\"model_type\":\"olmo2\",\"vocab_size\":61,\"hidden_size\":24,\"intermediate_size\":40,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":6,\"num_key_value_heads\":2,"
    "\"max_position_embeddings\":300,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,"
    "\"hidden_act\":\"silu\",\"rope_theta\":1000.0,\"pad_token_id\":0}";

/* both halves on the same input; q, k and v of a head together; rope on a part of it; the second
 * with halves one after the other */
#define TOY_NEOX                                                                                   \
    "{\"model_type\":\"gpt_neox\",\"vocab_size\":61,\"hidden_size\":24,\"intermediate_size\":40,"  \
    "\"num_hidden_layers\":2,\"num_attention_heads\":3,\"max_position_embeddings\":300,"           \
    "\"hidden_act\":\"gelu\",\"rotary_emb_base\":1000,\"rotary_pct\":0.5,"                         \
    "\"tie_word_embeddings\":false"
static const char *const toy_neox = TOY_NEOX "}";
static const char *const toy_neox_serial = TOY_NEOX ",\"use_parallel_residual\":false}";

/* q, k and v in one matrix, gate and up in one of more than a plane */
static const char *const toy_phi3 =
    "{\"model_type\":\"phi3\",\"vocab_size\":61,\"hidden_size\":16,\"intermediate_size\":1600,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"max_position_embeddings\":600,\"original_max_position_embeddings\":300,"
    "\"partial_rotary_factor\":0.75,\"rope_scaling\":{\"type\":\"longrope\","
    "\"short_factor\":[1.0,1.2,1.5],\"long_factor\":[2.0,3.0,4.0]},\"tie_word_embeddings\":true}";

/* norms on both sides of halves, caps, a local and a global layer with a rope of their own; a
 * window shorter than rows */
static const char *const toy_gemma =
    "{\"model_type\":\"gemma3_text\",\"vocab_size\":61,\"hidden_size\":24,\"intermediate_size\":40,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,"
    "\"max_position_embeddings\":300,\"sliding_window\":7,\"sliding_window_pattern\":2,"
    "\"rope_theta\":1000.0,\"rope_local_base_freq\":50.0,\"query_pre_attn_scalar\":12,"
    "\"attn_logit_softcapping\":3.0,\"final_logit_softcapping\":4.0}";

/* learned positions, biases, a vocabulary of more than one plane and a feed-forward part of more
 * than one */
static const char *const toy_gpt2 = "{\"model_type\":\"gpt2\",\"vocab_size\":1600,\"n_embd\":16,"
                                    "\"n_layer\":2,\"n_head\":2,\"n_positions\":320,"
                                    "\"n_inner\":1568,\"activation_function\":\"gelu_new\",\"layer_"
                                    "norm_epsilon\":1e-5,\"tie_word_embeddings\":true,"
                                    "\"bos_token_id\":0,\"eos_token_id\":0}";

/* short convolutions; the last layer is one */
static const char *const toy_lfm2 =
    "{\"model_type\":\"lfm2\",\"vocab_size\":61,\"hidden_size\":72,\"intermediate_size\":40,"
    "\"block_auto_adjust_ff_dim\":false,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"max_position_embeddings\":300,\"conv_L_cache\":4,"
    "\"layer_types\":[\"conv\",\"full_attention\",\"conv\"],\"rope_theta\":1000.0}";

/* gated delta rules, of which a key head serves two value heads; gates on attention's output; a
 * value is wider than one block of columns */
static const char *const toy_qwen3_5 =
    "{\"model_type\":\"qwen3_5_text\",\"vocab_size\":61,\"hidden_size\":24,"
    "\"intermediate_size\":40,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"head_dim\":8,\"max_position_embeddings\":300,"
    "\"full_attention_interval\":2,\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
    "\"linear_key_head_dim\":12,\"linear_value_head_dim\":70,\"tie_word_embeddings\":true}";

typedef struct toy {
    kvf_ctx *ctx;
    kvf__table table;
    kvf__slots slots;
    kvf__model *model;
    kvf__rng rng;
    float *weights; /* all tensors back to back */
    size_t used, cap;
} toy;

static inline void toy_add(toy *t, const char *name, int rank, int64_t rows, int64_t cols)
{
    kvf__view view = {
        .data = t->weights + t->used, .dtype = KVF__F32, .rank = rank, .dim = {rows, cols}};
    if (rank > 2) { /* of a convolution by channels */
        view.dim[1] = 1;
        view.dim[2] = cols;
    }
    bool norm = strstr(name, "norm") || strstr(name, "ln_");
    double mean = norm && strstr(name, "weight") ? 1 : 0;
    double scale = rank == 1 ? 0.2 : 1 / sqrt((double)cols);
    size_t n = (size_t)kvf__view_count(&view);

    ck_assert_uint_le(t->used + n, t->cap);
    for (size_t i = 0; i < n; i++)
        t->weights[t->used + i] = (float)(mean + scale * kvf__rng_normal(&t->rng));
    t->used += n;
    ck_assert_int_eq(kvf__table_add(t->ctx, &t->table, name, view), KVF_OK);
}

static inline void toy_add_layer(toy *t, const char *stem, int64_t layer, const char *weight,
                                 int64_t rows, int64_t cols)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%lld.%s", stem, (long long)layer, weight);
    toy_add(t, name, cols ? 2 : 1, rows, cols);
}

static inline void toy_llama_weights(toy *t, const kvf__desc *d)
{
    toy_add(t, "model.embed_tokens.weight", 2, d->V, d->C);
    const char *stem = "model.layers";
    for (int64_t l = 0; l < d->L; l++) {
        toy_add_layer(t, stem, l, "input_layernorm.weight", d->C, 0);
        toy_add_layer(t, stem, l, "self_attn.q_proj.weight", d->H * d->D, d->C);
        toy_add_layer(t, stem, l, "self_attn.k_proj.weight", d->G * d->D, d->C);
        toy_add_layer(t, stem, l, "self_attn.v_proj.weight", d->G * d->D, d->C);
        if (d->block.qk_norm) {
            toy_add_layer(t, stem, l, "self_attn.q_norm.weight", d->D, 0);
            toy_add_layer(t, stem, l, "self_attn.k_norm.weight", d->D, 0);
        }
        toy_add_layer(t, stem, l, "self_attn.o_proj.weight", d->C, d->H * d->D);
        toy_add_layer(t, stem, l, "post_attention_layernorm.weight", d->C, 0);
        toy_add_layer(t, stem, l, "mlp.gate_proj.weight", d->F, d->C);
        toy_add_layer(t, stem, l, "mlp.up_proj.weight", d->F, d->C);
        toy_add_layer(t, stem, l, "mlp.down_proj.weight", d->C, d->F);
    }
    toy_add(t, "model.norm.weight", 1, d->C, 0);
}

static inline void toy_gpt2_weights(toy *t, const kvf__desc *d)
{
    toy_add(t, "transformer.wte.weight", 2, d->V, d->C);
    toy_add(t, "transformer.wpe.weight", 2, d->position.max, d->C);
    const char *stem = "transformer.h";
    for (int64_t l = 0; l < d->L; l++) {
        toy_add_layer(t, stem, l, "ln_1.weight", d->C, 0);
        toy_add_layer(t, stem, l, "ln_1.bias", d->C, 0);
        toy_add_layer(t, stem, l, "attn.c_attn.weight", d->C, 3 * d->C);
        toy_add_layer(t, stem, l, "attn.c_attn.bias", 3 * d->C, 0);
        toy_add_layer(t, stem, l, "attn.c_proj.weight", d->C, d->C);
        toy_add_layer(t, stem, l, "attn.c_proj.bias", d->C, 0);
        toy_add_layer(t, stem, l, "ln_2.weight", d->C, 0);
        toy_add_layer(t, stem, l, "ln_2.bias", d->C, 0);
        toy_add_layer(t, stem, l, "mlp.c_fc.weight", d->C, d->F);
        toy_add_layer(t, stem, l, "mlp.c_fc.bias", d->F, 0);
        toy_add_layer(t, stem, l, "mlp.c_proj.weight", d->F, d->C);
        toy_add_layer(t, stem, l, "mlp.c_proj.bias", d->C, 0);
    }
    toy_add(t, "transformer.ln_f.weight", 1, d->C, 0);
    toy_add(t, "transformer.ln_f.bias", 1, d->C, 0);
}

/* Weights of families without a definition above. */
static inline kvf_status toy_add_weight(void *user, const char *name, int rank, const int64_t *dim)
{
    toy_add(user, name, rank, dim[0], rank > 1 ? dim[rank - 1] : 0);
    return KVF_OK;
}

/* True: an untied head, if the config has one, is among them. */
static inline bool toy_weights(toy *t, const kvf__desc *desc)
{
    if (!strcmp(desc->arch_name, "llama") || !strcmp(desc->arch_name, "qwen3"))
        toy_llama_weights(t, desc);
    else if (!strcmp(desc->arch_name, "gpt2"))
        toy_gpt2_weights(t, desc);
    else
        return kvf__desc_weights(desc, toy_add_weight, t) == KVF_OK;
    return false;
}

/* Two threads, so that work is divided on any machine. */
static inline void toy_create_as(toy *t, const char *config,
                                 const kvf__model_options *model_options)
{
    const kvf_ctx_options options = {.threads = 2};
    kvf_json *json = NULL;
    kvf__desc desc = {0};

    *t = (toy){.rng = kvf__rng_make(11, 0), .cap = 200000};
    ck_assert_int_eq(kvf_ctx_create(&options, &t->ctx), KVF_OK);
    ck_assert_int_eq(kvf__alloc_array(t->ctx, t->cap, sizeof(float), &t->weights), KVF_OK);
    ck_assert_int_eq(kvf_json_parse(t->ctx, "toy", config, strlen(config), &json), KVF_OK);
    ck_assert_msg(!kvf__desc_from_hf(t->ctx, "toy", json, &desc), "%s", kvf_ctx_error(t->ctx));
    toy_weights(t, &desc);
    ck_assert_msg(!kvf__bind(t->ctx, "toy", &desc, &t->table, &t->slots), "%s",
                  kvf_ctx_error(t->ctx));
    ck_assert_msg(!kvf__model_create(t->ctx, &desc, &t->slots, model_options, &t->model), "%s",
                  kvf_ctx_error(t->ctx));
    kvf__desc_done(&desc);
    kvf_json_free(json);
}

static inline void toy_create(toy *t, const char *config, kvf__dtype act)
{
    const kvf__model_options model_options = {.act = act, .backward = true};
    toy_create_as(t, config, &model_options);
}

static inline void toy_free(toy *t)
{
    kvf__model_free(t->model);
    kvf__slots_done(&t->slots);
    kvf__table_done(&t->table);
    kvf__free(t->weights);
    kvf_ctx_free(t->ctx);
}

/* ---- batches and prefixes -------------------------------------------------------------------- */

enum { TOY_ROWS = 16, TOY_TOKENS = 640 };

typedef struct toy_batch {
    kvf__batch b;
    int64_t start[TOY_ROWS + 1], example[TOY_ROWS];
    int32_t ids[TOY_TOKENS], label_at[TOY_TOKENS], label_id[TOY_TOKENS];
} toy_batch;

/* Rows of the given lengths (a 0 ends the list) with random ids. Labels are on the last `share` of
 * every row: the next id, and for the row's last token a random id. */
static inline void toy_batch_make(toy_batch *t, const kvf__desc *d, const int64_t *lengths,
                                  double share, uint64_t seed)
{
    kvf__rng rng = kvf__rng_make(seed, 1);
    kvf__batch *b = &t->b;

    *t = (toy_batch){.b = {.start = t->start,
                           .ids = t->ids,
                           .label_at = t->label_at,
                           .label_id = t->label_id,
                           .example = t->example}};
    for (; lengths[b->n_rows]; b->n_rows++) {
        int64_t first = b->n_tokens, n = lengths[b->n_rows];
        ck_assert_int_le(first + n, TOY_TOKENS - 1);
        for (int64_t i = 0; i <= n; i++) /* one more than the row has: its last label */
            t->ids[first + i] = (int32_t)kvf__rng_below(&rng, (uint64_t)d->V);
        for (int64_t i = n - (int64_t)(share * (double)n + 0.5); i < n; i++) {
            t->label_at[b->n_labels] = (int32_t)(first + i);
            t->label_id[b->n_labels++] = t->ids[first + i + 1];
        }
        b->n_tokens += n;
        t->start[b->n_rows + 1] = b->n_tokens;
    }
}

static inline void toy_prefix(const toy *t, kvf__prefix *prefix, int64_t P, double scale)
{
    const kvf__kv_shape shape = kvf__desc_kv(kvf__model_desc(t->model));
    kvf__rng rng = kvf__rng_make(77, 2);

    ck_assert_int_eq(kvf__prefix_create(t->ctx, prefix, &shape, P), KVF_OK);
    for (size_t i = 0; i < kvf__prefix_count(prefix); i++)
        prefix->kv[i] = (float)(scale * kvf__rng_normal(&rng));
}

static inline kvf__pass *toy_pass(const toy *t)
{
    const kvf__pass_limits limits = {.rows = TOY_ROWS,
                                     .tokens = TOY_TOKENS,
                                     .row_len = 290,
                                     .labels = TOY_TOKENS,
                                     .P = 12,
                                     .cache_len = 64,
                                     .backward = true};
    kvf__pass *pass = NULL;
    ck_assert_msg(!kvf__pass_create(t->ctx, t->model, &limits, &pass), "%s", kvf_ctx_error(t->ctx));
    return pass;
}

/* One forward pass; positions start after the prefix. */
static inline void toy_fwd(const toy *t, kvf__pass *pass, const kvf__batch *batch,
                           const kvf__prefix *prefix)
{
    const kvf__input input = {.batch = batch,
                              .condition.prefix = prefix,
                              .condition.position_start = prefix ? prefix->P : 0};
    ck_assert_msg(!kvf__pass_fwd(t->ctx, pass, &input), "%s", kvf_ctx_error(t->ctx));
}

static inline double toy_loss(const toy *t, kvf__pass *pass, const kvf__batch *batch,
                              const kvf__prefix *prefix)
{
    double loss = 0;
    toy_fwd(t, pass, batch, prefix);
    ck_assert_msg(!kvf__pass_loss(t->ctx, pass, &(kvf__loss){.scale = 1}, &loss), "%s",
                  kvf_ctx_error(t->ctx));
    return loss;
}

/* Loss, and into dprefix (zeroed first) the gradient of scale * loss. */
static inline double toy_gradient(const toy *t, kvf__pass *pass, const kvf__batch *batch,
                                  const kvf__prefix *prefix, float scale, kvf__prefix *dprefix)
{
    double loss = 0;
    toy_fwd(t, pass, batch, prefix);
    memset(dprefix->kv, 0, kvf__prefix_count(dprefix) * sizeof(float));
    if (dprefix->state) memset(dprefix->state, 0, (size_t)dprefix->states * sizeof(float));
    ck_assert_msg(
        !kvf__pass_loss(t->ctx, pass, &(kvf__loss){.gradient = true, .scale = scale}, &loss), "%s",
        kvf_ctx_error(t->ctx));
    ck_assert_msg(!kvf__pass_bwd(t->ctx, pass, &(kvf__grads){.prefix = dprefix}), "%s",
                  kvf_ctx_error(t->ctx));
    return loss;
}

#endif
