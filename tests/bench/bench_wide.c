/* Measures the functions of wide.h per level, for the last layer of the default encoder on GPT-2.
 * Rates count the bytes of the matrix; for AdamW also those of its moments, read and written. Best
 * of several runs; the matrix is larger than most caches.
 *
 *   bench_wide [rounds] */
#include "wide.h"

#include <math.h>
#include <stdlib.h>

enum { P = 20, N = 18432, M = 512, MAX_ROUNDS = 1000 };

typedef struct data {
    float *x, *dx, *w, *b, *y, *m, *v, *g;
} data;

static const kvf__adamw_rates RATES = {1, 0.1f, 0.999f, 0.001f, 1e-3f, 0.07f, 1e-8f, 1};

static void run_fwd(const kvf__wide *k, data *d)
{
    k->fwd(d->y, d->x, d->w, d->b, P, N, M);
}

static void run_bwd(const kvf__wide *k, data *d)
{
    k->bwd(d->dx, d->y, d->w, P, N, M);
}

static void run_adamw(const kvf__wide *k, data *d)
{
    k->adamw(&RATES, d->w, d->m, d->v, d->g, (int64_t)N * M);
}

static void run_adamw_outer(const kvf__wide *k, data *d)
{
    k->adamw_outer(&RATES, d->w, d->m, d->v, d->y, d->x, P, N, M);
}

/* The row products of dflat that the norm of the gradient needs. */
static void run_dots(const kvf__wide *k, data *d)
{
    for (int p = 0; p < P; p++)
        for (int q = 0; q <= p; q++)
            d->b[0] += (float)(1e-30 * k->dot(d->y + (size_t)p * N, d->y + (size_t)q * N, N));
}

/* name, and number of passes over memory of the matrix's size */
static const struct {
    const char *name;
    void (*run)(const kvf__wide *k, data *d);
    int passes;
} ROWS[] = {{"fwd", run_fwd, 1},
            {"bwd", run_bwd, 1},
            {"adamw", run_adamw, 7},
            {"adamw_outer", run_adamw_outer, 6},
            {"dots", run_dots, 0}};

static float *numbers(size_t n)
{
    float *p = aligned_alloc(64, (n * sizeof *p + 63) / 64 * 64);
    if (!p) exit(1);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(i % 17) * 1e-3f;
    return p;
}

static void bench_level(const kvf__wide *level, data *d, int rounds)
{
    for (size_t r = 0; r < sizeof ROWS / sizeof ROWS[0]; r++) {
        double best = INFINITY;
        for (int i = 0; i < rounds; i++) {
            double start = kvf__clock();
            ROWS[r].run(level, d);
            double took = kvf__clock() - start;
            if (took < best) best = took;
        }
        printf("%-8s %-12s %8.2f ms", level->name, ROWS[r].name, best * 1e3);
        if (ROWS[r].passes) printf(" %7.1f GB/s", 4e-9 * N * M * ROWS[r].passes / best);
        putchar('\n');
    }
}

int main(int argc, char **argv)
{
    static const char *const LEVELS[] = {"avx2", "avx512"};
    const int rounds = argc > 1 ? atoi(argv[1]) : 9;
    kvf_ctx *ctx = NULL;
    if (rounds < 1 || rounds > MAX_ROUNDS || kvf_ctx_create(NULL, &ctx)) {
        fputs("usage: bench_wide [rounds, 1 to 1000]\n", stderr);
        return 1;
    }
    const size_t all = (size_t)N * M;
    data d = {numbers(P * M), numbers(P * M), numbers(all), numbers(N),
              numbers(P * N), numbers(all),   numbers(all), numbers(all)};
    printf("%d rows, matrix [%d, %d], %d threads, best of %d\n", P, N, M, kvf_ctx_threads(ctx),
           rounds);
    for (size_t i = 0; i < sizeof LEVELS / sizeof LEVELS[0]; i++)
        if (kvf__wide_level(LEVELS[i])) bench_level(kvf__wide_level(LEVELS[i]), &d, rounds);
    float *memory[] = {d.x, d.dx, d.w, d.b, d.y, d.m, d.v, d.g};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        free(memory[i]);
    kvf_ctx_free(ctx);
    return 0;
}
