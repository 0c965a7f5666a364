/* The functions of wide.h on the vectors of vec.h; compiled once per instruction set (KVF_LEVEL).
 *
 * The matrix must stream through once. Registers hold the results (fwd: GROUP rows of x times two
 * rows of W; adamw_outer: a tile of the gradient) or pieces of W (bwd: eight rows, times all of
 * dy). Rows are too short for the hardware prefetcher, so the next ones are prefetched. Threads
 * split the rows of W, in bwd its columns, so no two add to the same element. */
#include "kernels_int.h"
#include "level.h"
#include "vec_tail.h"

#include <omp.h>

enum {
    GROUP = VF_LANES == 16 ? 8 : 4, /* fwd needs 2 * GROUP + 3 of 32 or 16 registers */
    FWD_BLOCK = 32,                 /* rows of W that stay in the second-level cache */
    BWD_ROWS = 8,
    OUTER_ROWS = 4, /* rows of a gradient tile */
    STRIP = 2,      /* vectors of a gradient tile */
    ADAMW_BLOCK = 4096,
    SERIAL = 32768 /* less work is finished before other threads have woken up */
};

/* Prefetches a line for use soon; any address is allowed. */
VEC_INLINE void prefetch(const float *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Adds one vector of columns, of which n exist, to the sums of fwd_tile. */
VEC_INLINE void fwd_step(vf sum[2][GROUP], const float *x, const float *w, int64_t M, int64_t n,
                         int count, int rows)
{
    vf w0 = vf_load_upto(w, n), w1 = rows > 1 ? vf_load_upto(w + M, n) : w0;
    prefetch(w + 4 * M);
    if (rows > 1) prefetch(w + 5 * M);
    VEC_UNROLL for (int p = 0; p < count; p++)
    {
        vf xp = vf_load_upto(x + p * M, n);
        sum[0][p] = vf_fma(w0, xp, sum[0][p]);
        if (rows > 1) sum[1][p] = vf_fma(w1, xp, sum[1][p]);
    }
}

/* Computes y of `count` rows of x and `rows` (1 or 2) rows of W; both constants where this is
 * inlined. */
VEC_INLINE void fwd_tile(float *y, const float *x, const float *w, const float *b, int64_t N,
                         int64_t M, int count, int rows)
{
    vf sum[2][GROUP];
    VEC_UNROLL for (int p = 0; p < count; p++) sum[0][p] = sum[1][p] = vf_zero();
    FOR_LANES(c, n, 0, M, fwd_step(sum, x + c, w + c, M, n, count, rows););
    VEC_UNROLL for (int p = 0; p < count; p++)
    {
        y[p * N] = vf_sum(sum[0][p]) + b[0];
        if (rows > 1) y[p * N + 1] = vf_sum(sum[1][p]) + b[1];
    }
}

/* Multiplies a pair of rows of W with `count` rows of x; the last pair may be one row. */
VEC_INLINE void fwd_pair(float *y, const float *x, const float *w, const float *b, int64_t N,
                         int64_t M, int count, bool both)
{
    if (both)
        fwd_tile(y, x, w, b, N, M, count, 2);
    else
        fwd_tile(y, x, w, b, N, M, count, 1);
}

/* Loops over rows of x outside, so that they stay in the first-level cache while FWD_BLOCK rows of
 * W pass. */
static void fwd_block(float *y, const float *x, const float *w, const float *b, int64_t P,
                      int64_t N, int64_t M, int64_t rows)
{
    int64_t p = 0;
    for (; p + GROUP <= P; p += GROUP)
        for (int64_t n = 0; n < rows; n += 2)
            fwd_pair(y + p * N + n, x + p * M, w + n * M, b + n, N, M, GROUP, n + 1 < rows);
    for (; p + 4 <= P; p += 4)
        for (int64_t n = 0; n < rows; n += 2)
            fwd_pair(y + p * N + n, x + p * M, w + n * M, b + n, N, M, 4, n + 1 < rows);
    for (; p < P; p++)
        for (int64_t n = 0; n < rows; n += 2)
            fwd_pair(y + p * N + n, x + p * M, w + n * M, b + n, N, M, 1, n + 1 < rows);
}

static void fwd(float *y, const float *x, const float *w, const float *b, int64_t P, int64_t N,
                int64_t M)
{
#pragma omp parallel for schedule(static) if (P * N * M > SERIAL)
    for (int64_t n = 0; n < N; n += FWD_BLOCK)
        fwd_block(y + n, x, w + n * M, b + n, P, N, M, N - n < FWD_BLOCK ? N - n : FWD_BLOCK);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Adds `rows` rows of W, each times its column of dy, to n columns of dx. */
VEC_INLINE void bwd_tile(float *dx, const float *dy, const float *w, int64_t P, int64_t N,
                         int64_t M, int64_t n, int rows)
{
    vf wr[BWD_ROWS];
    VEC_UNROLL for (int r = 0; r < rows; r++)
    {
        wr[r] = vf_load_upto(w + r * M, n);
        prefetch(w + (r + BWD_ROWS) * M);
    }
    for (int64_t p = 0; p < P; p++) {
        vf sum[2] = {vf_load_upto(dx + p * M, n), vf_zero()};
        VEC_UNROLL for (int r = 0; r < rows; r++)
            sum[r % 2] = vf_fma(wr[r], vf_set(dy[p * N + r]), sum[r % 2]);
        vf_store_upto(dx + p * M, sum[0] + sum[1], n);
    }
}

/* Computes columns from .. to of dx. */
static void bwd_columns(float *dx, const float *dy, const float *w, int64_t P, int64_t N, int64_t M,
                        int64_t from, int64_t to)
{
    int64_t n = 0;
    for (int64_t p = 0; p < P; p++)
        memset(dx + p * M + from, 0, (size_t)(to - from) * sizeof *dx);
    for (; n + BWD_ROWS <= N; n += BWD_ROWS)
        FOR_LANES(c, k, from, to, bwd_tile(dx + c, dy + n, w + n * M + c, P, N, M, k, BWD_ROWS););
    for (; n < N; n++)
        FOR_LANES(c, k, from, to, bwd_tile(dx + c, dy + n, w + n * M + c, P, N, M, k, 1););
}

static void bwd(float *dx, const float *dy, const float *w, int64_t P, int64_t N, int64_t M)
{
#pragma omp parallel if (P * N * M > SERIAL)
    {
        int64_t vectors = (M + VF_LANES - 1) / VF_LANES, threads = omp_get_num_threads();
        int64_t me = omp_get_thread_num();
        int64_t from = vectors * me / threads * VF_LANES;
        int64_t to = vectors * (me + 1) / threads * VF_LANES;
        if (from < to) bwd_columns(dx, dy, w, P, N, M, from, to < M ? to : M);
    }
}

/* ---- AdamW ----------------------------------------------------------------------------------- */

/* Updates one vector in torch's order of operations, with reciprocals instead of both divisions. */
VEC_INLINE void update(const kvf__adamw_rates *r, float *w, float *m, float *v, vf g, int64_t n)
{
    vf gradient = g * vf_set(r->grad_scale), m0 = vf_load_upto(m, n);
    vf m1 = vf_fma(gradient - m0, vf_set(r->beta1_rest), m0);
    vf v1 = vf_fma(vf_load_upto(v, n), vf_set(r->beta2),
                   gradient * gradient * vf_set(r->beta2_rest));
    vf denominator = vf_fma(vf_sqrt(v1), vf_set(1 / r->root_correction), vf_set(r->eps));
    vf w1 = vf_fnma(vf_set(r->step_size), m1 * vf_rcp(denominator),
                    vf_load_upto(w, n) * vf_set(r->decay));
    vf_store_upto(m, m1, n);
    vf_store_upto(v, v1, n);
    vf_store_upto(w, w1, n);
}

static void adamw(const kvf__adamw_rates *r, float *w, float *m, float *v, const float *g,
                  int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t first = 0; first < n; first += ADAMW_BLOCK) {
        int64_t end = first + ADAMW_BLOCK < n ? first + ADAMW_BLOCK : n;
        for (int64_t i = first; i < end; i += VF_LANES)
            update(r, w + i, m + i, v + i, vf_load_upto(g + i, end - i), end - i);
    }
}

/* Updates `rows` rows of `count` vectors, of which `columns` elements exist: g = sum over p of
 * left[p][n] * right[p]. Rows share the loads of right, which come from the second-level cache. */
VEC_INLINE void outer_tile(const kvf__adamw_rates *r, float *w, float *m, float *v,
                           const float *left, const float *right, int64_t P, int64_t N, int64_t M,
                           int64_t columns, int rows, int count)
{
    vf g[OUTER_ROWS][STRIP];
    VEC_UNROLL for (int k = 0; k < rows; k++) VEC_UNROLL for (int i = 0; i < count; i++)
    {
        int64_t at = (k + OUTER_ROWS) * M + i * VF_LANES;
        g[k][i] = vf_zero();
        prefetch(w + at);
        prefetch(m + at);
        prefetch(v + at);
    }
    for (int64_t p = 0; p < P; p++) {
        vf x[STRIP];
        VEC_UNROLL for (int i = 0; i < count; i++)
            x[i] = vf_load_upto(right + p * M + i * VF_LANES, columns - i * VF_LANES);
        VEC_UNROLL for (int k = 0; k < rows; k++)
        {
            vf l = vf_set(left[p * N + k]);
            VEC_UNROLL for (int i = 0; i < count; i++) g[k][i] = vf_fma(l, x[i], g[k][i]);
        }
    }
    VEC_UNROLL for (int k = 0; k < rows; k++) VEC_UNROLL for (int i = 0; i < count; i++)
    {
        int64_t at = k * M + i * VF_LANES;
        update(r, w + at, m + at, v + at, g[k][i], columns - i * VF_LANES);
    }
}

VEC_INLINE void outer_rows(const kvf__adamw_rates *r, float *w, float *m, float *v,
                           const float *left, const float *right, int64_t P, int64_t N, int64_t M,
                           int rows)
{
    enum { WIDTH = STRIP * VF_LANES };
    int64_t c = 0;
    for (; c + WIDTH <= M; c += WIDTH)
        outer_tile(r, w + c, m + c, v + c, left, right + c, P, N, M, WIDTH, rows, STRIP);
    for (; c < M; c += VF_LANES)
        outer_tile(r, w + c, m + c, v + c, left, right + c, P, N, M, M - c, rows, 1);
}

static void adamw_outer(const kvf__adamw_rates *r, float *w, float *m, float *v, const float *left,
                        const float *right, int64_t P, int64_t N, int64_t M)
{
#pragma omp parallel for schedule(static) if (P * N * M > SERIAL)
    for (int64_t first = 0; first < N; first += OUTER_ROWS) {
        int64_t n = first;
        if (n + OUTER_ROWS <= N)
            outer_rows(r, w + n * M, m + n * M, v + n * M, left + n, right, P, N, M, OUTER_ROWS);
        else
            for (; n < N; n++)
                outer_rows(r, w + n * M, m + n * M, v + n * M, left + n, right, P, N, M, 1);
    }
}

/* ---- dot ------------------------------------------------------------------------------------- */

#if defined(__AVX512F__)
typedef __m512d vd; /* VF_LANES / 2 doubles */
#else
typedef __m256d vd;
#endif

VEC_INLINE vd vd_load_f32(const float *p)
{
#if defined(__AVX512F__)
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
#else
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
#endif
}

static double dot(const float *a, const float *b, int64_t n)
{
    double lane[VF_LANES] = {0}, sum = 0;
    vd low0 = {0}, high0 = {0}, low1 = {0}, high1 = {0};
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        low0 = VEC(fmadd_pd)(vd_load_f32(a + i), vd_load_f32(b + i), low0);
        high0 = VEC(fmadd_pd)(vd_load_f32(a + i + VF_LANES / 2), vd_load_f32(b + i + VF_LANES / 2),
                              high0);
        low1 = VEC(fmadd_pd)(vd_load_f32(a + i + VF_LANES), vd_load_f32(b + i + VF_LANES), low1);
        high1 = VEC(fmadd_pd)(vd_load_f32(a + i + 3 * VF_LANES / 2),
                              vd_load_f32(b + i + 3 * VF_LANES / 2), high1);
    }
    VEC(storeu_pd)(lane, low0 + low1);
    VEC(storeu_pd)(lane + VF_LANES / 2, high0 + high1);
    for (int k = 0; k < VF_LANES; k++)
        sum += lane[k];
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

const kvf__wide KVF__LEVEL(kvf__wide_) = {.name = KVF__LEVEL_NAME,
                                          .fwd = fwd,
                                          .bwd = bwd,
                                          .adamw = adamw,
                                          .adamw_outer = adamw_outer,
                                          .dot = dot};
