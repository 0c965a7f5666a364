/* The pass against transformers: tiny Llama and GPT-2 models made by
 * tests/golden/make_model_golden.py, which stores the weights and, beside them, what torch computed
 * in f32 (and how far its own autocast is off in bf16). */
#include "ck.h"
#include "file_int.h"
#include "model_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const MODELS[] = {"llama_tied", "llama_untied", "gpt2", "gpt2_by_layer"};
enum { N_MODELS = 4, MAX_ROWS = 8 };

typedef struct golden {
    kvf_ctx *ctx;
    kvf__weights weights;
    kvf__slots slots;
    kvf__model *model;
    kvf__pass *pass;
    kvf__prefix prefix;
    kvf__batch batch;
    int64_t start[MAX_ROWS + 1];
} golden;

static const kvf__view *stored(const golden *g, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "golden.%s", name);
    const kvf__view *view = kvf__table_find(&g->weights.table, full);
    ck_assert_msg(view != NULL, "no tensor %s", full);
    return view;
}

/* A copy, because tensors in a file need not be aligned. */
static void *values(const golden *g, const char *name, int64_t *n)
{
    const kvf__view *view = stored(g, name);
    void *copy = malloc(kvf__view_bytes(view));
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, view->data, kvf__view_bytes(view));
    if (n) *n = kvf__view_count(view);
    return copy;
}

static void load_batch(golden *g)
{
    int64_t n_rows;
    int32_t *lengths = values(g, "lengths", &n_rows);

    ck_assert_int_le(n_rows, MAX_ROWS);
    for (int64_t r = 0; r < n_rows; r++)
        g->start[r + 1] = g->start[r] + lengths[r];
    free(lengths);
    g->batch.n_rows = n_rows;
    g->batch.start = g->start;
    g->batch.ids = values(g, "ids", &g->batch.n_tokens);
    g->batch.label_at = values(g, "label_at", &g->batch.n_labels);
    g->batch.label_id = values(g, "label_id", NULL);
}

static void load(golden *g, const char *name, kvf__dtype act)
{
    const kvf_ctx_options options = {.threads = 2};
    const kvf__model_options model_options = {.act = act, .backward = true};
    char path[128];
    kvf_json *config = NULL;
    kvf__desc desc = {0};

    *g = (golden){0};
    snprintf(path, sizeof path, "tests/golden/model_%s/config.json", name);
    ck_assert_int_eq(kvf_ctx_create(&options, &g->ctx), KVF_OK);
    ck_assert_msg(!kvf_json_load(g->ctx, ck_source(path), &config), "%s", kvf_ctx_error(g->ctx));
    ck_assert_msg(!kvf__desc_from_hf(g->ctx, path, config, &desc), "%s", kvf_ctx_error(g->ctx));
    *strrchr(path, '/') = 0;
    ck_assert_msg(!kvf__safetensors_open_dir(g->ctx, ck_source(path), &g->weights), "%s",
                  kvf_ctx_error(g->ctx));
    ck_assert_msg(!kvf__bind(g->ctx, path, &desc, &g->weights.table, &g->slots), "%s",
                  kvf_ctx_error(g->ctx));
    ck_assert_msg(!kvf__model_create(g->ctx, &desc, &g->slots, &model_options, &g->model), "%s",
                  kvf_ctx_error(g->ctx));
    load_batch(g);

    const kvf__view *prefix = stored(g, "prefix"); /* [L, 2, G, P, D] */
    ck_assert_int_eq(prefix->rank, 5);
    ck_assert_int_eq(kvf__prefix_init(g->ctx, &g->prefix, prefix->dim[0], prefix->dim[2],
                                      prefix->dim[3], prefix->dim[4]),
                     KVF_OK);
    memcpy(g->prefix.kv, prefix->data, kvf__view_bytes(prefix));
    const kvf__pass_limits limits = {.rows = MAX_ROWS,
                                     .tokens = g->batch.n_tokens,
                                     .row_len = 64,
                                     .labels = g->batch.n_labels,
                                     .P = g->prefix.P,
                                     .backward = true};
    ck_assert_msg(!kvf__pass_create(g->ctx, g->model, &limits, &g->pass), "%s",
                  kvf_ctx_error(g->ctx));
    kvf__desc_done(&desc);
    kvf_json_free(config);
}

