/* Method projected on a base: P_theta through the frozen projections of every family, and its
 * gradient, against PyTorch (tests/golden/make_projected_golden.py). Also tests learning-rate
 * units, initial values, and masked layers. */
#include "encoder_int.h"
#include "golden_model.h"
#include "rng.h"

#include <math.h>

static const char *const MODELS[] = {"llama_tied", "llama_untied", "gpt2", "gpt2_by_layer",
                                     "qwen2",      "qwen3",        "bert", "roberta"};
enum { N_MODELS = 8, N_CAUSAL = 6 };

typedef struct fixture {
    golden g;
    kvf__weights file;
    kvf__encoder *encoder;
    kvf__prefix prefix, gradient;
    const char *name;
} fixture;

static const float *stored(const fixture *f, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", f->name, what);
    const kvf__view *view = kvf__table_find(&f->file.table, name);
    ck_assert_msg(view != NULL, "no tensor %s", name);
    return view->data;
}

static kvf__prefix like(fixture *f)
{
    kvf__prefix prefix = {0}, *p = &f->g.prefix;
    ck_assert_int_eq(kvf__prefix_init(f->g.ctx, &prefix, p->L, p->G, p->P, p->D), KVF_OK);
    return prefix;
}

static void load(fixture *f, int model)
{
    *f = (fixture){.name = MODELS[model]};
    golden_load(&f->g, MODELS[model], KVF__F32);
    ck_assert_int_eq(
        kvf__safetensors_open(f->g.ctx, ck_source("tests/golden/projected.safetensors"), &f->file),
        KVF_OK);
    const kvf__desc *d = kvf__model_desc(f->g.model);
    kvf__kv_projections projections = {0};
    kvf__encoder_shape shape = {
        .L = d->L, .G = d->G, .P = f->g.prefix.P, .D = d->D, .projections = &projections};
    ck_assert_msg(
        !kvf__model_kv_projections(f->g.ctx, f->g.model, &f->g.slots, shape.P, &projections), "%s",
        kvf_ctx_error(f->g.ctx));
    ck_assert_msg(!kvf__encoder_create(f->g.ctx, "projected", &shape, &f->encoder), "%s",
                  kvf_ctx_error(f->g.ctx));
    ck_assert_ptr_null(projections.weights);
    f->prefix = like(f);
    f->gradient = like(f);
    kvf__params *params = kvf__encoder_params(f->encoder);
    ck_assert_uint_eq(params->n, (size_t)d->L);
    const float *theta = stored(f, "theta");
    for (int64_t l = 0; l < d->L; l++) {
        kvf__param *param = &params->item[l];
        ck_assert_int_eq(param->n, shape.P * d->C);
        memcpy(param->value, theta + l * param->n, (size_t)param->n * sizeof(float));
    }
}

static void unload(fixture *f)
{
    kvf__encoder_free(f->encoder);
    kvf__prefix_done(&f->prefix);
    kvf__prefix_done(&f->gradient);
    kvf__weights_close(&f->file);
    golden_unload(&f->g);
}

static void emit(fixture *f)
{
    ck_assert_msg(!kvf__encoder_fwd(f->g.ctx, f->encoder, (kvf__emitted){.prefix = &f->prefix}),
                  "%s", kvf_ctx_error(f->g.ctx));
}

/* d loss / d prefix of the golden rows under the emitted prefix. */
static void base_gradient(fixture *f)
{
    const kvf__input input = {.batch = &f->g.batch,
                              .condition.prefix = &f->prefix,
                              .condition.position_start = f->prefix.P};
    double loss = 0;
    ck_assert_msg(!kvf__pass_fwd(f->g.ctx, f->g.pass, &input), "%s", kvf_ctx_error(f->g.ctx));
    ck_assert_int_eq(
        kvf__pass_loss(f->g.ctx, f->g.pass, &(kvf__loss){.gradient = true, .scale = 1}, &loss),
        KVF_OK);
    ck_assert_double_eq_tol(loss, (double)stored(f, "loss")[0], 1e-4 * loss);
    ck_assert_int_eq(kvf__pass_bwd(f->g.ctx, f->g.pass, &(kvf__grads){.prefix = &f->gradient}),
                     KVF_OK);
}

