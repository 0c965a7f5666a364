/* Rotary positions: tables of cosines and sines, and moving keys from one position to another.
 *
 * Angles are f32, as in transformers (rope.c); cosines and sines are computed in double and rounded
 * once. The tables grow on demand, because configs often declare 131072 positions. */
#include "model_priv.h"

#include <math.h>
#include <string.h>

/* Parameters of a table of cosines and sines. */
typedef struct angles {
    const float *inv_freq; /* [n] */
    int64_t n;
    float scale;
} angles;

static void fill_rows(const angles *by, float *cos_table, float *sin_table, int64_t from,
                      int64_t to)
{
    const int64_t n = by->n;

#pragma omp parallel for schedule(static)
    for (int64_t t = from; t < to; t++) {
        for (int64_t i = 0; i < n; i++) {
            float angle = (float)t * by->inv_freq[i];
            cos_table[t * n + i] = (float)cos((double)angle) * by->scale;
            sin_table[t * n + i] = (float)sin((double)angle) * by->scale;
        }
    }
}

static kvf_status extend_table(kvf_ctx *ctx, const angles *by, kvf__rope_table *table, int64_t rows)
{
    size_t n = (size_t)by->n, have = (size_t)table->rows, bytes;
    float *cos_table = NULL, *sin_table = NULL;

    if (!kvf__mul((size_t)rows, n * sizeof(float), &bytes))
        return kvf__fail(ctx, KVF_ENOMEM,
                         "out of memory: rope tables of %lld rows are more than memory can address",
                         (long long)rows);
    kvf_status st = kvf__alloc(ctx, bytes, &cos_table);
    if (st) goto out;
    st = kvf__alloc(ctx, bytes, &sin_table);
    if (st) goto out;

    if (have) {
        memcpy(cos_table, table->cos, have * n * sizeof *cos_table);
        memcpy(sin_table, table->sin, have * n * sizeof *sin_table);
    }
    fill_rows(by, cos_table, sin_table, table->rows, rows);
    kvf__free(table->cos);
    kvf__free(table->sin);
    table->cos = cos_table;
    table->sin = sin_table;
    table->rows = rows;
    cos_table = sin_table = NULL;
out:
    kvf__free(cos_table);
    kvf__free(sin_table);
    return st;
}

kvf_status kvf__rope_tables(kvf_ctx *ctx, kvf__model *model, int64_t rows)
{
    const kvf__positions *p = &model->desc.position;
    const angles all = {p->inv_freq, p->rotated / 2, p->scale};
    const angles local = {p->local_inv_freq, p->local_rotated / 2, 1};

    if (p->kind != KVF__POS_ROPE || rows <= model->rope.rows) return KVF_OK;
    if (rows > p->max)
        return kvf__fail(ctx, KVF_ESHAPE, "position %lld is past the model's %lld positions",
                         (long long)rows - 1, (long long)p->max);
    if (local.inv_freq && rows > model->local_rope.rows)
        KVF_TRY(extend_table(ctx, &local, &model->local_rope, rows));
    return extend_table(ctx, &all, &model->rope, rows);
}

const kvf__rope_table *kvf__rope_of(const kvf__model *model, int64_t layer)
{
    const bool local = kvf__positions_window(&model->desc.position, layer) > 0;
    return local && model->local_rope.cos ? &model->local_rope : &model->rope;
}

/* Grows by doubling, because generation appends one token at a time. */
kvf_status kvf__rope_extend(kvf_ctx *ctx, kvf__model *model, const int32_t *position, int64_t n)
{
    int64_t rows = 0, twice = 2 * model->rope.rows, most = model->desc.position.max;

    if (model->desc.position.kind != KVF__POS_ROPE) return KVF_OK;
    for (int64_t i = 0; i < n; i++)
        if (position[i] >= rows) rows = position[i] + 1;
    if (rows <= model->rope.rows) return KVF_OK;
    if (rows < twice) rows = twice < most ? twice : most;
    return kvf__rope_tables(ctx, model, rows);
}

/* Rotates (a, b) by the angle between two positions. */
static void rotate_pair(float *a, float *b, double cosine, double sine)
{
    double x = *a, y = *b;
    *a = (float)(x * cosine - y * sine);
    *b = (float)(y * cosine + x * sine);
}

/* Returns the angle of a layer's frequency i as fill_rows computes it: the products round to f32,
 * their difference does not. */
static double angle_between(const kvf__desc *desc, int64_t l, int64_t i, int64_t from, int64_t to)
{
    const kvf__positions *p = &desc->position;
    const bool local = p->local_inv_freq && kvf__positions_window(p, l);
    const float *inv_freq = local ? p->local_inv_freq : p->inv_freq;

    return (double)((float)to * inv_freq[i]) - (double)((float)from * inv_freq[i]);
}

void kvf__rope_move_key(const kvf__desc *desc, int64_t l, float *k, int64_t from, int64_t to)
{
    const int64_t n = kvf__desc_layer(desc, l).R / 2;

    if (desc->position.kind != KVF__POS_ROPE || from == to) return;
    for (int64_t i = 0; i < n; i++) {
        double angle = angle_between(desc, l, i, from, to);
        rotate_pair(&k[i], &k[i + n], cos(angle), sin(angle));
    }
}

void kvf__rope_move(const kvf__desc *desc, kvf__prefix *prefix, int64_t from, int64_t to)
{
    if (desc->position.kind != KVF__POS_ROPE || from == to) return;
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < prefix->P; p++)
        for (int64_t l = 0; l < prefix->L; l++) {
            const kvf__prefix_layer at = kvf__prefix_at(prefix, l);
            const int64_t n = kvf__desc_layer(desc, l).R / 2;
            for (int64_t i = 0; i < n; i++) {
                double angle = angle_between(desc, l, i, from + p, to + p);
                double cosine = cos(angle), sine = sin(angle);
                for (int64_t row = p; row < at.G * prefix->P; row += prefix->P) {
                    float *k = at.k + row * at.D;
                    rotate_pair(&k[i], &k[i + n], cosine, sine);
                }
            }
        }
}
