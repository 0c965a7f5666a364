/* Products with a file's own rows. Each instruction set is compared with the formula, for every
 * element type, one row and several, and sizes with tails of each kind. */
#include "ck.h"
#include "matvec.h"
#include "rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const LEVELS[] = {"avx2", "avx512", "avx512_bf16"};
enum { N_LEVELS = 3 };

/* A type, the offset of its f16 scales in a block (-1: none), and the number of elements in a
 * row. */
static const struct {
    kvf__dtype dtype;
    int scale[2];
    int64_t K;
} TYPES[] = {{KVF__F32, {-1, -1}, 64}, {KVF__F32, {-1, -1}, 71},  {KVF__F16, {-1, -1}, 96},
             {KVF__F16, {-1, -1}, 5},  {KVF__BF16, {-1, -1}, 64}, {KVF__BF16, {-1, -1}, 33},
             {KVF__F64, {-1, -1}, 40}, {KVF__Q4_0, {0, -1}, 96},  {KVF__Q4_1, {0, 2}, 96},
             {KVF__Q5_0, {0, -1}, 64}, {KVF__Q5_1, {0, 2}, 160},  {KVF__Q8_0, {0, -1}, 96},
             {KVF__Q4_K, {0, 2}, 512}, {KVF__Q5_K, {0, 2}, 256},  {KVF__Q6_K, {208, -1}, 512}};
enum { N_TYPES = sizeof TYPES / sizeof TYPES[0], N_ROWS = 11, MOST = 17 };

/* Rows of x: one, a part of a tile, whole tiles, one more. */
static const int64_t COUNTS[] = {1, 2, 5, 16, MOST};
enum { N_COUNTS = sizeof COUNTS / sizeof COUNTS[0] };

typedef struct data {
    kvf__matvec_call call;
    uint8_t *w; /* one byte further than any alignment */
    float *x, *y;
    char *scratch;
} data;

static void *memory(size_t bytes)
{
    void *out = NULL;
    ck_assert_int_eq(kvf__alloc(NULL, bytes, &out), KVF_OK);
    return out;
}

/* Random blocks, with scales of about 1/16. */
static void fill_blocks(int type, uint8_t *w, int64_t n_blocks, kvf__rng *rng)
{
    const size_t bytes = kvf__dtype_block_bytes(TYPES[type].dtype);
    for (size_t i = 0; i < (size_t)n_blocks * bytes; i++)
        w[i] = (uint8_t)(kvf__rng_uniform(rng) * 256);
    for (int64_t b = 0; b < n_blocks; b++)
        for (int s = 0; s < 2; s++) {
            if (TYPES[type].scale[s] < 0) continue;
            const uint16_t half = (uint16_t)(0x2c00 | (int)(kvf__rng_uniform(rng) * 0x400) |
                                             (kvf__rng_uniform(rng) < 0.5 ? 0x8000 : 0));
            memcpy(w + (size_t)b * bytes + TYPES[type].scale[s], &half, sizeof half);
        }
}

static void fill_plain(kvf__dtype dtype, uint8_t *w, int64_t n, kvf__rng *rng)
{
    for (int64_t i = 0; i < n; i++) {
        const float value = (float)kvf__rng_normal(rng);
        const double twice = value;
        if (dtype == KVF__F64)
            memcpy(w + i * 8, &twice, sizeof twice);
        else
            kvf__from_f32(dtype, &value, w + (size_t)i * kvf__dtype_block_bytes(dtype), 1);
    }
}

static data make(int type, int64_t M)
{
    const kvf__dtype dtype = TYPES[type].dtype;
    const int64_t K = TYPES[type].K, ldx = K + 3, ldy = N_ROWS + 2;
    const size_t bytes = N_ROWS * kvf__matvec_row_bytes(dtype, K);
    kvf__rng rng = kvf__rng_make(3, (uint64_t)type);
    data d = {.w = memory(bytes + 1),
              .x = memory((size_t)(M * ldx) * sizeof(float)),
              .y = memory((size_t)(M * ldy) * sizeof(float)),
              .scratch = memory(kvf__matvec_scratch(M, K))};
    if (kvf__dtype_block(dtype) > 1)
        fill_blocks(type, d.w + 1, N_ROWS * K / kvf__dtype_block(dtype), &rng);
    else
        fill_plain(dtype, d.w + 1, N_ROWS * K, &rng);
    for (int64_t i = 0; i < M * ldx; i++)
        d.x[i] = i % ldx < K ? (float)kvf__rng_normal(&rng) : NAN; /* never to be used */
    for (int64_t i = 0; i < M * ldy; i++)
        d.y[i] = (float)i;
    d.call = (kvf__matvec_call){.w = d.w + 1,
                                .dtype = dtype,
                                .n = N_ROWS,
                                .K = K,
                                .x = d.x,
                                .M = M,
                                .ldx = ldx,
                                .y = d.y,
                                .ldy = ldy,
                                .scratch = d.scratch};
    return d;
}

static void done(data *d)
{
    kvf__free(d->w);
    kvf__free(d->x);
    kvf__free(d->y);
    kvf__free(d->scratch);
}

