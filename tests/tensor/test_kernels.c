/* Every kernel level of this machine against the reference, over odd shapes and both types. The
 * reference is checked against formulas, central differences and known values. Cross-entropy is in
 * test_kernels_entropy.c. */
#include "kernels_int.h"
#include "matvec.h"
#include "wide.h"

#include "kernels_fx.h"

static const struct shape {
    int64_t M, C;
} SHAPES[] = {{0, 16}, {1, 1}, {3, 7}, {5, 64}, {2, 100}, {4, 31}, {7, 576}, {60, 601}, {24, 1536}};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0] };
static const kvf__act_fn FNS[] = {KVF__GELU_TANH, KVF__GELU_ERF,   KVF__SILU,
                                  KVF__RELU,      KVF__QUICK_GELU, KVF__TANH};
enum { N_FNS = sizeof FNS / sizeof FNS[0] };

static void *copy(kvf__dtype dtype, const void *from, int64_t n)
{
    return memcpy(array(dtype, n), from, (size_t)n * size_of(dtype));
}

/* ---- parity ---------------------------------------------------------------------------------- */

static void norm_of(int64_t M, int64_t C, bool rms)
{
    float *x = filled(KVF__F32, M * C, 3, 1), *rstd[2] = {array(KVF__F32, M), array(KVF__F32, M)};
    void *xhat[2] = {array(act, M * C), array(act, M * C)};
    const kvf__kernels *by[2] = {fast, ref};
    char what[96];

    for (int64_t i = 0; i < M * C; i++)
        x[i] += 1.5f; /* a mean to be subtracted */
    for (int k = 0; k < 2; k++)
        by[k]->norm_fwd(act, xhat[k], rstd[k], x, M, C, rms, 1e-5f);
    snprintf(what, sizeof what, "norm_fwd [%d, %d] rms %d", (int)M, (int)C, rms);
    same(what, act, xhat[0], xhat[1], M * C, 2e-6, C == 1 ? 1e-4 : 2e-6);
    same(what, KVF__F32, rstd[0], rstd[1], M, 2e-6, 0);
    free(x);
}

static void norm_bwd_of(int64_t M, int64_t C, bool rms, bool with_act)
{
    void *d = filled(act, M * C, 1, 2), *xhat = filled(act, M * C, 1.7, 3);
    float *rstd = filled(KVF__F32, M, 1, 4), *start = filled(KVF__F32, M * C, 1, 5);
    float *dx[2] = {copy(KVF__F32, start, M * C), copy(KVF__F32, start, M * C)};
    void *also[2] = {array(act, M * C), array(act, M * C)};
    const kvf__kernels *by[2] = {fast, ref};
    char what[96];

    for (int k = 0; k < 2; k++)
        by[k]->norm_bwd(act, dx[k], with_act ? also[k] : NULL, d, xhat, rstd, M, C, rms);
    snprintf(what, sizeof what, "norm_bwd [%d, %d] rms %d", (int)M, (int)C, rms);
    same(what, KVF__F32, dx[0], dx[1], M * C, 1e-6, 2e-6);
    if (with_act)
        same(what, act, also[0], also[1], M * C, 1e-6, 2e-6);
    else
        for (int k = 0; k < 2; k++)
            free(also[k]);
    free(d);
    free(xhat);
    free(rstd);
    free(start);
}

START_TEST(norms)
{
    ck_need(choose(_i), "this CPU has no such kernels");
    for (int s = 0; s < N_SHAPES; s++)
        for (int rms = 0; rms < 2; rms++) {
            norm_of(SHAPES[s].M, SHAPES[s].C, rms);
            norm_bwd_of(SHAPES[s].M, SHAPES[s].C, rms, true);
            norm_bwd_of(SHAPES[s].M, SHAPES[s].C, rms, false);
        }
}
END_TEST

