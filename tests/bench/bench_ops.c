/* Measures the elementwise kernels per level and type (GB/s read and written), packed products, and
 * packing. Products are in GFLOP/s, and for few rows also in GB/s of weights. Times are the best of
 * several runs with data in cache. Copies larger than any cache show the cost of data that is not
 * in cache.
 *
 *   bench_ops [rounds] [kernels|products|memory] */
#include "kernels.h"
#include "matmul.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { M = 1024, C = 768, F = 1536, HEADS = 12, D = 64, COUNT = M * F, MAX_ROUNDS = 1000 };

static void die(const char *why)
{
    fprintf(stderr, "bench_ops: %s\n", why);
    exit(1);
}

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) die("out of memory");
    memset(p, 0, bytes);
    return p;
}

/* ---- kernels --------------------------------------------------------------------------------- */

typedef struct data {
    kvf__dtype act;
    void *a, *b, *c;        /* act [M, F] */
    float *x, *rows, *more; /* f32 [M, F], [M], [M] */
    int32_t *ids;
    float *cosines, *sines;
} data;

static void run_norm_fwd(const kvf__kernels *k, data *d)
{
    k->norm_fwd(d->act, d->a, d->rows, d->x, M, C, true, 1e-5f);
}

static void run_norm_bwd(const kvf__kernels *k, data *d)
{
    k->norm_bwd(d->act, d->x, d->c, d->a, d->b, d->rows, M, C, false);
}

static void run_gelu(const kvf__kernels *k, data *d)
{
    k->act_fwd(d->act, KVF__GELU_TANH, d->a, d->b, COUNT);
}

static void run_gelu_erf(const kvf__kernels *k, data *d)
{
    k->act_fwd(d->act, KVF__GELU_ERF, d->a, d->b, COUNT);
}

static void run_swiglu(const kvf__kernels *k, data *d)
{
    k->glu_fwd(d->act, KVF__SILU, d->a, d->b, d->c, COUNT);
}

static void run_glu_bwd(const kvf__kernels *k, data *d)
{
    k->glu_bwd(d->act, d->a, d->b, d->c, d->a, d->b, COUNT);
}

static void run_mul(const kvf__kernels *k, data *d)
{
    k->mul(d->act, d->a, d->b, COUNT);
}

static void run_rope(const kvf__kernels *k, data *d)
{
    k->rope(d->act, d->a, M, F, HEADS, D, D, d->ids, d->cosines, d->sines, false);
}

static void run_ce(const kvf__kernels *k, data *d)
{
    kvf__ce_chunk chunk = {.rows = 256,
                           .width = F,
                           .logits = d->x,
                           .valid = F,
                           .target = d->ids,
                           .max = d->rows,
                           .sum = d->more,
                           .target_logit = d->more,
                           .e = d->a};
    k->ce(d->act, &chunk);
}

static void run_from_f32(const kvf__kernels *k, data *d)
{
    k->from_f32(d->act, d->a, d->x, COUNT);
}

/* Activation and f32 elements moved by one call. */
static const struct kernel {
    const char *name;
    void (*run)(const kvf__kernels *k, data *d);
    double act_moved, f32_moved;
} KERNELS[] = {
    {"norm_fwd", run_norm_fwd, M *C, M *C}, {"norm_bwd", run_norm_bwd, 3 * M *C, 2 * M *C},
    {"gelu_tanh", run_gelu, 3 * COUNT, 0},  {"gelu_erf", run_gelu_erf, 3 * COUNT, 0},
    {"swiglu", run_swiglu, 5 * COUNT, 0},   {"glu_bwd", run_glu_bwd, 5 * COUNT, 0},
    {"mul", run_mul, 3 * COUNT, 0},         {"rope", run_rope, 2 * M *HEADS *D, 0},
    {"ce", run_ce, 256 * F, 256 * F},       {"from_f32", run_from_f32, COUNT, COUNT}};

