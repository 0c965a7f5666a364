/* Products of packed weights, and sgemm, against plain loops in double. Each row of SHAPES is
 * computed once for the largest M; smaller products are its first rows. */
#include "ck.h"
#include "hash.h"
#include "kernels.h"
#include "kernels_int.h"
#include "matmul.h"
#include "rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_ROWS = 130 };
static const int64_t ROWS[] = {1, 2, 7, 16, 63, 64, 65, 128, MOST_ROWS};
enum { N_ROWS = sizeof ROWS / sizeof ROWS[0] };
static const struct shape {
    int64_t K, N;
} SHAPES[] = {{7, 7}, {7, 64}, {64, 7}, {1, 1}, {576, 1536}, {1536, 576}, {100, 333}};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0] };

static kvf_ctx *ctx;
static kvf__mm *mm;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    ck_assert_int_eq(kvf__mm_create(ctx, &mm), KVF_OK);
}

static void teardown(void)
{
    kvf__mm_free(mm);
    kvf_ctx_free(ctx);
}

static float *floats(int64_t n)
{
    float *p = aligned_alloc(64, (size_t)(n * 4 + 64 + 63) / 64 * 64);
    ck_assert_ptr_nonnull(p);
    return p;
}

/* Uniform in [-1, 1), rounded to the type so that the reference uses the product's values. */
static float *random_values(kvf__dtype dtype, int64_t n, uint64_t stream)
{
    kvf__rng rng = kvf__rng_make(11, stream);
    float *p = floats(n);
    for (int64_t i = 0; i < n; i++)
        p[i] = (float)(2 * kvf__rng_uniform(&rng) - 1);
    uint16_t *rounded = malloc((size_t)n * sizeof *rounded + 1);
    if (dtype == KVF__BF16) {
        kvf__from_f32(dtype, p, rounded, n);
        kvf__to_f32(dtype, rounded, p, n);
    }
    free(rounded);
    return p;
}

/* One weight, its inputs for MOST_ROWS rows, and want = x w + bias without rounding to the act
 * type. */
typedef struct product {
    kvf__dtype act;
    int64_t K, N;
    float *x, *w, *bias, *want;
    void *x_act; /* x in the act type */
    float *got;
    void *out; /* of either type */
} product;

static product product_make(const struct shape *s, kvf__dtype act)
{
    product p = {.act = act, .K = s->K, .N = s->N};
    p.x = random_values(act, MOST_ROWS * s->K, 1);
    p.w = random_values(act, s->K * s->N, 2);
    p.bias = random_values(KVF__F32, s->N, 3);
    p.want = floats(MOST_ROWS * s->N);
    p.got = floats(MOST_ROWS * s->N);
    p.out = floats(MOST_ROWS * s->N);
    p.x_act = floats(MOST_ROWS * s->K);
    kvf__from_f32(act, p.x, p.x_act, MOST_ROWS * s->K);

    double *row = calloc((size_t)s->N, sizeof *row);
    for (int64_t m = 0; m < MOST_ROWS; m++) {
        for (int64_t n = 0; n < s->N; n++)
            row[n] = p.bias[n];
        for (int64_t k = 0; k < s->K; k++)
            for (int64_t n = 0; n < s->N; n++)
                row[n] += (double)p.x[m * s->K + k] * p.w[k * s->N + n];
        for (int64_t n = 0; n < s->N; n++)
            p.want[m * s->N + n] = (float)row[n];
    }
    free(row);
    return p;
}

