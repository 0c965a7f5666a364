/* Every attention level of this machine against the reference. Results must not depend on other
 * rows in the batch, the number of threads, repetition, or leaving out the gradients of the
 * rows. */
#include "attention_fx.h"
#include "attention_int.h"
#include "ck.h"

static const char *const LEVELS[] = {"avx2", "avx512", "avx512_bf16"};
enum { N_LEVELS = 3 };

/* ---- parity ---------------------------------------------------------------------------------- */

static const int64_t PREFIXES[] = {0, 1, 5, 20, 33, 100};
static const int64_t LENGTHS[] = {1, 2, 31, 32, 33, 64, 100};
static const int64_t SIZES[] = {8, 16, 48, 64, 128};
static const int64_t HEADS[][2] = {{1, 1}, {3, 1}, {4, 1}, {4, 2}};
enum { N_PREFIXES = 6, N_LENGTHS = 7, N_SIZES = 5, N_HEADS = 4, N_GRID = N_PREFIXES * N_LENGTHS };

/* Shapes outside a regular grid. */
static const fx_shape SHAPES[] = {
    {.H = 6, .G = 2, .D = 64, .P = 20, .n_rows = 4, .len = {70, 5, 128, 33}},
    {.H = 2, .G = 2, .D = 64, .P = 20, .common = 37, .n_rows = 3, .len = {70, 5, 31}},
    {.H = 4,
     .G = 1,
     .D = 32,
     .P = 9,
     .common = 3,
     .n_rows = 3,
     .len = {17, 40, 1},
     .cache = {19, 0, 300}},
    {.H = 3, .G = 1, .D = 64, .P = 0, .n_rows = 3, .len = {1, 4, 3}, .cache = {1000, 17, 1}},
    {.H = 4, .G = 4, .D = 1, .P = 3, .n_rows = 2, .len = {9, 18}},
    {.H = 2, .G = 1, .D = 80, .P = 7, .n_rows = 2, .len = {50, 66}},
    {.H = 2, .G = 1, .D = 100, .P = 7, .n_rows = 2, .len = {3, 21}, .cache = {40, 0}},
    {.H = 2, .G = 2, .D = 256, .P = 20, .n_rows = 1, .len = {40}},
    {.H = 4, .G = 2, .D = 64, .P = 20, .n_rows = 3, .len = {70, 1, 45}, .full = true},
    {.H = 2,
     .G = 2,
     .D = 16,
     .P = 0,
     .common = 11,
     .n_rows = 4,
     .len = {3, 29, 0, 130},
     .cache = {5, 0, 6, 0},
     .full = true},
    {.H = 1, .G = 1, .D = 64, .P = 20, .n_rows = 1, .len = {300}},
    {.H = 6,
     .G = 2,
     .D = 64,
     .P = 20,
     .common = 11,
     .n_rows = 5,
     .len = {70, 40, 128, 33, 9},
     .first = {69, 1, 97, 33, 3}},
    {.H = 2,
     .G = 2,
     .D = 48,
     .P = 3,
     .n_rows = 2,
     .len = {70, 130},
     .first = {11, 64},
     .full = true},
    {.H = 4, .G = 2, .D = 64, .P = 20, .n_rows = 4, .len = {70, 5, 128, 33}, .cap = 1},
    {.H = 4, .G = 2, .D = 48, .P = 20, .n_rows = 4, .len = {170, 3, 128, 33}, .window = 16},
    {.H = 2, .G = 2, .D = 64, .P = 3, .n_rows = 3, .len = {270, 1, 90}, .window = 100},
    {.H = 2, .G = 1, .D = 64, .P = 40, .n_rows = 2, .len = {66, 4}, .window = 1, .cap = 3},
    {.H = 4,
     .G = 4,
     .D = 48,
     .P = 20,
     .n_rows = 5,
     .len = {170, 3, 128, 33, 1},
     .first = {0, 1, 100, 0, 0},
     .full = true,
     .window = 17},
    {.H = 2, .G = 2, .D = 64, .n_rows = 3, .len = {270, 40, 90}, .full = true, .window = 65},
    {.H = 2,
     .G = 1,
     .D = 32,
     .P = 3,
     .n_rows = 2,
     .len = {66, 5},
     .full = true,
     .window = 1,
     .cap = 3},
    {.H = 2,
     .G = 1,
     .D = 64,
     .P = 37,
     .n_rows = 2,
     .len = {150, 35},
     .full = true,
     .window = 9,
     .weighted = true},
    {.H = 4,
     .G = 1,
     .D = 32,
     .P = 9,
     .common = 3,
     .n_rows = 4,
     .len = {17, 200, 1, 3},
     .cache = {19, 0, 300, 40},
     .first = {16, 77, 0, 1},
     .window = 37,
     .cap = 5},
    {.H = 6, .G = 2, .D = 64, .P = 20, .n_rows = 4, .len = {70, 5, 128, 33}, .weighted = true},
    {.H = 4,
     .G = 2,
     .D = 48,
     .P = 100,
     .common = 37,
     .n_rows = 4,
     .len = {70, 2, 31, 33},
     .cache = {0, 40, 0, 7},
     .weighted = true},
    {.H = 2,
     .G = 2,
     .D = 8,
     .P = 3,
     .n_rows = 2,
     .len = {1, 4},
     .cache = {100, 3},
     .weighted = true},
    {.H = 4,
     .G = 2,
     .D = 64,
     .P = 65,
     .n_rows = 3,
     .len = {70, 1, 45},
     .full = true,
     .weighted = true},
    {.H = 6,
     .G = 2,
     .D = 64,
     .P = 20,
     .common = 11,
     .n_rows = 5,
     .len = {70, 40, 128, 33, 9},
     .first = {69, 1, 97, 33, 3},
     .weighted = true},
    {.H = 4, .G = 2, .D = 64, .P = 20, .n_rows = 3, .len = {70, 3, 45}, .weighted = true, .cap = 2},
    {.H = 4,
     .G = 1,
     .D = 32,
     .P = 69,
     .common = 3,
     .n_rows = 4,
     .len = {17, 200, 1, 3},
     .cache = {19, 0, 30, 40},
     .weighted = true,
     .window = 87,
     .cap = 5},
    {.H = 4, .G = 2, .D = 64, .P = 20, .n_rows = 4, .len = {70, 5, 128, 33}, .bias = true},
    {.H = 2,
     .G = 2,
     .D = 64,
     .P = 20,
     .n_rows = 5,
     .len = {70, 2, 128, 33, 1},
     .cache = {0, 50, 3, 0, 300},
     .first = {11, 0, 97, 0, 0},
     .bias = true,
     .cap = 6},
    {.H = 3, .G = 3, .D = 20, .P = 9, .n_rows = 3, .len = {170, 5, 45}, .full = true, .bias = true},
    {.H = 2,
     .G = 2,
     .D = 64,
     .P = 20,
     .n_rows = 5,
     .len = {70, 5, 128, 33, 200},
     .full = true,
     .terms = true},
    {.H = 2,
     .G = 2,
     .D = 64,
     .n_rows = 5,
     .len = {64, 1, 31, 16, 129},
     .full = true,
     .terms = true},
    {.H = 3,
     .G = 3,
     .D = 80,
     .P = 7,
     .n_rows = 3,
     .len = {50, 66, 8},
     .first = {3, 65, 0},
     .full = true,
     .terms = true},
    {.H = 2,
     .G = 2,
     .D = 20,
     .P = 37,
     .common = 5,
     .n_rows = 3,
     .len = {150, 35, 3},
     .terms = true,
     .weighted = true},
    {.H = 2,
     .G = 2,
     .D = 48,
     .P = 20,
     .n_rows = 3,
     .len = {170, 3, 40},
     .full = true,
     .terms = true,
     .window = 17,
     .cap = 6},
    {.H = 4,
     .G = 2,
     .D = 64,
     .P = 20,
     .common = 70,
     .n_rows = 4,
     .len = {70, 5, 128, 3},
     .first = {9, 0, 0, 1},
     .full = true,
     .crosses = true},
};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

