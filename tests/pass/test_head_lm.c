/* The trained language-model head: against torch (lm_heads.safetensors, written by
 * tests/golden/make_lm_head_golden.py), and against the base's own head while it is a copy of it.
 * Its gradient is checked by central differences over a vocabulary of two planes. */
#include "golden_model.h"
#include "loss.h"
#include "toy_model.h"

#include <math.h>

static const char *const MODELS[] = {"llama_tied", "llama_untied", "gpt2", "qwen3"};
enum { N_MODELS = sizeof MODELS / sizeof MODELS[0] };

/* ---- against torch --------------------------------------------------------------------------- */

static double loss_and_gradients(golden *g, kvf__head *head, kvf__prefix *grad)
{
    const kvf__input input = {.batch = &g->batch,
                              .condition.prefix = &g->prefix,
                              .condition.position_start = g->prefix.P};
    const float *hidden = NULL;
    double loss = 0;
    float *dhidden = calloc((size_t)(g->batch.n_labels * kvf__model_desc(g->model)->C),
                            sizeof *dhidden);
    ck_assert(!kvf__pass_fwd(g->ctx, g->pass, &input));
    ck_assert(!kvf__pass_hidden(g->ctx, g->pass, &hidden));
    ck_assert_msg(
        !kvf__head_loss(g->ctx, head, &g->batch, hidden, &(kvf__loss){.scale = 1}, &loss, dhidden),
        "%s", kvf_ctx_error(g->ctx));
    ck_assert(!kvf__pass_hidden_grad(g->ctx, g->pass, dhidden));
    ck_assert(!kvf__pass_bwd(g->ctx, g->pass, &(kvf__grads){.prefix = grad}));
    free(dhidden);
    return loss;
}

START_TEST(gradient_is_that_of_torch)
{
    golden g;
    kvf__weights file = {0};
    kvf__head *head = NULL;
    kvf__prefix grad = {0};
    golden_load(&g, MODELS[_i], KVF__F32);
    ck_assert(!kvf__safetensors_open(g.ctx, ck_source("tests/golden/lm_heads.safetensors"), &file));
    ck_assert(!kvf__head_create_lm(g.ctx, g.model, true, &head));
    ck_assert(!kvf__prefix_init(g.ctx, &grad, g.prefix.L, g.prefix.G, g.prefix.P, g.prefix.D));
    kvf__param *param = &kvf__head_params(head)->item[0];
    memcpy(param->value, golden_stored(&file, MODELS[_i], "head"),
           (size_t)param->n * sizeof(float));

    double want = (double)*(const float *)golden_stored(&file, MODELS[_i], "loss");
    ck_assert_double_eq_tol(loss_and_gradients(&g, head, &grad), want, 1e-5 * want);
    ck_assert_double_le(
        ck_rel_l2(param->grad, golden_stored(&file, MODELS[_i], "grad"), (size_t)param->n), 1e-5);
    ck_assert_double_le(ck_rel_l2(grad.kv, golden_stored(&file, MODELS[_i], "prefix_grad"),
                                  kvf__prefix_count(&grad)),
                        1e-5);
    kvf__prefix_done(&grad);
    kvf__head_free(head);
    kvf__weights_close(&file);
    golden_unload(&g);
}
END_TEST

/* ---- a copy of the base's -------------------------------------------------------------------- */

static const char *const *const TOYS[] = {&toy_llama, &toy_qwen3, &toy_gpt2};
enum { N_TOYS = sizeof TOYS / sizeof TOYS[0] };

typedef struct fixture {
    toy t;
    toy_batch batch;
    kvf__prefix prefix;
    kvf__pass *pass;
    kvf__head *head;
    const float *hidden;
} fixture;

/* 300 labels: two blocks of them. */
static void fixture_init(fixture *f, int at)
{
    static const int64_t LENGTHS[] = {150, 30, 1, 120, 0};
    toy_create(&f->t, *TOYS[at], KVF__F32);
    toy_batch_make(&f->batch, kvf__model_desc(f->t.model), LENGTHS, 1, 5);
    toy_prefix(&f->t, &f->prefix, 6, 0.5);
    f->pass = toy_pass(&f->t);
    ck_assert(!kvf__head_create_lm(f->t.ctx, f->t.model, true, &f->head));
    const kvf__input input = {
        .batch = &f->batch.b, .condition.prefix = &f->prefix, .condition.position_start = 6};
    ck_assert(!kvf__pass_fwd(f->t.ctx, f->pass, &input));
    ck_assert(!kvf__pass_hidden(f->t.ctx, f->pass, &f->hidden));
}