static void product_done(product *p)
{
    float *all[] = {p->x, p->w, p->bias, p->want, p->x_act, p->got, p->out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* out starts as 0.5 everywhere when adding, and as garbage otherwise. */
static void run(product *p, const kvf__packed *packed, int64_t M, kvf__dtype dst, unsigned flags)
{
    for (int64_t i = 0; i < M * p->N; i++)
        p->got[i] = flags & KVF__MM_ADD ? 0.5f : NAN;
    kvf__from_f32(dst, p->got, p->out, M * p->N);
    ck_assert_msg(!kvf__mm_run(ctx, mm, packed, M, p->x_act, p->out, dst, flags), "%s",
                  kvf_ctx_error(ctx));
    kvf__to_f32(dst, p->out, p->got, M * p->N);
}

/* f32 sums of K products below 1 that reach about sqrt(K / 9): error well below 4e-8 K. A bf16
 * result is rounded to 8 bits. */
static void check(product *p, const kvf__packed *packed, int64_t M, kvf__dtype dst, unsigned flags)
{
    char what[128];
    double rtol = dst == KVF__BF16 ? 1.0 / 256 : 1e-6, atol = 4e-8 * (double)p->K + 1e-6;

    run(p, packed, M, dst, flags);
    snprintf(what, sizeof what, "[%d, %d] x [%d, %d] %s -> %s flags %u", (int)M, (int)p->K,
             (int)p->K, (int)p->N, kvf__dtype_name(p->act), kvf__dtype_name(dst), flags);
    if (flags & KVF__MM_ADD)
        for (int64_t i = 0; i < M * p->N; i++)
            p->got[i] -= 0.5f;
    if (flags & KVF__MM_ADD && dst == KVF__BF16) atol += 0.5 / 256;
    ck_close_at(__FILE__, __LINE__, what, p->got, p->want, (size_t)(M * p->N), rtol, atol);
}

static bool has_type(kvf__dtype act)
{
    return act == KVF__F32 || kvf__cpu_has_bf16();
}

static void check_all(product *p, const kvf__packed *packed)
{
    for (int i = 0; i < N_ROWS; i++)
        for (unsigned flags = 0; flags <= KVF__MM_ADD; flags++) {
            check(p, packed, ROWS[i], KVF__F32, flags);
            if (p->act == KVF__BF16) check(p, packed, ROWS[i], KVF__BF16, flags);
        }
}

/* _i counts shapes within act types. */
START_TEST(against_loops)
{
    kvf__dtype act = _i < N_SHAPES ? KVF__F32 : KVF__BF16;
    kvf__packed *packed = NULL;
    ck_need(has_type(act), "this CPU has no bf16 products");
    product p = product_make(&SHAPES[_i % N_SHAPES], act);

    ck_assert_int_eq(kvf__pack(ctx, mm, act, p.w, false, p.K, p.N, p.bias, &packed), KVF_OK);
    ck_assert_uint_ge(kvf__packed_bytes(packed),
                      (size_t)(p.K * p.N) * (act == KVF__F32 ? 4 : 2) + (size_t)p.N * 4);
    check_all(&p, packed);
    kvf__packed_free(packed);
    product_done(&p);
}
END_TEST

/* [N, K] given as transposed is the same weight, bit for bit; without bias the result is less by
 * exactly the bias. */
START_TEST(transposed_and_no_bias)
{
    kvf__dtype act = _i < N_SHAPES ? KVF__F32 : KVF__BF16;
    kvf__packed *plain = NULL, *turned = NULL;
    ck_need(has_type(act), "this CPU has no bf16 products");
    product p = product_make(&SHAPES[_i % N_SHAPES], act);
    size_t bytes = (size_t)(65 * p.N) * sizeof(float);
    float *first = floats(65 * p.N), *w_t = floats(p.K * p.N);

    for (int64_t k = 0; k < p.K; k++)
        for (int64_t n = 0; n < p.N; n++)
            w_t[n * p.K + k] = p.w[k * p.N + n];
    ck_assert_int_eq(kvf__pack(ctx, mm, act, p.w, false, p.K, p.N, NULL, &plain), KVF_OK);
    ck_assert_int_eq(kvf__pack(ctx, mm, act, w_t, true, p.K, p.N, NULL, &turned), KVF_OK);
    run(&p, plain, 65, KVF__F32, 0);
    memcpy(first, p.got, bytes);
    run(&p, turned, 65, KVF__F32, 0);
    ck_assert_mem_eq(p.got, first, bytes);

    for (int64_t i = 0; i < 65 * p.N; i++)
        p.got[i] += p.bias[i % p.N];
    ck_close(p.got, p.want, (size_t)(65 * p.N), 1e-6, 4e-8 * (double)p.K + 1e-6);
    kvf__packed_free(plain);
    kvf__packed_free(turned);
    product_done(&p);
    free(first);
    free(w_t);
}
END_TEST

/* A prepared product allocates nothing, and equal inputs give equal bits, also from another
 * engine. */
START_TEST(prepared)
{
    kvf__dtype act = _i ? KVF__BF16 : KVF__F32;
    kvf__packed *packed[2] = {NULL, NULL};
    kvf__mm *other = NULL;
    ck_need(has_type(act), "this CPU has no bf16 products");
    product p = product_make(&SHAPES[4], act);
    float *first = floats(MOST_ROWS * p.N);

    ck_assert_int_eq(kvf__pack(ctx, mm, act, p.w, false, p.K, p.N, p.bias, &packed[0]), KVF_OK);
    for (int i = 0; i < N_ROWS; i++)
        ck_assert_int_eq(kvf__mm_prepare(ctx, mm, packed[0], ROWS[i], KVF__F32, 0), KVF_OK);
    ck_assert_int_eq(kvf__mm_prepare(ctx, mm, packed[0], 0, KVF__F32, 0), KVF_OK);
    uint64_t before = kvf__ctx_allocations(ctx);
    for (int i = 0; i < 2 * N_ROWS; i++)
        run(&p, packed[0], ROWS[i % N_ROWS], KVF__F32, 0);
    ck_assert_uint_eq(kvf__ctx_allocations(ctx), before);
    memcpy(first, p.got, (size_t)(MOST_ROWS * p.N) * sizeof *first);

    ck_assert_int_eq(kvf__mm_create(ctx, &other), KVF_OK);
    ck_assert_int_eq(kvf__pack(ctx, other, act, p.w, false, p.K, p.N, p.bias, &packed[1]), KVF_OK);
    memset(p.out, 0xff, (size_t)(MOST_ROWS * p.N) * sizeof(float));
    ck_assert_int_eq(kvf__mm_run(ctx, other, packed[1], MOST_ROWS, p.x_act, p.out, KVF__F32, 0),
                     KVF_OK);
    ck_assert_mem_eq(p.out, first, (size_t)(MOST_ROWS * p.N) * sizeof *first);

    kvf__packed_free(packed[0]);
    kvf__packed_free(packed[1]);
    kvf__mm_free(other);
    product_done(&p);
    free(first);
}
END_TEST

/* With more row counts than kept primitives, the oldest primitive is dropped and built again. */
START_TEST(many_row_counts)
{
    const struct shape s = {8, 16};
    kvf__packed *packed = NULL;
    product p = product_make(&s, KVF__F32);
    float *x = calloc(600 * 8, sizeof *x), *y = calloc(600 * 16, sizeof *y);

    ck_assert_int_eq(kvf__pack(ctx, mm, KVF__F32, p.w, false, 8, 16, p.bias, &packed), KVF_OK);
    check(&p, packed, 1, KVF__F32, 0);
    for (int64_t M = 2; M <= 530; M++)
        ck_assert_int_eq(kvf__mm_run(ctx, mm, packed, M, x, y, KVF__F32, 0), KVF_OK);
    ck_assert_float_eq(y[529 * 16 + 3], p.bias[3]);
    uint64_t before = kvf__ctx_allocations(ctx);
    check(&p, packed, 1, KVF__F32, 0);
    check(&p, packed, 130, KVF__F32, 0);
    ck_assert_uint_eq(kvf__ctx_allocations(ctx), before);
    check(&p, packed, 129, KVF__F32, KVF__MM_ADD);
    kvf__packed_free(packed);
    product_done(&p);
    free(x);
    free(y);
}
END_TEST

START_TEST(no_rows)
{
    const float w[4] = {1, 2, 3, 4};
    kvf__packed *packed = NULL;
    ck_assert_int_eq(kvf__pack(ctx, mm, KVF__F32, w, false, 2, 2, NULL, &packed), KVF_OK);
    ck_assert_int_eq(kvf__mm_run(ctx, mm, packed, 0, NULL, NULL, KVF__F32, 0), KVF_OK);
    ck_assert_int_eq(kvf__sgemm(ctx, false, false, 0, 2, 2, NULL, 2, w, 2, 0, NULL, 2), KVF_OK);
    kvf__packed_free(packed);
    kvf__packed_free(NULL);
    kvf__mm_free(NULL);
}
END_TEST

/* sgemm with row strides larger than the rows, all four transpositions, beta 0 over garbage and
 * beta 0.5. */
START_TEST(sgemm)
{
    enum { M = 20, N = 37, K = 65, LD = 70 };
    bool ta = _i & 1, tb = _i & 2;
    float beta = _i & 4 ? 0.5f : 0.0f;
    float *A = random_values(KVF__F32, LD * LD, 4), *B = random_values(KVF__F32, LD * LD, 5),
          *C = floats(M * LD), *want = floats(M * LD);

    for (int64_t i = 0; i < M * LD; i++)
        C[i] = beta == 0 && i % LD < N ? NAN : (float)i;
    memcpy(want, C, M * LD * sizeof *want);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = beta == 0 ? 0 : (double)beta * C[m * LD + n];
            for (int64_t k = 0; k < K; k++)
                sum += (double)(ta ? A[k * LD + m] : A[m * LD + k]) *
                       (tb ? B[n * LD + k] : B[k * LD + n]);
            want[m * LD + n] = (float)sum;
        }
    ck_assert_int_eq(kvf__sgemm(ctx, ta, tb, M, N, K, A, LD, B, LD, beta, C, LD), KVF_OK);
    ck_close(C, want, M * LD, 1e-6, 1e-5);
    free(A);
    free(B);
    free(C);
    free(want);
}
END_TEST

/* Each allocation fails once; nothing leaks (sanitizer) and the last try works. */
START_TEST(out_of_memory)
{
    const float w[4] = {1, 2, 3, 4}, x[2] = {1, 1};
    float y[2];
    kvf__mm *made = NULL;
    kvf__packed *packed = NULL;
    int64_t n = 0;
    kvf_status st;

    do {
        kvf__ctx_fail_allocation(ctx, n++);
        st = kvf__mm_create(ctx, &made);
        if (!st) st = kvf__pack(ctx, made, KVF__F32, w, false, 2, 2, w, &packed);
        if (!st) st = kvf__mm_run(ctx, made, packed, 1, x, y, KVF__F32, 0);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        kvf__packed_free(packed);
        kvf__mm_free(made);
        packed = NULL;
        made = NULL;
    } while (st);
    ck_assert_int_ge(n, 5); /* engine, weight, its values, its bias */
    ck_assert_float_eq(y[0], 5);
    ck_assert_float_eq(y[1], 8);
    kvf__ctx_fail_allocation(ctx, -1);
}
END_TEST

/* Under an ISA cap for oneDNN, f32 works everywhere, bf16 from avx512 on. Needs a process of its
 * own (Check's fork). */
static const char *const CAPS[] = {"ref", "avx2", "avx512", "avx512_bf16", "amx"};
START_TEST(capped)
{
    kvf_ctx *own = NULL;
    kvf__mm *capped_mm = NULL;
    kvf__packed *packed = NULL;
    const float w[4] = {1, 2, 3, 4}, x[2] = {1, 1};
    float y[2];

    setenv("KVF_CPU", CAPS[_i], 1);
    ck_assert_int_eq(kvf_ctx_create(NULL, &own), KVF_OK);
    kvf_status st = kvf__mm_create(own, &capped_mm);
    if (st == KVF_EUSAGE) {
        ck_skip("tests share a process");
        unsetenv("KVF_CPU");
        kvf_ctx_free(own);
        return;
    }
    ck_assert_msg(!st, "%s", kvf_ctx_error(own));
    ck_assert_int_eq(kvf__pack(own, capped_mm, KVF__F32, w, true, 2, 2, NULL, &packed), KVF_OK);
    ck_assert_msg(!kvf__mm_run(own, capped_mm, packed, 1, x, y, KVF__F32, 0), "%s",
                  kvf_ctx_error(own));
    ck_assert_float_eq(y[0], 3);
    ck_assert_float_eq(y[1], 7);
    kvf__packed_free(packed);

    packed = NULL;
    st = kvf__pack(own, capped_mm, KVF__BF16, w, true, 2, 2, NULL, &packed);
    ck_assert(!kvf__cpu_has_bf16() || st == KVF_OK);
    ck_assert(st == KVF_OK || st == KVF_EUNSUPPORTED);
    kvf__packed_free(packed);
    kvf__mm_free(capped_mm);
    kvf_ctx_free(own);
    unsetenv("KVF_CPU");
}
END_TEST

/* oneDNN keeps the instruction sets of its first use. */
START_TEST(a_late_cap_is_refused)
{
    const struct shape s = {8, 16};
    const char *before = getenv("KVF_CPU");
    char kept[32];
    kvf__packed *packed = NULL;
    kvf__mm *late = NULL;
    ck_need(kvf__cpu_best() > KVF__CPU_REF, "no instruction set is left to exclude");
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    product p = product_make(&s, KVF__F32);
    ck_assert_int_eq(kvf__pack(ctx, mm, KVF__F32, p.w, false, p.K, p.N, p.bias, &packed), KVF_OK);
    check(&p, packed, 7, KVF__F32, 0);
    setenv("KVF_CPU", "ref", 1);
    ck_assert_int_eq(kvf__mm_create(ctx, &late), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx), "KVF_CPU=ref has no effect after oneDNN's first use in "
                                         "this process: set it earlier");
    ck_assert_ptr_null(late);
    if (before)
        setenv("KVF_CPU", kept, 1);
    else
        unsetenv("KVF_CPU");
    check(&p, packed, 7, KVF__F32, 0);
    kvf__packed_free(packed);
    product_done(&p);
}
END_TEST

