/* The prefix inside rows: [x][prefix][y], the infix of Li & Liang 2021, section 7.4. x is a
 * separate row before y's, a common prefix or a cached one, without a prefix segment; y's row has
 * the segment. So attention needs no special case.
 *
 * On a base with rope the prefix keys are not rotated beforehand, since their position differs by
 * row. Each row that attends to the prefix gets a copy of a layer's prefix, rotated to its place,
 * when that layer is reached, as for row dropout. Gradients are rotated back (the transpose of a
 * rotation) and added in row order. Learned positions do not affect keys, so all rows share the
 * prefix. */
#include "attention.h"
#include "pass_priv.h"

#include <string.h>

bool kvf__pass_row_sees(const kvf__pass *pass, int64_t r)
{
    return !pass->batch->infix_at || pass->batch->infix_at[r] >= 0;
}

int64_t kvf__infix_shift(const kvf__batch *batch, const kvf__prefix *prefix, int64_t r)
{
    return prefix && batch->infix_at && batch->infix_at[r] >= 0 ? prefix->P : 0;
}

/* Returns the tokens before a row's own. */
static int64_t tokens_before(const kvf__pass *pass, const kvf__input *input, int64_t r)
{
    if (!input->cache) return pass->keys.offset[r];
    return kvf__cache_length(input->cache, kvf__row_slot(input->slot, r));
}

static kvf_status check_row(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input, int64_t r)
{
    int64_t at = input->batch->infix_at[r], before = tokens_before(pass, input, r);

    if (at == -1 || (at >= 0 && (input->cache ? at <= before : at == before))) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE,
                     "batch row %lld: the prefix follows %lld tokens, the row follows %lld",
                     (long long)r, (long long)at, (long long)before);
}

kvf_status kvf__pass_set_infix(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input)
{
    const kvf__batch *b = input->batch;

    pass->own.rotates = false;
    pass->position_start = input->condition.position_start;
    if (!b->infix_at) return KVF_OK;
    for (int64_t r = 0; r < b->n_rows; r++)
        KVF_TRY(check_row(ctx, pass, input, r));
    pass->own.rotates = pass->prefix && pass->model->desc.position.kind == KVF__POS_ROPE;
    if (!pass->own.rotates) return KVF_OK;
    if (!pass->limits.infix)
        return kvf__fail(ctx, KVF_EUSAGE, "pass: it was made without a prefix inside rows");
    if (input->row_dropout && input->row_dropout->p > 0)
        return kvf__fail(ctx, KVF_EUSAGE, "pass: a prefix inside rows excludes dropout by rows");
    return KVF_OK;
}

/* ---- copies of row_kv, [R, 2, G, P, D] ------------------------------------------------------- */

/* Adds a key rotated by a row of the tables, half-split pairs (i, i + R/2), to `to`; back: by its
 * transpose. Elements from R on are not rotated. */
static void add_rotated(float *to, const float *from, const float *c, const float *s, int64_t D,
                        int64_t R, bool back)
{
    int64_t half = R / 2;

    for (int64_t i = 0; i < half; i++) {
        const float a = from[i], b = from[i + half], sine = back ? -s[i] : s[i];
        to[i] += a * c[i] - b * sine;
        to[i + half] += b * c[i] + a * sine;
    }
    for (int64_t i = R; i < D; i++)
        to[i] += from[i];
}

/* Rotates keys [G, P, D] of layer l, each by its position, the first at `first`. */
static void rotate_keys(const kvf__model *m, int64_t l, const kvf__prefix *p, int64_t first,
                        float *to, const float *from, bool back)
{
    const kvf__rope_table *table = kvf__rope_of(m, l);
    const kvf__layer_shape layer = kvf__desc_layer(&m->desc, l);
    int64_t R = layer.R, half = R / 2;

    for (int64_t g = 0; g < layer.G; g++)
        for (int64_t i = 0; i < p->P; i++) {
            int64_t at = (g * p->P + i) * layer.D, row = (first + i) * half;
            add_rotated(to + at, from + at, table->cos + row, table->sin + row, layer.D, R, back);
        }
}

static int64_t first_position(const kvf__pass *pass, int64_t r)
{
    return pass->position_start + pass->batch->infix_at[r];
}

void kvf__pass_rotate_rows(kvf__pass *pass, int64_t l, bool gradient)
{
    const kvf__prefix *p = pass->prefix;
    const kvf__prefix_layer at = kvf__prefix_at(p, l);
    const int64_t half = at.n;

#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < pass->batch->n_rows; r++) {
        float *row = pass->own.kv + 2 * r * half;
        if (!kvf__pass_row_sees(pass, r)) continue;
        memset(row, 0, (size_t)half * sizeof *row);
        rotate_keys(pass->model, l, p, first_position(pass, r), row, at.k, false);
        memcpy(row + half, at.v, (size_t)half * sizeof *row);
        if (gradient) memset(pass->own.dkv + 2 * r * half, 0, (size_t)(2 * half) * sizeof *row);
    }
}

void kvf__pass_collect_rotated(kvf__pass *pass, int64_t l, kvf__prefix *dprefix)
{
    if (!pass->own.rotates || !dprefix) return;
    const kvf__prefix_layer to = kvf__prefix_at(dprefix, l);
    const int64_t half = to.n;

    for (int64_t r = 0; r < pass->batch->n_rows; r++) {
        const float *row = pass->own.dkv + 2 * r * half;
        if (!kvf__pass_row_sees(pass, r)) continue;
        rotate_keys(pass->model, l, dprefix, first_position(pass, r), to.k, row, true);
        for (int64_t i = 0; i < half; i++)
            to.v[i] += row[half + i];
    }
}

/* ---- whole prefixes -------------------------------------------------------------------------- */

kvf_status kvf__model_rotate_prefix(kvf_ctx *ctx, kvf__model *model, kvf__prefix *to,
                                    const kvf__prefix *from, int64_t first, bool back)
{
    size_t count = kvf__prefix_count(from);
    const float scale = model->desc.position.scale;

    if (from != to) memcpy(to->layer_mask, from->layer_mask, (size_t)from->L);
    if (from != to) memcpy(to->kv, from->kv, count * sizeof *to->kv);
    if (from != to) KVF_TRY(kvf__prefix_take_weights(ctx, to, from));
    if (model->desc.position.kind != KVF__POS_ROPE || !from->P) return KVF_OK;
    KVF_TRY(kvf__rope_tables(ctx, model, first + from->P));
    float *keys = NULL;
    KVF_TRY(kvf__alloc_array(ctx, count, sizeof *keys, &keys));
    for (int64_t l = 0; l < from->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(to, l);
        const int64_t R = kvf__desc_layer(&model->desc, l).R;
        memcpy(keys, at.k, (size_t)at.n * sizeof *keys);
        memset(at.k, 0, (size_t)at.n * sizeof *at.k);
        rotate_keys(model, l, from, first, at.k, keys, back);
        for (int64_t i = 0; back && i < at.n; i++)
            if (i % at.D < R) at.k[i] /= scale * scale; /* yarn's factor is in both tables */
    }
    kvf__free(keys);
    return KVF_OK;
}
