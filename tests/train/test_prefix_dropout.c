/* Prefix dropout in training runs, with one mask for a step or one for each row. Gradients go
 * through the masks of the forward pass, also beside another prefix, and parts of a step do not
 * change them. Resumed runs are equal, and only training steps drop elements. */
#include "rng.h"
#include "toy_run.h"
#include "trainer.h"

#include <math.h>

/* Loop rows: a mask for a step, a mask for each row. */
static kvf_train_options options_for(const char *path, int by_rows)
{
    kvf_train_options o = toy_run_options(path);
    o.valid = NULL;
    o.method = "direct";
    o.init = "random";
    o.prefix_length = 4;
    o.batch_size = 6;
    o.warmup = "0";
    o.prefix_dropout = 0.3;
    o.prefix_dropout_per_row = by_rows;
    return o;
}

/* beside: another prefix for the odd steps; NULL: none. */
static kvf__trainer *open_beside(const kvf_train_options *o, const kvf__prefix *beside)
{
    kvf__trainer *t = NULL;
    ck_assert_msg(!kvf__trainer_open(ctx, o, &(kvf__trainer_uses){0}, &t), "%s",
                  kvf_ctx_error(ctx));
    t->rows.beside = beside;
    t->rows.n_beside = beside ? 2 : 0; /* parts of it */
    ck_assert(!kvf__beside_alloc(&t->run, &t->tuned, &t->rows));
    ck_assert_msg(!kvf__trainer_prepare(t), "%s", kvf_ctx_error(ctx));
    return t;
}

static kvf__trainer *open_trainer(const kvf_train_options *o)
{
    return open_beside(o, NULL);
}

/* The first step's loss, or with a prefix beside the second's; repeatable: the step moves the
 * parameters by less than f32 can show. */
static double first_loss(kvf__trainer *t)
{
    t->run.progress.step = t->rows.beside != NULL;
    kvf__rows_rewind(&t->rows);
    ck_assert_msg(!kvf__trainer_step(t), "%s", kvf_ctx_error(ctx));
    return t->run.progress.train_loss;
}

/* ---- core ------------------------------------------------------------------------------------ */

/* Compares the parameter's gradient to differences of the loss, and counts the dropped elements.
 * bound: largest relative error. */
static int64_t check_slopes(kvf__trainer *t, const kvf__param *param, int64_t stride, double bound)
{
    int64_t dropped = 0;
    float *grad = malloc((size_t)param->n * sizeof *grad);
    first_loss(t);
    memcpy(grad, param->grad, (size_t)param->n * sizeof *grad);
    for (int64_t i = 0; i < param->n; i += stride) {
        float saved = param->value[i], step = 2e-2f;
        param->value[i] = saved + step;
        double up = first_loss(t);
        param->value[i] = saved - step;
        double down = first_loss(t), slope = (up - down) / (2 * (double)step);
        param->value[i] = saved;
        ck_assert_msg(fabs(slope - grad[i]) <= bound * fabs(slope) + 1e-5, "%lld: %g, %g",
                      (long long)i, grad[i], slope);
        dropped += grad[i] == 0 && up == down;
    }
    free(grad);
    return dropped;
}

START_TEST(gradient_is_the_slope)
{
    enum { STRIDE = 7 };
    kvf_train_options o = options_for(out, _i);
    o.lr = 1e-30;
    kvf__trainer *t = open_trainer(&o);
    const kvf__param *param = &kvf__encoder_params(t->tuned.encoder)->item[0];
    const int64_t checked = (param->n + STRIDE - 1) / STRIDE;
    const int64_t dropped = check_slopes(t, param, STRIDE, 2e-3);
    if (_i) /* almost no element is dropped in all of six rows */
        ck_assert_int_le(dropped, checked / 20 + 1);
    else
        ck_assert_double_eq_tol((double)dropped / (double)checked, 0.3,
                                4 * sqrt(0.3 * 0.7 / (double)checked));
    kvf__trainer_free(t);
}
END_TEST

