/* Products of eight-bit integers: their two kernels at every level, and whole products against
 * loops that follow the same formulas exactly, integer by integer. */
#include "kernels_fx.h"
#include "matmul.h"

enum { MOST_ROWS = 300 };
static const int64_t ROWS[] = {1, 2, 7, 16, 63, 64, 65, 128, 257, MOST_ROWS};
enum { N_ROWS = sizeof ROWS / sizeof ROWS[0] };
static const struct shape {
    int64_t K, N;
} SHAPES[] = {{1, 1}, {7, 7}, {7, 64}, {64, 7}, {100, 333}, {576, 1536}, {1536, 576}};
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

/* ---- kernels --------------------------------------------------------------------------------- */

/* Rows of common sizes, of zeros, below 2^-100, with an infinity, and with a NaN before larger
 * numbers. */
enum { KINDS = 5 };
static float *awkward_rows(int64_t K)
{
    float *x = filled(KVF__F32, KINDS * K, 3, 1);
    for (int64_t k = 0; k < K; k++) {
        x[K + k] = 0;
        x[2 * K + k] *= 0x1p-110f;
    }
    x[3 * K + K / 2] = -INFINITY;
    x[4 * K + K / 3] = NAN;
    return x;
}

static void quantize_of(int64_t K, uint8_t zero)
{
    float *x = awkward_rows(K), scale[2][KINDS];
    void *given = array(act, KINDS * K);
    uint8_t *q[2] = {array(KVF__F32, KINDS * K), array(KVF__F32, KINDS * K)};

    kvf__from_f32(act, x, given, KINDS * K);
    ref->quantize(act, q[0], zero, scale[0], given, KINDS, K);
    fast->quantize(act, q[1], zero, scale[1], given, KINDS, K);
    ck_assert_mem_eq(q[0], q[1], (size_t)(3 * K));
    for (int i = 0; i < 3 * K; i++)
        ck_assert_int_ge(zero ? q[0][i] - 128 : (int8_t)q[0][i], -127);
    ck_assert_mem_eq(scale[0], scale[1], 3 * sizeof(float));
    ck_assert_float_eq(scale[0][1], 0);
    ck_assert_float_eq(scale[0][2], 0);
    for (int k = 0; k < 2; k++) {
        ck_assert(isinf(scale[k][3]));
        ck_assert(isnan(scale[k][4]));
        for (int64_t i = KINDS * K; i < KINDS * K + GUARD; i++)
            ck_assert_int_eq(q[k][i], 0xa5); /* nothing is written past the end */
        free(q[k]);
    }
    free(given);
    free(x);
}

START_TEST(quantize)
{
    ck_need(choose(_i), "this CPU has no such kernels");
    for (int64_t K = 1; K < 100; K += 7)
        quantize_of(K, K % 2 ? 128 : 0);
    quantize_of(1536, 128);
}
END_TEST

/* A scale is max / 127, and q is the nearest integer; ties to even. */
START_TEST(known_values)
{
    const float x[] = {127, -63.5f, 0.5f, 1.5f, 2.5f, -0.49f, 254, 127};
    const int8_t want[] = {127, -64, 0, 2, 2, 0, 127, 64};
    uint8_t q[8], moved[6];
    float scale[2];

    ref = kvf__kernels_level("ref");
    ref->quantize(KVF__F32, q, 0, scale, x, 1, 6);
    ref->quantize(KVF__F32, q + 6, 0, scale + 1, x + 6, 1, 2);
    ck_assert_mem_eq(q, want, sizeof want);
    ref->quantize(KVF__F32, moved, 128, scale, x, 1, 6);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(moved[i], want[i] + 128);
    ck_assert_float_eq(scale[0], 1);
    ck_assert_float_eq(scale[1], 2);
}
END_TEST

static void scale_sums_of(int64_t N, bool add, bool bias)
{
    enum { M = 3 };
    int32_t *sums = array(KVF__F32, M * N), *zero = array(KVF__F32, N);
    kvf__rng rng = kvf__rng_make(5, 9);
    void *start = filled(act, M * N, 2, 2), *y[2];
    const kvf__kernels *by[2] = {ref, fast};
    float *row = filled(KVF__F32, M, 1e-2, 3), *column = filled(KVF__F32, N, 1e-2, 4),
          *b = filled(KVF__F32, N, 1, 5);
    char what[64];

    for (int64_t i = 0; i < M * N; i++)
        sums[i] = (int32_t)((kvf__rng_uniform(&rng) - 0.5) * 4e6);
    for (int64_t n = 0; n < N; n++)
        zero[n] = (int32_t)(1000 * n) - 5000;
    for (int k = 0; k < 2; k++) {
        y[k] = memcpy(array(act, M * N), start, (size_t)(M * N) * size_of(act));
        const kvf__scaled_sums s = {M, N, sums, zero, row, column, bias ? b : NULL, y[k], add};
        by[k]->scale_sums(act, &s);
    }
    snprintf(what, sizeof what, "scale_sums %d add %d bias %d", (int)N, add, bias);
    same(what, act, y[1], y[0], M * N, 1e-6, 2e-5); /* sums of up to 200 */
    free(sums);
    free(zero);
    free(start);
    free(row);
    free(column);
    free(b);
}

