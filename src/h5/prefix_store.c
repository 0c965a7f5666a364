/* Storage of prefix values: f32, rounded to f16 or bf16, or int8 with one scale for each layer,
 * half and head (docs/format.md).
 *
 * int8 is symmetric: x is stored as q = x / s rounded to nearest even, and reads back as q * s. s
 * is the largest |x| of the head divided by 127. Each head of keys and of values has its own scale,
 * because magnitudes differ widely between layers. A head of zeros has scale 0. */
#include "artifact_priv.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST = 127 };

/* Names of types for --dtype and the attribute, in the order of kvf_dtype. */
static const struct prefix_dtype {
    const char *name;
    kvf__dtype dtype;
} ROWS[] = {{"f32", KVF__F32}, {"f16", KVF__F16}, {"bf16", KVF__BF16}, {"int8", KVF__I8}};
enum { N_ROWS = sizeof ROWS / sizeof ROWS[0] };

kvf__dtype kvf__prefix_dtype(kvf_dtype dtype)
{
    return ROWS[dtype].dtype;
}

const char *kvf_dtype_name(kvf_dtype dtype)
{
    return (size_t)dtype < N_ROWS ? ROWS[dtype].name : "?";
}

const char *kvf__prefix_dtype_name(kvf__dtype dtype)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (dtype == ROWS[i].dtype) return ROWS[i].name;
    return NULL;
}

size_t kvf__prefix_scales(const kvf__prefix *prefix)
{
    const kvf__kv_shape shape = kvf__prefix_shape(prefix);
    return (size_t)(2 * kvf__kv_at(&shape, prefix->L).heads);
}

static kvf_status check_range(kvf_ctx *ctx, const char *where, const kvf__prefix *prefix,
                              kvf__dtype dtype)
{
    const float limit = kvf__dtype_limit(dtype);

    for (int64_t l = 0; l < prefix->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(prefix, l);
        for (int64_t i = 0; i < 2 * at.n; i++)
            if (!(fabsf(at.k[i]) < limit))
                return kvf__fail(ctx, KVF_ENUMERIC,
                                 "%s: layer %lld holds %g, which %s cannot store (use f32)", where,
                                 (long long)l, (double)at.k[i], kvf__prefix_dtype_name(dtype));
    }
    return KVF_OK;
}

/* Encodes one head, [P, D]; returns its scale. */
static float encode_head(const float *x, int8_t *q, size_t n)
{
    float most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    float scale = most / MOST;
    scale = scale * MOST /
            MOST; /* so that the values read back have exactly this scale, and equal bytes again */
    if (scale < FLT_MIN) { /* zeros, or so small that the quotient would not be finite */
        memset(q, 0, n);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        q[i] = (int8_t)fmaxf(-MOST, fminf(MOST, nearbyintf(x[i] / scale)));
    return scale;
}

kvf_status kvf__prefix_encode(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                              const kvf__prefix *prefix, void *values, float *scale)
{
    int8_t *q = values;

    KVF_TRY(check_range(ctx, where, prefix, dtype));
    if (dtype != KVF__I8)
        kvf__from_f32(dtype, prefix->kv, values, (int64_t)kvf__prefix_count(prefix));
    for (int64_t l = 0; dtype == KVF__I8 && l < prefix->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(prefix, l);
        const int64_t n = prefix->P * at.D;
        for (int64_t h = 0; h < 2 * at.G; h++, q += n)
            *scale++ = encode_head(at.k + h * n, q, (size_t)n);
    }
    return KVF_OK;
}

void kvf__prefix_decode(kvf__dtype dtype, const void *values, const float *scale,
                        kvf__prefix *prefix)
{
    const int8_t *q = values;

    if (dtype != KVF__I8) {
        kvf__to_f32(dtype, values, prefix->kv, (int64_t)kvf__prefix_count(prefix));
        return;
    }
    for (int64_t l = 0; l < prefix->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(prefix, l);
        const int64_t n = prefix->P * at.D;
        for (int64_t i = 0; i < 2 * at.n; i++)
            at.k[i] = (float)*q++ * scale[i / n];
        scale += 2 * at.G;
    }
}

kvf_status kvf__prefix_rounded(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                               const kvf__prefix *from, kvf__prefix *out)
{
    size_t n = kvf__prefix_count(from);
    void *values = NULL;
    float *scale = NULL;
    kvf__prefix to = {0};

    kvf_status st = kvf__prefix_like(ctx, &to, from);
    if (!st) st = kvf__alloc_array(ctx, n, kvf__dtype_block_bytes(dtype), &values);
    if (!st) st = kvf__alloc_array(ctx, kvf__prefix_scales(from), sizeof *scale, &scale);
    if (!st) st = kvf__prefix_encode(ctx, where, dtype, from, values, scale);
    if (!st) st = kvf__prefix_take_weights(ctx, &to, from); /* stored unchanged */
    if (!st) kvf__neurons_take(&to.neurons, &from->neurons);
    if (!st) st = kvf__neurons_round(ctx, where, dtype, &to.neurons);
    if (st) {
        kvf__prefix_done(&to);
    } else {
        kvf__prefix_decode(dtype, values, scale, &to);
        memcpy(to.layer_mask, from->layer_mask, (size_t)from->L);
        *out = to;
    }
    kvf__free(values);
    kvf__free(scale);
    return st;
}