/* Rows of odd steps read another prefix too, under equal shifts of the log-weights, and the
 * gradient is that of the trained one. Loop rows: log-weights of the trained prefix, and of the
 * other one. */
START_TEST(gradient_beside_another_prefix)
{
    kvf_train_options o = options_for(out, 0);
    kvf__prefix other_prefix = {0};
    o.lr = 1e-30;
    if (!_i) {
        ck_assert(!kvf_train_set(ctx, &o, "log-weight", "train"));
        ck_assert(!kvf_train_set(ctx, &o, "log-weight-lr", "1e-30"));
    }
    kvf__trainer *t = open_trainer(&o);
    const kvf__kv_shape shape = kvf__prefix_shape(&t->tuned.prefix);
    ck_assert(!kvf__prefix_create(ctx, &other_prefix, &shape, 5));
    kvf__trainer_free(t);
    if (_i) ck_assert(!kvf__prefix_weigh(ctx, &other_prefix));
    kvf__rng rng = kvf__rng_make(1, 2);
    for (size_t i = 0; i < kvf__prefix_count(&other_prefix); i++)
        other_prefix.kv[i] = (float)kvf__rng_normal(&rng);
    o.force = true;
    t = open_beside(&o, &other_prefix);
    const double with = first_loss(t);
    check_slopes(t, &kvf__encoder_params(t->tuned.encoder)->item[0], 7, 4e-3);
    if (_i) {
        for (size_t i = 0; i < kvf__prefix_weights(&other_prefix); i++)
            other_prefix.log_weight[i] -= 2;
    } else {
        check_slopes(t, &t->tuned.log_weight.item[0], 1, 4e-3);
        for (size_t i = 0; i < kvf__prefix_count(&other_prefix); i++)
            other_prefix.kv[i] *= 2;
    }
    ck_assert_double_ne(first_loss(t), with);
    kvf__trainer_free(t);
    kvf__prefix_done(&other_prefix);
}
END_TEST

/* A step in three parts: the same masks, so the same loss and gradient except for rounding. */
START_TEST(parts_see_the_same_masks)
{
    kvf_train_options whole = options_for(out, _i), parts = options_for(other, _i);
    parts.grad_accum = 3;
    kvf__trainer *a = open_trainer(&whole);
    kvf__trainer *b = open_trainer(&parts);
    double loss = first_loss(a);
    ck_assert_double_eq_tol(loss, first_loss(b), 1e-5 * loss);
    ck_assert_double_lt(
        ck_rel_l2(b->tuned.dprefix.kv, a->tuned.dprefix.kv, kvf__prefix_count(&a->tuned.dprefix)),
        1e-5);
    kvf__trainer_free(a);
    kvf__trainer_free(b);
}
END_TEST

/* Averaged over many steps, the base receives the prefix; the prefix itself is not changed. */
START_TEST(mean_is_preserved)
{
    enum { STEPS = 2000 };
    kvf_train_options o = options_for(out, 0);
    kvf__trainer *t = open_trainer(&o);
    first_loss(t);
    size_t n = kvf__prefix_count(&t->tuned.prefix);
    double *sum = calloc(n, sizeof *sum);
    ck_assert_ptr_eq(t->tuned.condition.prefix, &t->tuned.masked);
    for (t->run.progress.step = 0; t->run.progress.step < STEPS; t->run.progress.step++) {
        kvf__dropout_fwd(&t->run, &t->tuned);
        for (size_t i = 0; i < n; i++)
            sum[i] += t->tuned.condition.prefix->kv[i];
    }
    for (size_t i = 0; i < n; i++) /* 5 deviations of sqrt(p / (1 - p) / STEPS) */
        ck_assert_double_eq_tol(sum[i] / STEPS, t->tuned.prefix.kv[i],
                                0.074 * fabsf(t->tuned.prefix.kv[i]));
    free(sum);
    kvf__trainer_free(t);
}
END_TEST

