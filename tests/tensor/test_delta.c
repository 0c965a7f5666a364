/* The gated delta rule: each instruction set against the reference, rows continued at a token with
 * the same bits, and the gradient against differences. */
#include "ck.h"
#include "delta.h"
#include "kernels_int.h"
#include "rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const LEVELS[] = {"ref", "avx2", "avx512", "avx512_bf16"};
enum { N_LEVELS = 4 };

/* Tokens, sizes of keys and values: whole blocks, parts of a vector, several chunks. */
static const struct {
    int64_t n, K, V;
} SIZES[] = {{1, 1, 1}, {17, 6, 9}, {40, 16, 64}, {33, 12, 70}, {16, 8, 128}, {5, 3, 33}};
enum { N_SIZES = sizeof SIZES / sizeof SIZES[0] };

typedef struct data {
    kvf__delta d;
    float *start, *dend; /* [K, V] */
} data;

static float *numbers(int64_t n, uint64_t stream, double by)
{
    kvf__rng rng = kvf__rng_make(3, stream);
    float *out = NULL;
    ck_assert(!kvf__alloc_array(NULL, (size_t)n, sizeof *out, &out));
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(by * kvf__rng_normal(&rng));
    return out;
}

static data make(int64_t n, int64_t K, int64_t V)
{
    const double unit = 1 / sqrt((double)K);
    data a = {.d = {.n = n,
                    .K = K,
                    .V = V,
                    .q = numbers(n * K, 0, unit),
                    .k = numbers(n * K, 1, unit),
                    .v = numbers(n * V, 2, 1),
                    .state = numbers(K * V, 3, 0),
                    .out = numbers(n * V, 4, 0),
                    .dout = numbers(n * V, 5, 1),
                    .dstate = numbers(K * V, 6, 0),
                    .dq = numbers(n * K, 7, 0),
                    .dk = numbers(n * K, 7, 0),
                    .dv = numbers(n * V, 7, 0),
                    .dlog_decay = numbers(n, 7, 0),
                    .dbeta = numbers(n, 7, 0),
                    .scratch = numbers(kvf__delta_scratch(n, K), 7, 0)},
              .start = numbers(K * V, 8, 1),
              .dend = numbers(K * V, 9, 1)};
    float *decay = numbers(n, 10, 1), *beta = numbers(n, 11, 1);
    for (int64_t t = 0; t < n; t++) {
        decay[t] = 1 / (1 + expf(-decay[t] - 1));
        beta[t] = 1 / (1 + expf(-beta[t]));
    }
    a.d.decay = decay;
    a.d.beta = beta;
    return a;
}

