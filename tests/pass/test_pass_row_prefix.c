/* Prefix dropout by rows: the masked prefix of a row is the same in any batch, in the backward pass
 * and under recomputation. Also tests its gradient. */
#include "pass_priv.h"
#include "toy_model.h"

static toy t;
static const char *const *const CONFIGS[] = {&toy_llama, &toy_gpt2};

static void setup(void)
{
    t = (toy){0};
}

static void teardown(void)
{
    toy_free(&t);
}

static const int64_t LENGTHS[] = {7, 12, 3, 9, 0};
enum { ROWS = 4, P = 6 };
static const kvf__row_dropout DROP = {.p = 0.3, .seed = 21, .step = 4};

static kvf__pass *make_pass(bool recompute)
{
    const kvf__pass_limits limits = {.rows = ROWS,
                                     .tokens = 64,
                                     .row_len = 16,
                                     .labels = 64,
                                     .P = P,
                                     .cache_len = 16,
                                     .common_len = 16,
                                     .common_tokens = 16,
                                     .row_dropout = true,
                                     .backward = true,
                                     .recompute = recompute};
    kvf__pass *pass = NULL;
    ck_assert_msg(!kvf__pass_create(t.ctx, t.model, &limits, &pass), "%s", kvf_ctx_error(t.ctx));
    return pass;
}

/* Rows of examples 10, 11, ... */
static void make_batch(toy_batch *batch, const int64_t *lengths)
{
    toy_batch_make(batch, kvf__model_desc(t.model), lengths, 0.5, 8);
    for (int64_t r = 0; r < batch->b.n_rows; r++)
        batch->example[r] = 10 + r;
}

/* Loss and, if dprefix is given, its gradient, added. */
static double run(kvf__pass *pass, const kvf__batch *batch, const kvf__prefix *prefix,
                  const kvf__row_dropout *drop, kvf__prefix *dprefix)
{
    const kvf__input input = {.batch = batch,
                              .condition.prefix = prefix,
                              .condition.position_start = P,
                              .row_dropout = drop};
    double loss = 0;
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
    ck_assert(
        !kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = dprefix != NULL, .scale = 1}, &loss));
    if (dprefix) ck_assert(!kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.prefix = dprefix}));
    return loss;
}

/* The last layer's copies after a forward pass. Elements are dropped at the requested rate or
 * scaled, the mean over many steps is unchanged, and no two rows are alike. */
START_TEST(rows_see_masks_of_their_own)
{
    enum { STEPS = 400 };
    toy_create(&t, toy_llama, KVF__F32);
    kvf__pass *pass = make_pass(false);
    kvf__prefix prefix = {0};
    toy_batch batch;
    make_batch(&batch, LENGTHS);
    toy_prefix(&t, &prefix, P, 1);
    int64_t n = 2 * prefix.G * P * prefix.D, zeros = 0, all = 0;
    double *sum = calloc((size_t)n, sizeof *sum);
    const float *kv = prefix.kv + (prefix.L - 1) * n;
    kvf__row_dropout drop = DROP;
    for (drop.step = 0; drop.step < STEPS; drop.step++) {
        run(pass, &batch.b, &prefix, &drop, NULL);
        ck_assert(memcmp(pass->own.kv, pass->own.kv + n, (size_t)n * sizeof(float)) != 0);
        for (int64_t i = 0; i < ROWS * n; i++, all++) {
            float got = pass->own.kv[i], want = kv[i % n] * kvf__dropout_make(drop.p).scale;
            if (got != 0 && got != want) ck_abort_msg("%lld: %g, %g", (long long)i, got, want);
            zeros += got == 0;
            sum[i % n] += got;
        }
    }
    ck_assert_double_eq_tol((double)zeros / (double)all, DROP.p,
                            5 * sqrt(DROP.p * (1 - DROP.p) / (double)all));
    for (int64_t i = 0; i < n; i++) /* 1600 draws: 5 deviations of sqrt(p / (1 - p)) / 40 */
        ck_assert_double_eq_tol(sum[i] / (ROWS * STEPS), kv[i], 0.09 * fabsf(kv[i]));
    free(sum);
    kvf__prefix_done(&prefix);
    kvf__pass_free(pass);
}
END_TEST