/* Largest sum of |w x|, the scale of errors. */
static double size_of_sums(const kvf__matvec_call *call)
{
    float row[512];
    double largest = 0;
    const size_t bytes = kvf__matvec_row_bytes(call->dtype, call->K);
    for (int64_t i = 0; i < call->n; i++) {
        kvf__to_f32(call->dtype, (const uint8_t *)call->w + (size_t)i * bytes, row, call->K);
        for (int64_t m = 0; m < call->M; m++) {
            double sum = 0;
            for (int64_t k = 0; k < call->K; k++)
                sum += fabs((double)row[k] * (double)call->x[m * call->ldx + k]);
            largest = fmax(largest, sum);
        }
    }
    return largest;
}

static const kvf__matvec *level_of(int i)
{
    const kvf__matvec *level = kvf__matvec_level(LEVELS[i / N_TYPES]);
    if (!level && i % N_TYPES == 0) printf("no %s here: not tested\n", LEVELS[i / N_TYPES]);
    return level;
}

/* ---- parity ---------------------------------------------------------------------------------- */

static void same_product(const kvf__matvec *level, int type, int64_t M, bool add, bool bf16)
{
    data got = make(type, M), want = make(type, M);
    got.call.add = want.call.add = add;
    got.call.bf16 = bf16;
    level->run(&got.call);
    kvf__matvec_level("ref")->run(&want.call);
    /* f32: a few roundings of partial sums; bf16: both factors rounded to 8 bits */
    ck_close(got.y, want.y, (size_t)(M * got.call.ldy), 0,
             size_of_sums(&got.call) * (bf16 ? 4e-3 : 1e-6) + (add ? 2e-5 : 0));
    done(&got);
    done(&want);
}

START_TEST(product_is_the_formula)
{
    const kvf__matvec *level = level_of(_i);
    for (int c = 0; level && c < N_COUNTS; c++)
        for (int how = 0; how < 4; how++)
            same_product(level, _i % N_TYPES, COUNTS[c], how & 1, how & 2);
}
END_TEST

/* With x = one unit vector after the other, a product is a weight. It must equal the type's
 * definition bit for bit. */
START_TEST(weights_are_exact)
{
    const kvf__matvec *level = level_of(_i);
    const int64_t counts[] = {1, 4};
    float row[512];
    for (int c = 0; level && c < 2; c++) {
        data d = make(_i % N_TYPES, counts[c]);
        kvf__to_f32(d.call.dtype, d.call.w, row, d.call.K);
        for (int64_t k = 0; k < d.call.K; k++) {
            for (int64_t i = 0; i < d.call.M * d.call.ldx; i++)
                d.x[i] = i % d.call.ldx == k ? 1.0f : 0.0f;
            level->run(&d.call);
            ck_assert_msg(d.y[0] == row[k], "%s: element %d is %.9g, not %.9g",
                          kvf__dtype_name(d.call.dtype), (int)k, (double)d.y[0], (double)row[k]);
        }
        done(&d);
    }
}
END_TEST

/* ---- core ------------------------------------------------------------------------------------ */

/* Rows of W one by one, or all at once. */
START_TEST(a_split_changes_no_bit)
{
    const kvf__matvec *best = kvf__matvec_get();
    for (int c = 0; c < N_COUNTS; c++) {
        data whole = make(_i, COUNTS[c]), parts = make(_i, COUNTS[c]);
        whole.call.bf16 = parts.call.bf16 = c % 2;
        best->run(&whole.call);
        const int64_t bounds[] = {0, 1, 4, 9, N_ROWS};
        const size_t bytes = kvf__matvec_row_bytes(parts.call.dtype, parts.call.K);
        for (int p = 0; p < 4; p++) {
            kvf__matvec_call call = parts.call;
            call.w = (const uint8_t *)call.w + (size_t)bounds[p] * bytes;
            call.y += bounds[p];
            call.n = bounds[p + 1] - bounds[p];
            best->run(&call);
        }
        ck_assert(
            !memcmp(whole.y, parts.y, (size_t)(whole.call.M * whole.call.ldy) * sizeof(float)));
        done(&whole);
        done(&parts);
    }
}
END_TEST

/* Each row of many against a call with that row alone. */
static void same_alone(const kvf__matvec *level, int type, int64_t M, bool add)
{
    data many = make(type, M), one = make(type, M);
    many.call.add = one.call.add = add;
    level->run(&many.call);
    one.call.M = 1;
    for (int64_t m = 0; m < M; m++) {
        level->run(&one.call);
        one.call.x += one.call.ldx;
        one.call.y += one.call.ldy;
    }
    ck_assert_msg(!memcmp(many.y, one.y, (size_t)(M * many.call.ldy) * sizeof(float)),
                  "%s, %s, %d rows", level->name, kvf__dtype_name(TYPES[type].dtype), (int)M);
    done(&many);
    done(&one);
}

START_TEST(company_changes_no_bit)
{
    const kvf__matvec *level = level_of(_i);
    for (int c = 0; level && c < N_COUNTS; c++)
        for (int add = 0; add < 2; add++)
            same_alone(level, _i % N_TYPES, COUNTS[c], add);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("matvec");
    TCase *core = tcase_create("core"), *parity = tcase_create("parity");
    tcase_add_loop_test(core, a_split_changes_no_bit, 0, N_TYPES);
    tcase_add_loop_test(core, company_changes_no_bit, 0, N_LEVELS * N_TYPES);
    tcase_add_loop_test(parity, product_is_the_formula, 0, N_LEVELS * N_TYPES);
    tcase_add_loop_test(parity, weights_are_exact, 0, N_LEVELS * N_TYPES);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, parity);
    return ck_main(suite);
}