static void done(data *a)
{
    const void *all[] = {a->d.q,     a->d.k,          a->d.v,      a->d.decay, a->d.beta,
                         a->d.state, a->d.out,        a->d.dout,   a->d.dq,    a->d.dk,
                         a->d.dv,    a->d.dlog_decay, a->d.dstate, a->d.dbeta, a->start,
                         a->dend,    a->d.scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kvf__free((void *)(uintptr_t)all[i]);
}

static void restart(data *a)
{
    memcpy(a->d.state, a->start, (size_t)(a->d.K * a->d.V) * sizeof(float));
}

static void fwd(const kvf__kernels *level, data *a)
{
    restart(a);
    level->delta_fwd(&a->d);
}

static void bwd(const kvf__kernels *level, data *a)
{
    restart(a);
    memcpy(a->d.dstate, a->dend, (size_t)(a->d.K * a->d.V) * sizeof(float));
    level->delta_bwd(&a->d);
}

/* Sums of up to 128 products in f32 against double. */
START_TEST(levels_agree_with_the_reference)
{
    const kvf__kernels *level = kvf__kernels_level(LEVELS[_i / N_SIZES]);
    const int64_t n = SIZES[_i % N_SIZES].n, K = SIZES[_i % N_SIZES].K, V = SIZES[_i % N_SIZES].V;
    ck_need(level, "this CPU has no such instructions");
    data a = make(n, K, V), b = make(n, K, V);
    fwd(level, &a);
    fwd(&kvf__kernels_ref, &b);
    ck_close(a.d.out, b.d.out, (size_t)(n * V), 1e-5, 1e-5);
    ck_close(a.d.state, b.d.state, (size_t)(K * V), 1e-5, 1e-5);
    bwd(level, &a);
    bwd(&kvf__kernels_ref, &b);
    ck_assert_double_le(ck_rel_l2(a.d.dq, b.d.dq, (size_t)(n * K)), 1e-5);
    ck_assert_double_le(ck_rel_l2(a.d.dk, b.d.dk, (size_t)(n * K)), 1e-5);
    ck_assert_double_le(ck_rel_l2(a.d.dv, b.d.dv, (size_t)(n * V)), 1e-5);
    ck_assert_double_le(ck_rel_l2(a.d.dlog_decay, b.d.dlog_decay, (size_t)n), 1e-5);
    ck_assert_double_le(ck_rel_l2(a.d.dbeta, b.d.dbeta, (size_t)n), 1e-5);
    ck_assert_double_le(ck_rel_l2(a.d.dstate, b.d.dstate, (size_t)(K * V)), 1e-5);
    done(&a);
    done(&b);
}
END_TEST

/* The reference rounds S between parts, which it computes in double. */
START_TEST(a_row_in_two_parts_has_the_same_bits)
{
    const kvf__kernels *level = kvf__kernels_level(LEVELS[_i / N_SIZES]);
    const int64_t n = SIZES[_i % N_SIZES].n, K = SIZES[_i % N_SIZES].K, V = SIZES[_i % N_SIZES].V;
    ck_need(level, "this CPU has no such instructions");
    data whole = make(n, K, V), part = make(n, K, V);
    fwd(level, &whole);
    restart(&part);
    for (int64_t at = 0, size = n / 3 + 1; at < n; at += size) {
        kvf__delta d = part.d;
        d.n = n - at < size ? n - at : size;
        d.q += at * K;
        d.k += at * K;
        d.v += at * V;
        d.decay += at;
        d.beta += at;
        d.out += at * V;
        level->delta_fwd(&d);
    }
    ck_assert_mem_eq(part.d.out, whole.d.out, (size_t)(n * V) * sizeof(float));
    ck_assert_mem_eq(part.d.state, whole.d.state, (size_t)(K * V) * sizeof(float));
    done(&whole);
    done(&part);
}
END_TEST

/* The objective: out times dout, plus the last state times its gradient. */
static double objective(data *a)
{
    double sum = 0;
    fwd(&kvf__kernels_ref, a);
    for (int64_t i = 0; i < a->d.n * a->d.V; i++)
        sum += (double)a->d.out[i] * (double)a->d.dout[i];
    for (int64_t i = 0; i < a->d.K * a->d.V; i++)
        sum += (double)a->d.state[i] * (double)a->dend[i];
    return sum;
}

/* The reference is in double, so only the rounding of inputs and outputs to f32 differs. */
START_TEST(gradient_is_that_of_differences)
{
    data a = make(17, 6, 9);
    const struct {
        const float *value, *gradient;
        int64_t n;
    } inputs[] = {{a.d.q, a.d.dq, 17 * 6},      {a.d.k, a.d.dk, 17 * 6},
                  {a.d.v, a.d.dv, 17 * 9},      {a.d.beta, a.d.dbeta, 17},
                  {a.start, a.d.dstate, 6 * 9}, {a.d.decay, a.d.dlog_decay, 17}};
    bwd(&kvf__kernels_ref, &a);
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        const bool logs = inputs[i].value == a.d.decay;
        for (int64_t at = 0; at < inputs[i].n; at += 5) {
            float *x = (float *)(uintptr_t)inputs[i].value + at;
            const float was = *x, step = 1e-2f;
            double ends[2];
            for (int side = 0; side < 2; side++) {
                const float by = side ? step : -step;
                *x = logs ? was * expf(by) : was + by;
                ends[side] = objective(&a);
            }
            *x = was;
            ck_assert_double_eq_tol((ends[1] - ends[0]) / (2 * (double)step),
                                    inputs[i].gradient[at], 2e-2);
        }
    }
    done(&a);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("delta");
    TCase *core = tcase_create("core");

    tcase_add_loop_test(core, levels_agree_with_the_reference, 0, N_LEVELS * N_SIZES);
    tcase_add_loop_test(core, a_row_in_two_parts_has_the_same_bits, N_SIZES, N_LEVELS * N_SIZES);
    tcase_add_test(core, gradient_is_that_of_differences);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