/* One loop row per architecture: the results of single rows, with their examples, add up to the
 * batch. */
START_TEST(batch_equals_rows)
{
    toy_create(&t, *CONFIGS[_i], KVF__F32);
    kvf__pass *pass = make_pass(false);
    kvf__prefix prefix = {0}, whole = {0}, sum = {0};
    toy_batch batch;
    double loss = 0;
    make_batch(&batch, LENGTHS);
    toy_prefix(&t, &prefix, P, 1);
    toy_prefix(&t, &whole, P, 0);
    toy_prefix(&t, &sum, P, 0);
    double together = run(pass, &batch.b, &prefix, &DROP, &whole);
    for (int64_t r = 0, j = 0; r < ROWS; r++) {
        int64_t first = batch.start[r], start[2] = {0, LENGTHS[r]}, from = j;
        int32_t at[16];
        for (; j < batch.b.n_labels && batch.label_at[j] < batch.start[r + 1]; j++)
            at[j - from] = batch.label_at[j] - (int32_t)first;
        const kvf__batch row = {.n_rows = 1,
                                .n_tokens = LENGTHS[r],
                                .n_labels = j - from,
                                .start = start,
                                .ids = batch.ids + first,
                                .label_at = at,
                                .label_id = batch.label_id + from,
                                .example = batch.example + r};
        loss += run(pass, &row, &prefix, &DROP, &sum);
    }
    ck_assert_double_eq_tol(together, loss, 1e-5 * loss);
    ck_assert_double_lt(ck_rel_l2(whole.kv, sum.kv, kvf__prefix_count(&sum)), 1e-5);
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&whole);
    kvf__prefix_done(&sum);
    kvf__pass_free(pass);
}
END_TEST

/* Two equal rows of different examples have different masks. Without dropout, or with p = 0, both
 * have the same prefix, bit for bit. */
START_TEST(equal_rows_differ)
{
    toy_create(&t, toy_llama, KVF__F32);
    kvf__pass *pass = make_pass(false), *plain = toy_pass(&t);
    kvf__prefix prefix = {0};
    toy_batch batch;
    float loss[2];
    const kvf__row_dropout none = {.p = 0};
    make_batch(&batch, (const int64_t[]){5, 5, 0});
    memcpy(batch.ids + 5, batch.ids, 5 * sizeof *batch.ids);
    batch.b.n_labels = 2;
    batch.label_at[0] = 4, batch.label_at[1] = 9;
    batch.label_id[0] = batch.label_id[1] = 3;
    toy_prefix(&t, &prefix, P, 1);
    run(pass, &batch.b, &prefix, &DROP, NULL);
    ck_assert(!kvf__pass_loss(t.ctx, pass, &(kvf__loss){.token_loss = loss}, &(double){0}));
    ck_assert_float_gt(fabsf(loss[0] - loss[1]), 1e-3f);
    double off = run(pass, &batch.b, &prefix, &none, NULL);
    ck_assert_double_eq(off, run(plain, &batch.b, &prefix, NULL, NULL));
    kvf__prefix_done(&prefix);
    kvf__pass_free(pass);
    kvf__pass_free(plain);
}
END_TEST

/* One loop row per architecture: the same masks forward and backward, in every layer, with one
 * layer without prefix. */
