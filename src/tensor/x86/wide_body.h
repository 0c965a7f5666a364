/* The functions of wide.h on the vectors of vec.h; compiled once per instruction set by
 * wide_<level>.c.
 *
 * What counts is that the matrix streams through once: registers hold the results (fwd: GROUP rows
 * of x against two rows of W) or pieces of W (bwd: eight rows, against all of dy). Threads split
 * the rows of W, in bwd its columns, so that no two of them add to the same element. */
#ifndef WIDE_TABLE
#error "wide_body.h is included by wide_<level>.c"
#endif

#include "vec.h"
#include "wide_int.h"

#include <omp.h>

enum {
    GROUP = VF_LANES == 16 ? 8 : 4, /* of 32 or 16 registers, fwd wants 2 * GROUP + 3 */
    STRIP = 4,                      /* vectors of a gradient made at a time */
    BWD_ROWS = 8,
    ADAMW_BLOCK = 4096
};

#if defined(__AVX512F__)

typedef __m512d vd; /* VF_LANES / 2 doubles */

VEC_INLINE vf vf_sqrt(vf v)
{
    return _mm512_sqrt_ps(v);
}

VEC_INLINE vd vd_load_f32(const float *p)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}

VEC_INLINE vd vd_fma(vd a, vd b, vd c)
{
    return _mm512_fmadd_pd(a, b, c);
}

VEC_INLINE void vd_store(double *p, vd v)
{
    _mm512_storeu_pd(p, v);
}

#else

typedef __m256d vd;

VEC_INLINE vf vf_sqrt(vf v)
{
    return _mm256_sqrt_ps(v);
}

VEC_INLINE vd vd_load_f32(const float *p)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
}

VEC_INLINE vd vd_fma(vd a, vd b, vd c)
{
    return _mm256_fmadd_pd(a, b, c);
}

VEC_INLINE void vd_store(double *p, vd v)
{
    _mm256_storeu_pd(p, v);
}

#endif

VEC_INLINE vf load(const float *p, int64_t n)
{
    return n >= VF_LANES ? vf_load(p) : vf_load_n(p, n);
}

