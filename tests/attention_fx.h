/* A batch of attention with every feature, for test_attention*.c and bench_attention.c: prefix,
 * shared common prefix, caches, rows.
 *
 * Segment 0 is the prefix (f32, [2, G, P, D], gradients), 1 the common prefix (gradients, tokens
 * before heads, as in a qkv matrix), 2 + r the cache of row r (no gradients, `near`). Values are
 * random; act arrays hold what the kernels read, `f32` ones the same values as floats. */
#ifndef KVF_ATTENTION_FX_H
#define KVF_ATTENTION_FX_H

#include "attention.h"
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FX_ROWS   32
#define FX_UNUSED __attribute__((unused))

#define FX_BUCKETS 11

/* Also usable outside a Check run, where ck_assert is not. */
static void fx_must(bool fine)
{
    if (!fine) abort();
}

typedef struct fx_shape {
    int64_t H, G, D, P, common;
    int n_rows;
    int64_t len[FX_ROWS], cache[FX_ROWS], first[FX_ROWS];
    bool full;      /* not causal */
    int64_t window; /* with causal; 0: none */
    float cap;      /* 0: none */
    bool weighted;  /* prefix and common prefix have log-weights, with gradients */
    bool crosses;   /* own tokens are queries only */
    bool bias;      /* relative: a bias by distance */
    bool terms;     /* relative: disentangled */
    bool lines;     /* rows begin at cache lines, as those of a model */
    kvf__dtype act; /* F32 is 0 */
} fx_shape;

typedef struct fx {
    fx_shape shape;
    kvf_ctx *ctx;
    kvf__attn_row rows[FX_ROWS];
    kvf__kvseg segs[FX_ROWS + 2];
    kvf__attn attn;
    kvf__attn_relative relative;
    int64_t n_qkv, n_out, n_seg[FX_ROWS + 2]; /* elements; of k (and of v) of a segment */
    float *qkv, *dout, *k[FX_ROWS + 2], *v[FX_ROWS + 2]; /* f32 */
} fx;

static size_t fx_bytes(kvf__dtype dtype, int64_t n)
{
    return (size_t)n * kvf__dtype_block_bytes(dtype) + 64;
}

static void *fx_zeros(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    fx_must(p);
    return memset(p, 0, bytes);
}

/* n random floats, stored as `dtype` in *typed; returns the stored values as floats. */
static float *fx_random(kvf__rng *rng, kvf__dtype dtype, int64_t n, const void **typed)
{
    float *values = fx_zeros(fx_bytes(KVF__F32, n));
    void *out = fx_zeros(fx_bytes(dtype, n));
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)kvf__rng_normal(rng);
    kvf__from_f32(dtype, values, out, n);
    kvf__to_f32(dtype, out, values, n);
    *typed = out;
    return values;
}

static void fx_segment(fx *f, kvf__rng *rng, int s, kvf__dtype dtype, int64_t len, bool common,
                       bool grad)
{
    const fx_shape *sh = &f->shape;
    kvf__kvseg *seg = &f->segs[s];
    *seg = (kvf__kvseg){
        .dtype = dtype, .len = len, .token_stride = sh->D, .head_stride = len * sh->D};
    if (common) {
        seg->token_stride = sh->G * sh->D + 3;
        seg->head_stride = sh->D;
    }
    f->n_seg[s] = len * (sh->G * sh->D + 3);
    f->k[s] = fx_random(rng, dtype, f->n_seg[s], &seg->k);
    f->v[s] = fx_random(rng, dtype, f->n_seg[s], &seg->v);
    if (!grad) return;
    seg->dk = fx_zeros(fx_bytes(KVF__F32, f->n_seg[s]));
    seg->dv = fx_zeros(fx_bytes(KVF__F32, f->n_seg[s]));
}

static void fx_rows(fx *f, kvf__attn_limits *limits)
{
    const fx_shape *sh = &f->shape;
    int64_t at = 0;
    for (int r = 0; r < sh->n_rows; r++) {
        kvf__attn_row *row = &f->rows[r];
        *row = (kvf__attn_row){.start = at, .len = sh->len[r], .first = sh->first[r]};
        row->seg[row->n_segs++] = 0;
        if (sh->common) row->seg[row->n_segs++] = 1;
        if (sh->cache[r]) row->seg[row->n_segs++] = 2 + r;
        at += row->len;
        if (row->len > limits->row_len) limits->row_len = row->len;
        const int64_t shared = sh->P + sh->common + sh->cache[r];
        if (shared > limits->shared_len) limits->shared_len = shared;
    }
    f->attn.N = at + 3; /* padding rows at the end */
}

/* -10 for every seventh key, which makes its weight almost 0. */
static void fx_weigh(fx *f, kvf__rng *rng, int s)
{
    kvf__kvseg *seg = &f->segs[s];
    const int64_t n = f->shape.G * seg->len;
    float *w = fx_zeros(fx_bytes(KVF__F32, n));
    for (int64_t i = 0; i < n; i++)
        w[i] = i % 7 == 3 ? -10 : (float)(2 * kvf__rng_normal(rng));
    seg->log_weight = w;
    seg->dlog_weight = fx_zeros(fx_bytes(KVF__F32, n));
}