static void fixture_done(fixture *f)
{
    kvf__head_free(f->head);
    kvf__prefix_done(&f->prefix);
    kvf__pass_free(f->pass);
    toy_free(&f->t);
}

START_TEST(copy_equals_the_packed_head)
{
    fixture f;
    fixture_init(&f, _i);
    const kvf__desc *d = kvf__model_desc(f.t.model);
    size_t n = (size_t)f.batch.b.n_labels, V = (size_t)d->V;
    float *want = calloc(n * V, sizeof *want), *got = calloc(n * V, sizeof *got);
    float *want_loss = calloc(n, sizeof *want_loss), *got_loss = calloc(n, sizeof *got_loss);
    double base = 0, own = 0;

    ck_assert(!kvf__pass_lm_logits(f.t.ctx, f.pass, want));
    ck_assert(!kvf__head_logits(f.t.ctx, f.head, f.hidden, (int64_t)n, got));
    ck_close(got, want, n * V, 1e-5, 1e-5);
    ck_assert(!kvf__pass_loss(f.t.ctx, f.pass, &(kvf__loss){.token_loss = want_loss}, &base));
    ck_assert(!kvf__head_loss(f.t.ctx, f.head, &f.batch.b, f.hidden,
                              &(kvf__loss){.scale = 1, .token_loss = got_loss}, &own, NULL));
    ck_close(got_loss, want_loss, n, 1e-5, 1e-5);
    ck_assert_double_eq_tol(own, base, 1e-6 * base);
    free(want);
    free(got);
    free(want_loss);
    free(got_loss);
    fixture_done(&f);
}
END_TEST

/* The base's own pass computes the gradient of the prefix. */
START_TEST(prefix_gradient_is_the_same)
{
    fixture f;
    kvf__prefix base = {0}, own = {0};
    double loss = 0;
    fixture_init(&f, _i);
    const kvf__desc *d = kvf__model_desc(f.t.model);
    float *dhidden = calloc((size_t)(f.batch.b.n_labels * d->C), sizeof *dhidden);
    ck_assert(!kvf__prefix_init(f.t.ctx, &base, d->L, d->G, 6, d->D));
    ck_assert(!kvf__prefix_init(f.t.ctx, &own, d->L, d->G, 6, d->D));
    ck_assert(!kvf__head_loss(f.t.ctx, f.head, &f.batch.b, f.hidden, &(kvf__loss){.scale = 0.25f},
                              &loss, dhidden));
    ck_assert(!kvf__pass_hidden_grad(f.t.ctx, f.pass, dhidden));
    ck_assert(!kvf__pass_bwd(f.t.ctx, f.pass, &(kvf__grads){.prefix = &own}));
    const kvf__input input = {
        .batch = &f.batch.b, .condition.prefix = &f.prefix, .condition.position_start = 6};
    ck_assert(!kvf__pass_fwd(f.t.ctx, f.pass, &input));
    ck_assert(
        !kvf__pass_loss(f.t.ctx, f.pass, &(kvf__loss){.gradient = true, .scale = 0.25f}, &loss));
    ck_assert(!kvf__pass_bwd(f.t.ctx, f.pass, &(kvf__grads){.prefix = &base}));
    ck_assert_double_le(ck_rel_l2(own.kv, base.kv, kvf__prefix_count(&base)), 1e-5);
    kvf__prefix_done(&base);
    kvf__prefix_done(&own);
    free(dhidden);
    fixture_done(&f);
}
END_TEST

