/* Every level of kernels this machine has against the reference, over odd shapes and both types; and the reference
 * against formulas, central differences and known values.
 *
 * Tolerances. f32: both sides round once or twice, sums of up to 1536 terms: a few 1e-7 of the terms' size. bf16: the two
 * may round to neighbouring values, 2^-7 apart at worst. Arrays carry a guard behind them, because tails are written with
 * masks that no sanitizer sees. */
#include "ck.h"
#include "kernels.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const char *const LEVELS[] = {"avx2", "avx512", "avx512_bf16"};
enum { N_LEVELS = sizeof LEVELS / sizeof LEVELS[0], GUARD = 64 };
static const struct shape {
    int64_t M, C;
} SHAPES[] = {{0, 16}, {1, 1}, {3, 7}, {5, 64}, {2, 100}, {4, 31}, {7, 576}, {60, 601}, {24, 1536}};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0] };
static const kvf__act_fn FNS[] = {KVF__GELU_TANH, KVF__GELU_ERF, KVF__SILU, KVF__RELU, KVF__QUICK_GELU};
enum { N_FNS = sizeof FNS / sizeof FNS[0] };

static const kvf__kernels *ref, *fast;
static kvf__dtype act;

/* Row _i of LEVELS x {f32, bf16}; false, after a line that says so, if the machine has no such level. */
static bool choose(int row)
{
    omp_set_num_threads(2);
    ref = kvf__kernels_level("ref");
    fast = kvf__kernels_level(LEVELS[row / 2]);
    act = row % 2 ? KVF__BF16 : KVF__F32;
    if (!fast) printf("skipped: this CPU has no %s\n", LEVELS[row / 2]);
    return fast != NULL;
}

static size_t size_of(kvf__dtype dtype)
{
    return dtype == KVF__BF16 ? 2 : 4;
}

/* n elements and the guard. */
static void *array(kvf__dtype dtype, int64_t n)
{
    char *p = malloc((size_t)n * size_of(dtype) + GUARD);
    ck_assert_ptr_nonnull(p);
    memset(p, 0xa5, (size_t)n * size_of(dtype) + GUARD);
    return p;
}

/* Values from -range to range; the first few are the awkward ones. */
static void *filled(kvf__dtype dtype, int64_t n, double range, uint64_t stream)
{
    static const float awkward[] = {0.0f, -0.0f, 1e-8f, -1e-8f, 1.0f, -1.0f};
    kvf__rng rng = kvf__rng_make(5, stream);
    float *values = array(KVF__F32, n);
    for (int64_t i = 0; i < n; i++)
        values[i] = i < 6 ? awkward[i] * (float)range : (float)((2 * kvf__rng_uniform(&rng) - 1) * range);
    if (dtype == KVF__F32) return values;
    void *rounded = array(dtype, n);
    kvf__from_f32(dtype, values, rounded, n);
    free(values);
    return rounded;
}

static void *copy(kvf__dtype dtype, const void *from, int64_t n)
{
    return memcpy(array(dtype, n), from, (size_t)n * size_of(dtype));
}

/* Compares, checks got's guard, frees both. */
static void same(const char *what, kvf__dtype dtype, void *got, void *want, int64_t n, double rtol, double atol)
{
    float *a = array(KVF__F32, n), *b = array(KVF__F32, n);
    char text[160];
    for (int i = 0; i < GUARD; i++)
        ck_assert_msg(((uint8_t *)got)[(size_t)n * size_of(dtype) + i] == 0xa5, "%s wrote behind its end", what);
    kvf__to_f32(dtype, got, a, n);
    kvf__to_f32(dtype, want, b, n);
    if (dtype == KVF__BF16) {
        rtol = 1.0 / 128;
        atol = atol > 1e-30 ? atol : 1e-30;
    }
    snprintf(text, sizeof text, "%s %s %s", fast ? fast->name : "ref", kvf__dtype_name(dtype), what);
    ck_close_at(__FILE__, __LINE__, text, a, b, (size_t)n, rtol, atol);
    free(a);
    free(b);
    free(got);
    free(want);
}

