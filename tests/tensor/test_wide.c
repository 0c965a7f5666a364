/* Few rows through a wide matrix: each instruction set against the formulas, any sizes, the same
 * bits for any number of threads. */
#include "ck.h"
#include "rng.h"
#include "wide.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const char *const LEVELS[] = {"avx2", "avx512"};
enum { N_LEVELS = 2 };

/* Rows, outputs, inputs: whole vectors, tails of each kind, less than a vector, one of each. */
static const struct {
    int64_t P, N, M;
} SIZES[] = {{20, 64, 128}, {20, 33, 512}, {3, 9, 100}, {1, 1, 1},
             {8, 2, 15},    {25, 31, 17},  {5, 40, 67}};
enum { N_SIZES = sizeof SIZES / sizeof SIZES[0] };

typedef struct data {
    int64_t P, N, M;
    float *x, *w, *b, *dy, *m, *v, *g;
} data;

static float *numbers(int64_t n, uint64_t stream, bool positive)
{
    kvf__rng rng = kvf__rng_make(1, stream);
    float *out = NULL;
    ck_assert_int_eq(kvf__alloc_array(NULL, (size_t)n, sizeof *out, &out), KVF_OK);
    for (int64_t i = 0; i < n; i++) {
        out[i] = (float)kvf__rng_normal(&rng);
        if (positive) out[i] *= out[i];
    }
    return out;
}

static data make(int64_t P, int64_t N, int64_t M)
{
    return (data){P,
                  N,
                  M,
                  numbers(P * M, 0, false),
                  numbers(N * M, 1, false),
                  numbers(N, 2, false),
                  numbers(P * N, 3, false),
                  numbers(N * M, 4, false),
                  numbers(N * M, 5, true),
                  numbers(N * M, 6, false)};
}

static void done(data *d)
{
    float *all[] = {d->x, d->w, d->b, d->dy, d->m, d->v, d->g};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kvf__free(all[i]);
}

/* Level number _i / N_SIZES at size number _i % N_SIZES; NULL, after a note, if this CPU lacks
 * it. */
static const kvf__wide *level_of(int i, data *d)
{
    const kvf__wide *level = kvf__wide_level(LEVELS[i / N_SIZES]);
    *d = make(SIZES[i % N_SIZES].P, SIZES[i % N_SIZES].N, SIZES[i % N_SIZES].M);
    if (!level && i % N_SIZES == 0) printf("no %s here: not tested\n", LEVELS[i / N_SIZES]);
    return level;
}

static const kvf__adamw_rates RATES = {.decay = 0.999f,
                                       .beta1_rest = 0.1f,
                                       .beta2 = 0.999f,
                                       .beta2_rest = 0.001f,
                                       .step_size = 0.02f,
                                       .root_correction = 0.07f,
                                       .eps = 1e-8f,
                                       .grad_scale = 0.5f};

/* ---- parity ---------------------------------------------------------------------------------- */

START_TEST(forward_is_the_formula)
{
    data d;
    const kvf__wide *level = level_of(_i, &d), *ref = kvf__wide_level("ref");
    float *got = numbers(d.P * d.N, 7, false), *want = numbers(d.P * d.N, 8, false);
    if (level) {
        level->fwd(got, d.x, d.w, d.b, d.P, d.N, d.M);
        ref->fwd(want, d.x, d.w, d.b, d.P, d.N, d.M);
        ck_close(got, want, (size_t)(d.P * d.N), 1e-5, 1e-6 * sqrt((double)d.M));
    }
    kvf__free(got);
    kvf__free(want);
    done(&d);
}
END_TEST

START_TEST(backward_is_the_formula)
{
    data d;
    const kvf__wide *level = level_of(_i, &d), *ref = kvf__wide_level("ref");
    float *got = numbers(d.P * d.M, 7, false), *want = numbers(d.P * d.M, 8, false);
    if (level) {
        level->bwd(got, d.dy, d.w, d.P, d.N, d.M);
        ref->bwd(want, d.dy, d.w, d.P, d.N, d.M);
        ck_close(got, want, (size_t)(d.P * d.M), 1e-5, 1e-6 * sqrt((double)d.N));
    }
    kvf__free(got);
    kvf__free(want);
    done(&d);
}
END_TEST

static void same_update(const data *got, const data *want)
{
    size_t n = (size_t)(got->N * got->M);
    ck_close(got->m, want->m, n, 1e-5, 1e-5);
    ck_close(got->v, want->v, n, 1e-5, 1e-6);
    ck_close(got->w, want->w, n, 1e-5, 1e-4);
}