static size_t n_weights(const fx *f, int s)
{
    return (size_t)(f->shape.G * f->segs[s].len);
}

/* f32 sums in another order than the reference's doubles, of values around 1. */
static void compare_f32(const fx *got, const fx *want)
{
    const double tol = 2e-5;
    ck_close((float *)got->attn.out, (float *)want->attn.out, (size_t)got->n_out, tol, tol);
    ck_close((float *)got->attn.dqkv, (float *)want->attn.dqkv, (size_t)got->n_qkv, tol, tol);
    for (int s = 0; s < 2; s++) {
        /* sums over all queries of all rows: errors add up with them */
        ck_close(got->segs[s].dk, want->segs[s].dk, (size_t)got->n_seg[s], 2e-5, 1e-4);
        ck_close(got->segs[s].dv, want->segs[s].dv, (size_t)got->n_seg[s], 2e-5, 1e-4);
        if (got->segs[s].dlog_weight)
            ck_close(got->segs[s].dlog_weight, want->segs[s].dlog_weight, n_weights(got, s), 2e-5,
                     1e-4);
    }
}

/* bf16 has 8 bits: 2^-9 = 2e-3 per rounding of inputs of a product; out and dqkv are rounded once
 * more. A few roundings of independent sign stay below 1e-2 in the relative L2 norm. If the
 * gradient itself nearly cancels (one key: dS = 0), the bound is relative to the size of a typical
 * gradient. */