START_TEST(gradient_is_the_slope)
{
    toy_create(&t, *CONFIGS[_i], KVF__F32);
    kvf__pass *pass = make_pass(false);
    kvf__prefix prefix = {0}, grad = {0}, way = {0};
    toy_batch batch;
    make_batch(&batch, LENGTHS);
    toy_prefix(&t, &prefix, P, 1);
    toy_prefix(&t, &grad, P, 0);
    toy_prefix(&t, &way, P, 1);
    prefix.layer_mask[1] = 0;
    run(pass, &batch.b, &prefix, &DROP, &grad);
    int64_t half = prefix.G * P * prefix.D;
    for (int64_t block = 0; block < 2 * prefix.L; block++) {
        float *at = prefix.kv + block * half, step = 1e-2f;
        double slope = 0, sides[2];
        for (int64_t i = 0; i < half; i++)
            slope += (double)grad.kv[block * half + i] * way.kv[block * half + i];
        for (int side = 0; side < 2; side++) {
            float by = side ? -step : step;
            for (int64_t i = 0; i < half; i++)
                at[i] += by * way.kv[block * half + i];
            sides[side] = run(pass, &batch.b, &prefix, &DROP, NULL);
            for (int64_t i = 0; i < half; i++)
                at[i] -= by * way.kv[block * half + i];
        }
        double got = (sides[0] - sides[1]) / (2 * (double)step);
        ck_assert_msg(fabs(got - slope) <= 1e-3 * fabs(slope) + 2e-3, "block %lld: %g, %g",
                      (long long)block, got, slope);
        if (block / 2 == 1) ck_assert_double_eq(slope, 0);
    }
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&grad);
    kvf__prefix_done(&way);
    kvf__pass_free(pass);
}
END_TEST

/* Repeats give the same bits, also with recomputed layers, without allocation after the first. */
START_TEST(same_bits_and_no_allocation)
{
    toy_create(&t, toy_llama, KVF__F32);
    kvf__pass *pass = make_pass(false), *again = make_pass(true);
    kvf__prefix prefix = {0}, first = {0}, second = {0};
    toy_batch batch;
    make_batch(&batch, LENGTHS);
    toy_prefix(&t, &prefix, P, 1);
    toy_prefix(&t, &first, P, 0);
    toy_prefix(&t, &second, P, 0);
    double loss = run(pass, &batch.b, &prefix, &DROP, &first);
    size_t bytes = kvf__prefix_count(&first) * sizeof(float);
    memset(first.kv, 0, bytes);
    uint64_t before = kvf__ctx_allocations(t.ctx);
    ck_assert_double_eq(loss, run(pass, &batch.b, &prefix, &DROP, &first));
    ck_assert_uint_eq(kvf__ctx_allocations(t.ctx), before);
    ck_assert_double_eq(loss, run(again, &batch.b, &prefix, &DROP, &second));
    ck_assert_mem_eq(first.kv, second.kv, bytes);
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&first);
    kvf__prefix_done(&second);
    kvf__pass_free(pass);
    kvf__pass_free(again);
}
END_TEST

START_TEST(bad_inputs_are_refused)
{
    toy_create(&t, toy_llama, KVF__F32);
    kvf__pass *pass = make_pass(false), *plain = toy_pass(&t);
    kvf__cache *cache = NULL;
    kvf__prefix prefix = {0};
    toy_batch batch;
    const int32_t parent[] = {-1, 0, -1, -1};
    const kvf__row_dropout all = {.p = 1};
    make_batch(&batch, LENGTHS);
    toy_prefix(&t, &prefix, P, 1);
    ck_assert(!kvf__cache_create(t.ctx, t.model, ROWS, 16, &cache));
    kvf__input input = {.batch = &batch.b, .condition.prefix = &prefix, .row_dropout = &DROP};
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, plain, &input), KVF_EUSAGE);
    input.row_dropout = &all;
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, &input), KVF_EUSAGE);
    input.row_dropout = &DROP;
    input.cache = cache;
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, &input), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(t.ctx), "excludes common prefixes and a cache"));
    input.cache = NULL;
    batch.b.parent = parent;
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, &input), KVF_EUSAGE);
    batch.b.parent = NULL;
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, &input), KVF_OK);
    kvf__cache_free(cache);
    kvf__prefix_done(&prefix);
    kvf__pass_free(pass);
    kvf__pass_free(plain);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass_row_prefix");
    TCase *core = tcase_create("core"), *grad = tcase_create("grad"),
          *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(grad, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_set_timeout(core, 60);
    tcase_set_timeout(grad, 60);
    tcase_add_test(core, rows_see_masks_of_their_own);
    tcase_add_loop_test(core, batch_equals_rows, 0, 2);
    tcase_add_test(core, equal_rows_differ);
    tcase_add_test(core, same_bits_and_no_allocation);
    tcase_add_loop_test(grad, gradient_is_the_slope, 0, 2);
    tcase_add_test(errors, bad_inputs_are_refused);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, grad);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