START_TEST(adamw_is_the_formula)
{
    data d, e;
    const kvf__wide *level = level_of(_i, &d), *ref = kvf__wide_level("ref");
    e = make(d.P, d.N, d.M);
    if (level) {
        level->adamw(&RATES, d.w, d.m, d.v, d.g, d.N * d.M);
        ref->adamw(&RATES, e.w, e.m, e.v, e.g, d.N * d.M);
        same_update(&d, &e);
        level->adamw_outer(&RATES, d.w, d.m, d.v, d.dy, d.x, d.P, d.N, d.M);
        ref->adamw_outer(&RATES, e.w, e.m, e.v, e.dy, e.x, d.P, d.N, d.M);
        same_update(&d, &e);
    }
    done(&d);
    done(&e);
}
END_TEST

START_TEST(dot_adds_up_in_double)
{
    const kvf__wide *level = kvf__wide_level(LEVELS[_i]), *ref = kvf__wide_level("ref");
    float *a = numbers(1000, 0, false), *b = numbers(1000, 1, false);
    for (int64_t n = 0; level && n <= 1000; n = n < 70 ? n + 1 : n + 93)
        ck_assert_double_eq_tol(level->dot(a, b, n), ref->dot(a, b, n), 1e-12 * (double)(n + 1));
    kvf__free(a);
    kvf__free(b);
}
END_TEST

/* ---- core ------------------------------------------------------------------------------------ */

/* The gradient that adamw_outer avoids forming is formed here and passed to adamw. */
START_TEST(outer_is_the_formed_gradient)
{
    const kvf__wide *best = kvf__wide_get();
    data d = make(6, 21, 70), e = make(6, 21, 70);
    for (int64_t n = 0; n < d.N; n++)
        for (int64_t c = 0; c < d.M; c++) {
            double sum = 0;
            for (int64_t p = 0; p < d.P; p++)
                sum += (double)d.dy[p * d.N + n] * (double)d.x[p * d.M + c];
            d.g[n * d.M + c] = (float)sum;
        }
    best->adamw(&RATES, d.w, d.m, d.v, d.g, d.N * d.M);
    best->adamw_outer(&RATES, e.w, e.m, e.v, e.dy, e.x, e.P, e.N, e.M);
    same_update(&e, &d);
    done(&d);
    done(&e);
}
END_TEST

static void run_all(const kvf__wide *level, int threads, data *d, float *y, float *dx)
{
    omp_set_num_threads(threads);
    level->fwd(y, d->x, d->w, d->b, d->P, d->N, d->M);
    level->bwd(dx, d->dy, d->w, d->P, d->N, d->M);
    level->adamw_outer(&RATES, d->w, d->m, d->v, d->dy, d->x, d->P, d->N, d->M);
    level->adamw(&RATES, d->w, d->m, d->v, d->g, d->N * d->M);
}

START_TEST(threads_change_no_bit)
{
    const kvf__wide *best = kvf__wide_get();
    data d = make(20, 301, 100), e = make(20, 301, 100);
    float *y[2], *dx[2];
    for (int i = 0; i < 2; i++) {
        y[i] = numbers(d.P * d.N, 7, false);
        dx[i] = numbers(d.P * d.M, 7, false);
    }
    run_all(best, 1, &d, y[0], dx[0]);
    run_all(best, 3, &e, y[1], dx[1]);
    ck_assert(!memcmp(y[0], y[1], (size_t)(d.P * d.N) * sizeof(float)));
    ck_assert(!memcmp(dx[0], dx[1], (size_t)(d.P * d.M) * sizeof(float)));
    ck_assert(!memcmp(d.w, e.w, (size_t)(d.N * d.M) * sizeof(float)));
    for (int i = 0; i < 2; i++) {
        kvf__free(y[i]);
        kvf__free(dx[i]);
    }
    done(&d);
    done(&e);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wide");
    TCase *core = tcase_create("core"), *parity = tcase_create("parity");
    tcase_set_timeout(core, 60);
    tcase_set_timeout(parity, 60);
    tcase_add_test(core, outer_is_the_formed_gradient);
    tcase_add_test(core, threads_change_no_bit);
    tcase_add_loop_test(parity, forward_is_the_formula, 0, N_LEVELS * N_SIZES);
    tcase_add_loop_test(parity, backward_is_the_formula, 0, N_LEVELS * N_SIZES);
    tcase_add_loop_test(parity, adamw_is_the_formula, 0, N_LEVELS * N_SIZES);
    tcase_add_loop_test(parity, dot_adds_up_in_double, 0, N_LEVELS);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, parity);
    return ck_main(suite);
}
