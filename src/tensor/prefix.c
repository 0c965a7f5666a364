/* The prefix tensor and its flat form, see prefix.h: two layouts of the same numbers.
 *
 * The flat form keeps the D values of a (layer, key or value, head, token) together, as kv does, so
 * both conversions are copies of runs of D. */
#include "prefix.h"

#include <math.h>
#include <string.h>

kvf_status kvf__prefix_init(kvf_ctx *ctx, kvf__prefix *out, int64_t L, int64_t G, int64_t P,
                            int64_t D)
{
    const int64_t dims[] = {L, 2, G, P, D};
    size_t count = 1;
    float *kv = NULL;
    uint8_t *mask = NULL;

    for (int i = 0; i < 5; i++)
        if (dims[i] < 0 || !kvf__mul(count, (size_t)dims[i], &count))
            return kvf__fail(ctx, KVF_ESHAPE, "prefix: [%lld, 2, %lld, %lld, %lld] is not a shape",
                             (long long)L, (long long)G, (long long)P, (long long)D);
    KVF_TRY(kvf__alloc_array(ctx, count, sizeof *kv, &kv));
    kvf_status st = kvf__alloc_array(ctx, (size_t)L, sizeof *mask, &mask);
    if (st) {
        kvf__free(kv);
        return st;
    }
    memset(mask, 1, (size_t)L);
    *out = (kvf__prefix){.L = L, .G = G, .P = P, .D = D, .kv = kv, .layer_mask = mask};
    return KVF_OK;
}

void kvf__prefix_done(kvf__prefix *prefix)
{
    kvf__free(prefix->kv);
    kvf__free(prefix->layer_mask);
    kvf__free(prefix->log_weight);
    *prefix = (kvf__prefix){0};
}

size_t kvf__prefix_count(const kvf__prefix *prefix)
{
    return (size_t)(prefix->L * 2 * prefix->G * prefix->P * prefix->D);
}

/* ---- log-weights ----------------------------------------------------------------------------- */

size_t kvf__prefix_weights(const kvf__prefix *prefix)
{
    return (size_t)(prefix->L * prefix->G * prefix->P);
}

kvf_status kvf__prefix_weigh(kvf_ctx *ctx, kvf__prefix *prefix)
{
    if (prefix->log_weight) return KVF_OK;
    return kvf__alloc_array(ctx, kvf__prefix_weights(prefix), sizeof *prefix->log_weight,
                            &prefix->log_weight);
}

kvf_status kvf__prefix_take_weights(kvf_ctx *ctx, kvf__prefix *to, const kvf__prefix *from)
{
    if (!from->log_weight) {
        kvf__free(to->log_weight);
        to->log_weight = NULL;
        return KVF_OK;
    }
    KVF_TRY(kvf__prefix_weigh(ctx, to));
    memcpy(to->log_weight, from->log_weight, kvf__prefix_weights(from) * sizeof *to->log_weight);
    return KVF_OK;
}

kvf_status kvf__log_weight_param(kvf_ctx *ctx, const kvf__prefix *prefix, const kvf__prefix *d,
                                 kvf__params *params)
{
    const kvf__param param = {.name = KVF__LOG_WEIGHT,
                              .value = prefix->log_weight,
                              .grad = d ? d->log_weight : NULL,
                              .rank = 3,
                              .dim = {prefix->L, prefix->G, prefix->P},
                              .n = prefix->L * prefix->G * prefix->P,
                              .lr_scale = 1};
    return prefix->log_weight ? kvf__params_add(ctx, params, &param) : KVF_OK;
}

kvf_status kvf__prefix_check_weights(kvf_ctx *ctx, const char *where, const kvf__prefix *prefix)
{
    const int64_t n = prefix->G * prefix->P;

    for (int64_t i = 0; prefix->log_weight && i < prefix->L * n; i++) {
        const float w = prefix->log_weight[i];
        if (!(fabsf(w) <= KVF__MOST_LOG_WEIGHT))
            return kvf__fail(ctx, KVF_ENUMERIC,
                             "%s: a log-weight of layer %lld is %g, want %g to %g", where,
                             (long long)(i / n), (double)w, (double)-KVF__MOST_LOG_WEIGHT,
                             (double)KVF__MOST_LOG_WEIGHT);
        if (!prefix->layer_mask[i / n] && w != 0)
            return kvf__fail(ctx, KVF_EFORMAT,
                             "%s: layer %lld is masked and has a log-weight of %g, want 0", where,
                             (long long)(i / n), (double)w);
    }
    return KVF_OK;
}

/* ---- the flat form --------------------------------------------------------------------------- */

/* Copies between kv [blocks][P][D] and flat [P][blocks][D], a block being one (l, key or value,
 * g). */
static void copy_flat(const kvf__prefix *prefix, float *to_kv, float *to_flat, const float *from)
{
    const int64_t blocks = prefix->L * 2 * prefix->G, P = prefix->P, D = prefix->D;
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t p = 0; p < P; p++) {
            const int64_t kv = (block * P + p) * D, flat = (p * blocks + block) * D;
            if (to_kv)
                memcpy(to_kv + kv, from + flat, (size_t)D * sizeof *from);
            else
                memcpy(to_flat + flat, from + kv, (size_t)D * sizeof *from);
        }
}

void kvf__prefix_from_flat(kvf__prefix *prefix, const float *flat)
{
    copy_flat(prefix, prefix->kv, NULL, flat);
}

void kvf__prefix_to_flat(const kvf__prefix *prefix, float *flat)
{
    copy_flat(prefix, NULL, flat, prefix->kv);
}

void kvf__prefix_clear_masked(kvf__prefix *prefix)
{
    size_t n = (size_t)(2 * prefix->G * prefix->P * prefix->D);
    for (int64_t l = 0; l < prefix->L; l++)
        if (!prefix->layer_mask[l]) memset(prefix->kv + (size_t)l * n, 0, n * sizeof *prefix->kv);
}