static void compare_bf16_array(const char *what, const float *got, const float *want, int64_t n)
{
    double worst = 0, error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)got[i] - (double)want[i]);
        worst = d > worst ? d : worst;
        error += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    const double allowed = 1e-2 * sqrt(norm) + 2e-3 * sqrt((double)n);
    ck_assert_msg(sqrt(error) <= allowed, /* false for NaN */
                  "%s: error %.3g of %.3g, allowed %.3g, worst %.3g", what, sqrt(error), sqrt(norm),
                  allowed, worst);
}

static void compare_bf16(const fx *got, const fx *want)
{
    float *a[2] = {fx_floats(got, got->attn.out, got->n_out),
                   fx_floats(got, got->attn.dqkv, got->n_qkv)};
    float *b[2] = {fx_floats(want, want->attn.out, want->n_out),
                   fx_floats(want, want->attn.dqkv, want->n_qkv)};
    compare_bf16_array("out", a[0], b[0], got->n_out);
    compare_bf16_array("dqkv", a[1], b[1], got->n_qkv);
    for (int s = 0; s < 2; s++) {
        compare_bf16_array("segment dk", got->segs[s].dk, want->segs[s].dk, got->n_seg[s]);
        compare_bf16_array("segment dv", got->segs[s].dv, want->segs[s].dv, got->n_seg[s]);
        if (got->segs[s].dlog_weight)
            compare_bf16_array("log-weights", got->segs[s].dlog_weight, want->segs[s].dlog_weight,
                               (int64_t)n_weights(got, s));
    }
    for (int i = 0; i < 2; i++) {
        free(a[i]);
        free(b[i]);
    }
}

/* Compares every level with the reference, in one shape and both activation types. */
static void check_shape(const fx_shape *shape)
{
    ck_need(kvf__kernels_level(LEVELS[0]), "this CPU has no such kernels");
    for (int type = 0; type < 2; type++) {
        fx_shape typed = *shape;
        fx want;
        typed.act = type ? KVF__BF16 : KVF__F32;
        fx_open(&want, &typed, 1);
        fx_run(&want, kvf__kernels_level("ref"));
        for (int level = 0; level < N_LEVELS; level++) {
            const kvf__kernels *kernels = kvf__kernels_level(LEVELS[level]);
            fx got;
            if (!kernels) continue;
            fx_open(&got, &typed, 2);
            fx_run(&got, kernels);
            if (type)
                compare_bf16(&got, &want);
            else
                compare_f32(&got, &want);
            fx_close(&got);
        }
        fx_close(&want);
    }
}