/* Rows with their own masks share no common prefix that could be computed once. */
START_TEST(rows_share_no_common_rows)
{
    bool any[2] = {false, false};
    char text[2048];
    size_t n = 0;
    for (int i = 0; i < 12; i++)
        n += (size_t)snprintf(
            text + n, sizeof text - n,
            "{\"prompt\": \"abc abc abc abc abc w%d:\", \"completion\": \" a\"}\n", i);
    toy_write(dir, "train.jsonl", text);
    for (int by_rows = 0; by_rows < 2; by_rows++) {
        kvf_train_options o = options_for(out, by_rows);
        kvf__trainer *t = open_trainer(&o);
        first_loss(t);
        const kvf__batch *b = &t->rows.batcher.batch;
        for (int64_t r = 0; b->parent && r < b->n_rows; r++)
            any[by_rows] |= b->parent[r] >= 0;
        kvf__trainer_free(t);
    }
    ck_assert(any[0]);
    ck_assert(!any[1]);
}
END_TEST

/* ---- runs ------------------------------------------------------------------------------------ */

START_TEST(resume_equals_no_stop)
{
    kvf_train_options part = options_for(other, _i);
    expect_resume_equals_no_stop(options_for(out, _i), part);
    part.resume = true;
    part.prefix_dropout = 0.4;
    kvf_train_result result;
    ck_assert_int_eq(kvf_train(ctx, &part, &result), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "--prefix-dropout differs"));
}
END_TEST

/* Validation during the run, the run's own evaluation and that of the folded prefix agree bit for
 * bit: none of them uses dropout. */
START_TEST(nothing_is_dropped_outside_steps)
{
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    const kvf_merge_options merge = {.run = out, .out = other, .checkpoint = KVF_CHECKPOINT_LAST};
    const kvf_eval_options eval = {.data = data};
    kvf_train_options o = options_for(out, _i);
    kvf_merge_result merged;
    kvf_eval_result result[2];
    kvf_base *opened = NULL;
    const char *const paths[] = {out, other};
    const kvf_checkpoint checkpoints[] = {KVF_CHECKPOINT_LAST, KVF_CHECKPOINT_BEST};
    o.valid = data;
    double trained = train(&o).valid_loss;
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf_base_open(ctx, base, &exact, &opened), KVF_OK);
    for (int i = 0; i < 2; i++) {
        kvf_prefix *prefix = NULL;
        ck_assert_msg(!kvf_prefix_open(ctx, paths[i], checkpoints[i], &prefix), "%s",
                      kvf_ctx_error(ctx));
        ck_assert_int_eq(kvf_eval(ctx, opened, &prefix, 1, &eval, &result[i]), KVF_OK);
        kvf_prefix_free(prefix);
    }
    ck_assert_double_eq(result[0].loss, trained);
    ck_assert_double_eq(result[1].loss, trained);
    kvf_base_free(opened);
}
END_TEST

START_TEST(bad_options_are_refused)
{
    kvf_train_options o = options_for(out, _i);
    kvf_train_result result;
    o.prefix_dropout = _i ? 0 : 1;
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_EUSAGE);
    ck_assert_ptr_nonnull(
        strstr(kvf_ctx_error(ctx), _i ? "--prefix-dropout-per-row needs" : "from 0 to below 1"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix_dropout");
    TCase *core = tcase_create("core"), *runs = tcase_create("runs");
    tcase_add_checked_fixture(core, toy_run_setup, toy_run_teardown);
    tcase_add_checked_fixture(runs, toy_run_setup, toy_run_teardown);
    tcase_set_timeout(core, 60);
    tcase_set_timeout(runs, 60);
    tcase_add_loop_test(core, gradient_is_the_slope, 0, 2);
    tcase_add_loop_test(core, gradient_beside_another_prefix, 0, 2);
    tcase_add_loop_test(core, parts_see_the_same_masks, 0, 2);
    tcase_add_test(core, mean_is_preserved);
    tcase_add_test(core, rows_share_no_common_rows);
    tcase_add_loop_test(runs, resume_equals_no_stop, 0, 2);
    tcase_add_loop_test(runs, nothing_is_dropped_outside_steps, 0, 2);
    tcase_add_loop_test(runs, bad_options_are_refused, 0, 2);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, runs);
    return ck_main(suite);
}