static data data_make(kvf__dtype act)
{
    data d = {.act = act,
              .a = memory(COUNT * sizeof(float)),
              .b = memory(COUNT * sizeof(float)),
              .c = memory(COUNT * sizeof(float)),
              .x = memory(COUNT * sizeof(float)),
              .rows = memory(M * sizeof(float)),
              .more = memory(M * sizeof(float)),
              .ids = memory(M * sizeof(int32_t)),
              .cosines = memory(D * sizeof(float)),
              .sines = memory(D * sizeof(float))};
    for (int64_t i = 0; i < COUNT; i++)
        d.x[i] = sinf((float)i) * 3;
    return d;
}

static void data_done(data *d)
{
    void *all[] = {d->a, d->b, d->c, d->x, d->rows, d->more, d->ids, d->cosines, d->sines};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* Inputs are remade, untimed, for every run: some kernels work in place and would drift to
 * infinity. */
static double kernel_seconds(const struct kernel *what, const kvf__kernels *k, data *d, int rounds)
{
    double best = INFINITY;
    for (int i = 0; i <= rounds; i++) {
        kvf__from_f32(d->act, d->x, d->a, COUNT);
        kvf__from_f32(d->act, d->x, d->b, COUNT);
        kvf__from_f32(d->act, d->x, d->c, COUNT);
        double start = kvf__clock();
        what->run(k, d);
        double took = kvf__clock() - start;
        if (i > 0 && took < best) best = took;
        for (int64_t m = 0; m < M; m++)
            d->rows[m] = 0.5f;
    }
    return best;
}

static void bench_kernels(int rounds)
{
    static const char *const levels[] = {"avx2", "avx512", "avx512_bf16"};
    for (size_t i = 0; i < sizeof KERNELS / sizeof KERNELS[0]; i++)
        for (int half = 0; half < 2; half++) {
            data d = data_make(half ? KVF__BF16 : KVF__F32);
            double bytes = KERNELS[i].act_moved * (half ? 2 : 4) + KERNELS[i].f32_moved * 4;
            printf("%-10s %-5s", KERNELS[i].name, kvf__dtype_name(d.act));
            for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
                const kvf__kernels *k = kvf__kernels_level(levels[l]);
                if (!k) continue;
                double s = kernel_seconds(&KERNELS[i], k, &d, rounds);
                printf("   %s %7.0f us %6.1f GB/s", levels[l], s * 1e6, bytes / s * 1e-9);
            }
            printf("\n");
            data_done(&d);
        }
}

/* ---- products -------------------------------------------------------------------------------- */

static const struct product {
    int64_t M, K, N;
} PRODUCTS[] = {{1024, 768, 2304}, {1024, 768, 1536}, {1024, 1536, 768}, {1024, 576, 1536},
                {256, 576, 1536},  {64, 576, 1536},   {16, 576, 1536},   {4, 576, 1536},
                {1, 576, 1536},    {16, 1536, 576},   {1, 1536, 576},    {1, 768, 2304}};

static void bench_product(kvf_ctx *ctx, kvf__mm *mm, const struct product *p, kvf__dtype act,
                          int rounds)
{
    float *w = memory((size_t)(p->K * p->N) * sizeof *w),
          *x = memory((size_t)(p->M * p->K) * sizeof *x),
          *y = memory((size_t)(p->M * p->N) * sizeof *y);
    kvf__packed *packed = NULL;
    double best = INFINITY, start = kvf__clock();

    if (kvf__pack(ctx, mm, act, w, true, p->K, p->N, NULL, &packed)) die(kvf_ctx_error(ctx));
    double packing = kvf__clock() - start;
    start = kvf__clock();
    if (kvf__mm_prepare(ctx, mm, packed, p->M, act, 0)) die(kvf_ctx_error(ctx));
    double preparing = kvf__clock() - start;
    for (int i = 0; i < rounds * (p->M < 64 ? 20 : 1); i++) {
        start = kvf__clock();
        if (kvf__mm_run(ctx, mm, packed, p->M, x, y, act, 0)) die(kvf_ctx_error(ctx));
        double took = kvf__clock() - start;
        if (took < best) best = took;
    }
    printf("product [%4d, %4d] x [%4d, %4d] %-5s %8.1f us %7.1f GFLOP/s %6.1f GB/s   pack %6.2f "
           "ms, prepare %5.2f ms\n",
           (int)p->M, (int)p->K, (int)p->K, (int)p->N, kvf__dtype_name(act), best * 1e6,
           2e-9 * (double)(p->M * p->K * p->N) / best,
           1e-9 * (double)kvf__packed_bytes(packed) / best, packing * 1e3, preparing * 1e3);
    kvf__packed_free(packed);
    free(w);
    free(x);
    free(y);
}