START_TEST(fast_matches_ref_in_odd_shapes)
{
    check_shape(&SHAPES[_i]);
}
END_TEST

/* Prefixes and lengths in full; head sizes and groups alternate. */
START_TEST(fast_matches_ref_in_grid)
{
    const int64_t *heads = HEADS[_i / N_SIZES % N_HEADS];
    const fx_shape shape = {.H = heads[0],
                            .G = heads[1],
                            .D = SIZES[_i % N_SIZES],
                            .P = PREFIXES[_i % N_PREFIXES],
                            .n_rows = 1,
                            .len = {LENGTHS[_i / N_PREFIXES]}};
    check_shape(&shape);
}
END_TEST

/* The gradient used in training: the prefix gradient of bf16 activations against that of the same
 * numbers in f32, unrounded. */
START_TEST(bf16_prefix_gradient_is_near)
{
    ck_need(kvf__kernels_level(LEVELS[0]), "this CPU has no such kernels");
    fx_shape shape = {.H = 6, .G = 3, .D = 64, .P = 20, .n_rows = 3, .len = {128, 64, 90}};
    fx want;
    fx_open(&want, &shape, 1);
    fx_run(&want, kvf__kernels_level("ref"));
    shape.act = KVF__BF16;
    for (int level = 0; level < N_LEVELS; level++) {
        const kvf__kernels *kernels = kvf__kernels_level(LEVELS[level]);
        fx got;
        if (!kernels) continue;
        fx_open(&got, &shape, 2);
        fx_run(&got, kernels);
        const double dk = ck_rel_l2(got.segs[0].dk, want.segs[0].dk, (size_t)got.n_seg[0]);
        const double dv = ck_rel_l2(got.segs[0].dv, want.segs[0].dv, (size_t)got.n_seg[0]);
        ck_assert_msg(dk < 1e-2 && dv < 1e-2, "%s: relative error of dk %.2e, dv %.2e",
                      LEVELS[level], dk, dv);
        fx_close(&got);
    }
    fx_close(&want);
}
END_TEST

/* Rows that attend only to themselves, with scores far from 0: the maximum must be subtracted. */
START_TEST(large_scores_stay_finite)
{
    ck_need(kvf__kernels_level(LEVELS[0]), "this CPU has no such kernels");
    const fx_shape shape = {.H = 2, .G = 1, .D = 16, .P = 3, .n_rows = 2, .len = {40, 2}};
    for (int level = 0; level < N_LEVELS; level++) {
        const kvf__kernels *kernels = kvf__kernels_level(LEVELS[level]);
        fx got, want;
        if (!kernels) continue;
        fx_open(&got, &shape, 1);
        fx_open(&want, &shape, 1);
        got.attn.scale = want.attn.scale = 40; /* scores up to about 800: e^800 overflows a float */
        kernels->attn_fwd(&got.attn);
        kvf__kernels_level("ref")->attn_fwd(&want.attn);
        /* a score of 800 has an error of 3e-5, and so does its exponential */
        ck_close((float *)got.attn.out, (float *)want.attn.out, (size_t)got.n_out, 2e-3, 2e-3);
        fx_zero_grads(&got);
        kernels->attn_bwd(&got.attn);
        bool finite = true;
        for (int64_t i = 0; i < got.n_qkv; i++)
            finite &= isfinite(((float *)got.attn.dqkv)[i]) != 0;
        ck_assert(finite);
        fx_close(&got);
        fx_close(&want);
    }
}
END_TEST

/* ---- invariance of results ------------------------------------------------------------------- */