#ifndef __SANITIZE_ADDRESS__ /* whose shadow memory exceeds any limit */
/* oneDNN would end the process if it had no memory for its code. */
START_TEST(memory_for_code_is_checked)
{
    struct rlimit before, little;
    unsigned long long pages = 0;
    kvf__mm *made = NULL;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_need(file && fscanf(file, "%llu", &pages) == 1, "no /proc/self/statm");
    fclose(file);
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
    little = before;
    little.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (4 << 20);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &little), 0);
    kvf_status st = kvf__mm_create(ctx, &made);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
    ck_assert_int_eq(st, KVF_ENOMEM);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "less than the 10 MB are left"));
    ck_assert_ptr_null(made);
    ck_assert_int_eq(kvf__mm_create(ctx, &made), KVF_OK);
    kvf__mm_free(made);
}
END_TEST
#endif

START_TEST(version)
{
    char text[32];
    int major, minor, patch;
    ck_assert_int_eq(sscanf(kvf__mm_version(text), "%d.%d.%d", &major, &minor, &patch), 3);
    ck_assert_int_ge(major, 2);
}
END_TEST

/* ---- numbers of threads ---------------------------------------------------------------------- */

/* Equal bits for any number of threads. Applies to f32 with AVX2, where dnnl_sgemm.c divides the
 * products; to f32 with AVX-512 and bf16 with AVX512-BF16 by oneDNN's brgemm; and to bf16 with AMX,
 * where dnnl_rows.c divides those with a long inner dimension. oneDNN's gemm, which computes bf16
 * with plain AVX-512, sums in an order that depends on the threads. */