/* ---- parity --------------------------------------------------------------------------------------- */

static void norm_of(int64_t M, int64_t C, bool rms)
{
    float *x = filled(KVF__F32, M * C, 3, 1), *rstd[2] = {array(KVF__F32, M), array(KVF__F32, M)};
    void *xhat[2] = {array(act, M * C), array(act, M * C)};
    const kvf__kernels *by[2] = {fast, ref};
    char what[96];

    for (int64_t i = 0; i < M * C; i++)
        x[i] += 1.5f; /* a mean to be taken off */
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
    if (!choose(_i)) return;
    for (int s = 0; s < N_SHAPES; s++)
        for (int rms = 0; rms < 2; rms++) {
            norm_of(SHAPES[s].M, SHAPES[s].C, rms);
            norm_bwd_of(SHAPES[s].M, SHAPES[s].C, rms, true);
            norm_bwd_of(SHAPES[s].M, SHAPES[s].C, rms, false);
        }
}
END_TEST

/* fn and fn' relative to max(1, |x|): 4 ulp; at 100 and beyond they have reached their limits. */
static void functions_of(int64_t n, double range)
{
    char what[96];
    for (int f = 0; f < N_FNS; f++) {
        void *h[2] = {filled(act, n, range, 6), filled(act, n, range, 6)}, *g[2] = {array(act, n), array(act, n)};
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
        void *g[2] = {filled(act, n, 6, 7), filled(act, n, 6, 7)}, *u[2] = {filled(act, n, 2, 8), filled(act, n, 2, 8)};
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
    if (!choose(_i)) return;
    for (int s = 0; s < N_SHAPES; s++) {
        functions_of(SHAPES[s].M * SHAPES[s].C, 6);
        gated_of(SHAPES[s].M * SHAPES[s].C);
    }
    functions_of(5000, 0.1);
    functions_of(5000, 30);
    functions_of(5000, 1e4);
}
END_TEST

/* Products of two numbers and conversions are exact but for the one rounding: no difference at all. */
static void exact_of(int64_t n)
{
    void *d[2] = {filled(act, n, 2, 9), filled(act, n, 2, 9)}, *by = filled(act, n, 3, 10), *da = filled(act, n, 1, 11);
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
    if (!choose(_i)) return;
    for (int s = 0; s < N_SHAPES; s++)
        exact_of(SHAPES[s].M * SHAPES[s].C);
}
END_TEST

/* NaN stays NaN, infinity infinity, ties go to even, in vector and tail. */
START_TEST(special_values)
{
    const float in[] = {NAN, -NAN, INFINITY, -INFINITY, 1.00390625f, 1.01171875f, 3.4e38f, -0.0f};
    enum { N = 35 };
    float from[N], got[N], want[N];
    uint16_t half[N];
    if (!choose(_i)) return;

    for (int i = 0; i < N; i++)
        from[i] = in[i % 8];
    fast->from_f32(KVF__BF16, half, from, N);
    fast->to_f32(KVF__BF16, got, half, N);
    ref->from_f32(KVF__BF16, half, from, N);
    ref->to_f32(KVF__BF16, want, half, N);
    for (int i = 0; i < N; i++)
        ck_assert_msg(isnan(want[i]) ? isnan(got[i]) : got[i] == want[i], "[%d] %g, want %g", i, (double)got[i],
                      (double)want[i]);
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

/* ---- rope ----------------------------------------------------------------------------------------- */

static const struct turn {
    int64_t M, heads, D, R, extra; /* extra columns behind the heads */
} TURNS[] = {{0, 1, 4, 4, 0}, {1, 1, 2, 2, 0}, {3, 2, 10, 6, 5}, {9, 5, 64, 64, 64}, {4, 3, 80, 50, 1}, {70, 9, 64, 64, 192}};
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

/* Turned by fast and ref alike; turned back, the start; columns that do not turn are untouched. */
static void rope_of(const struct turn *t)
{
    int64_t ld = t->heads * t->D + t->extra, n = t->M * ld, pairs = t->R / 2;
    void *start = filled(act, n, 2, 14), *x[2] = {copy(act, start, n), copy(act, start, n)};
    float *cosines = array(KVF__F32, POSITIONS * pairs), *sines = array(KVF__F32, POSITIONS * pairs);
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
    if (!choose(_i)) return;
    for (int t = 0; t < N_TURNS; t++)
        rope_of(&TURNS[t]);
}
END_TEST

/* Position p turns pair i by p times its frequency: (1, 0) becomes (cos, sin). */
START_TEST(rope_of_ref)
{
    const float cosines[] = {1, 1, 0.6f, 0.8f}, sines[] = {0, 0, 0.8f, 0.6f}; /* [2 positions, 2 pairs] */
    const int32_t position[] = {1, 0};
    float x[2 * 5] = {1, 0, 0, 2, 9, 1, 2, 3, 4, 9};
    const float want[2 * 5] = {0.6f, -1.2f, 0.8f, 1.6f, 9, 1, 2, 3, 4, 9};
    kvf__kernels_level("ref")->rope(KVF__F32, x, 2, 5, 1, 4, 4, position, cosines, sines, false);
    ck_close(x, want, 10, 1e-6, 1e-6);
}
END_TEST

/* ---- cross-entropy -------------------------------------------------------------------------------- */

static const struct vocabulary {
    int64_t rows, V, width, C; /* V words in chunks of `width` columns, the last one padded */
    double range;
} VOCABULARIES[] = {{0, 5, 8, 3, 5}, {1, 1, 1, 1, 5}, {3, 50, 24, 6, 5}, {5, 333, 100, 17, 40}, {34, 3000, 1024, 9, 10},
                    {2, 31, 64, 5, 200}};
enum { N_VOCABULARIES = sizeof VOCABULARIES / sizeof VOCABULARIES[0] };

typedef struct flash {
    float *loss, *p, *acc; /* [rows], [rows, V] probabilities, [rows, C] = p x W */
} flash;

/* What a head does with the kernel: chunk after chunk, acc += e x W, and at the end a division by the sum. */
static flash flash_of(const kvf__kernels *k, const struct vocabulary *v, const float *logits, const int32_t *target,
                      const float *W)
{
    flash out = {array(KVF__F32, v->rows), array(KVF__F32, v->rows * v->V), array(KVF__F32, v->rows * v->C)};
    float *max = array(KVF__F32, v->rows), *sum = array(KVF__F32, v->rows), *hit = array(KVF__F32, v->rows);
    float *chunk = array(KVF__F32, v->rows * v->width), *wide = array(KVF__F32, v->rows * v->width);
    float *top = array(KVF__F32, v->rows * (v->V / v->width + 1));
    void *e = array(act, v->rows * v->width);
    int32_t *own = array(KVF__F32, v->rows);
    int64_t n_chunks = (v->V + v->width - 1) / v->width;

    for (int64_t r = 0; r < v->rows; r++) {
        max[r] = -INFINITY;
        sum[r] = 0;
    }
    for (int64_t i = 0; i < v->rows * v->C; i++)
        out.acc[i] = NAN; /* the first chunk erases it */
    for (int64_t c = 0; c < n_chunks; c++) {
        int64_t first = c * v->width, valid = v->V - first < v->width ? v->V - first : v->width;
        for (int64_t r = 0; r < v->rows; r++) {
            own[r] = (int32_t)(target[r] - first);
            for (int64_t i = 0; i < v->width; i++)
                chunk[r * v->width + i] = i < valid ? logits[r * v->V + first + i] : 1e30f; /* padding must not count */
        }
        k->ce(act, &(kvf__ce_chunk){.rows = v->rows, .width = v->width, .logits = chunk, .valid = valid, .target = own,
                                    .max = max, .sum = sum, .target_logit = hit, .e = e, .acc = out.acc, .C = v->C});
        kvf__to_f32(act, e, wide, v->rows * v->width);
        for (int64_t r = 0; r < v->rows; r++) {
            top[c * v->rows + r] = max[r];
            for (int64_t i = 0; i < v->width; i++) {
                if (i >= valid) ck_assert_float_eq(wide[r * v->width + i], 0);
                for (int64_t d = 0; d < v->C && i < valid; d++)
                    out.acc[r * v->C + d] += wide[r * v->width + i] * W[(first + i) * v->C + d];
                if (i < valid) out.p[r * v->V + first + i] = wide[r * v->width + i];
            }
        }
    }
    for (int64_t r = 0; r < v->rows; r++) {
        out.loss[r] = (float)(log((double)sum[r]) + max[r] - hit[r]);
        for (int64_t i = 0; i < v->V; i++)
            out.p[r * v->V + i] *= expf(top[i / v->width * v->rows + r] - max[r]) / sum[r];
        for (int64_t d = 0; d < v->C; d++)
            out.acc[r * v->C + d] /= sum[r];
    }
    void *all[] = {max, sum, hit, chunk, wide, top, e, own};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    return out;
}

/* The same without chunks, in double. */
static flash softmax_of(const struct vocabulary *v, const float *logits, const int32_t *target, const float *W)
{
    flash out = {array(KVF__F32, v->rows), array(KVF__F32, v->rows * v->V), array(KVF__F32, v->rows * v->C)};
    for (int64_t r = 0; r < v->rows; r++) {
        const float *x = logits + r * v->V;
        double sum = 0;
        for (int64_t i = 0; i < v->V; i++)
            sum += exp((double)x[i] - x[0]);
        out.loss[r] = (float)(log(sum) + x[0] - x[target[r]]);
        for (int64_t i = 0; i < v->V; i++)
            out.p[r * v->V + i] = (float)(exp((double)x[i] - x[0]) / sum);
        for (int64_t d = 0; d < v->C; d++) {
            double total = 0;
            for (int64_t i = 0; i < v->V; i++)
                total += exp((double)x[i] - x[0]) / sum * W[i * v->C + d];
            out.acc[r * v->C + d] = (float)total;
        }
    }
    return out;
}

static void entropy_of(const kvf__kernels *k, const struct vocabulary *v)
{
    float *logits = filled(KVF__F32, v->rows * v->V, v->range, 15), *W = filled(KVF__F32, v->V * v->C, 1, 16);
    int32_t *target = array(KVF__F32, v->rows);
    for (int64_t r = 0; r < v->rows; r++)
        target[r] = (int32_t)((r * 37 + v->V - 1) % v->V);

    flash got = flash_of(k, v, logits, target, W), want = softmax_of(v, logits, target, W);
    double coarse = act == KVF__BF16 ? 1.0 / 256 : 1e-6;
    same("loss", KVF__F32, got.loss, want.loss, v->rows, 1e-6, 3e-6 + 1e-7 * v->range);
    same("probabilities", KVF__F32, got.p, want.p, v->rows * v->V, 2 * coarse + 5e-7 * v->range, 1e-12);
    same("p x W", KVF__F32, got.acc, want.acc, v->rows * v->C, 2e-6, coarse + 1e-6);
    free(logits);
    free(W);
    free(target);
}

START_TEST(entropy)
{
    if (!choose(_i)) return;
    for (int v = 0; v < N_VOCABULARIES; v++)
        entropy_of(fast, &VOCABULARIES[v]);
}
END_TEST

START_TEST(entropy_of_ref)
{
    ref = kvf__kernels_level("ref");
    act = _i ? KVF__BF16 : KVF__F32;
    for (int v = 0; v < N_VOCABULARIES; v++)
        entropy_of(ref, &VOCABULARIES[v]);
}
END_TEST

/* A chunk without valid columns changes nothing; loss only (no e, no acc) gives the same sums; NaN reaches the sum. */
START_TEST(entropy_limits)
{
    enum { W = 37 };
    float logits[W], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0}, hit[2] = {7, 7}, e[W];
    const int32_t outside[] = {-3};
    if (!choose(_i)) return;
    for (int i = 0; i < W; i++)
        logits[i] = (float)(i % 11) - 4;
    kvf__ce_chunk chunk = {.rows = 1, .width = W, .logits = logits, .valid = 0, .target = outside, .max = max, .sum = sum,
                           .target_logit = hit};

    fast->ce(act, &chunk);
    ck_assert(max[0] == -INFINITY && sum[0] == 0 && hit[0] == 7);
    chunk.valid = W;
    fast->ce(act, &chunk);
    ck_assert(max[0] == 6 && hit[0] == 7);
    chunk.max = max + 1;
    chunk.sum = sum + 1;
    chunk.e = e;
    fast->ce(act, &chunk);
    ck_assert_float_eq(sum[0], sum[1]);
    logits[W - 1] = NAN;
    fast->ce(act, &chunk);
    ck_assert(isnan(sum[1]));
}
END_TEST

/* ---- threads -------------------------------------------------------------------------------------- */

/* The same bits with 1, 2 and 3 threads. */
START_TEST(any_thread_count)
{
    enum { M = 90, C = 601, N = M * C };
    if (!choose(_i)) return;
    void *first[3] = {0};
    for (int threads = 1; threads <= 3; threads++) {
        float *x = filled(KVF__F32, N, 3, 17), *rstd = array(KVF__F32, M), *dx = filled(KVF__F32, N, 1, 18);
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

/* ---- the reference against mathematics ------------------------------------------------------------ */

START_TEST(known_values)
{
    /* transformers: gelu_new(1), torch gelu(1), silu(1), relu(1), 1 * sigmoid(1.702); then at -2 */
    const float want[N_FNS][2] = {{0.84119199f, -0.04540231f}, {0.84134475f, -0.04550026f}, {0.73105858f, -0.23840584f},
                                  {1, 0}, {0.84579577f, -0.06434137f}};
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
    ck_close(h[1], numeric, N, 1e-4, 2e-4); /* third derivatives are near 1: step^2 / 6 = 4e-5, rounding 2e-5 */
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

START_TEST(levels)
{
    ck_assert_ptr_nonnull(kvf__kernels_level("ref"));
    ck_assert_ptr_null(kvf__kernels_level("sse9"));
    ck_assert_ptr_nonnull(kvf__kernels_get());
    setenv("KVF_CPU", "ref", 1);
    ck_assert_str_eq(kvf__cpu_level(), "ref");
    ck_assert_str_eq(kvf__kernels_get()->name, "ref");
    ck_assert_ptr_null(kvf__kernels_level("avx2"));
    ck_assert(!kvf__cpu_has_bf16());
    unsetenv("KVF_CPU");
    ck_assert_str_eq(kvf__kernels_level("ref")->name, "ref");
}
END_TEST

int main(void)
{
    enum { ROWS = 2 * N_LEVELS };
    Suite *suite = suite_create("kernels");
    TCase *parity = tcase_create("parity"), *core = tcase_create("core"), *grad = tcase_create("grad"),
          *limits = tcase_create("limits");
    tcase_set_timeout(parity, 60);
    tcase_add_loop_test(parity, norms, 0, ROWS);
    tcase_add_loop_test(parity, functions, 0, ROWS);
    tcase_add_loop_test(parity, products_and_conversions, 0, ROWS);
    tcase_add_loop_test(parity, rope, 0, ROWS);
    tcase_add_loop_test(parity, entropy, 0, ROWS);
    tcase_add_loop_test(parity, any_thread_count, 0, ROWS);
    tcase_add_test(core, known_values);
    tcase_add_test(core, rope_of_ref);
    tcase_add_loop_test(core, entropy_of_ref, 0, 2);
    tcase_add_test(core, levels);
    tcase_add_loop_test(grad, slopes, 0, N_FNS);
    tcase_add_loop_test(grad, norm_slope, 0, 2);
    tcase_add_loop_test(limits, special_values, 0, ROWS);
    tcase_add_loop_test(limits, entropy_limits, 0, ROWS);
    suite_add_tcase(suite, parity);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, grad);
    suite_add_tcase(suite, limits);
    return ck_main(suite);
}