/* fn and fn' relative to max(1, |x|): 4 ulp; at 100 and beyond they are at their limits. */
static void functions_of(int64_t n, double range)
{
    char what[96];
    for (int f = 0; f < N_FNS; f++) {
        void *h[2] = {filled(act, n, range, 6), filled(act, n, range, 6)},
             *g[2] = {array(act, n), array(act, n)};
        fast->act_fwd(act, FNS[f], h[0], g[0], n);
        ref->act_fwd(act, FNS[f], h[1], g[1], n);
        snprintf(what, sizeof what, "function %d, n %d, |x| <= %g", f, (int)n, range);
        same(what, act, g[0], g[1], n, 5e-7, 3e-7);
        same(what, act, h[0], h[1], n, 5e-7, 5e-7);
    }
}

static void gated_of(int64_t n)
{
    char what[96];
    for (int f = 0; f < N_FNS; f++) {
        void *g[2] = {filled(act, n, 6, 7), filled(act, n, 6, 7)},
             *u[2] = {filled(act, n, 2, 8), filled(act, n, 2, 8)};
        void *a[2] = {array(act, n), array(act, n)};
        fast->glu_fwd(act, FNS[f], g[0], u[0], a[0], n);
        ref->glu_fwd(act, FNS[f], g[1], u[1], a[1], n);
        snprintf(what, sizeof what, "gated function %d, n %d", f, (int)n);
        same(what, act, a[0], a[1], n, 1e-6, 1e-6);
        same(what, act, g[0], g[1], n, 1e-6, 1e-6);
        same(what, act, u[0], u[1], n, 1e-6, 1e-6);
    }
}

START_TEST(functions)
{
    ck_need(choose(_i), "this CPU has no such kernels");
    for (int s = 0; s < N_SHAPES; s++) {
        functions_of(SHAPES[s].M * SHAPES[s].C, 6);
        gated_of(SHAPES[s].M * SHAPES[s].C);
    }
    functions_of(5000, 0.1);
    functions_of(5000, 30);
    functions_of(5000, 1e4);
}
END_TEST

/* Products of two numbers and conversions are exact except for one rounding: no difference at
 * all. */
static void exact_of(int64_t n)
{
    void *d[2] = {filled(act, n, 2, 9), filled(act, n, 2, 9)}, *by = filled(act, n, 3, 10),
         *da = filled(act, n, 1, 11);
    void *dg[2] = {array(act, n), array(act, n)}, *du[2] = {array(act, n), array(act, n)};
    void *u = filled(act, n, 2, 12), *alias_g = copy(act, by, n), *alias_u = copy(act, u, n);
    float *wide[2] = {array(KVF__F32, n), array(KVF__F32, n)}, *plain = filled(KVF__F32, n, 7, 13);
    void *narrow[2] = {array(act, n), array(act, n)};
    size_t bytes = (size_t)n * size_of(act);

    fast->glu_bwd(act, dg[0], du[0], da, by, u, n);
    ref->glu_bwd(act, dg[1], du[1], da, by, u, n);
    fast->glu_bwd(act, alias_g, alias_u, da, alias_g, alias_u, n);
    ck_assert_mem_eq(alias_g, dg[0], bytes);
    ck_assert_mem_eq(alias_u, du[0], bytes);
    fast->mul(act, d[0], by, n);
    ref->mul(act, d[1], by, n);
    fast->from_f32(act, narrow[0], plain, n);
    ref->from_f32(act, narrow[1], plain, n);
    ck_assert_mem_eq(narrow[0], narrow[1], bytes);
    fast->to_f32(act, wide[0], narrow[0], n);
    ref->to_f32(act, wide[1], narrow[1], n);

    same("mul", act, d[0], d[1], n, 0, 0);
    same("glu_bwd dg", act, dg[0], dg[1], n, 0, 0);
    same("glu_bwd du", act, du[0], du[1], n, 0, 0);
    same("to_f32", KVF__F32, wide[0], wide[1], n, 0, 0);
    void *rest[] = {by, da, u, alias_g, alias_u, plain, narrow[0], narrow[1]};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
        free(rest[i]);
}

