/* The tiny models made with transformers by tests/golden/make_model_golden.py,
 * make_encoder_golden.py and make_seq2seq_golden.py. Opens them with the batch and the prefix
 * stored with their weights. */
#ifndef GOLDEN_MODEL_H
#define GOLDEN_MODEL_H

#include "ck.h"
#include "file_int.h"
#include "pass_int.h"

#include <stdlib.h>
#include <string.h>

enum { GOLDEN_ROWS = 8 };

typedef struct golden {
    kvf_ctx *ctx;
    kvf__weights weights;
    kvf__slots slots;
    kvf__model *model;
    kvf__pass *pass;
    kvf__prefix prefix;
    kvf__batch batch;
    int64_t start[GOLDEN_ROWS + 1];
    kvf__batch source; /* of an encoder-decoder */
    int64_t source_start[GOLDEN_ROWS + 1];
    int64_t position_start; /* after the prefix */
} golden;

static inline const kvf__view *golden_view(const golden *g, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "golden.%s", name);
    const kvf__view *view = kvf__table_find(&g->weights.table, full);
    ck_assert_msg(view != NULL, "no tensor %s", full);
    return view;
}

/* "MODEL.what" of another file in the models' folder; its numbers are aligned (checked). */
static inline const void *golden_stored(const kvf__weights *file, const char *model,
                                        const char *what)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", model, what);
    const kvf__view *view = kvf__table_find(&file->table, full);
    ck_assert_msg(view != NULL, "no tensor %s", full);
    ck_assert_uint_eq((uintptr_t)view->data % sizeof(float), 0);
    return view->data;
}

/* A copy, because tensors in a file need not be aligned. */
static inline void *golden_values(const golden *g, const char *name, int64_t *n)
{
    const kvf__view *view = golden_view(g, name);
    void *copy = malloc(kvf__view_bytes(view));
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, view->data, kvf__view_bytes(view));
    if (n) *n = kvf__view_count(view);
    return copy;
}

static inline int64_t golden_rows(golden *g, const char *name, int64_t start[GOLDEN_ROWS + 1])
{
    int64_t n_rows;
    int32_t *lengths = golden_values(g, name, &n_rows);

    ck_assert_int_le(n_rows, GOLDEN_ROWS);
    for (int64_t r = 0; r < n_rows; r++)
        start[r + 1] = start[r] + lengths[r];
    free(lengths);
    return n_rows;
}

static inline void golden_batch(golden *g)
{
    g->batch.n_rows = golden_rows(g, "lengths", g->start);
    g->batch.start = g->start;
    g->batch.ids = golden_values(g, "ids", &g->batch.n_tokens);
    g->batch.label_at = golden_values(g, "label_at", &g->batch.n_labels);
    if (kvf__table_find(&g->weights.table, "golden.label_id"))
        g->batch.label_id = golden_values(g, "label_id", NULL);
    if (kvf__table_find(&g->weights.table, "golden.types"))
        g->batch.types = golden_values(g, "types", NULL);
    if (kvf__table_find(&g->weights.table, "golden.position_start")) {
        int32_t *start = golden_values(g, "position_start", NULL);
        g->position_start = *start;
        free(start);
    }
    if (!kvf__table_find(&g->weights.table, "golden.source_ids")) return;
    g->source.n_rows = golden_rows(g, "source_lengths", g->source_start);
    g->source.start = g->source_start;
    g->source.ids = golden_values(g, "source_ids", &g->source.n_tokens);
    g->batch.source = &g->source;
}