/* Shapes of SmolLM2, GPT-2 and MiniLM, and some that fit no block. */
static const struct shape WEIGHTS[] = {
    {576, 960},  {576, 576},  {576, 1536}, {1536, 576}, {768, 2304}, {768, 768},  {768, 1536},
    {1536, 768}, {384, 1152}, {1152, 384}, {576, 4096}, {100, 333},  {992, 1536}, {1024, 576}};
enum { N_WEIGHTS = sizeof WEIGHTS / sizeof WEIGHTS[0] };
static const int THREADS[] = {1, 2, 3, 5, 8};
enum { N_THREADS = sizeof THREADS / sizeof THREADS[0], MANY = 384 /* rows of a training step */ };

/* A context with its own thread count, and its results for every number of rows. x is of the type
 * act. */
static uint64_t with_threads(int threads, const struct shape *s, kvf__dtype act, const float *w,
                             const void *x)
{
    const kvf_ctx_options options = {.threads = threads};
    kvf__hash *hash = NULL;
    kvf__packed *packed = NULL;
    uint64_t words[2];
    teardown();
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    ck_assert_int_eq(kvf__mm_create(ctx, &mm), KVF_OK);
    ck_assert_int_eq(kvf__hash_create(ctx, &hash), KVF_OK);
    float *y = floats(MANY * s->N);
    ck_assert_int_eq(kvf__pack(ctx, mm, act, w, false, s->K, s->N, NULL, &packed), KVF_OK);
    for (int i = 0; i <= N_ROWS; i++) {
        const int64_t M = i < N_ROWS ? ROWS[i] : MANY;
        ck_assert_int_eq(kvf__mm_run(ctx, mm, packed, M, x, y, KVF__F32, 0), KVF_OK);
        kvf__hash_add(hash, y, (size_t)(M * s->N) * sizeof *y);
    }
    kvf__hash_words(hash, words);
    kvf__hash_free(hash);
    kvf__packed_free(packed);
    free(y);
    return words[0];
}