START_TEST(products_and_conversions)
{
    ck_need(choose(_i), "this CPU has no such kernels");
    for (int s = 0; s < N_SHAPES; s++)
        exact_of(SHAPES[s].M * SHAPES[s].C);
}
END_TEST

/* NaN stays NaN, infinity stays infinity, ties round to even, in vector and tail. */
START_TEST(special_values)
{
    const float in[] = {NAN, -NAN, INFINITY, -INFINITY, 1.00390625f, 1.01171875f, 3.4e38f, -0.0f};
    enum { N = 35 };
    float from[N], got[N], want[N];
    uint16_t half[N];
    ck_need(choose(_i), "this CPU has no such kernels");

    for (int i = 0; i < N; i++)
        from[i] = in[i % 8];
    fast->from_f32(KVF__BF16, half, from, N);
    fast->to_f32(KVF__BF16, got, half, N);
    ref->from_f32(KVF__BF16, half, from, N);
    ref->to_f32(KVF__BF16, want, half, N);
    for (int i = 0; i < N; i++)
        ck_assert_msg(isnan(want[i]) ? isnan(got[i]) : got[i] == want[i], "[%d] %g, want %g", i,
                      (double)got[i], (double)want[i]);
    ck_assert(got[4] == 1.0f && got[5] == 1.015625f);

    for (int i = 0; i < N; i++)
        from[i] = i == 20 ? NAN : 1;
    for (int f = 0; f < N_FNS; f++) {
        memcpy(want, from, sizeof want);
        fast->act_fwd(KVF__F32, FNS[f], want, got, N);
        ck_assert(isnan(got[20]) && !isnan(got[19]) && !isnan(got[21]));
    }
}
END_TEST

/* ---- rope ------------------------------------------------------------------------------------ */

static const struct turn {
    int64_t M, heads, D, R, extra; /* extra columns after the heads */
} TURNS[] = {{0, 1, 4, 4, 0},    {1, 1, 2, 2, 0},   {3, 2, 10, 6, 5},
             {9, 5, 64, 64, 64}, {4, 3, 80, 50, 1}, {70, 9, 64, 64, 192}};
enum { N_TURNS = sizeof TURNS / sizeof TURNS[0], POSITIONS = 50 };

static void tables(int64_t pairs, float *cosines, float *sines)
{
    for (int64_t p = 0; p < POSITIONS; p++)
        for (int64_t i = 0; i < pairs; i++) {
            double angle = (double)p * pow(10000, -(double)i / (double)pairs);
            cosines[p * pairs + i] = (float)cos(angle);
            sines[p * pairs + i] = (float)sin(angle);
        }
}

/* fast and ref rotate alike; rotating back gives the start; other columns are untouched. */
static void rope_of(const struct turn *t)
{
    int64_t ld = t->heads * t->D + t->extra, n = t->M * ld, pairs = t->R / 2;
    void *start = filled(act, n, 2, 14), *x[2] = {copy(act, start, n), copy(act, start, n)};
    float *cosines = array(KVF__F32, POSITIONS * pairs),
          *sines = array(KVF__F32, POSITIONS * pairs);
    int32_t *position = array(KVF__F32, t->M);

    tables(pairs, cosines, sines);
    for (int64_t m = 0; m < t->M; m++)
        position[m] = (int32_t)((m * 7 + 1) % POSITIONS);
    fast->rope(act, x[0], t->M, ld, t->heads, t->D, t->R, position, cosines, sines, false);
    ref->rope(act, x[1], t->M, ld, t->heads, t->D, t->R, position, cosines, sines, false);
    for (int64_t i = 0; i < n; i++) {
        bool turns = i % ld < t->heads * t->D && i % ld % t->D < t->R;
        size_t at = (size_t)i * size_of(act);
        if (!turns) ck_assert_mem_eq((char *)x[0] + at, (char *)start + at, size_of(act));
    }
    void *back = copy(act, x[0], n);
    fast->rope(act, back, t->M, ld, t->heads, t->D, t->R, position, cosines, sines, true);
    same("rope", act, x[0], x[1], n, 1e-6, act == KVF__BF16 ? 1e-2 : 1e-6);
    same("rope and back", act, back, start, n, 2e-6, act == KVF__BF16 ? 3e-2 : 2e-6);
    free(cosines);
    free(sines);
    free(position);
}

