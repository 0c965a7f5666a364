/* Relative terms of attention scores, computed once from frozen weights. DeBERTa
 * (modeling_deberta_v2.py, DisentangledSelfAttention): relative keys and queries, which are the
 * normed relative position embeddings after each layer's own query and key projections. T5
 * (modeling_t5.py, T5Attention): a bias by head, the same in all layers of a stack. */
#include "arena.h"
#include "kernels.h"
#include "model_priv.h"
#include "names.h"

#include <math.h>

/* Returns the bucket of a distance i - j, -span to span (make_log_bucket_position, with its f32
 * arithmetic). */
static int64_t bucket_of(const kvf__relative *r, int64_t distance)
{
    const int64_t far = distance < 0 ? -distance : distance, mid = r->span / 2;

    if (!r->logarithmic || far <= mid) return distance;
    const float widest = logf((float)((double)(r->farthest - 1) / (double)mid));
    const float at = logf((float)far / (float)mid) / widest * (float)(mid - 1);
    const int64_t bucket = (int64_t)ceilf(at) + mid;
    return distance < 0 ? -bucket : bucket;
}

static void fill_buckets(const kvf__desc *d, int32_t *bucket)
{
    const kvf__relative *r = &d->position.relative;
    const int64_t most = d->position.max;

    for (int64_t at = 0; at < 2 * most - 1; at++) {
        int64_t row = bucket_of(r, at - (most - 1)) + r->span;
        if (row < 0) row = 0;
        if (row > 2 * r->span - 1) row = 2 * r->span - 1;
        bucket[at] = (int32_t)row;
    }
}

typedef struct laying {
    const kvf__desc *desc;
    kvf__relative_terms *to;
} laying;

static void lay_out(void *object, kvf__carver *carve)
{
    const laying *l = object;
    const kvf__desc *d = l->desc;

    l->to->layer = kvf__carve(carve, d->L, 1, sizeof *l->to->layer);
    l->to->bucket = kvf__carve(carve, 2 * d->position.max - 1, 1, sizeof *l->to->bucket);
    l->to->values = kvf__carve(carve, d->L * 2 * 2 * d->position.relative.span, d->H * d->D,
                               sizeof(float));
}

/* Reads the relative position embeddings [buckets, C], normed in place. */
static kvf_status read_embeddings(kvf_ctx *ctx, const kvf__desc *d, const kvf__slots *slots,
                                  float **out)
{
    const kvf__slot *from[] = {kvf__slot_of(d, slots, KVF__W_RELATIVE, 0),
                               kvf__slot_of(d, slots, KVF__W_RELATIVE_NORM, 0),
                               kvf__slot_of(d, slots, KVF__W_RELATIVE_NORM_BETA, 0)};
    float *values[3] = {0};
    kvf_status st = KVF_OK;

    for (int i = 0; i < 3 && !st; i++)
        st = kvf__slot_f32(ctx, from[i], &values[i]);
    for (int64_t r = 0; !st && r < 2 * d->position.relative.span; r++) {
        float *x = values[0] + r * d->C;
        double mean = 0, square = 0;
        for (int64_t c = 0; c < d->C; c++)
            mean += (double)x[c] / (double)d->C;
        for (int64_t c = 0; c < d->C; c++)
            square += ((double)x[c] - mean) * ((double)x[c] - mean) / (double)d->C;
        const double by = 1 / sqrt(square + (double)d->norm_eps);
        for (int64_t c = 0; c < d->C; c++)
            x[c] = (float)(((double)x[c] - mean) * by) * values[1][c] + values[2][c];
    }
    kvf__free(values[1]);
    kvf__free(values[2]);
    if (st)
        kvf__free(values[0]);
    else
        *out = values[0];
    return st;
}

/* Computes out [rows, H * D] = x W^T + b. */
static kvf_status project(kvf_ctx *ctx, const kvf__desc *d, const kvf__slot *weight,
                          const kvf__slot *bias, const float *x, float *out)
{
    const int64_t rows = 2 * d->position.relative.span, n = d->H * d->D;
    float *w = NULL, *b = NULL;

    kvf_status st = kvf__slot_f32(ctx, weight, &w);
    if (!st) st = kvf__slot_f32(ctx, bias, &b);
    for (int64_t i = 0; !st && i < rows * n; i++)
        out[i] = b[i % n];
    if (!st) st = kvf__sgemm(ctx, false, true, rows, n, d->C, x, d->C, w, d->C, 1, out, n);
    kvf__free(w);
    kvf__free(b);
    return st;
}

