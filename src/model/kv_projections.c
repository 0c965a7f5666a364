/* The raw key and value projections of every layer, for method `projected` (kv_projection.h). The
 * packed model has them norm-folded and possibly in bf16. A fold must not depend on that, so they
 * are read again as f32. */
#include "model_priv.h"
#include "names.h"
#include "slot.h"

#include <string.h>

/* Reads outputs first .. first + n - 1 of a dense layer: out [n, C], followed by the bias, if any.
 */
static kvf_status read_outputs(kvf_ctx *ctx, const kvf__slot *weight, const kvf__slot *bias,
                               int64_t first, int64_t n, int64_t C, float *out)
{
    float *whole = NULL;

    KVF_TRY(kvf__slot_outputs(ctx, weight, first, NULL, n, out));
    if (!bias) return KVF_OK;
    KVF_TRY(kvf__slot_f32(ctx, bias, &whole));
    memcpy(out + n * C, whole + first, (size_t)n * sizeof *out);
    kvf__free(whole);
    return KVF_OK;
}

/* Reads a key or value projection: its own weight, or a part of the fused one. *at advances past
 * it. */
static kvf_status read_part(kvf_ctx *ctx, const kvf__desc *d, const kvf__slots *slots, int64_t l,
                            bool value, float **at, const float **w, const float **b)
{
    const kvf__layer_shape layer = kvf__desc_layer(d, l);
    const bool own = value && !layer.k_is_v;
    int64_t n = layer.G * layer.D, first = 0;
    const kvf__slot *weight = kvf__slot_of(d, slots, own ? KVF__W_V : KVF__W_K, l);
    const kvf__slot *bias = kvf__slot_of(d, slots, own ? KVF__W_V_BIAS : KVF__W_K_BIAS, l);

    if (!weight) {
        weight = kvf__slot_of(d, slots, KVF__W_QKV, l);
        bias = kvf__slot_of(d, slots, KVF__W_QKV_BIAS, l);
        first = d->H * layer.D + (value ? n : 0);
    }
    KVF_TRY(read_outputs(ctx, weight, bias, first, n, d->C, *at));
    *w = *at;
    *at += n * d->C;
    if (!bias) return KVF_OK;
    *b = *at;
    *at += n;
    return KVF_OK;
}

static kvf_status read_layer(kvf_ctx *ctx, const kvf__desc *d, const kvf__slots *slots, int64_t l,
                             float *at, kvf__kv_projection *out)
{
    const kvf__layer_shape layer = kvf__desc_layer(d, l);
    const kvf__slot *norm = d->block.qk_norm ? kvf__slot_of(d, slots, KVF__W_K_NORM, l) : NULL;

    out->C = d->C;
    out->G = layer.G;
    out->D = layer.D;
    out->eps = d->norm_eps;
    KVF_TRY(read_part(ctx, d, slots, l, false, &at, &out->wk, &out->bk));
    KVF_TRY(read_part(ctx, d, slots, l, true, &at, &out->wv, &out->bv));
    if (!norm) return KVF_OK;
    out->k_norm_whole = d->block.qk_norm == KVF__QK_WHOLE;
    for (int64_t g = 0; g < (out->k_norm_whole ? 1 : layer.G); g++)
        kvf__slot_row(norm, 0, at + g * layer.D);
    out->k_norm = at;
    if (!d->block.v_norm) return KVF_OK;
    at += layer.G * layer.D;
    for (int64_t i = 0; i < layer.G * layer.D; i++)
        at[i] = 1;
    out->v_norm = at;
    return KVF_OK;
}

/* Copies n cosines and n sines; returns the memory after them. */
static float *copy_table(const kvf__rope_table *table, size_t n, float *to)
{
    memcpy(to, table->cos, n * sizeof *to);
    memcpy(to + n, table->sin, n * sizeof *to);
    return to + 2 * n;
}

/* Sets up cosines, sines (separate for local layers if needed) and positions 0 .. P-1. */
static kvf_status put_tables(kvf_ctx *ctx, kvf__model *model, kvf__kv_projections *all)
{
    const kvf__desc *d = &model->desc;
    const size_t n = (size_t)(all->P * (d->position.rotated / 2)),
                 local = model->local_rope.cos ? (size_t)(all->P * (d->position.local_rotated / 2))
                                               : 0;

    if (d->position.kind != KVF__POS_ROPE) return KVF_OK;
    KVF_TRY(kvf__rope_tables(ctx, model, all->P));
    KVF_TRY(kvf__alloc_array(ctx, 2 * (n + local) + (size_t)all->P, sizeof(float), &all->tables));
    float *end = copy_table(&model->rope, n, all->tables);
    if (local) end = copy_table(&model->local_rope, local, end);
    int32_t *position = (int32_t *)(void *)end;
    for (int64_t p = 0; p < all->P; p++)
        position[p] = (int32_t)p;
    for (int64_t l = 0; l < all->L; l++) {
        const bool is_local = kvf__rope_of(model, l) != &model->rope;
        const float *table = all->tables + (is_local ? 2 * n : 0);
        all->layer[l].R = kvf__desc_layer(d, l).R;
        all->layer[l].cos = table;
        all->layer[l].sin = table + (is_local ? local : n);
        all->layer[l].position = position;
    }
    return KVF_OK;
}

kvf_status kvf__model_kv_projections(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                                     int64_t P, kvf__kv_projections *out)
{
    const kvf__desc *d = &model->desc;
    kvf__kv_projections all = {.L = kvf__desc_kv(d).L, .P = P};
    int64_t each = kvf__shape_most(d, "GD") * (2 * d->C + 4); /* weights, biases, norms */

    if (d->mixer.kind)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s has layers without attention, for which nothing can be projected: use "
                         "method mlp or direct",
                         d->arch_name);
    kvf_status st = kvf__alloc_array(ctx, (size_t)all.L, sizeof *all.layer, &all.layer);
    if (!st) st = kvf__alloc_array(ctx, (size_t)(all.L * each), sizeof(float), &all.weights);
    for (int64_t l = 0; l < all.L && !st; l++)
        st = read_layer(ctx, d, slots, l, all.weights + l * each, &all.layer[l]);
    if (!st) st = put_tables(ctx, model, &all);
    KVF__GIVE(st, out, all, kvf__kv_projections_done(&all));
    return st;
}