START_TEST(rope)
{
    ck_need(choose(_i), "this CPU has no such kernels");
    for (int t = 0; t < N_TURNS; t++)
        rope_of(&TURNS[t]);
}
END_TEST

/* Position p rotates pair i by p times its frequency: (1, 0) becomes (cos, sin). */
START_TEST(rope_of_ref)
{
    const float cosines[] = {1, 1, 0.6f, 0.8f},
                sines[] = {0, 0, 0.8f, 0.6f}; /* [2 positions, 2 pairs] */
    const int32_t position[] = {1, 0};
    float x[2 * 5] = {1, 0, 0, 2, 9, 1, 2, 3, 4, 9};
    const float want[2 * 5] = {0.6f, -1.2f, 0.8f, 1.6f, 9, 1, 2, 3, 4, 9};
    kvf__kernels_level("ref")->rope(KVF__F32, x, 2, 5, 1, 4, 4, position, cosines, sines, false);
    ck_close(x, want, 10, 1e-6, 1e-6);
}
END_TEST

/* ---- threads --------------------------------------------------------------------------------- */

/* The same bits with 1, 2 and 3 threads. */
START_TEST(any_thread_count)
{
    enum { M = 90, C = 601, N = M * C };
    ck_need(choose(_i), "this CPU has no such kernels");
    void *first[3] = {0};
    for (int threads = 1; threads <= 3; threads++) {
        float *x = filled(KVF__F32, N, 3, 17), *rstd = array(KVF__F32, M),
              *dx = filled(KVF__F32, N, 1, 18);
        void *out[3] = {array(act, N), filled(act, N, 4, 19), dx};
        omp_set_num_threads(threads);
        fast->norm_fwd(act, out[0], rstd, x, M, C, false, 1e-5f);
        fast->norm_bwd(act, dx, NULL, out[1], out[0], rstd, M, C, false);
        fast->act_fwd(act, KVF__GELU_TANH, out[1], out[0], N);
        for (int k = 0; k < 3; k++) {
            size_t bytes = N * size_of(k == 2 ? KVF__F32 : act);
            if (threads == 1)
                first[k] = memcpy(malloc(bytes), out[k], bytes);
            else
                ck_assert_mem_eq(out[k], first[k], bytes);
            free(out[k]);
        }
        free(x);
        free(rstd);
    }
    for (int k = 0; k < 3; k++)
        free(first[k]);
}
END_TEST

/* ---- the reference against mathematics ------------------------------------------------------- */

START_TEST(known_values)
{
    /* transformers: gelu_new(1), torch gelu(1), silu(1), relu(1), 1 * sigmoid(1.702), tanh(1); then
     * at -2 */
    const float want[N_FNS][2] = {{0.84119199f, -0.04540231f}, {0.84134475f, -0.04550026f},
                                  {0.73105858f, -0.23840584f}, {1, 0},
                                  {0.84579577f, -0.06434137f}, {0.76159416f, -0.96402758f}};
    for (int f = 0; f < N_FNS; f++) {
        float h[2] = {1, -2}, g[2];
        kvf__kernels_level("ref")->act_fwd(KVF__F32, FNS[f], h, g, 2);
        ck_close(g, want[f], 2, 1e-6, 1e-7);
    }
}
END_TEST

START_TEST(slopes)
{
    enum { N = 101 };
    const float step = 1.0f / 64;
    const kvf__kernels *k = kvf__kernels_level("ref");
    float h[3][N], g[3][N], numeric[N];
    for (int i = 0; i < N; i++)
        for (int s = 0; s < 3; s++)
            h[s][i] = (float)(i - 50) / 10 + 0.03f + (float)(s - 1) * step;
    for (int s = 0; s < 3; s++)
        k->act_fwd(KVF__F32, FNS[_i], h[s], g[s], N);
    for (int i = 0; i < N; i++)
        numeric[i] = (g[2][i] - g[0][i]) / (2 * step);
    ck_close(h[1], numeric, N, 1e-4,
             2e-4); /* third derivatives are near 1: step^2 / 6 = 4e-5, rounding 2e-5 */
}
END_TEST