/* _i counts weights within act types. */
START_TEST(products_at_any_number_of_threads)
{
    const kvf__dtype act = _i < N_WEIGHTS ? KVF__F32 : KVF__BF16;
    const struct shape *s = &WEIGHTS[_i % N_WEIGHTS];
    ck_need(kvf__cpu_best() >= (act == KVF__F32 ? KVF__CPU_AVX2 : KVF__CPU_AVX512_BF16),
            "oneDNN divides these products by threads on this CPU");
    float *w = random_values(act, s->K * s->N, 2), *x = random_values(act, MANY * s->K, 1);
    kvf__from_f32(act, x, x, MANY * s->K);
    const uint64_t want = with_threads(1, s, act, w, x);
    for (int t = 1; t < N_THREADS; t++)
        ck_assert_msg(with_threads(THREADS[t], s, act, w, x) == want, "[%d, %d] %s at %d threads",
                      (int)s->K, (int)s->N, kvf__dtype_name(act), THREADS[t]);
    free(w);
    free(x);
}
END_TEST

/* A row of an f32 product has the same bits for any number of rows. */
START_TEST(rows_alone)
{
    enum { ALL = 384 };
    const bool any = kvf__cpu_best() == KVF__CPU_AVX2; /* otherwise the counts of a pass */
    const struct shape *s = &WEIGHTS[_i];
    kvf__packed *packed = NULL;
    ck_need(kvf__cpu_best() >= KVF__CPU_AVX2, "KVF_CPU=ref promises nothing of rows");
    float *w = random_values(KVF__F32, s->K * s->N, 2), *x = random_values(KVF__F32, ALL * s->K, 1);
    float *bias = random_values(KVF__F32, s->N, 3), *all = floats(ALL * s->N),
          *some = floats(ALL * s->N);
    for (unsigned flags = 0; flags <= KVF__MM_ADD; flags++) {
        ck_assert_int_eq(
            kvf__pack(ctx, mm, KVF__F32, w, false, s->K, s->N, flags ? NULL : bias, &packed),
            KVF_OK);
        memset(all, 0, (size_t)(ALL * s->N) * sizeof *all);
        ck_assert_int_eq(kvf__mm_run(ctx, mm, packed, ALL, x, all, KVF__F32, flags), KVF_OK);
        for (int64_t M = 1; M < ALL; M += M < (any ? 130 : 8) ? 1 : any ? 17 : M < 64 ? 8 : 64) {
            const int64_t from = (ALL - M) / 2;
            memset(some, 0, (size_t)(M * s->N) * sizeof *some);
            ck_assert_int_eq(
                kvf__mm_run(ctx, mm, packed, M, x + from * s->K, some, KVF__F32, flags), KVF_OK);
            ck_assert_msg(!memcmp(some, all + from * s->N, (size_t)(M * s->N) * sizeof *some),
                          "[%d, %d]: %d rows, flags %u", (int)s->K, (int)s->N, (int)M, flags);
        }
        kvf__packed_free(packed);
    }
    free(w);
    free(x);
    free(bias);
    free(all);
    free(some);
}
END_TEST