START_TEST(prefix_and_gradient_are_torchs)
{
    fixture f;
    load(&f, _i);
    emit(&f);
    size_t n = kvf__prefix_count(&f.prefix);
    ck_assert_double_lt(ck_rel_l2(f.prefix.kv, stored(&f, "prefix"), n), 1e-6);
    if (_i < N_CAUSAL)
        base_gradient(&f);
    else
        memcpy(f.gradient.kv, stored(&f, "weights"), n * sizeof(float));
    ck_assert_int_eq(kvf__encoder_bwd(f.g.ctx, f.encoder, (kvf__emitted){.prefix = &f.gradient}),
                     KVF_OK);
    const kvf__params *params = kvf__encoder_params(f.encoder);
    for (size_t l = 0; l < params->n; l++) {
        const kvf__param *param = &params->item[l];
        double error = ck_rel_l2(param->grad, stored(&f, "gradient") + (int64_t)l * param->n,
                                 (size_t)param->n);
        ck_assert_msg(error < 1e-4, "%s: relative error %g", param->name, error);
    }
    unload(&f);
}
END_TEST

/* A step of +-1 in every input moves values by about 1 (half of it to twice it), for the weights of
 * any family. */
START_TEST(prefix_units_move_values_by_the_rate)
{
    fixture f;
    double k = 0, sum = 0;
    load(&f, _i);
    emit(&f);
    kvf__prefix before = like(&f);
    size_t n = kvf__prefix_count(&f.prefix);
    memcpy(before.kv, f.prefix.kv, n * sizeof(float));
    ck_assert_int_eq(kvf__encoder_lr_units(f.g.ctx, f.encoder, false, &k), KVF_OK);
    kvf__params *params = kvf__encoder_params(f.encoder);
    kvf__rng rng = kvf__rng_make(5, 0);
    for (size_t l = 0; l < params->n; l++)
        for (int64_t i = 0; i < params->item[l].n; i++)
            params->item[l].value[i] += (float)(kvf__rng_uniform(&rng) < 0.5
                                                    ? -params->item[l].lr_scale
                                                    : params->item[l].lr_scale);
    emit(&f);
    size_t half = n / (size_t)f.prefix.L / 2; /* of a layer: keys, then values */
    for (size_t i = 0; i < n; i++)
        if (i / half % 2) sum += pow((double)f.prefix.kv[i] - (double)before.kv[i], 2);
    double moved = sqrt(sum / (double)(n / 2));
    ck_assert_msg(moved > 0.5 && moved < 2, "values moved by %g", moved);
    kvf__prefix_done(&before);
    unload(&f);
}
END_TEST

/* Masked layers emit zeros and have zero gradients. */
START_TEST(masked_layers)
{
    fixture f;
    load(&f, 0);
    f.prefix.layer_mask[1] = f.gradient.layer_mask[1] = 0;
    emit(&f);
    size_t per_layer = kvf__prefix_count(&f.prefix) / (size_t)f.prefix.L;
    for (size_t i = 0; i < per_layer; i++) {
        ck_assert(f.prefix.kv[per_layer + i] == 0);
        ck_assert(f.prefix.kv[i] == stored(&f, "prefix")[i] || f.prefix.kv[i] != 0);
    }
    const kvf__input input = {
        .batch = &f.g.batch, .condition.prefix = &f.prefix, .condition.position_start = f.prefix.P};
    double loss = 0;
    ck_assert_int_eq(kvf__pass_fwd(f.g.ctx, f.g.pass, &input), KVF_OK);
    ck_assert_int_eq(
        kvf__pass_loss(f.g.ctx, f.g.pass, &(kvf__loss){.gradient = true, .scale = 1}, &loss),
        KVF_OK);
    ck_assert_int_eq(kvf__pass_bwd(f.g.ctx, f.g.pass, &(kvf__grads){.prefix = &f.gradient}),
                     KVF_OK);
    ck_assert_int_eq(kvf__encoder_bwd(f.g.ctx, f.encoder, (kvf__emitted){.prefix = &f.gradient}),
                     KVF_OK);
    const kvf__params *params = kvf__encoder_params(f.encoder);
    for (size_t l = 0; l < params->n; l++) {
        double norm = 0;
        for (int64_t i = 0; i < params->item[l].n; i++)
            norm += fabs((double)params->item[l].grad[i]);
        ck_assert((norm == 0) == (l == 1));
    }
    unload(&f);
}
END_TEST