/* The context, the file's tensors, the description. */
static inline kvf__desc golden_open(golden *g, const char *name)
{
    const kvf_ctx_options options = {.threads = 2};
    char path[128];
    kvf_json *config = NULL;
    kvf__desc desc = {0};

    *g = (golden){0};
    snprintf(path, sizeof path, "tests/golden/model_%s/config.json", name);
    ck_assert_int_eq(kvf_ctx_create(&options, &g->ctx), KVF_OK);
    ck_assert_msg(!kvf_json_load(g->ctx, ck_source(path), &config), "%s", kvf_ctx_error(g->ctx));
    ck_assert_msg(!kvf__desc_from_hf(g->ctx, path, config, &desc), "%s", kvf_ctx_error(g->ctx));
    *strrchr(path, '/') = 0;
    ck_assert_msg(!kvf__safetensors_open_dir(g->ctx, ck_source(path), &g->weights), "%s",
                  kvf_ctx_error(g->ctx));
    kvf_json_free(config);
    return desc;
}

/* Builds the model of a description and its tensors, the batch, the prefix, and a pass. Takes
 * ownership of the description. */
static inline void golden_pack_as(golden *g, kvf__desc *desc, const kvf__table *table,
                                  const kvf__model_options *model_options)
{
    ck_assert_msg(!kvf__bind(g->ctx, "golden", desc, table, &g->slots), "%s",
                  kvf_ctx_error(g->ctx));
    ck_assert_msg(!kvf__model_create(g->ctx, desc, &g->slots, model_options, &g->model), "%s",
                  kvf_ctx_error(g->ctx));
    golden_batch(g);

    const kvf__view *prefix = golden_view(g, "prefix"); /* [L, 2, G, P, D], or layer after layer */
    const kvf__kv_shape shape = kvf__desc_kv(kvf__model_desc(g->model));
    const int64_t P = kvf__view_count(prefix) / (2 * kvf__kv_at(&shape, shape.L).width);
    ck_assert_int_eq(prefix->rank, shape.heads ? 1 : 5);
    ck_assert_int_eq(kvf__prefix_create(g->ctx, &g->prefix, &shape, P), KVF_OK);
    ck_assert_uint_eq(kvf__view_count(prefix), kvf__prefix_count(&g->prefix));
    memcpy(g->prefix.kv, prefix->data, kvf__view_bytes(prefix));
    const kvf__pass_limits limits = {.rows = GOLDEN_ROWS,
                                     .tokens = g->batch.n_tokens,
                                     .row_len = 64,
                                     .labels = g->batch.n_labels,
                                     .P = g->prefix.P,
                                     .source_tokens = g->source.n_tokens,
                                     .source_len = g->source.n_tokens ? 64 : 0,
                                     .backward = true};
    ck_assert_msg(!kvf__pass_create(g->ctx, g->model, &limits, &g->pass), "%s",
                  kvf_ctx_error(g->ctx));
    kvf__desc_done(desc);
}

/* Of the shape of the prefix. */
static inline kvf__prefix golden_gradient(golden *g)
{
    const kvf__kv_shape shape = kvf__prefix_shape(&g->prefix);
    kvf__prefix grad = {0};

    ck_assert_int_eq(kvf__prefix_create(g->ctx, &grad, &shape, g->prefix.P), KVF_OK);
    return grad;
}

static inline void golden_pack(golden *g, kvf__desc *desc, const kvf__table *table, kvf__dtype act)
{
    const kvf__model_options model_options = {.act = act, .backward = true};
    golden_pack_as(g, desc, table, &model_options);
}

static inline void golden_load(golden *g, const char *name, kvf__dtype act)
{
    kvf__desc desc = golden_open(g, name);
    golden_pack(g, &desc, &g->weights.table, act);
}

static inline void golden_unload(golden *g)
{
    free((void *)g->batch.ids);
    free((void *)g->batch.label_at);
    free((void *)g->batch.label_id);
    free((void *)g->batch.types);
    free((void *)g->source.ids);
    kvf__prefix_done(&g->prefix);
    kvf__pass_free(g->pass);
    kvf__model_free(g->model);
    kvf__slots_done(&g->slots);
    kvf__weights_close(&g->weights);
    kvf_ctx_free(g->ctx);
}

#endif