/* M, N, K: vectors; small results of long sums, which oneDNN would divide by threads; larger
 * ones. */
static const int SGEMMS[][3] = {{1, 282, 774},    {500, 1, 1307},   {64, 64, 4096},
                                {32, 32, 8192},   {162, 471, 1190}, {183, 945, 795},
                                {128, 768, 4096}, {8, 576, 1536},   {576, 1536, 512},
                                {1536, 576, 130}, {768, 64, 1024},  {11520, 64, 20}};

static void sgemm_at(int threads, int which, const int *s, const float *a, const float *b, float *c)
{
    const bool ta = which == 1, tb = which == 2;
    const kvf_ctx_options options = {.threads = threads};
    teardown();
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    ck_assert_int_eq(kvf__mm_create(ctx, &mm), KVF_OK);
    for (int64_t i = 0; i < (int64_t)s[0] * s[1]; i++)
        c[i] = 0.5f;
    ck_assert_int_eq(kvf__sgemm(ctx, ta, tb, s[0], s[1], s[2], a, ta ? s[0] : s[2], b,
                                tb ? s[2] : s[1], 1, c, s[1]),
                     KVF_OK);
}

START_TEST(sgemm_at_any_number_of_threads)
{
    const int *s = SGEMMS[_i / 3], which = _i % 3;
    const int64_t n = (int64_t)s[0] * s[1];
    float *a = random_values(KVF__F32, (int64_t)s[0] * s[2], 1);
    float *b = random_values(KVF__F32, (int64_t)s[1] * s[2], 2);
    float *want = floats(n), *got = floats(n);
    sgemm_at(1, which, s, a, b, want);
    for (int t = 1; t < N_THREADS; t++) {
        sgemm_at(THREADS[t], which, s, a, b, got);
        ck_assert_msg(!memcmp(got, want, (size_t)n * sizeof *got),
                      "[%d, %d] sums of %d, form %d, at %d threads", s[0], s[1], s[2], which,
                      THREADS[t]);
    }
    free(a);
    free(b);
    free(want);
    free(got);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("matmul");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits"),
          *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_set_timeout(core, 60);
    tcase_add_loop_test(core, against_loops, 0, 2 * N_SHAPES);
    tcase_add_loop_test(core, transposed_and_no_bias, 0, 2 * N_SHAPES);
    tcase_add_loop_test(core, prepared, 0, 2);
    tcase_add_loop_test(core, sgemm, 0, 8);
    tcase_add_loop_test(core, products_at_any_number_of_threads, 0, 2 * N_WEIGHTS);
    tcase_add_loop_test(core, rows_alone, 0, N_WEIGHTS);
    tcase_add_loop_test(core, sgemm_at_any_number_of_threads, 0,
                        3 * (int)(sizeof SGEMMS / sizeof SGEMMS[0]));
    tcase_add_checked_fixture(limits, setup, teardown);
    tcase_set_timeout(limits, 60);
    tcase_add_test(limits, many_row_counts);
    tcase_add_test(limits, no_rows);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_test(errors, out_of_memory);
    tcase_add_test(errors, a_late_cap_is_refused);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_test(errors, memory_for_code_is_checked);
#endif
    tcase_add_test(errors, version);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    suite_add_tcase(suite, errors);
    TCase *caps = tcase_create("caps");
    tcase_add_loop_test(caps, capped, 0, sizeof CAPS / sizeof CAPS[0]);
    suite_add_tcase(suite, caps);
    return ck_main(suite);
}
