/* Products of eight-bit integers with bf16 inputs and outputs: about 1.8 times as fast as bf16
 * products on CPUs with byte dot products (AVX512-VNNI, AMX).
 *
 *     y[m, n] = (sum_k q[m, k] u[k, n]) r[m] c[n] + b[n]
 *
 * q is row m of x over r[m] = max |x[m]| / 127, computed for each call. u is column n of W over
 * c[n] = max |W[., n]| / 127. Both round to nearest even (Dettmers et al. 2022, vector-wise
 * quantization). Sums are exact integers, so the bits of a row do not depend on other rows or on
 * the division of work.
 *
 * oneDNN multiplies u8 by s8 to s32, as VNNI does. The bytes of a row are q + 128, and 128 times
 * the column sums are subtracted again. Products of s8 by s8 are 5 % slower. oneDNN has no fast row
 * scales: a binary post-op of [M, 1] runs its reference code. s32 results of a whole product would
 * pass through memory, which gives only 1.4 to 1.6 times the speed of bf16. So each thread
 * quantizes, multiplies and scales chunks of rows that stay in its cache, with a primitive made for
 * one thread. */
#include "dnnl_matmul_priv.h"

#include <math.h>
#include <omp.h>

enum {
    CHUNK = 128,     /* maximum rows of a chunk: [CHUNK, 1536] sums fill most of a cache of 1 MB */
    CHUNK_UNIT = 16, /* larger chunks have a multiple of this */
    ZERO = 128,      /* offset of a row's unsigned bytes */
    STRIP = 64,      /* columns of a weight at a time */
    LINE = 64        /* bytes */
};

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Quantizes columns from .. to - 1 of w [K, N], row by row. */
static void quantize_columns(const float *w, int64_t K, int64_t N, int64_t from, int64_t to,
                             uint8_t *q, float *scale)
{
    float by[STRIP];

    for (int64_t n = from; n < to; n++)
        scale[n] = 0;
    for (int64_t k = 0; k < K; k++)
        for (int64_t n = from; n < to; n++)
            scale[n] = kvf__larger(scale[n], fabsf(w[k * N + n]));
    for (int64_t n = from; n < to; n++)
        by[n - from] = kvf__quantizer(&scale[n]);
    for (int64_t k = 0; k < K; k++)
        for (int64_t n = from; n < to; n++)
            q[k * N + n] = by[n - from] > 0 ? (uint8_t)lrintf(w[k * N + n] * by[n - from]) : 0;
}

/* Computes the contribution of the rows' offset to the sums of columns from .. to - 1. */
static void sum_columns(const uint8_t *q, bool transposed, int64_t K, int64_t N, int64_t from,
                        int64_t to, int32_t *zero)
{
    for (int64_t n = from; n < to; n++) {
        zero[n] = 0;
        for (int64_t k = 0; transposed && k < K; k++)
            zero[n] += (int8_t)q[n * K + k];
    }
    for (int64_t k = 0; !transposed && k < K; k++)
        for (int64_t n = from; n < to; n++)
            zero[n] += (int8_t)q[k * N + n];
    for (int64_t n = from; n < to; n++)
        zero[n] *= ZERO;
}

