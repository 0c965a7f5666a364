/* Encoders of port embed: both forms of `p-tuning` against PEFT's PromptEncoder, whose LSTM is
 * PyTorch's (tests/golden/make_prompt_golden.py). Also tests initial values that reach a target,
 * and the files of each form. */
#include "ck.h"
#include "encoder_int.h"
#include "file_int.h"
#include "param_grad.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static kvf_ctx *ctx;
static kvf__weights file;

static void setup(void)
{
    const kvf_ctx_options options = {.threads = 2};
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    ck_assert_msg(!kvf__safetensors_open(ctx, ck_source("tests/golden/prompt.safetensors"), &file),
                  "%s", kvf_ctx_error(ctx));
}

static void teardown(void)
{
    kvf__weights_close(&file);
    kvf_ctx_free(ctx);
}

static const char *const FORMS[] = {"lstm", "mlp"};
enum { P = 6, C = 20, M = 11 };
static const kvf__encoder_shape SHAPE = {.L = 1, .G = 1, .P = P, .D = 1, .M = M, .C = C};

static kvf__encoder *make(const char *method, const char *form)
{
    kvf__encoder_shape shape = SHAPE;
    kvf__encoder *encoder = NULL;
    shape.form = form;
    ck_assert_msg(!kvf__encoder_create(ctx, method, &shape, &encoder), "%s", kvf_ctx_error(ctx));
    return encoder;
}

static const float *stored(const char *form, const char *what, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s%s", form, what, name);
    const kvf__view *view = kvf__table_find(&file.table, full);
    ck_assert_msg(view != NULL, "no tensor %s", full);
    return view->data;
}

static kvf__vectors room(void)
{
    kvf__vectors vectors = {0};
    ck_assert_int_eq(kvf__vectors_init(ctx, &vectors, P, C), KVF_OK);
    return vectors;
}

/* An encoder with PEFT's values, after a forward pass. */
static kvf__encoder *golden(const char *form, kvf__vectors *emitted)
{
    kvf__encoder *encoder = make("p-tuning", form);
    kvf__params *params = kvf__encoder_params(encoder);
    for (size_t i = 0; i < params->n; i++)
        memcpy(params->item[i].value, stored(form, "", params->item[i].name),
               (size_t)params->item[i].n * sizeof(float));
    ck_assert_msg(!kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.vectors = emitted}), "%s",
                  kvf_ctx_error(ctx));
    return encoder;
}

/* ---- golden ---------------------------------------------------------------------------------- */

START_TEST(emits_what_peft_emits)
{
    kvf__vectors emitted = room();
    kvf__encoder *encoder = golden(FORMS[_i], &emitted);
    ck_close(emitted.x, stored(FORMS[_i], "", "emitted"), P * C, 0, 1e-6);
    size_t in_file = 0;
    for (size_t i = 0; i < file.table.n; i++)
        in_file += !strncmp(file.table.items[i].name, FORMS[_i], strlen(FORMS[_i]));
    ck_assert_uint_eq(in_file, 2 * kvf__encoder_params(encoder)->n + 2); /* none is missing */
    kvf__encoder_free(encoder);
    kvf__vectors_done(&emitted);
}
END_TEST

START_TEST(gradients_are_torchs)
{
    kvf__vectors emitted = room(), weights = room();
    kvf__encoder *encoder = golden(FORMS[_i], &emitted);
    memcpy(weights.x, stored(FORMS[_i], "", "weights"), P * C * sizeof(float));
    for (int again = 0; again < 2; again++) { /* sets, does not add */
        ck_assert_int_eq(kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.vectors = &emitted}),
                         KVF_OK);
        ck_assert_int_eq(kvf__encoder_bwd(ctx, encoder, (kvf__emitted){.vectors = &weights}),
                         KVF_OK);
    }
    const kvf__params *params = kvf__encoder_params(encoder);
    for (size_t i = 0; i < params->n; i++) {
        const kvf__param *param = &params->item[i];
        float *got = malloc((size_t)param->n * sizeof *got);
        param_grad(param, got);
        double error = ck_rel_l2(got, stored(FORMS[_i], "grad.", param->name), (size_t)param->n);
        ck_assert_msg(error <= 1e-5, "%s: %g", param->name, error);
        free(got);
    }
    kvf__encoder_free(encoder);
    kvf__vectors_done(&emitted);
    kvf__vectors_done(&weights);
}
END_TEST

/* ---- core ------------------------------------------------------------------------------------ */

static const char *const KINDS[][2] = {
    {"prompt", NULL}, {"p-tuning", "lstm"}, {"p-tuning", "mlp"}, {"p-tuning", NULL}};
enum { N_KINDS = sizeof KINDS / sizeof KINDS[0] };