static const fx_shape MIXED = {.H = 4,
                               .G = 2,
                               .D = 64,
                               .P = 20,
                               .common = 6,
                               .n_rows = 6,
                               .len = {70, 5, 128, 33, 1, 64},
                               .cache = {0, 3, 0, 0, 50, 0},
                               .weighted = true};

/* A loop row is a level and an activation type. */
static const kvf__kernels *of_row(int i, fx_shape *shape)
{
    *shape = MIXED;
    shape->act = i % 2 ? KVF__BF16 : KVF__F32;
    return kvf__kernels_level(LEVELS[i / 2]);
}

START_TEST(rows_do_not_meet)
{
    fx_shape shape;
    const kvf__kernels *kernels = of_row(_i, &shape);
    fx all, one;
    ck_need(kernels, "this CPU has no such kernels");
    fx_open(&all, &shape, 2);
    fx_open(&one, &shape, 2);
    fx_run(&all, kernels);
    fx_zero_grads(&one);
    for (int r = 0; r < shape.n_rows; r++) {
        kvf__attn_plan_set(one.attn.plan, &one.rows[r], 1, one.segs, 2 + shape.n_rows);
        kernels->attn_fwd(&one.attn);
        kernels->attn_bwd(&one.attn);
    }
    const size_t size = kvf__dtype_block_bytes(shape.act);
    ck_assert_mem_eq(all.attn.out, one.attn.out, (size_t)all.n_out * size);
    ck_assert_mem_eq(all.attn.dqkv, one.attn.dqkv, (size_t)all.n_qkv * size);
    for (int s = 0; s < 2; s++) {
        ck_close(all.segs[s].dk, one.segs[s].dk, (size_t)all.n_seg[s], 1e-6, 1e-5);
        ck_close(all.segs[s].dv, one.segs[s].dv, (size_t)all.n_seg[s], 1e-6, 1e-5);
        ck_close(all.segs[s].dlog_weight, one.segs[s].dlog_weight, n_weights(&all, s), 1e-6, 1e-5);
    }
    fx_close(&all);
    fx_close(&one);
}
END_TEST

START_TEST(same_bits_twice)
{
    fx_shape shape;
    const kvf__kernels *kernels = of_row(_i, &shape);
    fx a, b;
    ck_need(kernels, "this CPU has no such kernels");
    fx_open(&a, &shape, 2);
    fx_open(&b, &shape, 2);
    fx_run(&a, kernels);
    fx_run(&b, kernels);
    fx_run(&b, kernels); /* scratch is not zero the second time */
    const size_t size = kvf__dtype_block_bytes(shape.act);
    ck_assert_mem_eq(a.attn.out, b.attn.out, (size_t)a.n_out * size);
    ck_assert_mem_eq(a.attn.lse, b.attn.lse, (size_t)(a.attn.H * a.attn.N) * sizeof(float));
    ck_assert_mem_eq(a.attn.dqkv, b.attn.dqkv, (size_t)a.n_qkv * size);
    for (int s = 0; s < 2; s++) {
        ck_assert_mem_eq(a.segs[s].dk, b.segs[s].dk, (size_t)a.n_seg[s] * sizeof(float));
        ck_assert_mem_eq(a.segs[s].dv, b.segs[s].dv, (size_t)a.n_seg[s] * sizeof(float));
        ck_assert_mem_eq(a.segs[s].dlog_weight, b.segs[s].dlog_weight,
                         n_weights(&a, s) * sizeof(float));
    }
    fx_close(&a);
    fx_close(&b);
}
END_TEST