START_TEST(scale_sums)
{
    ck_need(choose(_i), "this CPU has no such kernels");
    for (int64_t N = 1; N < 70; N += 6)
        for (int how = 0; how < 4; how++)
            scale_sums_of(N, how & 1, how & 2);
}
END_TEST

/* ---- products -------------------------------------------------------------------------------- */

typedef struct product {
    int64_t K, N;
    float *x, *w, *bias;
    uint16_t *x16;
    float *want; /* without the initial values */
    float *got;
    void *out;
} product;

/* The formulas of dnnl_int8.c in plain loops. */
static void reference(product *p)
{
    int8_t *q = malloc((size_t)(MOST_ROWS * p->K)), *u = malloc((size_t)(p->K * p->N));
    float *turned = malloc((size_t)(p->K * p->N) * 4), *column = malloc((size_t)p->N * 4),
          row[MOST_ROWS];

    for (int64_t k = 0; k < p->K; k++)
        for (int64_t n = 0; n < p->N; n++)
            turned[n * p->K + k] = p->w[k * p->N + n];
    kvf__kernels_level("ref")->quantize(KVF__BF16, (uint8_t *)q, 0, row, p->x16, MOST_ROWS, p->K);
    kvf__kernels_level("ref")->quantize(KVF__F32, (uint8_t *)u, 0, column, turned, p->N, p->K);
    for (int64_t m = 0; m < MOST_ROWS; m++)
        for (int64_t n = 0; n < p->N; n++) {
            int32_t sum = 0;
            for (int64_t k = 0; k < p->K; k++)
                sum += q[m * p->K + k] * u[n * p->K + k];
            p->want[m * p->N + n] = (float)((double)sum * row[m] * column[n] + p->bias[n]);
        }
    free(q);
    free(u);
    free(turned);
    free(column);
}

static product product_make(const struct shape *s)
{
    product p = {.K = s->K, .N = s->N};
    p.x = filled(KVF__F32, MOST_ROWS * s->K, 2, 1);
    p.w = filled(KVF__F32, s->K * s->N, 1, 2);
    p.bias = filled(KVF__F32, s->N, 1, 3);
    p.x16 = array(KVF__BF16, MOST_ROWS * s->K);
    for (int64_t k = 0; s->N > 2 && k < s->K; k++)
        p.w[k * s->N + 2] = 0; /* a column without a scale */
    for (int64_t k = 0; k < s->K; k++)
        p.x[6 * s->K + k] = 0; /* a row without one */
    kvf__from_f32(KVF__BF16, p.x, p.x16, MOST_ROWS * s->K);
    p.want = array(KVF__F32, MOST_ROWS * s->N);
    p.got = array(KVF__F32, MOST_ROWS * s->N);
    p.out = array(KVF__F32, MOST_ROWS * s->N);
    reference(&p);
    return p;
}