START_TEST(starting_values)
{
    fixture f;
    double residual;
    load(&f, 2); /* gpt2 has biases */
    int64_t P = f.prefix.P, C = kvf__model_desc(f.g.model)->C;
    float *words = calloc((size_t)(P * C), sizeof *words);
    for (int64_t i = 0; i < P * C; i++)
        words[i] = (float)i;
    kvf__encoder_init_words(f.encoder, words, 0);
    const kvf__params *params = kvf__encoder_params(f.encoder);
    for (size_t l = 0; l < params->n; l++)
        ck_close(params->item[l].value, words, (size_t)(P * C), 0, 0);
    ck_assert(kvf__encoder_needs_projections("projected"));
    ck_assert(!kvf__encoder_needs_projections("mlp"));
    ck_assert_int_eq(kvf__encoder_init_zero(f.g.ctx, f.encoder), KVF_EUSAGE);
    ck_assert_int_eq(kvf__encoder_init_target(f.g.ctx, f.encoder,
                                              (kvf__emitted){.prefix = &f.prefix}, &residual),
                     KVF_EUSAGE);
    free(words);
    unload(&f);
    load(&f, 0); /* this one has none */
    ck_assert_int_eq(kvf__encoder_init_zero(f.g.ctx, f.encoder), KVF_OK);
    emit(&f);
    for (size_t i = 0; i < kvf__prefix_count(&f.prefix); i++)
        ck_assert(f.prefix.kv[i] == 0);
    unload(&f);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    golden g;
    kvf_status st = KVF_ENOMEM;
    int64_t n = 0;
    golden_load(&g, "qwen3", KVF__F32);
    const kvf__desc *d = kvf__model_desc(g.model);
    for (; st == KVF_ENOMEM && n < 100; n++) {
        kvf__kv_projections projections = {0};
        kvf__encoder *encoder = NULL;
        kvf__encoder_shape shape = {
            .L = d->L, .G = d->G, .P = 5, .D = d->D, .projections = &projections};
        kvf__ctx_fail_allocation(g.ctx, n);
        st = kvf__model_kv_projections(g.ctx, g.model, &g.slots, 5, &projections);
        if (!st) st = kvf__encoder_create(g.ctx, "projected", &shape, &encoder);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert((encoder != NULL) == (st == KVF_OK));
        kvf__encoder_free(encoder);
    }
    kvf__ctx_fail_allocation(g.ctx, -1);
    ck_assert(st == KVF_OK && n > 5);
    golden_unload(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("enc_projected");
    TCase *golden_case = tcase_create("golden"), *core = tcase_create("core");
    TCase *errors = tcase_create("errors");
    tcase_set_timeout(golden_case, 60);
    tcase_set_timeout(core, 60);
    tcase_set_timeout(errors, 60);
    tcase_add_loop_test(golden_case, prefix_and_gradient_are_torchs, 0, N_MODELS);
    tcase_add_loop_test(core, prefix_units_move_values_by_the_rate, 0, N_MODELS);
    tcase_add_test(core, masked_layers);
    tcase_add_test(core, starting_values);
    tcase_add_test(errors, every_allocation_may_fail);
    suite_add_tcase(suite, golden_case);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
