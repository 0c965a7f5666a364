/* Cross-entropy over one chunk of the vocabulary. Part of ops_vec.c. */
#ifndef KVF_OPS_CE_H
#define KVF_OPS_CE_H

#include "ops_row.h"
#include "vec_exp.h"

#include <math.h>

VEC_INLINE float row_max(const float *logits, int64_t width)
{
    vf a = vf_set(-INFINITY), b = a;
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= width; i += 2 * VF_LANES) {
        a = vf_max(a, vf_load(logits + i));
        b = vf_max(b, vf_load(logits + i + VF_LANES));
    }
    FOR_LANES(j, n, i, width, a = vf_max(a, vf_keep_n(vf_load_upto(logits + j, n), n, a)););
    return vf_hmax(vf_max(a, b));
}

/* Computes e = exp(logits - max) for the first `valid` columns, 0 up to width; returns their
 * sum. */
VEC_INLINE float exp_row(bool half, void *e, const float *logits, float max, int64_t valid,
                         int64_t width)
{
    vf top = vf_set(max), sum = vf_zero(), sum2 = sum;
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= valid; i += 2 * VF_LANES) {
        vf e1 = vf_exp(vf_load(logits + i) - top),
           e2 = vf_exp(vf_load(logits + i + VF_LANES) - top);
        sum += e1;
        sum2 += e2;
        if (!e) continue;
        act_store(half, e, i, e1, VF_LANES);
        act_store(half, e, i + VF_LANES, e2, VF_LANES);
    }
    FOR_LANES(j, n, i, valid, {
        vf en = vf_keep_n(vf_exp(vf_load_upto(logits + j, n) - top), n, vf_zero());
        sum += en;
        if (e) act_store(half, e, j, en, n);
    });
    if (e) FOR_LANES(j, n, valid, width, act_store(half, e, j, vf_zero(), n););
    return vf_sum(sum + sum2);
}

/* Multiplies acc by `by`; by = 0 erases any contents. */
VEC_INLINE void rescale_row(float *acc, int64_t C, float by)
{
    vf factor = vf_set(by);
    if (by == 0.0f) {
        memset(acc, 0, (size_t)C * sizeof *acc);
        return;
    }
    FOR_LANES(i, n, 0, C, vf_store_upto(acc + i, vf_load_upto(acc + i, n) * factor, n););
}

VEC_INLINE void ce_row(bool half, const kvf__ce_chunk *chunk, int64_t r, int64_t valid)
{
    const float *logits = chunk->logits + r * chunk->width;
    void *e = act_row(half, chunk->e, r, chunk->width);
    float old = chunk->max[r], max = fmaxf(old, row_max(logits, valid));

    if (max > old) {
        float by = expf(old - max); /* 0 in the first chunk */
        chunk->sum[r] *= by;
        chunk->max[r] = max;
        if (chunk->acc) rescale_row(chunk->acc + r * chunk->C, chunk->C, by);
    }
    int32_t target = chunk->target[r];
    if (target >= 0 && target < chunk->width) chunk->target_logit[r] = logits[target];
    chunk->sum[r] += exp_row(half, e, logits, max, valid, chunk->width);
}

static void ce(kvf__dtype act, const kvf__ce_chunk *chunk)
{
    int64_t valid = chunk->valid < chunk->width ? chunk->valid : chunk->width;
    if (valid < 0) valid = 0;
#pragma omp parallel for schedule(static) if (chunk->rows * chunk->width > SERIAL)
    for (int64_t r = 0; r < chunk->rows; r++)
        BY_TYPE(act, ce_row, chunk, r, valid);
}

#endif