/* Quantizes to mm->packing in the order of w, and to packed->scale and zero. */
kvf_status kvf__int8_weights(kvf_ctx *ctx, kvf__mm *mm, const float *w, bool transposed,
                             const kvf__packed *packed)
{
    const int64_t K = packed->K, N = packed->N;

    KVF_TRY(kvf__mm_reserve(ctx, &mm->packing, (size_t)(K * N)));
    uint8_t *q = mm->packing.data;
#pragma omp parallel for schedule(static)
    for (int64_t from = 0; from < N; from += STRIP) {
        const int64_t to = from + STRIP < N ? from + STRIP : N;
        if (transposed)
            mm->kernels->quantize(KVF__F32, q + from * K, 0, packed->scale + from, w + from * K,
                                  to - from, K);
        else
            quantize_columns(w, K, N, from, to, q, packed->scale);
        sum_columns(q, transposed, K, N, from, to, packed->zero);
    }
    return KVF_OK;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Division of M rows, and each thread's buffers for a chunk in its part of mm->own: eight-bit rows
 * at 0, then scales, sums and oneDNN's scratch at these offsets. */
typedef struct plan {
    int64_t each;        /* rows of a thread; the last busy one may have fewer */
    int64_t rows;        /* rows of a chunk; the last chunk of a thread may have fewer */
    kvf__mm_prim *whole; /* primitive for so many rows */
    /* primitives for the remaining rows, and for those of the last thread; NULL: none */
    kvf__mm_prim *rest, *last;
    size_t scale, sums, scratch; /* the rows are at 0 */
    size_t bytes;                /* bytes per thread */
} plan;

/* Chooses from few sizes, so that batches of different sizes share primitives. */
static plan divide(int64_t M, int threads)
{
    const int64_t even = (M + threads - 1) / threads;
    plan p = {.each = even > CHUNK_UNIT ? (int64_t)round_up((size_t)even, CHUNK_UNIT / 2) : even};
    const int64_t chunks = (p.each + CHUNK - 1) / CHUNK, rows = (p.each + chunks - 1) / chunks;

    p.rows = rows > CHUNK_UNIT ? (int64_t)round_up((size_t)rows, CHUNK_UNIT) : rows;
    return p;
}

/* Finds the primitive for `rows` rows of a chunk. */
static kvf_status find_prim(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t rows, plan *p,
                            kvf__mm_prim **out)
{
    if (!rows) return KVF_OK;
    KVF_TRY(kvf__mm_prim_get(ctx, mm, w, rows, KVF__I32, 0, out));
    if ((*out)->scratch_bytes > p->bytes) p->bytes = (*out)->scratch_bytes;
    return KVF_OK;
}

static kvf_status make_plan(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M, plan *p)
{
    const int threads = omp_get_max_threads();

    *p = divide(M, threads);
    if (p->rows > p->each) p->rows = p->each;
    KVF_TRY(find_prim(ctx, mm, w, p->rows, p, &p->whole));
    KVF_TRY(find_prim(ctx, mm, w, p->each % p->rows, p, &p->rest));
    KVF_TRY(find_prim(ctx, mm, w, M % p->each % p->rows, p, &p->last));
    p->scale = round_up((size_t)(p->rows * w->K), LINE);
    p->sums = p->scale + round_up((size_t)p->rows * sizeof(float), LINE);
    p->scratch = p->sums + round_up((size_t)(p->rows * w->N) * sizeof(int32_t), LINE);
    p->bytes = p->scratch + round_up(p->bytes, LINE);
    return kvf__mm_reserve(ctx, &mm->own, p->bytes * (size_t)threads);
}

kvf_status kvf__int8_prepare(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M)
{
    plan p;
    return make_plan(ctx, mm, w, M, &p);
}

/* A product, and the buffers of a thread. */
typedef struct work {
    const kvf__mm *mm;
    const kvf__packed *w;
    const plan *plan;
    int64_t M;
    const void *src;
    void *dst;
    kvf__dtype dst_type;
    bool add;
} work;

static void *row_at(kvf__dtype type, const void *base, int64_t row, int64_t width)
{
    return (char *)base + (size_t)(row * width) * kvf__dtype_block_bytes(type);
}

/* Computes rows first .. first + rows - 1. */
static dnnl_status_t run_chunk(const work *o, const kvf__mm_prim *prim, char *own, int64_t first,
                               int64_t rows)
{
    const plan *p = o->plan;
    const kvf__packed *w = o->w;
    float *scale = (float *)(own + p->scale);
    const kvf__scaled_sums scaled = {.M = rows,
                                     .N = w->N,
                                     .sums = (int32_t *)(own + p->sums),
                                     .zero = w->zero,
                                     .row = scale,
                                     .column = w->scale,
                                     .bias = w->bias_data,
                                     .y = row_at(o->dst_type, o->dst, first, w->N),
                                     .add = o->add};

    o->mm->kernels->quantize(KVF__BF16, (uint8_t *)own, ZERO, scale,
                             row_at(KVF__BF16, o->src, first, w->K), rows, w->K);
    KVF__DNNL_TRY(kvf__mm_run_over(o->mm, prim, w, own, own + p->sums, own + p->scratch));
    o->mm->kernels->scale_sums(o->dst_type, &scaled);
    return dnnl_success;
}

/* Computes the rows of part t. */
static dnnl_status_t run_part(const work *o, int t)
{
    const plan *p = o->plan;
    char *own = (char *)o->mm->own.data + (size_t)t * p->bytes;
    const int64_t begin = t * p->each, end = begin + p->each < o->M ? begin + p->each : o->M;
    const kvf__mm_prim *rest = end - begin == p->each ? p->rest : p->last;

    for (int64_t first = begin; first < end; first += p->rows) {
        const int64_t left = end - first, rows = left < p->rows ? left : p->rows;
        KVF__DNNL_TRY(run_chunk(o, rows < p->rows ? rest : p->whole, own, first, rows));
    }
    return dnnl_success;
}

kvf_status kvf__int8_run(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                         const void *src, void *dst, kvf__dtype dst_type, unsigned flags)
{
    dnnl_status_t failed = dnnl_success;
    plan p;

    KVF_TRY(make_plan(ctx, mm, w, M, &p));
    const work of = {.mm = mm,
                     .w = w,
                     .plan = &p,
                     .M = M,
                     .src = src,
                     .dst = dst,
                     .dst_type = dst_type,
                     .add = (flags & KVF__MM_ADD) != 0};
    const int parts = (int)((M + p.each - 1) / p.each);
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < parts; t++) {
        const dnnl_status_t st = run_part(&of, t);
        if (st) {
#pragma omp critical(kvf_int8)
            failed = st;
        }
    }
    return failed ? kvf__mm_fail(ctx, failed, "int8 product", M, w->K, w->N) : KVF_OK;
}
