/* See low_rank.h. Sums of gradients run in f64 in a fixed order, one layer and half per thread. */
#include "low_rank.h"

#include <string.h>

void kvf__low_rank_fwd(kvf__prefix *of, const kvf__prefix *shared, const float *u, const float *v)
{
    int64_t P = shared->P, D = shared->D, G = shared->G;

#pragma omp parallel for schedule(static)
    for (int64_t h = 0; h < 2 * shared->L; h++)
        for (int64_t i = 0; i < G * P; i++) {
            int64_t g = i / P, p = i % P, at = (h * G * P + i) * D;
            const float by = u[h * P + p], *v_g = v + (h * G + g) * D;
            for (int64_t d = 0; d < D; d++)
                of->kv[at + d] = shared->kv[at + d] * by * v_g[d];
        }
    if (of == shared) return;
    memcpy(of->layer_mask, shared->layer_mask, (size_t)shared->L);
    if (shared->log_weight)
        memcpy(of->log_weight, shared->log_weight,
               kvf__prefix_weights(shared) * sizeof *of->log_weight);
}

/* Computes the gradients of one layer's keys or values. */
static void half_bwd(const kvf__prefix *shared, float *d, float *du, float *dv, const float *k,
                     const float *u, const float *v)
{
    int64_t P = shared->P, D = shared->D;

    for (int64_t i = 0; i < shared->G * P; i++) {
        int64_t g = i / P, p = i % P;
        double sum = 0;
        for (int64_t c = 0; c < D; c++) {
            const float grad = d[i * D + c], by_v = v[g * D + c];
            sum += (double)grad * (double)k[i * D + c] * (double)by_v;
            dv[g * D + c] += grad * k[i * D + c] * u[p];
            d[i * D + c] = grad * u[p] * by_v;
        }
        du[p] = (float)((double)du[p] + sum);
    }
}

void kvf__low_rank_bwd(kvf__prefix *dprefix, float *du, float *dv, const kvf__prefix *shared,
                       const float *u, const float *v)
{
    int64_t P = shared->P, width = shared->G * shared->D, n = width * P;

#pragma omp parallel for schedule(static)
    for (int64_t h = 0; h < 2 * shared->L; h++)
        half_bwd(shared, dprefix->kv + h * n, du + h * P, dv + h * width, shared->kv + h * n,
                 u + h * P, v + h * width);
}

/* Removes a parameter from the list; false if it is missing. */
static bool take(kvf__params *params, const char *name, kvf__param *out)
{
    for (size_t i = 0; i < params->n; i++) {
        if (strcmp(params->item[i].name, name) != 0) continue;
        *out = params->item[i];
        params->n--;
        memmove(params->item + i, params->item + i + 1, (params->n - i) * sizeof *params->item);
        return true;
    }
    return false;
}

static void drop(kvf__param *param)
{
    kvf__free(param->value);
    kvf__free((char *)param->name);
}

kvf_status kvf__low_rank_alloc(kvf_ctx *ctx, const char *where, kvf__params *params,
                               kvf__prefix *prefix)
{
    kvf__param u = {0}, v = {0};
    bool has_u = take(params, KVF__LOW_RANK_U, &u), has_v = take(params, KVF__LOW_RANK_V, &v);
    int64_t halves = 2 * prefix->L;
    kvf_status st = KVF_OK;

    if (has_u != has_v)
        st = kvf__fail(ctx, KVF_EFORMAT, "%s: %s without %s", where,
                       has_u ? KVF__LOW_RANK_U : KVF__LOW_RANK_V,
                       has_u ? KVF__LOW_RANK_V : KVF__LOW_RANK_U);
    else if (has_u && (u.n != halves * prefix->P || v.n != halves * prefix->G * prefix->D))
        st = kvf__fail(
            ctx, KVF_ESHAPE,
            "%s: %s and %s have %lld and %lld values, but the prefix needs %lld and %lld", where,
            KVF__LOW_RANK_U, KVF__LOW_RANK_V, (long long)u.n, (long long)v.n,
            (long long)(halves * prefix->P), (long long)(halves * prefix->G * prefix->D));
    else if (has_u)
        kvf__low_rank_fwd(prefix, prefix, u.value, v.value);
    drop(&u);
    drop(&v);
    return st;
}