/* Along a random direction, and along single elements in both planes of the vocabulary. */
START_TEST(gradient_matches_differences)
{
    fixture f;
    double loss = 0, up = 0, down = 0;
    fixture_init(&f, 2);
    const int64_t C = kvf__model_desc(f.t.model)->C;
    float *dhidden = calloc((size_t)(f.batch.b.n_labels * C), sizeof *dhidden);
    kvf__param *param = &kvf__head_params(f.head)->item[0];
    const kvf__batch *b = &f.batch.b;
    const float step = 0.02f;
    ck_assert_int_gt(param->dim[0], 1536);
    ck_assert(
        !kvf__head_loss(f.t.ctx, f.head, b, f.hidden, &(kvf__loss){.scale = 1}, &loss, dhidden));
    for (int k = 0; k < 12; k++) {
        int64_t at = (k < 6 ? b->label_id[k] : param->dim[0] - 1 - k) * C + k;
        float saved = param->value[at];
        param->value[at] = saved + step;
        ck_assert(
            !kvf__head_loss(f.t.ctx, f.head, b, f.hidden, &(kvf__loss){.scale = 1}, &up, NULL));
        param->value[at] = saved - step;
        ck_assert(
            !kvf__head_loss(f.t.ctx, f.head, b, f.hidden, &(kvf__loss){.scale = 1}, &down, NULL));
        param->value[at] = saved;
        double want = (up - down) / (2 * (double)step);
        ck_assert_double_eq_tol((double)param->grad[at], want, 2e-3 + 2e-3 * fabs(want));
    }
    free(dhidden);
    fixture_done(&f);
}
END_TEST

/* Parts of a step add up. */
START_TEST(gradients_are_added)
{
    fixture f;
    double loss = 0;
    fixture_init(&f, 0);
    kvf__param *param = &kvf__head_params(f.head)->item[0];
    size_t n = (size_t)param->n;
    float *dhidden = calloc((size_t)f.batch.b.n_labels * 24, sizeof *dhidden);
    float *once = calloc(n, sizeof *once);
    const kvf__batch *b = &f.batch.b;
    ck_assert(
        !kvf__head_loss(f.t.ctx, f.head, b, f.hidden, &(kvf__loss){.scale = 1}, &loss, dhidden));
    memcpy(once, param->grad, n * sizeof *once);
    ck_assert(
        !kvf__head_loss(f.t.ctx, f.head, b, f.hidden, &(kvf__loss){.scale = 1}, &loss, dhidden));
    for (size_t i = 0; i < n; i++)
        once[i] *= 2;
    ck_close(param->grad, once, n, 1e-4, 1e-5);
    free(dhidden);
    free(once);
    fixture_done(&f);
}
END_TEST

START_TEST(what_it_refuses)
{
    fixture f;
    kvf__head *frozen = NULL;
    float dhidden[300 * 24];
    double loss = 0;
    fixture_init(&f, 0);
    ck_assert(!kvf__head_create_lm(f.t.ctx, f.t.model, false, &frozen));
    ck_assert_int_eq(kvf__head_loss(f.t.ctx, frozen, &f.batch.b, f.hidden, &(kvf__loss){.scale = 1},
                                    &loss, dhidden),
                     KVF_EUSAGE);
    f.batch.label_id[7] = 61;
    ck_assert_int_eq(kvf__head_loss(f.t.ctx, f.head, &f.batch.b, f.hidden, &(kvf__loss){.scale = 1},
                                    &loss, dhidden),
                     KVF_ESHAPE);
    ck_assert_str_eq(kvf_ctx_error(f.t.ctx), "batch: label 7 has id 61, the vocabulary ends at 60");
    f.batch.label_id[7] = 3;
    kvf__head_params(f.head)->item[0].value[3 * 24] = NAN;
    ck_assert_int_eq(kvf__head_loss(f.t.ctx, f.head, &f.batch.b, f.hidden, &(kvf__loss){.scale = 1},
                                    &loss, NULL),
                     KVF_ENUMERIC);
    kvf__head_free(frozen);
    fixture_done(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_lm");
    TCase *cases = tcase_create("golden");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, gradient_is_that_of_torch, 0, N_MODELS);
    suite_add_tcase(suite, cases);
    cases = tcase_create("parity");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, copy_equals_the_packed_head, 0, N_TOYS);
    tcase_add_loop_test(cases, prefix_gradient_is_the_same, 0, N_TOYS);
    suite_add_tcase(suite, cases);
    cases = tcase_create("grad");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, gradient_matches_differences);
    tcase_add_test(cases, gradients_are_added);
    suite_add_tcase(suite, cases);
    cases = tcase_create("errors");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, what_it_refuses);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