VEC_INLINE void store(float *p, vf v, int64_t n)
{
    if (n >= VF_LANES)
        vf_store(p, v);
    else
        vf_store_n(p, v, n);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* y of `count` rows of x and `rows` (1 or 2) rows of W; both constants where this is inlined. */
VEC_INLINE void fwd_tile(float *y, const float *x, const float *w, const float *b, int64_t N,
                         int64_t M, int count, int rows)
{
    vf sum[2][GROUP];
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < count; p++)
            sum[r][p] = vf_set(0);
    for (int64_t c = 0; c < M; c += VF_LANES) {
        vf w0 = load(w + c, M - c), w1 = rows > 1 ? load(w + M + c, M - c) : w0;
        for (int p = 0; p < count; p++) {
            vf xp = load(x + p * M + c, M - c);
            sum[0][p] = vf_fma(w0, xp, sum[0][p]);
            if (rows > 1) sum[1][p] = vf_fma(w1, xp, sum[1][p]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int p = 0; p < count; p++)
            y[p * N + r] = vf_sum(sum[r][p]) + b[r];
}

VEC_INLINE void fwd_rows(float *y, const float *x, const float *w, const float *b, int64_t P,
                         int64_t N, int64_t M, int rows)
{
    int64_t p = 0;
    for (; p + GROUP <= P; p += GROUP)
        fwd_tile(y + p * N, x + p * M, w, b, N, M, GROUP, rows);
    for (; p + 2 <= P; p += 2)
        fwd_tile(y + p * N, x + p * M, w, b, N, M, 2, rows);
    for (; p < P; p++)
        fwd_tile(y + p * N, x + p * M, w, b, N, M, 1, rows);
}

static void fwd(float *y, const float *x, const float *w, const float *b, int64_t P, int64_t N,
                int64_t M)
{
#pragma omp parallel for schedule(static)
    for (int64_t pair = 0; pair < (N + 1) / 2; pair++) {
        int64_t n = 2 * pair;
        if (n + 1 < N)
            fwd_rows(y + n, x, w + n * M, b + n, P, N, M, 2);
        else
            fwd_rows(y + n, x, w + n * M, b + n, P, N, M, 1);
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Adds `rows` rows of W, each times its column of dy, to columns c .. of dx. */
VEC_INLINE void bwd_tile(float *dx, const float *dy, const float *w, int64_t P, int64_t N,
                         int64_t M, int64_t left, int rows)
{
    vf wr[BWD_ROWS];
    for (int r = 0; r < rows; r++)
        wr[r] = load(w + r * M, left);
    for (int64_t p = 0; p < P; p++) {
        vf even = load(dx + p * M, left), odd = vf_set(0);
        for (int r = 0; r + 1 < rows; r += 2) {
            even = vf_fma(wr[r], vf_set(dy[p * N + r]), even);
            odd = vf_fma(wr[r + 1], vf_set(dy[p * N + r + 1]), odd);
        }
        if (rows % 2) even = vf_fma(wr[rows - 1], vf_set(dy[p * N + rows - 1]), even);
        store(dx + p * M, even + odd, left);
    }
}

/* Columns from .. to of dx, `from` a multiple of VF_LANES. */
static void bwd_columns(float *dx, const float *dy, const float *w, int64_t P, int64_t N, int64_t M,
                        int64_t from, int64_t to)
{
    int64_t n = 0;
    for (int64_t p = 0; p < P; p++)
        memset(dx + p * M + from, 0, (size_t)(to - from) * sizeof *dx);
    for (; n + BWD_ROWS <= N; n += BWD_ROWS)
        for (int64_t c = from; c < to; c += VF_LANES)
            bwd_tile(dx + c, dy + n, w + n * M + c, P, N, M, to - c, BWD_ROWS);
    for (; n < N; n++)
        for (int64_t c = from; c < to; c += VF_LANES)
            bwd_tile(dx + c, dy + n, w + n * M + c, P, N, M, to - c, 1);
}

static void bwd(float *dx, const float *dy, const float *w, int64_t P, int64_t N, int64_t M)
{
#pragma omp parallel
    {
        int64_t vectors = (M + VF_LANES - 1) / VF_LANES, threads = omp_get_num_threads();
        int64_t me = omp_get_thread_num();
        int64_t from = vectors * me / threads * VF_LANES;
        int64_t to = vectors * (me + 1) / threads * VF_LANES;
        if (from < to) bwd_columns(dx, dy, w, P, N, M, from, to < M ? to : M);
    }
}

/* ---- AdamW ----------------------------------------------------------------------------------- */

/* One vector; torch's order of operations. */
VEC_INLINE void update(const kvf__adamw_rates *r, float *w, float *m, float *v, vf g, int64_t n)
{
    vf gradient = g * vf_set(r->grad_scale), m0 = load(m, n);
    vf m1 = vf_fma(gradient - m0, vf_set(r->beta1_rest), m0);
    vf v1 = vf_fma(load(v, n), vf_set(r->beta2), gradient * gradient * vf_set(r->beta2_rest));
    vf denominator = vf_sqrt(v1) / vf_set(r->root_correction) + vf_set(r->eps);
    vf w1 = vf_fnma(vf_set(r->step_size), m1 / denominator, load(w, n) * vf_set(r->decay));
    store(m, m1, n);
    store(v, v1, n);
    store(w, w1, n);
}

static void adamw(const kvf__adamw_rates *r, float *w, float *m, float *v, const float *g,
                  int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < n; first += ADAMW_BLOCK) {
        int64_t end = first + ADAMW_BLOCK < n ? first + ADAMW_BLOCK : n;
        for (int64_t i = first; i < end; i += VF_LANES)
            update(r, w + i, m + i, v + i, load(g + i, end - i), end - i);
    }
}

/* `count` vectors of one row: g = sum over p of left[p][n] * right[p]. */
VEC_INLINE void outer_strip(const kvf__adamw_rates *r, float *w, float *m, float *v,
                            const float *left, const float *right, int64_t P, int64_t N, int64_t M,
                            int64_t columns, int count)
{
    vf g[STRIP];
    for (int i = 0; i < count; i++)
        g[i] = vf_set(0);
    for (int64_t p = 0; p < P; p++) {
        vf l = vf_set(left[p * N]);
        for (int i = 0; i < count; i++)
            g[i] = vf_fma(l, load(right + p * M + i * VF_LANES, columns - i * VF_LANES), g[i]);
    }
    for (int i = 0; i < count; i++)
        update(r, w + i * VF_LANES, m + i * VF_LANES, v + i * VF_LANES, g[i],
               columns - i * VF_LANES);
}

static void adamw_outer(const kvf__adamw_rates *r, float *w, float *m, float *v, const float *left,
                        const float *right, int64_t P, int64_t N, int64_t M)
{
    enum { WIDTH = STRIP * VF_LANES };
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++) {
        int64_t at = n * M, c = 0;
        for (; c + WIDTH <= M; c += WIDTH)
            outer_strip(r, w + at + c, m + at + c, v + at + c, left + n, right + c, P, N, M, WIDTH,
                        STRIP);
        for (; c < M; c += VF_LANES)
            outer_strip(r, w + at + c, m + at + c, v + at + c, left + n, right + c, P, N, M, M - c,
                        1);
    }
}

/* ---- dot ------------------------------------------------------------------------------------- */

static double dot(const float *a, const float *b, int64_t n)
{
    double lane[VF_LANES] = {0}, sum = 0;
    vd low0 = {0}, high0 = {0}, low1 = {0}, high1 = {0};
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        low0 = vd_fma(vd_load_f32(a + i), vd_load_f32(b + i), low0);
        high0 = vd_fma(vd_load_f32(a + i + VF_LANES / 2), vd_load_f32(b + i + VF_LANES / 2), high0);
        low1 = vd_fma(vd_load_f32(a + i + VF_LANES), vd_load_f32(b + i + VF_LANES), low1);
        high1 = vd_fma(vd_load_f32(a + i + 3 * VF_LANES / 2), vd_load_f32(b + i + 3 * VF_LANES / 2),
                       high1);
    }
    vd_store(lane, low0 + low1);
    vd_store(lane + VF_LANES / 2, high0 + high1);
    for (int k = 0; k < VF_LANES; k++)
        sum += lane[k];
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

const kvf__wide WIDE_TABLE = {.name = WIDE_LEVEL,
                              .fwd = fwd,
                              .bwd = bwd,
                              .adamw = adamw,
                              .adamw_outer = adamw_outer,
                              .dot = dot};
