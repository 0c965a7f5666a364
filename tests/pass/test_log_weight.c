/* Log-weights of virtual tokens through a whole model. A token with log n counts as n tokens, one
 * with -200 as none, and zeros change no bit. The gradient is checked by differences of the loss.
 * Cases: rows of one pass with and without a prefix, dropout by rows, infix prefixes, and
 * recomputed layers. test_decoder.c tests them one token at a time. */
#include "toy_model.h"

static toy t;
static const char *const *const CONFIGS[] = {&toy_llama, &toy_gpt2, &toy_qwen3};
enum { N_CONFIGS = 3, P = 4 };
static const int64_t LENGTHS[] = {7, 2, 12, 0};

static void setup(void)
{
    t = (toy){0};
}

static void teardown(void)
{
    toy_free(&t);
}

/* A prefix with the keys and values of toy_prefix, and log-weights around 0. */
static void weighted_prefix(kvf__prefix *prefix)
{
    kvf__rng rng = kvf__rng_make(5, 3);
    toy_prefix(&t, prefix, P, 0.7);
    ck_assert(!kvf__prefix_weigh(t.ctx, prefix));
    for (size_t i = 0; i < kvf__prefix_weights(prefix); i++)
        prefix->log_weight[i] = (float)kvf__rng_normal(&rng);
}

static void gradient_prefix(kvf__prefix *d)
{
    toy_prefix(&t, d, P, 0);
    ck_assert(!kvf__prefix_weigh(t.ctx, d));
}

static void set_all(kvf__prefix *prefix, float value)
{
    for (size_t i = 0; i < kvf__prefix_weights(prefix); i++)
        prefix->log_weight[i] = value;
}

/* n copies of each virtual token, side by side. */
static void repeat(const kvf__prefix *from, int64_t n, kvf__prefix *to)
{
    toy_prefix(&t, to, n * from->P, 0);
    for (int64_t i = 0; i < from->L * 2 * from->G * from->P; i++)
        for (int64_t k = 0; k < n; k++)
            memcpy(to->kv + (i * n + k) * from->D, from->kv + i * from->D,
                   (size_t)from->D * sizeof(float));
}

static double loss_under(kvf__pass *pass, const kvf__batch *batch, const kvf__prefix *prefix)
{
    const kvf__input input = {
        .batch = batch, .condition.prefix = prefix, .condition.position_start = P};
    double loss = 0;
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
    ck_assert(!kvf__pass_loss(t.ctx, pass, &(kvf__loss){.scale = 1}, &loss));
    return loss;
}

START_TEST(log_n_counts_as_n)
{
    kvf__prefix prefix = {0}, three = {0};
    toy_batch batch;
    toy_create(&t, *CONFIGS[_i], KVF__F32);
    kvf__pass *pass = toy_pass(&t);
    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, 1, 4);
    weighted_prefix(&prefix);
    repeat(&prefix, 3, &three);
    const double want = loss_under(pass, &batch.b, &three);
    set_all(&prefix, 0);
    const double one = loss_under(pass, &batch.b, &prefix);
    set_all(&prefix, logf(3));
    ck_assert_double_eq_tol(loss_under(pass, &batch.b, &prefix), want, 1e-5 * want);
    ck_assert_double_gt(fabs(one - want), 1e-3 * want); /* otherwise the test proves nothing */
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&three);
    kvf__pass_free(pass);
}
END_TEST

START_TEST(from_all_to_nothing)
{
    kvf__prefix prefix = {0}, plain = {0};
    toy_batch batch;
    toy_create(&t, *CONFIGS[_i], KVF__F32);
    kvf__pass *pass = toy_pass(&t);
    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, 1, 4);
    weighted_prefix(&prefix);
    toy_prefix(&t, &plain, P, 0.7);
    set_all(&prefix, 0);
    ck_assert(loss_under(pass, &batch.b, &prefix) == loss_under(pass, &batch.b, &plain));
    set_all(&prefix, -200);
    const double bare = loss_under(pass, &batch.b, NULL);
    ck_assert_double_eq_tol(loss_under(pass, &batch.b, &prefix), bare, 1e-6 * bare);
    set_all(&prefix, -KVF__MOST_LOG_WEIGHT);
    ck_assert_double_eq_tol(loss_under(pass, &batch.b, &prefix), bare, 1e-6 * bare);
    set_all(&prefix, KVF__MOST_LOG_WEIGHT); /* only the prefix */
    ck_assert(isfinite(loss_under(pass, &batch.b, &prefix)));
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&plain);
    kvf__pass_free(pass);
}
END_TEST

/* ---- gradients ------------------------------------------------------------------------------- */

static kvf__pass *row_pass(bool recompute)
{
    const kvf__pass_limits limits = {.rows = 8,
                                     .tokens = 64,
                                     .row_len = 16,
                                     .labels = 64,
                                     .P = P,
                                     .common_len = 16,
                                     .common_tokens = 16,
                                     .row_dropout = true,
                                     .infix = true,
                                     .sections = 2,
                                     .backward = true,
                                     .recompute = recompute};
    kvf__pass *pass = NULL;
    ck_assert_msg(!kvf__pass_create(t.ctx, t.model, &limits, &pass), "%s", kvf_ctx_error(t.ctx));
    return pass;
}

/* Settings under which a gradient is tested. */
typedef struct setting {
    bool drops, infix, common, recompute;
} setting;
static const setting SETTINGS[] = {{false, false, false, false},
                                   {true, false, false, false},
                                   {false, true, false, false},
                                   {false, false, true, true}};
enum { N_SETTINGS = 4 };