/* Buckets are permuted, so that no two nearby distances share one. */
static void fx_relate(fx *f, kvf__rng *rng)
{
    const fx_shape *sh = &f->shape;
    kvf__attn_relative *r = &f->relative;
    const int64_t n = FX_BUCKETS * sh->H * (sh->bias ? 1 : sh->D);
    if (!sh->bias && !sh->terms) return;
    r->most = sh->bias ? 9 : 512;
    int32_t *bucket = fx_zeros(fx_bytes(KVF__F32, 2 * r->most));
    for (int64_t x = 0; x < 2 * r->most - 1; x++)
        bucket[x] = (int32_t)(x * 4 % FX_BUCKETS);
    r->bucket = bucket;
    float *values = fx_zeros(fx_bytes(KVF__F32, 2 * n));
    for (int64_t i = 0; i < 2 * n; i++)
        values[i] = (float)kvf__rng_normal(rng);
    r->bias = sh->bias ? values : NULL;
    r->k = sh->bias ? NULL : values;
    r->q = sh->bias ? NULL : values + n;
    f->attn.relative = r;
}

/* Equal shape and seed give equal values, with the same number of threads. */
static void fx_open(fx *f, const fx_shape *shape, int threads)
{
    kvf__rng rng = kvf__rng_make(7, 1);
    kvf__attn *a = &f->attn;
    *f = (fx){.shape = *shape};
    fx_must(kvf_ctx_create(&(kvf_ctx_options){.threads = threads}, &f->ctx) == KVF_OK);
    kvf__attn_limits limits = {.rows = shape->n_rows,
                               .H = shape->H,
                               .G = shape->G,
                               .D = shape->D,
                               .backward = true,
                               .relative = shape->bias || shape->terms,
                               .grad_len = shape->P + shape->common};
    fx_rows(f, &limits);
    limits.tokens = a->N;
    fx_segment(f, &rng, 0, KVF__F32, shape->P, false, true);
    fx_segment(f, &rng, 1, shape->act, shape->common, true, true);
    for (int r = 0; r < shape->n_rows; r++)
        fx_segment(f, &rng, 2 + r, shape->act, shape->cache[r], false, false);
    for (int r = 0; r < shape->n_rows; r++)
        f->segs[2 + r].near = true;

    for (int s = 0; s < 2 && shape->weighted; s++)
        fx_weigh(f, &rng, s);
    a->H = shape->H, a->G = shape->G, a->D = shape->D;
    a->ld = (a->H + 2 * a->G) * a->D + (shape->lines ? 0 : 5);
    a->act = shape->act;
    a->causal = !shape->full;
    a->window = shape->window;
    a->cap = shape->cap;
    a->scale = (float)(1 / sqrt((double)a->D));
    a->crosses = shape->crosses;
    a->segs = f->segs;
    f->n_qkv = a->N * a->ld;
    f->n_out = a->N * a->H * a->D;
    f->qkv = fx_random(&rng, a->act, f->n_qkv, &a->qkv);
    f->dout = fx_random(&rng, a->act, f->n_out, &a->dout);
    fx_relate(f, &rng);
    a->out = fx_zeros(fx_bytes(a->act, f->n_out));
    a->dqkv = fx_zeros(fx_bytes(a->act, f->n_qkv));
    a->lse = fx_zeros(fx_bytes(KVF__F32, a->H * a->N));
    fx_must(kvf__attn_plan_create(f->ctx, &limits, &a->plan) == KVF_OK);
    kvf__attn_plan_set(a->plan, f->rows, shape->n_rows, f->segs, 2 + shape->n_rows);
}

static void fx_close(fx *f)
{
    for (int s = 0; s < 2 + f->shape.n_rows; s++) {
        free((void *)f->segs[s].k);
        free((void *)f->segs[s].v);
        free(f->segs[s].dk);
        free(f->segs[s].dv);
        free((void *)f->segs[s].log_weight);
        free(f->segs[s].dlog_weight);
        free(f->k[s]);
        free(f->v[s]);
    }
    free((void *)f->relative.bucket);
    free((void *)(f->relative.bias ? f->relative.bias : f->relative.k));
    free((void *)f->attn.qkv);
    free((void *)f->attn.dout);
    free(f->attn.out);
    free(f->attn.dqkv);
    free(f->attn.lse);
    free(f->qkv);
    free(f->dout);
    kvf__attn_plan_free(f->attn.plan);
    kvf_ctx_free(f->ctx);
}

/* n elements of an activation array as floats; the caller frees them. */
FX_UNUSED static float *fx_floats(const fx *f, const void *act, int64_t n)
{
    float *out = fx_zeros(fx_bytes(KVF__F32, n));
    kvf__to_f32(f->shape.act, act, out, n);
    return out;
}

static void fx_zero_grads(fx *f)
{
    for (int s = 0; s < 2; s++) {
        memset(f->segs[s].dk, 0, sizeof(float) * (size_t)f->n_seg[s]);
        memset(f->segs[s].dv, 0, sizeof(float) * (size_t)f->n_seg[s]);
        if (f->segs[s].dlog_weight)
            memset(f->segs[s].dlog_weight, 0,
                   sizeof(float) * (size_t)(f->shape.G * f->segs[s].len));
    }
}

/* Runs forward and backward at one level. */
FX_UNUSED static void fx_run(fx *f, const kvf__kernels *kernels)
{
    fx_zero_grads(f);
    kernels->attn_fwd(&f->attn);
    kernels->attn_bwd(&f->attn);
}

#endif