static void unload(golden *g)
{
    free((void *)g->batch.ids);
    free((void *)g->batch.label_at);
    free((void *)g->batch.label_id);
    kvf__prefix_done(&g->prefix);
    kvf__pass_free(g->pass);
    kvf__model_free(g->model);
    kvf__slots_done(&g->slots);
    kvf__weights_close(&g->weights);
    kvf_ctx_free(g->ctx);
}

static double loss_of(golden *g, const kvf__prefix *prefix, int64_t start, bool gradient)
{
    const kvf__input input = {.batch = &g->batch, .prefix = prefix, .position_start = start};
    double loss = 0;
    ck_assert_msg(!kvf__pass_fwd(g->ctx, g->pass, &input), "%s", kvf_ctx_error(g->ctx));
    ck_assert_msg(!kvf__pass_lm_loss(g->ctx, g->pass, gradient, 1, &loss, NULL), "%s",
                  kvf_ctx_error(g->ctx));
    return loss;
}

/* Logits are of size 1 to 10; 1e-4 is DESIGN's bound between two f32 computations in different
 * order. */
static void check_logits(golden *g, const char *name)
{
    int64_t n;
    float *want = values(g, name, &n), *got = calloc((size_t)n, sizeof *got);
    ck_assert_int_eq(kvf__pass_lm_logits(g->ctx, g->pass, got), KVF_OK);
    ck_close(got, want, (size_t)n, 0, 1e-4);
    free(want);
    free(got);
}

START_TEST(logits_and_losses_match)
{
    golden g;
    load(&g, MODELS[_i], KVF__F32);
    float *losses = values(&g, "losses", NULL); /* bare, with prefix, with prefix at position 0 */

    ck_assert_double_eq_tol(loss_of(&g, NULL, 0, false), losses[0], 1e-5 * losses[0]);
    check_logits(&g, "bare_logits");
    ck_assert_double_eq_tol(loss_of(&g, &g.prefix, g.prefix.P, false), losses[1], 1e-5 * losses[1]);
    check_logits(&g, "logits");
    ck_assert_double_eq_tol(loss_of(&g, &g.prefix, 0, false), losses[2], 1e-5 * losses[2]);
    free(losses);
    unload(&g);
}
END_TEST

static double gradient_error(golden *g)
{
    kvf__prefix grad = {0};
    float *want = values(g, "gradient", NULL);

    ck_assert_int_eq(
        kvf__prefix_init(g->ctx, &grad, g->prefix.L, g->prefix.G, g->prefix.P, g->prefix.D),
        KVF_OK);
    loss_of(g, &g->prefix, g->prefix.P, true);
    ck_assert_msg(!kvf__pass_bwd(g->ctx, g->pass, &grad), "%s", kvf_ctx_error(g->ctx));
    double error = ck_rel_l2(grad.kv, want, kvf__prefix_count(&grad));
    kvf__prefix_done(&grad);
    free(want);
    return error;
}

/* The prototype's figure on whole models is 5e-6 to 1.2e-5 (COMPUTE 1); these are smaller. */
START_TEST(gradient_matches)
{
    golden g;
    load(&g, MODELS[_i], KVF__F32);
    ck_assert_double_le(gradient_error(&g), 1e-5);
    unload(&g);
}
END_TEST

/* DESIGN's bar for bf16: no further from f32 than torch autocast. On models as small as these the
 * ratio of the two errors scatters by a quarter around 0.95 (12 seeds of the first), so the bar
 * of 1.1 holds their mean; 2 catches one that breaks. */
START_TEST(bf16_gradient_is_no_worse_than_autocast)
{
    double log_ratio = 0;

    if (!kvf__cpu_has_bf16()) return;
    for (int i = 0; i < N_MODELS; i++) {
        golden g;
        load(&g, MODELS[i], KVF__BF16);
        float *torch = values(&g, "autocast_error", NULL);
        double ours = gradient_error(&g);
        ck_assert_msg(ours <= 2 * (double)torch[0], "%s: gradient error %.3g, torch autocast %.3g",
                      MODELS[i], ours, (double)torch[0]);
        ck_assert_double_gt(ours, 1e-4); /* it was bf16 */
        log_ratio += log(ours / (double)torch[0]) / N_MODELS;
        free(torch);
        unload(&g);
    }
    ck_assert_double_le(exp(log_ratio), 1.1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass_golden");
    TCase *cases = tcase_create("golden");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, logits_and_losses_match, 0, N_MODELS);
    tcase_add_loop_test(cases, gradient_matches, 0, N_MODELS);
    tcase_add_test(cases, bf16_gradient_is_no_worse_than_autocast);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