/* Rows 1 and 2 continue row 0; with infix the prefix is between. */
static void arrange(const setting *s, toy_batch *batch, int32_t parent[3], int32_t infix_at[3])
{
    for (int r = 0; r < 3; r++) {
        parent[r] = r ? 0 : -1;
        infix_at[r] = r ? (int32_t)LENGTHS[0] : -1;
        batch->example[r] = r;
    }
    if (s->common || s->infix) batch->b.parent = parent;
    if (s->infix) batch->b.infix_at = infix_at;
}

static double run(kvf__pass *pass, const setting *s, const kvf__batch *batch,
                  const kvf__prefix *prefix, kvf__prefix *d)
{
    static const kvf__row_dropout drop = {.p = 0.3, .seed = 2, .step = 1};
    const kvf__input input = {.batch = batch,
                              .condition.prefix = prefix,
                              .condition.position_start = s->infix ? 0 : P,
                              .row_dropout = s->drops ? &drop : NULL};
    double loss = 0;
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
    ck_assert(!kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = d != NULL, .scale = 1}, &loss));
    if (d) ck_assert(!kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.prefix = d}));
    return loss;
}

/* A loop row is a config and a setting. f32 sums of losses near 60: differences have an error of
 * 1e-5 / step. */
START_TEST(gradient_is_slope)
{
    const setting *s = &SETTINGS[_i % N_SETTINGS];
    const float step = 2e-2f;
    kvf__prefix prefix = {0}, d = {0};
    toy_batch batch;
    int32_t parent[3], infix_at[3];
    toy_create(&t, *CONFIGS[_i / N_SETTINGS], KVF__F32);
    kvf__pass *pass = row_pass(s->recompute);
    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, s->common || s->infix ? 0.5 : 1, 4);
    arrange(s, &batch, parent, infix_at);
    weighted_prefix(&prefix);
    gradient_prefix(&d);
    run(pass, s, &batch.b, &prefix, &d);
    double largest = 0;
    for (size_t i = 0; i < kvf__prefix_weights(&prefix); i++) {
        const float was = prefix.log_weight[i];
        prefix.log_weight[i] = was + step;
        const double up = run(pass, s, &batch.b, &prefix, NULL);
        prefix.log_weight[i] = was - step;
        const double slope = (up - run(pass, s, &batch.b, &prefix, NULL)) / (2 * (double)step);
        prefix.log_weight[i] = was;
        ck_assert_msg(fabs(slope - (double)d.log_weight[i]) <= 2e-3 * (1 + fabs(slope)),
                      "%zu: gradient %g, differences give %g", i, (double)d.log_weight[i], slope);
        largest = fmax(largest, fabs(slope));
    }
    ck_assert_double_gt(largest, 0.02);
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&d);
    kvf__pass_free(pass);
}
END_TEST

/* ---- many prefixes in one pass --------------------------------------------------------------- */

START_TEST(sections_with_and_without)
{
    const setting plain = {0};
    kvf__prefix with = {0}, without = {0}, alone = {0}, joined[2] = {{0}, {0}};
    toy_batch batch, first;
    toy_create(&t, *CONFIGS[_i], KVF__F32);
    kvf__pass *pass = row_pass(false);
    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, 1, 4);
    toy_batch_make(&first, kvf__model_desc(t.model), (int64_t[]){LENGTHS[0], 0}, 1, 4);
    weighted_prefix(&with);
    toy_prefix(&t, &without, P, 0.7);
    gradient_prefix(&alone);
    for (int i = 0; i < 2; i++)
        gradient_prefix(&joined[i]);
    kvf__free(joined[1].log_weight);
    joined[1].log_weight = NULL;
    const double want = run(pass, &plain, &first.b, &with, &alone);
    double losses[2] = {0, 0}, loss = 0;
    const kvf__section sections[2] = {
        {.rows = 1,
         .condition = {.prefix = &with, .position_start = P},
         .loss_scale = 1,
         .loss_sum = &losses[0]},
        {.rows = 2,
         .condition = {.prefix = &without, .position_start = P},
         .loss_scale = 1,
         .loss_sum = &losses[1]},
    };
    const kvf__grads parts[2] = {{.prefix = &joined[0]}, {.prefix = &joined[1]}};
    const kvf__input input = {.batch = &batch.b, .sections = sections, .n_sections = 2};
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
    ck_assert(!kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = true, .scale = 1}, &loss));
    ck_assert(!kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.sections = parts}));
    ck_assert_double_eq_tol(losses[0], want, 1e-5 * want);
    ck_close(joined[0].log_weight, alone.log_weight, kvf__prefix_weights(&alone), 1e-4, 1e-5);
    kvf__prefix_done(&with);
    kvf__prefix_done(&without);
    kvf__prefix_done(&alone);
    kvf__prefix_done(&joined[0]);
    kvf__prefix_done(&joined[1]);
    kvf__pass_free(pass);
}
END_TEST

static Suite *log_weight_suite(void)
{
    Suite *suite = suite_create("log_weight");
    TCase *core = tcase_create("core"), *grad = tcase_create("grad");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(grad, setup, teardown);
    tcase_set_timeout(grad, 60);
    tcase_add_loop_test(core, log_n_counts_as_n, 0, N_CONFIGS);
    tcase_add_loop_test(core, from_all_to_nothing, 0, N_CONFIGS);
    tcase_add_loop_test(core, sections_with_and_without, 0, N_CONFIGS);
    tcase_add_loop_test(grad, gradient_is_slope, 0, N_CONFIGS * N_SETTINGS);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, grad);
    return suite;
}

int main(void)
{
    return ck_main(log_weight_suite());
}