/* The encoder's last layer: [20, 512] x [512, 18432]. */
static void bench_sgemm(kvf_ctx *ctx, int rounds)
{
    enum { P = 20, HIDDEN = 512, WIDE = 18432 };
    float *a = memory(P * HIDDEN * sizeof *a), *b = memory((size_t)HIDDEN * WIDE * sizeof *b),
          *c = memory((size_t)P * WIDE * sizeof *c);
    double best = INFINITY;
    for (int i = 0; i < rounds; i++) {
        double start = kvf__clock();
        if (kvf__sgemm(ctx, false, false, P, WIDE, HIDDEN, a, HIDDEN, b, WIDE, 0, c, WIDE))
            die(kvf_ctx_error(ctx));
        double took = kvf__clock() - start;
        if (took < best) best = took;
    }
    printf("sgemm   [%4d, %4d] x [%4d, %d]      %8.1f us %7.1f GFLOP/s\n", P, HIDDEN, HIDDEN, WIDE,
           best * 1e6, 2e-9 * P * HIDDEN * WIDE / best);
    free(a);
    free(b);
    free(c);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Far larger than the caches; counts bytes read and bytes written. */
static void bench_memory(int threads, int rounds)
{
    const size_t each = ((size_t)256 << 20) / (size_t)threads;
    char *from = memory(each * (size_t)threads), *to = memory(each * (size_t)threads);
    double best = INFINITY;
    for (int i = 0; i < rounds; i++) {
        double start = kvf__clock();
#pragma omp parallel for schedule(static, 1) num_threads(threads)
        for (int t = 0; t < threads; t++)
            memcpy(to + (size_t)t * each, from + (size_t)t * each, each);
        double took = kvf__clock() - start;
        if (took < best) best = took;
    }
    printf("memory, copied by %d threads: %6.1f GB/s\n", threads,
           2e-9 * (double)(each * (size_t)threads) / best);
    free(from);
    free(to);
}

static bool wanted(const char *only, const char *what)
{
    return !*only || strcmp(only, what) == 0;
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 15;
    const char *only = argc > 2 ? argv[2] : "";
    char version[32];
    kvf_ctx *ctx = NULL;
    kvf__mm *mm = NULL;

    if (rounds < 1 || rounds > MAX_ROUNDS) die("rounds must be 1 to 1000");
    if (kvf_ctx_create(NULL, &ctx)) die("no context");
    if (kvf__mm_create(ctx, &mm)) die(kvf_ctx_error(ctx));
    printf("cpu level %s, %d threads, oneDNN %s, best of %d\n", kvf__cpu_level(),
           kvf_ctx_threads(ctx), kvf__mm_version(version), rounds);
    if (wanted(only, "kernels")) bench_kernels(rounds);
    if (wanted(only, "memory")) bench_memory(kvf_ctx_threads(ctx), rounds);
    if (wanted(only, "products")) {
        for (size_t i = 0; i < sizeof PRODUCTS / sizeof PRODUCTS[0]; i++)
            for (int half = 0; half <= (int)kvf__cpu_has_bf16(); half++)
                bench_product(ctx, mm, &PRODUCTS[i], half ? KVF__BF16 : KVF__F32, rounds);
        bench_sgemm(ctx, rounds);
    }
    kvf__mm_free(mm);
    kvf_ctx_free(ctx);
    return 0;
}
