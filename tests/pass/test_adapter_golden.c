/* Adapters against PyTorch: losses and gradients of a hand-written module on the tiny models of
 * transformers, for each placement and activation. Compared at the start, where `up` is zero, and
 * away from it (tests/golden/make_adapter_golden.py). */
#include "golden_model.h"

#include <math.h>

static const char *const MODELS[] = {"llama_tied", "gpt2", "bert"};
static const struct {
    const char *name;
    kvf__adapter_shape shape;
} CASES[] = {{"zero", {3, KVF__GELU_ERF, KVF__PLACE_SERIAL}},
             {"serial", {3, KVF__GELU_ERF, KVF__PLACE_SERIAL}},
             {"parallel", {3, KVF__TANH, KVF__PLACE_PARALLEL}},
             {"attn", {3, KVF__RELU, KVF__PLACE_ATTN}}};
enum { N_MODELS = 3, N_CASES = 4 };

/* The formula of the golden script. */
static void set_values(kvf__adapters *adapters, bool zero)
{
    int64_t at = 0;

    for (size_t i = 0; i < kvf__adapters_count(adapters); i++) {
        kvf__param p = kvf__adapters_param(adapters, i);
        double scale = p.rank == 2 ? 0.4 / sqrt((double)p.dim[1]) : 0.2;
        bool is_zero = zero && i % 4 > 0;
        for (int64_t j = 0; j < p.n; j++)
            p.value[j] = is_zero ? 0 : (float)(sin(0.37 * (double)(at + j) + 1) * scale);
        at += p.n;
    }
}

static kvf__weights open_golden(golden *g, const char *name)
{
    kvf__weights weights = {0};
    char path[128];

    snprintf(path, sizeof path, "tests/golden/adapters_%s.safetensors", name);
    ck_assert_msg(!kvf__safetensors_open(g->ctx, ck_source(path), &weights), "%s",
                  kvf_ctx_error(g->ctx));
    return weights;
}

static float *want_of(const kvf__weights *weights, const char *name, size_t *n)
{
    const kvf__view *view = kvf__table_find(&weights->table, name);
    ck_assert_msg(view != NULL, "no tensor %s", name);
    float *copy = malloc(kvf__view_bytes(view));
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, view->data, kvf__view_bytes(view));
    *n = (size_t)kvf__view_count(view);
    return copy;
}

static void load(golden *g, int model, int row, kvf__dtype act)
{
    const kvf__model_options options = {
        .act = act,
        .backward = true,
        .train = {.what = KVF__TRAIN_ADAPTERS, .adapters = CASES[row].shape}};
    kvf__desc desc = golden_open(g, MODELS[model]);

    golden_pack_as(g, &desc, &g->weights.table, &options);
    set_values(kvf__model_adapters(g->model), row == 0);
}

/* The loss, and its gradients if the model has them. */
static double step(golden *g, bool causal)
{
    const kvf__input input = {.batch = &g->batch};
    double loss = 0;

    ck_assert_msg(!kvf__pass_fwd(g->ctx, g->pass, &input), "%s", kvf_ctx_error(g->ctx));
    if (causal) {
        ck_assert_msg(
            !kvf__pass_loss(g->ctx, g->pass, &(kvf__loss){.gradient = true, .scale = 1}, &loss),
            "%s", kvf_ctx_error(g->ctx));
    } else {
        float *weights = golden_values(g, "weights", NULL);
        const float *hidden = NULL;
        ck_assert_int_eq(kvf__pass_hidden(g->ctx, g->pass, &hidden), KVF_OK);
        for (int64_t i = 0; i < g->batch.n_labels * kvf__model_desc(g->model)->C; i++)
            loss += (double)hidden[i] * (double)weights[i];
        ck_assert_int_eq(kvf__pass_hidden_grad(g->ctx, g->pass, weights), KVF_OK);
        free(weights);
    }
    ck_assert_msg(!kvf__pass_bwd(g->ctx, g->pass, &(kvf__grads){.block = true}), "%s",
                  kvf_ctx_error(g->ctx));
    return loss;
}

static double gradient_error(golden *g, const float *want, size_t n)
{
    kvf__adapters *adapters = kvf__model_adapters(g->model);
    float *got = malloc(n * sizeof *got);
    size_t at = 0;

    ck_assert_ptr_nonnull(got);
    for (size_t i = 0; i < kvf__adapters_count(adapters); i++) {
        kvf__param p = kvf__adapters_param(adapters, i);
        ck_assert_uint_le(at + (size_t)p.n, n);
        memcpy(got + at, p.grad, (size_t)p.n * sizeof *got);
        at += (size_t)p.n;
    }
    ck_assert_uint_eq(at, n);
    double error = ck_rel_l2(got, want, n);
    free(got);
    return error;
}

/* The norms trained with adapters; torch's names in encoders have no prefix. */
static void check_norms(golden *g, const kvf__weights *weights, const char *name)
{
    kvf__params *params = kvf__model_params(g->model);
    size_t first = kvf__adapters_count(kvf__model_adapters(g->model)), n;

    ck_assert_uint_gt(params->n, first);
    for (size_t i = first; i < params->n; i++) {
        const kvf__param *p = &params->item[i];
        char what[128];
        snprintf(what, sizeof what, "%s.norm.%s", name, p->name);
        if (!kvf__table_find(&weights->table, what))
            snprintf(what, sizeof what, "%s.norm.%s", name, strchr(p->name, '.') + 1);
        float *want = want_of(weights, what, &n);
        ck_assert_int_eq((int64_t)n, p->n);
        double error = ck_rel_l2(p->grad, want, n);
        ck_assert_msg(error <= 1e-5, "%s: gradient error %.3g", what, error);
        free(want);
    }
}

/* Both computations are f32 in different order: the bounds of test_pass_golden.c. */
START_TEST(loss_and_gradients_match)
{
    int model = _i / N_CASES, row = _i % N_CASES;
    golden g;
    size_t n, one;

    load(&g, model, row, KVF__F32);
    kvf__weights weights = open_golden(&g, MODELS[model]);
    char grad_name[32], loss_name[32];
    snprintf(grad_name, sizeof grad_name, "%s.grad", CASES[row].name);
    snprintf(loss_name, sizeof loss_name, "%s.loss", CASES[row].name);
    float *want = want_of(&weights, grad_name, &n), *loss = want_of(&weights, loss_name, &one);

    ck_assert_double_eq_tol(step(&g, model < 2), (double)loss[0], 1e-5 * fabs((double)loss[0]));
    double error = gradient_error(&g, want, n);
    ck_assert_msg(error <= 1e-5, "%s, %s: gradient error %.3g", MODELS[model], CASES[row].name,
                  error);
    check_norms(&g, &weights, CASES[row].name);
    free(want);
    free(loss);
    kvf__weights_close(&weights);
    golden_unload(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter_golden");
    TCase *cases = tcase_create("golden");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, loss_and_gradients_match, 0, N_MODELS * N_CASES);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
