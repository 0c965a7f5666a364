/* Prefix dropout that differs between the rows of a batch, as in P-tuning v2: each row attends to
 * keys and values under its own mask.
 *
 * Masks are drawn when applied (dropout.h), so nothing is kept between forward and backward. When a
 * layer is reached, each row gets a masked copy as its prefix segment. The copies' gradients pass
 * through the same masks and are added in row order. */
#include "attention.h"
#include "pass_priv.h"

#include <string.h>

#define ROWS_STREAM 0x70667277 /* "pfrw" */

enum { STRIP = 1024 };

/* Returns the first mask element of a layer's prefix. */
static int64_t first_of(const kvf__prefix *prefix, int64_t l)
{
    return kvf__prefix_at(prefix, l).k - prefix->kv;
}

kvf_status kvf__pass_set_row_dropout(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input)
{
    const kvf__row_dropout *by = input->row_dropout;

    pass->own.drops = false;
    if (!by || !(by->p > 0) || !pass->prefix) return KVF_OK;
    if (!pass->limits.row_dropout)
        return kvf__fail(ctx, KVF_EUSAGE, "pass: it was made without dropout by rows");
    if (by->p >= 1)
        return kvf__fail(ctx, KVF_EUSAGE, "pass: dropout %g, expected 0 to below 1", by->p);
    if (input->cache || input->batch->parent)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: dropout by rows excludes common prefixes and a cache");
    kvf__rng stream = kvf__rng_make(by->seed, ((uint64_t)ROWS_STREAM << 32) + (uint64_t)by->step);
    for (int64_t r = 0; r < input->batch->n_rows; r++)
        pass->own.stream[r] = kvf__dropout_row(stream, input->batch, r);
    pass->own.rate = kvf__dropout_make(by->p);
    pass->own.drops = pass->own.rate.drop > 0;
    return KVF_OK;
}

void kvf__pass_mask_rows(kvf__pass *pass, int64_t l, bool gradient)
{
    const kvf__prefix_layer at = kvf__prefix_at(pass->prefix, l);
    const int64_t n = 2 * at.n, first = first_of(pass->prefix, l), rows = pass->batch->n_rows;

#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        kvf__dropout_set(pass->own.rate, pass->own.stream[r], first, pass->own.kv + r * n, at.k, n);
        if (gradient) memset(pass->own.dkv + r * n, 0, (size_t)n * sizeof(float));
    }
}

kvf__kvseg kvf__pass_row_segment(const kvf__pass *pass, kvf__kvseg prefix, int64_t l, int64_t r)
{
    const int64_t n = 2 * kvf__prefix_at(pass->prefix, l).n;
    float *kv = pass->own.kv + r * n, *dkv = prefix.dk ? pass->own.dkv + r * n : NULL;

    prefix.k = kv;
    prefix.v = kv + n / 2;
    prefix.dk = dkv;
    prefix.dv = dkv ? dkv + n / 2 : NULL;
    return prefix;
}

void kvf__pass_collect_rows(kvf__pass *pass, int64_t l, kvf__prefix *dprefix)
{
    if (!pass->own.drops || !dprefix) return;
    const kvf__prefix_layer to = kvf__prefix_at(dprefix, l);
    const int64_t n = 2 * to.n, first = first_of(dprefix, l), strips = (n + STRIP - 1) / STRIP;

#pragma omp parallel for schedule(static)
    for (int64_t s = 0; s < strips; s++) {
        int64_t at = s * STRIP, width = n - at < STRIP ? n - at : STRIP;
        for (int64_t r = 0; r < pass->batch->n_rows; r++)
            kvf__dropout_add(pass->own.rate, pass->own.stream[r], first + at, to.k + at,
                             pass->own.dkv + r * n + at, width);
    }
}
