/* Keys and values by frozen projections, see kv_projection.h. Products use oneDNN; the norm of keys
 * and rope use the kernels of a pass, in f32. */
#include "kv_projection.h"
#include "kernels.h"
#include "matmul.h"

#include <math.h>
#include <string.h>

void kvf__kv_projections_done(kvf__kv_projections *projections)
{
    kvf__free(projections->layer);
    kvf__free(projections->weights);
    kvf__free(projections->tables);
    *projections = (kvf__kv_projections){0};
}

/* Scratch of a call: keys before their norm, or their gradient; xhat; rstd. */
typedef struct scratch {
    float *keys, *xhat, *rstd; /* [P, G*D], [P, G*D], [P, G] */
} scratch;

size_t kvf__kv_projection_work(const kvf__kv_projection *of, int64_t P)
{
    return (size_t)(P * of->G * (2 * of->D + 1));
}

static scratch carve(const kvf__kv_projection *of, int64_t P, float *work)
{
    int64_t n = P * of->G * of->D;
    return (scratch){.keys = work, .xhat = work + n, .rstd = work + 2 * n};
}

/* Computes y [P, G*D], with a row stride, = x W^T + b. */
static kvf_status product(kvf_ctx *ctx, const kvf__kv_projection *of, const float *w,
                          const float *b, const float *x, int64_t P, float *y, int64_t stride)
{
    int64_t n = of->G * of->D;

    for (int64_t p = 0; b && p < P; p++)
        memcpy(y + p * stride, b, (size_t)n * sizeof *y);
    return kvf__sgemm(ctx, false, true, P, n, of->C, x, of->C, w, of->C, b ? 1 : 0, y, stride);
}

static kvf__head_norm norm_of(const kvf__kv_projection *of, bool value, float *keys, int64_t stride,
                              int64_t P, const scratch *s)
{
    const bool whole = of->k_norm_whole && !value;

    return (kvf__head_norm){.M = P,
                            .ld = stride,
                            .heads = whole ? 1 : of->G,
                            .D = whole ? of->G * of->D : of->D,
                            .eps = of->eps,
                            .gamma = value ? of->v_norm : of->k_norm,
                            .x = keys,
                            .xhat = s->xhat,
                            .rstd = s->rstd};
}

static void rotate(const kvf__kv_projection *of, float *keys, int64_t stride, int64_t P,
                   bool inverse)
{
    if (of->cos)
        kvf__kernels_get()->rope(KVF__F32, keys, P, stride, of->G, of->D, of->R, of->position,
                                 of->cos, of->sin, inverse);
}

kvf_status kvf__kv_projection_fwd(kvf_ctx *ctx, const kvf__kv_projection *of, float *k, float *v,
                                  int64_t stride, const float *x, int64_t P, float *work)
{
    scratch s = carve(of, P, work);

    KVF_TRY(product(ctx, of, of->wv, of->bv, x, P, v, stride));
    KVF_TRY(product(ctx, of, of->wk, of->bk, x, P, k, stride));
    if (of->k_norm) {
        const kvf__head_norm norm = norm_of(of, false, k, stride, P, &s);
        kvf__kernels_get()->head_norm_fwd(KVF__F32, &norm);
    }
    rotate(of, k, stride, P, false);
    if (of->v_norm) {
        const kvf__head_norm norm = norm_of(of, true, v, stride, P, &s);
        kvf__kernels_get()->head_norm_fwd(KVF__F32, &norm);
    }
    return KVF_OK;
}

kvf_status kvf__kv_projection_bwd(kvf_ctx *ctx, const kvf__kv_projection *of, float *dx,
                                  const float *dk, const float *dv, int64_t stride, const float *x,
                                  int64_t P, float *work)
{
    int64_t n = of->G * of->D, C = of->C;
    scratch s = carve(of, P, work);

    /* K = rope(norm_k(x W_k^T + b_k)): recomputes the input of the norm */
    if (of->k_norm) {
        const kvf__head_norm norm = norm_of(of, false, s.keys, n, P, &s);
        KVF_TRY(product(ctx, of, of->wk, of->bk, x, P, s.keys, n));
        kvf__kernels_get()->head_norm_fwd(KVF__F32, &norm);
    }
    for (int64_t p = 0; p < P; p++)
        memcpy(s.keys + p * n, dk + p * stride, (size_t)n * sizeof *dk);
    rotate(of, s.keys, n, P, true);
    if (of->k_norm) {
        const kvf__head_norm norm = norm_of(of, false, s.keys, n, P, &s);
        kvf__kernels_get()->head_norm_bwd(KVF__F32, &norm);
    }
    KVF_TRY(kvf__sgemm(ctx, false, false, P, C, n, s.keys, n, of->wk, C, 0, dx, C));

    if (!of->v_norm) /* V = x W_v^T + b_v */
        return kvf__sgemm(ctx, false, false, P, C, n, dv, stride, of->wv, C, 1, dx, C);
    const kvf__head_norm norm = norm_of(of, true, s.keys, n, P, &s);
    KVF_TRY(product(ctx, of, of->wv, of->bv, x, P, s.keys, n));
    kvf__kernels_get()->head_norm_fwd(KVF__F32, &norm);
    for (int64_t p = 0; p < P; p++)
        memcpy(s.keys + p * n, dv + p * stride, (size_t)n * sizeof *dv);
    kvf__kernels_get()->head_norm_bwd(KVF__F32, &norm);
    return kvf__sgemm(ctx, false, false, P, C, n, s.keys, n, of->wv, C, 1, dx, C);
}

double kvf__kv_projection_gain(const kvf__kv_projection *of)
{
    int64_t n = of->G * of->D * of->C;
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)of->wv[i] * (double)of->wv[i];
    if (of->k_norm) return sqrt(sum / (double)(of->G * of->D));
    for (int64_t i = 0; i < n; i++)
        sum += (double)of->wk[i] * (double)of->wk[i];
    return sqrt(sum / (double)(2 * of->G * of->D));
}