static void product_done(product *p)
{
    void *all[] = {p->x, p->w, p->bias, p->x16, p->want, p->got, p->out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* The result in p->got, added to 0.5 if the flags ask for it. */
static void run(product *p, const kvf__packed *packed, int64_t M, kvf__dtype dst, unsigned flags)
{
    for (int64_t i = 0; i < M * p->N; i++)
        p->got[i] = flags & KVF__MM_ADD ? 0.5f : NAN;
    kvf__from_f32(dst, p->got, p->out, M * p->N);
    ck_assert_msg(!kvf__mm_run(ctx, mm, packed, M, p->x16, p->out, dst, flags), "%s",
                  kvf_ctx_error(ctx));
    kvf__to_f32(dst, p->out, p->got, M * p->N);
}

/* Sums are exact; the error is the rounding of three f32 operations, or of a bf16 result. */
static void check(product *p, const kvf__packed *packed, int64_t M, kvf__dtype dst, unsigned flags)
{
    const double rtol = dst == KVF__BF16 ? 1.0 / 256 : 1e-6,
                 atol = dst == KVF__BF16 && flags ? 0.5 / 256 : 1e-5;
    char what[96];

    run(p, packed, M, dst, flags);
    for (int64_t i = 0; flags & KVF__MM_ADD && i < M * p->N; i++)
        p->got[i] -= 0.5f;
    snprintf(what, sizeof what, "[%d, %d] x [%d, %d] -> %s flags %u", (int)M, (int)p->K, (int)p->K,
             (int)p->N, kvf__dtype_name(dst), flags);
    ck_close_at(__FILE__, __LINE__, what, p->got, p->want, (size_t)(M * p->N), rtol, atol);
}

START_TEST(against_loops)
{
    kvf__packed *packed = NULL;
    ck_need(kvf__cpu_has_int8(), "this CPU has no eight-bit dot products");
    product p = product_make(&SHAPES[_i]);

    ck_assert_int_eq(kvf__pack(ctx, mm, KVF__I8, p.w, false, p.K, p.N, p.bias, &packed), KVF_OK);
    ck_assert_uint_ge(kvf__packed_bytes(packed), (size_t)(p.K * p.N + 12 * p.N));
    for (int i = 0; i < N_ROWS; i++)
        for (unsigned flags = 0; flags <= KVF__MM_ADD; flags++) {
            check(&p, packed, ROWS[i], KVF__F32, flags);
            check(&p, packed, ROWS[i], KVF__BF16, flags);
        }
    kvf__packed_free(packed);
    product_done(&p);
}
END_TEST

/* [N, K] given as transposed is the same weight, bit for bit; packing again takes other values. */
START_TEST(transposed_and_again)
{
    kvf__packed *plain = NULL, *turned = NULL;
    ck_need(kvf__cpu_has_int8(), "this CPU has no eight-bit dot products");
    product p = product_make(&SHAPES[_i]);
    const size_t bytes = (size_t)(65 * p.N) * sizeof(float);
    float *first = malloc(bytes), *w_t = malloc((size_t)(p.K * p.N) * sizeof *w_t);

    for (int64_t k = 0; k < p.K; k++)
        for (int64_t n = 0; n < p.N; n++)
            w_t[n * p.K + k] = p.w[k * p.N + n];
    ck_assert_int_eq(kvf__pack(ctx, mm, KVF__I8, p.w, false, p.K, p.N, NULL, &plain), KVF_OK);
    ck_assert_int_eq(kvf__pack(ctx, mm, KVF__I8, w_t, true, p.K, p.N, NULL, &turned), KVF_OK);
    run(&p, plain, 65, KVF__F32, 0);
    memcpy(first, p.got, bytes);
    run(&p, turned, 65, KVF__F32, 0);
    ck_assert_mem_eq(p.got, first, bytes);
    for (int64_t i = 0; i < p.K * p.N; i++)
        w_t[i] *= -2;
    ck_assert_int_eq(kvf__repack(ctx, mm, w_t, true, NULL, turned), KVF_OK);
    run(&p, turned, 65, KVF__F32, 0);
    for (int64_t i = 0; i < 65 * p.N; i++)
        ck_assert_float_eq(p.got[i], -2 * first[i]);
    kvf__packed_free(plain);
    kvf__packed_free(turned);
    product_done(&p);
    free(first);
    free(w_t);
}
END_TEST

/* A row has the same bits with any other rows, and at any number of threads. Nothing is allocated
 * after a number of rows is prepared. */
START_TEST(rows_alike)
{
    kvf__packed *packed = NULL;
    ck_need(kvf__cpu_has_int8(), "this CPU has no eight-bit dot products");
    product p = product_make(&SHAPES[5]);
    const int before = omp_get_max_threads();

    ck_assert_int_eq(kvf__pack(ctx, mm, KVF__I8, p.w, false, p.K, p.N, p.bias, &packed), KVF_OK);
    run(&p, packed, MOST_ROWS, KVF__F32, 0);
    memcpy(p.want, p.got, (size_t)(MOST_ROWS * p.N) * sizeof(float));
    for (int threads = 1; threads <= 5; threads++) {
        omp_set_num_threads(threads);
        for (int i = 0; i < N_ROWS; i++) {
            ck_assert_int_eq(kvf__mm_prepare(ctx, mm, packed, ROWS[i], KVF__F32, 0), KVF_OK);
            const uint64_t allocations = kvf__ctx_allocations(ctx);
            run(&p, packed, ROWS[i], KVF__F32, 0);
            ck_assert_uint_eq(kvf__ctx_allocations(ctx), allocations);
            ck_assert_mem_eq(p.got, p.want, (size_t)(ROWS[i] * p.N) * sizeof(float));
            ck_assert_int_eq(omp_get_max_threads(), threads); /* for any setting of oneDNN */
        }
    }
    omp_set_num_threads(before);
    kvf__packed_free(packed);
    product_done(&p);
}
END_TEST

/* A value that is not finite is not rounded away. */
START_TEST(not_finite)
{
    const float bad[] = {INFINITY, -INFINITY, NAN};
    kvf__packed *packed = NULL;
    ck_need(kvf__cpu_has_int8(), "this CPU has no eight-bit dot products");
    product p = product_make(&SHAPES[4]);

    ck_assert_int_eq(kvf__pack(ctx, mm, KVF__I8, p.w, false, p.K, p.N, NULL, &packed), KVF_OK);
    for (int i = 0; i < 3; i++)
        kvf__from_f32(KVF__BF16, &bad[i], p.x16 + 2 * i * p.K + 50, 1);
    run(&p, packed, 7, KVF__F32, 0);
    for (int64_t m = 0; m < 6; m++)
        for (int64_t n = 3; n < p.N; n++)
            ck_assert_int_eq(isfinite(p.got[m * p.N + n]) != 0, m % 2);
    kvf__packed_free(packed);
    product_done(&p);
}
END_TEST

/* Each allocation fails once; nothing leaks (sanitizer) and the last try works. */
START_TEST(out_of_memory)
{
    const float w[4] = {1, 2, 3, 4};
    const uint16_t x[2] = {0x3f80, 0x3f80}; /* 1, 1 */
    float y[2];
    int64_t n = 0;
    kvf_status st;

    ck_need(kvf__cpu_has_int8(), "this CPU has no eight-bit dot products");
    do {
        kvf__mm *made = NULL;
        kvf__packed *packed = NULL;
        kvf__ctx_fail_allocation(ctx, n++);
        st = kvf__mm_create(ctx, &made);
        if (!st) st = kvf__pack(ctx, made, KVF__I8, w, false, 2, 2, w, &packed);
        if (!st) st = kvf__mm_run(ctx, made, packed, 1, x, y, KVF__F32, 0);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        kvf__packed_free(packed);
        kvf__mm_free(made);
    } while (st);
    ck_assert_int_ge(n, 7);
    ck_assert_float_eq_tol(y[0], 5, 0.03);
    ck_assert_float_eq_tol(y[1], 8, 0.03);
    kvf__ctx_fail_allocation(ctx, -1);
}
END_TEST

/* Under an ISA cap without such instructions, int8 is refused. In a process of its own. */
START_TEST(capped)
{
    static const char *const CAPS[] = {"ref", "avx2", "avx512"};
    const float w[4] = {1, 2, 3, 4};
    kvf_ctx *own = NULL;
    kvf__mm *capped_mm = NULL;
    kvf__packed *packed = NULL;

    setenv("KVF_CPU", CAPS[_i], 1);
    ck_assert_int_eq(kvf_ctx_create(NULL, &own), KVF_OK);
    if (kvf__mm_create(own, &capped_mm))
        ck_skip("tests share a process");
    else
        ck_assert_int_eq(kvf__pack(own, capped_mm, KVF__I8, w, true, 2, 2, NULL, &packed),
                         KVF_EUNSUPPORTED);
    kvf__mm_free(capped_mm);
    kvf_ctx_free(own);
    unsetenv("KVF_CPU");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("matmul_int8");
    TCase *kernels = tcase_create("kernels"), *products = tcase_create("products"),
          *caps = tcase_create("caps");
    tcase_add_loop_test(kernels, quantize, 0, LEVEL_ROWS);
    tcase_add_loop_test(kernels, scale_sums, 0, LEVEL_ROWS);
    tcase_add_test(kernels, known_values);
    tcase_add_checked_fixture(products, setup, teardown);
    tcase_set_timeout(products, 60);
    tcase_add_loop_test(products, against_loops, 0, N_SHAPES);
    tcase_add_loop_test(products, transposed_and_again, 0, N_SHAPES);
    tcase_add_test(products, rows_alike);
    tcase_add_test(products, not_finite);
    tcase_add_test(products, out_of_memory);
    tcase_add_loop_test(caps, capped, 0, 3);
    suite_add_tcase(suite, kernels);
    suite_add_tcase(suite, products);
    suite_add_tcase(suite, caps);
    return ck_main(suite);
}