/* sum(xhat * d) as a function of x, one element moved at a time. */
START_TEST(norm_slope)
{
    enum { C = 9 };
    const kvf__kernels *k = kvf__kernels_level("ref");
    bool rms = _i;
    float x[C], d[C], xhat[C], rstd, dx[C] = {0}, numeric[C];
    for (int i = 0; i < C; i++) {
        x[i] = (float)((i * 5) % 9) / 3 - 0.7f;
        d[i] = (float)((i * 7) % 5) / 2 - 0.8f;
    }
    k->norm_fwd(KVF__F32, xhat, &rstd, x, 1, C, rms, 1e-5f);
    k->norm_bwd(KVF__F32, dx, NULL, d, xhat, &rstd, 1, C, rms);
    for (int i = 0; i < C; i++) {
        double side[2] = {0, 0};
        for (int s = 0; s < 2; s++) {
            float moved[C], moved_hat[C], unused;
            memcpy(moved, x, sizeof x);
            moved[i] += s ? 0.01f : -0.01f;
            k->norm_fwd(KVF__F32, moved_hat, &unused, moved, 1, C, rms, 1e-5f);
            for (int j = 0; j < C; j++)
                side[s] += (double)moved_hat[j] * d[j];
        }
        numeric[i] = (float)((side[1] - side[0]) / 0.02);
    }
    ck_close(dx, numeric, C, 1e-3, 2e-4);
}
END_TEST

/* A vocabulary of three in two chunks, of which the second has the larger maximum: its factor is
 * e^-2. */
START_TEST(entropy_of_ref)
{
    const float logits[2][2] = {{1, 3}, {5, 1e30f /* padding */}};
    const float e[2][2] = {{0.13533528f, 1}, {1, 0}}, sums[2] = {1.13533528f, 1.15365092f};
    const int32_t target[2] = {2, 0}; /* in the second chunk */
    float max = -INFINITY, sum = 0, hit = 7, acc = NAN, got[2];
    for (int c = 0; c < 2; c++) {
        kvf__kernels_level("ref")->ce(KVF__F32, &(kvf__ce_chunk){.rows = 1,
                                                                 .width = 2,
                                                                 .logits = logits[c],
                                                                 .valid = 2 - c,
                                                                 .target = &target[c],
                                                                 .max = &max,
                                                                 .sum = &sum,
                                                                 .target_logit = &hit,
                                                                 .e = got,
                                                                 .acc = &acc,
                                                                 .C = 1});
        ck_close(got, e[c], 2, 1e-6, 0);
        ck_close(&sum, &sums[c], 1, 1e-6, 0);
        ck_assert_float_eq(max, c ? 5 : 3);
        ck_assert_float_eq(hit, c ? 5 : 7);
        ck_close(&acc, &(float){c ? 1.3533528f : 0}, 1, 1e-6, 0);
        acc = 10;
    }
}
END_TEST

/* Ties round to even; rows of zeros, and rows with an infinity, become zeros. */
START_TEST(eight_bits_of_ref)
{
    const float x[3 * 4] = {127, -63.4f, 0.5f, 1.5f, 0, -0.0f, 0, 0, 1, -INFINITY, 2, 3},
                      scales[] = {1, 0, INFINITY};
    const int8_t want[3 * 4] = {127, -63, 0, 2};
    for (int zero = 0; zero <= 128; zero += 128) {
        uint8_t q[3 * 4];
        float scale[3];
        kvf__kernels_level("ref")->quantize(KVF__F32, q, (uint8_t)zero, scale, x, 3, 4);
        for (int i = 0; i < 3 * 4; i++)
            ck_assert_int_eq(q[i], (uint8_t)(zero + want[i]));
        ck_assert_mem_eq(scale, scales, sizeof scale);
    }
}
END_TEST