START_TEST(threads_do_not_matter)
{
    fx_shape shape;
    const kvf__kernels *kernels = of_row(_i, &shape);
    ck_need(kernels, "this CPU has no such kernels");
    fx one;
    fx_open(&one, &shape, 1);
    fx_run(&one, kernels);
    for (int threads = 2; threads <= 3; threads++) {
        fx many;
        fx_open(&many, &shape, threads);
        fx_run(&many, kernels);
        const size_t size = kvf__dtype_block_bytes(shape.act);
        ck_assert_mem_eq(one.attn.out, many.attn.out, (size_t)one.n_out * size);
        ck_assert_mem_eq(one.attn.dqkv, many.attn.dqkv, (size_t)one.n_qkv * size);
        for (int s = 0; s < 2; s++) {
            ck_close(many.segs[s].dk, one.segs[s].dk, (size_t)one.n_seg[s], 1e-6, 1e-5);
            ck_close(many.segs[s].dv, one.segs[s].dv, (size_t)one.n_seg[s], 1e-6, 1e-5);
            ck_close(many.segs[s].dlog_weight, one.segs[s].dlog_weight, n_weights(&one, s), 1e-6,
                     1e-5);
        }
        fx_close(&many);
    }
    fx_close(&one);
}
END_TEST

/* Scores of a row in the blocks of a head before this one. */
static int64_t scores_before(const fx *f, int64_t block)
{
    const kvf__attn_row *row = &f->rows[0];
    const int64_t shared = kvf__attn_row_shared(f->attn.plan, row);
    int64_t end = row->first + block * KVF__ATTN_QUERIES;
    if (end > row->len) end = row->len;
    return (end - row->first) * (2 * shared + end + row->first);
}

/* Scores computed by one thread. */
static int64_t scores_of(const fx *f, int thread)
{
    const kvf__attn_plan *plan = f->attn.plan;
    const int64_t each = kvf__attn_blocks(&f->rows[0]);
    int64_t sum = 0;
    for (int64_t i = plan->start[thread]; i < plan->start[thread + 1]; i++)
        for (int64_t b = plan->items[i].begin; b < plan->items[i].end; b++)
            sum += scores_before(f, b % each + 1) - scores_before(f, b % each);
    return sum;
}

/* Three key heads for two threads. */
START_TEST(long_row_is_cut_evenly)
{
    fx_shape shape;
    const kvf__kernels *kernels = of_row(_i, &shape);
    ck_need(kernels, "this CPU has no such kernels");
    shape = (fx_shape){.H = 6,
                       .G = 3,
                       .D = 8,
                       .P = 4,
                       .common = 5,
                       .n_rows = 1,
                       .len = {500},
                       .first = {30},
                       .weighted = true,
                       .act = shape.act};
    fx one;
    fx_open(&one, &shape, 1);
    fx_run(&one, kernels);
    for (int threads = 2; threads <= 5; threads++) {
        fx many;
        fx_open(&many, &shape, threads);
        fx_run(&many, kernels);
        const size_t size = kvf__dtype_block_bytes(shape.act);
        ck_assert_mem_eq(one.attn.out, many.attn.out, (size_t)one.n_out * size);
        ck_assert_mem_eq(one.attn.dqkv, many.attn.dqkv, (size_t)one.n_qkv * size);
        for (int s = 0; s < 2; s++) {
            ck_assert_mem_eq(one.segs[s].dk, many.segs[s].dk, (size_t)one.n_seg[s] * sizeof(float));
            ck_assert_mem_eq(one.segs[s].dv, many.segs[s].dv, (size_t)one.n_seg[s] * sizeof(float));
            ck_assert_mem_eq(one.segs[s].dlog_weight, many.segs[s].dlog_weight,
                             n_weights(&one, s) * sizeof(float));
        }
        for (int t = 0; t < threads && threads == 2; t++)
            ck_assert_int_lt(20 * scores_of(&many, t), 11 * scores_of(&one, 0));
        fx_close(&many);
    }
    fx_close(&one);
}
END_TEST

/* For any division, every block belongs to exactly one thread, and no thread waits for a block that
 * never comes. */