START_TEST(targets_are_reached)
{
    kvf__encoder *encoder = make(KINDS[_i][0], KINDS[_i][1]);
    kvf__vectors target = room(), emitted = room();
    double residual = 1;
    for (int64_t i = 0; i < P * C; i++)
        target.x[i] = (float)sin((double)(7 * i));
    kvf__encoder_init_random(encoder, false, 3);
    ck_assert_int_eq(
        kvf__encoder_init_target(ctx, encoder, (kvf__emitted){.vectors = &target}, &residual),
        KVF_OK);
    ck_assert_double_le(residual, 1e-5);
    ck_assert_int_eq(kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.vectors = &emitted}), KVF_OK);
    ck_close(emitted.x, target.x, P * C, 0, 1e-5);
    ck_assert_int_eq(kvf__encoder_init_zero(ctx, encoder), KVF_OK);
    ck_assert_int_eq(kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.vectors = &emitted}), KVF_OK);
    for (int64_t i = 0; i < P * C; i++)
        ck_assert(emitted.x[i] == 0);
    kvf__encoder_free(encoder);
    kvf__vectors_done(&target);
    kvf__vectors_done(&emitted);
}
END_TEST

static double deviation(const kvf__param *param)
{
    double square = 0;
    for (int64_t i = 0; i < param->n; i++)
        square += (double)param->value[i] * (double)param->value[i];
    return sqrt(square / (double)param->n);
}

/* Four standard deviations of the sample spread of n draws, normal or uniform. */
static double normal_scatter(const kvf__param *p)
{
    return 4 / sqrt(2 * (double)p->n);
}

static double uniform_scatter(const kvf__param *p)
{
    return 4 / sqrt(5 * (double)p->n);
}

/* torch: N(0, 1) for the embedding, U(+-1/sqrt(n)) elsewhere; n: width of the state or of the
 * inputs. */
START_TEST(starting_values)
{
    kvf__encoder *encoder = make("p-tuning", "lstm");
    kvf__params *params = kvf__encoder_params(encoder);
    kvf__encoder_init_random(encoder, false, 3);
    ck_assert_str_eq(params->item[0].name, "embedding.weight");
    ck_assert_double_eq_tol(deviation(&params->item[0]), 1, normal_scatter(&params->item[0]));
    ck_assert_str_eq(params->item[1].name, "lstm_head.weight_ih_l0");
    ck_assert_double_eq_tol(deviation(&params->item[1]) * sqrt(3.0 * M), 1,
                            uniform_scatter(&params->item[1]));
    ck_assert_str_eq(params->item[17].name, "mlp_head.0.weight");
    ck_assert_double_eq_tol(deviation(&params->item[17]) * sqrt(3.0 * 2 * M), 1,
                            uniform_scatter(&params->item[17]));
    kvf__encoder_init_random(encoder, true, 3);
    ck_assert_double_eq_tol(deviation(&params->item[1]) / 0.02, 1,
                            normal_scatter(&params->item[1]));
    ck_assert_double_eq(deviation(&params->item[3]), 0); /* a bias */
    kvf__encoder_free(encoder);
}
END_TEST

START_TEST(one_rate_for_all)
{
    kvf__encoder *encoder = make("p-tuning", "mlp");
    double k = 0;
    ck_assert_int_eq(kvf__encoder_lr_units(ctx, encoder, true, &k), KVF_OK);
    const kvf__params *params = kvf__encoder_params(encoder);
    for (size_t i = 0; i < params->n; i++)
        ck_assert_double_eq(params->item[i].lr_scale, 1);
    kvf__encoder_free(encoder);
}
END_TEST

START_TEST(refusals)
{
    kvf__encoder_shape shape = SHAPE;
    kvf__encoder *encoder = NULL;
    shape.M = 0;
    ck_assert_int_eq(kvf__encoder_create(ctx, "p-tuning", &shape, &encoder), KVF_EUSAGE);
    shape.M = M;
    shape.form = "gru";
    ck_assert_int_eq(kvf__encoder_create(ctx, "p-tuning", &shape, &encoder), KVF_EUSAGE);
    ck_assert_ptr_null(encoder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("enc_ptuning");
    TCase *gold = tcase_create("golden"), *core = tcase_create("core");
    TCase *errors = tcase_create("errors"), *cases[] = {gold, core, errors};

    tcase_add_loop_test(gold, emits_what_peft_emits, 0, 2);
    tcase_add_loop_test(gold, gradients_are_torchs, 0, 2);
    tcase_add_loop_test(core, targets_are_reached, 0, N_KINDS);
    tcase_add_test(core, starting_values);
    tcase_add_test(core, one_rate_for_all);
    tcase_add_test(errors, refusals);
    for (int i = 0; i < 3; i++) {
        tcase_add_checked_fixture(cases[i], setup, teardown);
        suite_add_tcase(suite, cases[i]);
    }
    return ck_main(suite);
}