START_TEST(scaled_sums_of_ref)
{
    const int32_t sums[] = {10, -4, 7, 0}, zero[] = {2, 1};
    const float row[] = {0.5f, 2}, column[] = {1, 4}, bias[] = {1, -1};
    const float want[3][4] = {{4, -10, 10, -8}, {5, -11, 11, -9}, {10, -22, 22, -18}};
    float y[4] = {NAN, NAN, NAN, NAN};
    for (int i = 0; i < 3; i++) { /* without a bias, with one, and added to that */
        const kvf__scaled_sums s = {2, 2, sums, zero, row, column, i ? bias : NULL, y, i == 2};
        kvf__kernels_level("ref")->scale_sums(KVF__F32, &s);
        ck_assert_mem_eq(y, want[i], sizeof y);
    }
}
END_TEST

/* KVF_CPU limits every table; without it the tables are those of the machine. */
START_TEST(levels)
{
    ck_assert_ptr_nonnull(kvf__kernels_level("ref"));
    ck_assert_ptr_null(kvf__kernels_level("sse9"));
    ck_assert_ptr_null(kvf__matvec_level("sse9"));
    ck_assert_ptr_null(kvf__wide_level("sse9"));
    ck_assert_ptr_nonnull(kvf__kernels_get());
    setenv("KVF_CPU", "ref", 1);
    ck_assert(kvf__cpu_is_capped());
    ck_assert_str_eq(kvf__cpu_level(), "ref");
    ck_assert_str_eq(kvf__kernels_get()->name, "ref");
    ck_assert_ptr_eq(kvf__matvec_get(), kvf__matvec_level("ref"));
    ck_assert_ptr_eq(kvf__wide_get(), kvf__wide_level("ref"));
    ck_assert_ptr_null(kvf__kernels_level("avx2"));
    ck_assert_ptr_null(kvf__matvec_level("avx2"));
    ck_assert_ptr_null(kvf__wide_level("avx2"));
    ck_assert(!kvf__cpu_has_bf16() && !kvf__cpu_has_int8() && !kvf__cpu_bf16_is_faster());
    setenv("KVF_CPU", "avx512", 1);
    ck_assert(!kvf__cpu_has_int8()); /* the cap leaves out VNNI */
    setenv("KVF_CPU", "sse9", 1);
    ck_assert(!kvf__cpu_is_capped());
    unsetenv("KVF_CPU");
    ck_assert(!kvf__cpu_is_capped());
    ck_assert_str_eq(kvf__kernels_level("ref")->name, "ref");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels");
    TCase *parity = tcase_create("parity"), *core = tcase_create("core"),
          *grad = tcase_create("grad"), *limits = tcase_create("limits");
    tcase_set_timeout(parity, 60);
    tcase_add_loop_test(parity, norms, 0, LEVEL_ROWS);
    tcase_add_loop_test(parity, functions, 0, LEVEL_ROWS);
    tcase_add_loop_test(parity, products_and_conversions, 0, LEVEL_ROWS);
    tcase_add_loop_test(parity, rope, 0, LEVEL_ROWS);
    tcase_add_loop_test(parity, any_thread_count, 0, LEVEL_ROWS);
    tcase_add_test(core, known_values);
    tcase_add_test(core, rope_of_ref);
    tcase_add_test(core, entropy_of_ref);
    tcase_add_test(core, eight_bits_of_ref);
    tcase_add_test(core, scaled_sums_of_ref);
    tcase_add_test(core, levels);
    tcase_add_loop_test(grad, slopes, 0, N_FNS);
    tcase_add_loop_test(grad, norm_slope, 0, 2);
    tcase_add_loop_test(limits, special_values, 0, LEVEL_ROWS);
    suite_add_tcase(suite, parity);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, grad);
    suite_add_tcase(suite, limits);
    return ck_main(suite);
}