START_TEST(cut_items_are_whole_together)
{
    const fx_shape shape = {
        .H = 12, .G = 6, .D = 8, .P = 4, .n_rows = 3, .len = {500, 300, 200}, .act = KVF__F32};
    for (int threads = 1; threads <= 16; threads++) {
        fx f;
        fx_open(&f, &shape, threads);
        const kvf__attn_plan *plan = f.attn.plan;
        for (int64_t len = 1; len <= 500; len += 13)
            for (int rows = 1; rows <= 3; rows++) {
                f.rows[0].len = len;
                f.rows[1].len = 1 + len / 2;
                f.rows[2].len = len % 200;
                kvf__attn_plan_set(f.attn.plan, f.rows, rows, f.segs, 2 + shape.n_rows);
                int64_t blocks = 0, wanted = 0;
                for (int64_t i = 0; i < plan->n_items; i++) {
                    const kvf__attn_item *item = &plan->items[i];
                    const int next = item->thread + 1;
                    blocks += item->end - item->begin;
                    if (item->after)
                        ck_assert_int_le(item->after, plan->start[next + 1] - plan->start[next]);
                    ck_assert(i >= plan->start[item->thread] && i < plan->start[next]);
                }
                for (int r = 0; r < rows; r++)
                    wanted += shape.H * kvf__attn_blocks(&f.rows[r]);
                ck_assert_int_eq(blocks, wanted);
            }
        fx_close(&f);
    }
}
END_TEST

START_TEST(shared_only_is_the_same_gradient)
{
    fx_shape shape;
    const kvf__kernels *kernels = of_row(_i, &shape);
    fx all, part;
    ck_need(kernels, "this CPU has no such kernels");
    shape.full = _i >= 2 * N_LEVELS;
    fx_open(&all, &shape, 2);
    fx_open(&part, &shape, 2);
    fx_run(&all, kernels);
    part.attn.shared_only = true;
    fx_run(&part, kernels);
    for (int s = 0; s < 2; s++) {
        ck_assert_mem_eq(all.segs[s].dk, part.segs[s].dk, (size_t)all.n_seg[s] * sizeof(float));
        ck_assert_mem_eq(all.segs[s].dv, part.segs[s].dv, (size_t)all.n_seg[s] * sizeof(float));
        ck_assert_mem_eq(all.segs[s].dlog_weight, part.segs[s].dlog_weight,
                         n_weights(&all, s) * sizeof(float));
    }
    float *untouched = fx_floats(&part, part.attn.dqkv, part.n_qkv),
          *zeros = fx_zeros(fx_bytes(KVF__F32, part.n_qkv));
    ck_close(untouched, zeros, (size_t)part.n_qkv, 0, 0);
    free(untouched);
    free(zeros);
    fx_close(&all);
    fx_close(&part);
}
END_TEST

static Suite *attention_parity_suite(void)
{
    Suite *suite = suite_create("attention_parity");
    TCase *parity = tcase_create("parity"), *core = tcase_create("core"),
          *limits = tcase_create("limits");
    tcase_set_timeout(parity, 60);
    tcase_add_loop_test(parity, fast_matches_ref_in_grid, 0, N_GRID);
    tcase_add_loop_test(parity, fast_matches_ref_in_odd_shapes, 0, N_SHAPES);
    tcase_add_test(parity, bf16_prefix_gradient_is_near);
    tcase_add_test(limits, large_scores_stay_finite);
    tcase_add_loop_test(core, rows_do_not_meet, 0, 2 * N_LEVELS);
    tcase_add_loop_test(core, same_bits_twice, 0, 2 * N_LEVELS);
    tcase_add_loop_test(core, threads_do_not_matter, 0, 2 * N_LEVELS);
    tcase_add_loop_test(core, long_row_is_cut_evenly, 0, 2 * N_LEVELS);
    tcase_add_test(core, cut_items_are_whole_together);
    tcase_add_loop_test(core, shared_only_is_the_same_gradient, 0, 2 * N_LEVELS);
    suite_add_tcase(suite, parity);
    suite_add_tcase(suite, limits);
    suite_add_tcase(suite, core);
    return suite;
}

int main(void)
{
    return ck_main(attention_parity_suite());
}