static kvf_status make_layer(kvf_ctx *ctx, const kvf__desc *d, const kvf__slots *slots, int64_t l,
                             const float *x, kvf__relative_terms *to)
{
    const int64_t n = 2 * d->position.relative.span * d->H * d->D;
    float *q = to->values + 2 * l * n, *k = q + n;

    KVF_TRY(project(ctx, d, kvf__slot_of(d, slots, KVF__W_Q, l),
                    kvf__slot_of(d, slots, KVF__W_Q_BIAS, l), x, q));
    KVF_TRY(project(ctx, d, kvf__slot_of(d, slots, KVF__W_K, l),
                    kvf__slot_of(d, slots, KVF__W_K_BIAS, l), x, k));
    to->layer[l] = (kvf__attn_relative){
        .k = k, .q = q, .bucket = to->bucket, .most = d->position.max};
    return KVF_OK;
}

kvf_status kvf__relative_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                                kvf__relative_terms *out)
{
    kvf__relative_terms made = {0};
    laying l = {desc, &made};
    float *x = NULL;

    kvf_status st = kvf__carve_block(ctx, lay_out, &l, &made.memory);
    if (!st) st = read_embeddings(ctx, desc, slots, &x);
    if (!st) fill_buckets(desc, made.bucket);
    for (int64_t layer = 0; !st && layer < desc->L; layer++)
        st = make_layer(ctx, desc, slots, layer, x, &made);
    kvf__free(x);
    if (st)
        kvf__free(made.memory);
    else
        *out = made;
    return st;
}

/* ---- T5 -------------------------------------------------------------------------------------- */

/* Returns the bucket of a distance i - j (_relative_position_bucket, with its f32 arithmetic). A
 * causal query has no negative distances, so all buckets serve the others. */
static int32_t bias_bucket(const kvf__relative *r, bool causal, int64_t distance)
{
    const int64_t n = causal ? 2 * r->span : r->span, exact = n / 2;
    const int64_t first = !causal && distance < 0 ? n : 0;
    const int64_t far = distance >= 0 ? distance : causal ? 0 : -distance;

    if (far < exact) return (int32_t)(first + far);
    const float widest = (float)log((double)r->farthest / (double)exact);
    const float at = logf((float)far / (float)exact) / widest * (float)(n - exact);
    const int64_t bucket = exact + (int64_t)at;
    return (int32_t)(first + (bucket < n ? bucket : n - 1));
}

static void lay_bias(void *object, kvf__carver *carve)
{
    const laying *l = object;
    const kvf__desc *d = l->desc;
    const kvf__relative *r = &d->position.relative;

    l->to->layer = kvf__carve(carve, d->L, 1, sizeof *l->to->layer);
    l->to->bucket = kvf__carve(carve, 2, 2 * r->farthest + 1, sizeof *l->to->bucket);
    l->to->values = kvf__carve(carve, 2, 2 * r->span * d->H, sizeof(float));
}

/* Computes the bias of the encoder or the decoder. Cross-attention has none. */
static void make_bias(const kvf__desc *d, const kvf__slots *slots, bool decoder,
                      kvf__relative_terms *to)
{
    const kvf__relative *r = &d->position.relative;
    const int64_t most = r->farthest + 1;
    int32_t *bucket = to->bucket + decoder * (2 * most - 1);
    float *values = to->values + decoder * 2 * r->span * d->H;
    const kvf__place place = decoder ? KVF__PLACE_DECODER : KVF__PLACE_ENCODER;

    kvf__slot_read(kvf__slot_of(d, slots, KVF__W_RELATIVE, decoder ? d->encoder : 0), values);
    for (int64_t at = 0; at < 2 * most - 1; at++)
        bucket[at] = bias_bucket(r, decoder, at - (most - 1));
    for (int64_t l = 0; l < d->L; l++)
        if (kvf__layer_place(d, l) == place)
            to->layer[l] = (kvf__attn_relative){.bias = values, .bucket = bucket, .most = most};
}

kvf_status kvf__relative_bias_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                                     kvf__relative_terms *out)
{
    kvf__relative_terms made = {0};
    laying l = {desc, &made};

    KVF_TRY(kvf__carve_block(ctx, lay_bias, &l, &made.memory));
    make_bias(desc, slots, false, &made);
    make_bias(desc, slots, true, &made);
    *out = made;
    return KVF_OK;
}
