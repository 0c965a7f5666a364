/* Methods with virtual tokens at the input, whole runs on a toy base. Training learns, a resumed
 * run equals an unbroken one, and eval and generate agree with training. Options without meaning
 * for these methods are refused. */
#include <kvfold/kvfold.h>

#include "toy_run.h"

/* Every method, form and place of the virtual tokens. */
static const struct form {
    const char *method, *encoder, *pattern;
    double lr;
} FORMS[] = {
    {"prompt", "lstm", NULL, 0.1},
    {"p-tuning", "lstm", NULL, 0.01},
    {"p-tuning", "mlp", NULL, 0.01},
    {"prompt", "lstm", "{p:2} {prompt} {p:2} {completion}", 0.1},
};
enum { N_FORMS = sizeof FORMS / sizeof FORMS[0] };

static void set(kvf_train_options *o, const char *name, const char *value)
{
    ck_assert_msg(!kvf_train_set(ctx, o, name, value), "%s", kvf_ctx_error(ctx));
}

static kvf_train_options options_for(const char *path, const struct form *form)
{
    kvf_train_options o = toy_run_options(path);
    o.method = form->method;
    o.p_encoder = form->encoder;
    o.p_template = form->pattern;
    o.lr = form->lr;
    o.prefix_length = 4;
    o.encoder_hidden = 16;
    o.steps = 8;
    o.batch_size = 6;
    o.eval_every = 4;
    o.save_every = 4;
    return o;
}

static double loss_of(kvf_base *bare, const char *path)
{
    const kvf_eval_options options = {.data = valid};
    kvf_eval_result result;
    kvf_prefix *prefix = NULL;
    if (path)
        ck_assert_msg(!kvf_prefix_open(ctx, path, KVF_CHECKPOINT_LAST, &prefix), "%s",
                      kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_eval(ctx, bare, &prefix, path != NULL, &options, &result), "%s",
                  kvf_ctx_error(ctx));
    kvf_prefix_free(prefix);
    return result.loss;
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(training_learns)
{
    kvf_train_options o = options_for(out, &FORMS[_i]);
    kvf_base *bare = open_base();
    o.steps = 60;
    o.eval_every = 60;
    kvf_train_result after = train(&o);
    double before = loss_of(bare, NULL);
    ck_assert_msg(after.valid_loss < before - 0.5, "loss %g, bare base %g", after.valid_loss,
                  before);
    ck_assert_double_eq(loss_of(bare, out), after.valid_loss); /* the same rows, the same bits */
    kvf_base_free(bare);
}
END_TEST

START_TEST(resumed_is_unbroken)
{
    expect_resume_equals_no_stop(options_for(out, &FORMS[_i]), options_for(other, &FORMS[_i]));
}
END_TEST

START_TEST(equal_runs_give_equal_bytes)
{
    kvf_train_options o = options_for(out, &FORMS[_i]);
    train(&o);
    o = options_for(other, &FORMS[_i]);
    train(&o);
    ck_assert(equal_files(out, other));
}
END_TEST

/* Parts of a step and shared common prefixes change only rounding. */
START_TEST(parts_and_common_rows)
{
    kvf_train_options o = options_for(out, &FORMS[0]);
    kvf_train_result one = train(&o);
    o.force = true;
    o.grad_accum = 3;
    o.share_off = true;
    o.recompute = true;
    kvf_train_result parts = train(&o);
    ck_assert_double_eq_tol(one.valid_loss, parts.valid_loss, 1e-4 * one.valid_loss);
    ck_assert_int_gt(parts.computed_tokens, one.computed_tokens);
}
END_TEST

START_TEST(generates)
{
    static const char *const PROMPTS[] = {"w30:", "w31:"};
    kvf_train_options o = options_for(out, &FORMS[_i]);
    kvf_generate_options options = kvf_generate_defaults();
    kvf_prefix *prefix = NULL;
    char *texts[2] = {NULL, NULL}, *bare_texts[2] = {NULL, NULL};
    o.steps = 60;
    train(&o);
    kvf_base *bare = open_base();
    ck_assert_int_eq(kvf_prefix_open(ctx, out, KVF_CHECKPOINT_LAST, &prefix), KVF_OK);
    options.max_tokens = 6;
    ck_assert_msg(!kvf_generate(ctx, bare, prefix, PROMPTS, 2, &options, texts, NULL), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf_generate(ctx, bare, NULL, PROMPTS, 2, &options, bare_texts, NULL), KVF_OK);
    ck_assert_str_ne(texts[0], bare_texts[0]);
    kvf_texts_free(texts, 2);
    kvf_texts_free(bare_texts, 2);
    kvf_prefix_free(prefix);
    kvf_base_free(bare);
}
END_TEST

/* ---- folding --------------------------------------------------------------------------------- */

static void fold(const char *run, const char *to, bool with_base)
{
    const kvf_merge_options options = {.run = run,
                                       .out = to,
                                       .base = with_base ? base : NULL,
                                       .checkpoint = KVF_CHECKPOINT_LAST,
                                       .force = true};
    kvf_merge_result result;
    ck_assert_msg(!kvf_merge(ctx, &options, &result), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq(result.max_abs_diff, 0);
    ck_assert_int_gt(result.bytes, 0);
}

static void expect_kind(const char *path, const char *kind)
{
    kvf_json *json = NULL;
    ck_assert_msg(!kvf_inspect(ctx, path, &json), "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(kvf_json_str(kvf_json_get(json, "kind"), NULL), kind);
    kvf_json_free(json);
}

/* Virtual tokens at the beginning of a causal base's rows can be replaced by a prefix. */
START_TEST(folds_to_a_prefix)
{
    kvf_train_options o = options_for(out, &FORMS[_i]);
    const kvf_merge_options bare_options = {.run = out, .out = other};
    kvf_merge_result result;
    kvf_prefix *prefix = NULL;
    o.steps = 20;
    train(&o);
    ck_assert_int_eq(kvf_merge(ctx, &bare_options, &result), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "name it with --base"));
    fold(out, other, true);
    expect_kind(other, "prefix");
    ck_assert_int_eq(kvf_prefix_open(ctx, other, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    ck_assert_int_eq(kvf_prefix_length(prefix), 4);
    ck_assert_int_eq(kvf_prefix_position_start(prefix), 4);
    kvf_prefix_free(prefix);
    kvf_base *opened = open_base();
    ck_assert_double_eq_tol(loss_of(opened, other), loss_of(opened, out), 1e-4);
    kvf_base_free(opened);
}
END_TEST

START_TEST(folds_to_embeddings)
{
    kvf_train_options o = options_for(out, &FORMS[3]);
    o.steps = 20;
    train(&o);
    fold(out, other, false); /* with a template they do not fold to a prefix: no base is needed */
    expect_kind(other, "embeddings");
    kvf_base *opened = open_base();
    ck_assert_double_eq(loss_of(opened, other), loss_of(opened, out));
    kvf_base_free(opened);
}
END_TEST

/* ---- starting values ------------------------------------------------------------------------- */

START_TEST(starts_from_a_run)
{
    kvf_train_options o = options_for(out, &FORMS[1]);
    kvf_base *bare = open_base();
    o.steps = 20;
    train(&o);
    for (int i = 0; i < 2; i++) { /* the same method; another method that has it as target */
        kvf_train_options next = options_for(other, &FORMS[i ? 0 : 1]);
        next.force = true;
        next.init_from = out;
        next.lr = 1e-9;
        next.steps = 1;
        train(&next);
        ck_assert_double_eq_tol(loss_of(bare, other), loss_of(bare, out), 1e-4);
    }
    kvf_base_free(bare);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(options_that_mean_nothing)
{
    static const struct {
        const char *method, *name, *value, *line;
    } CASES[] = {
        {"prompt", "prefix-dropout", "0.1", "--prefix-dropout: not for method prompt"},
        {"p-tuning", "position-start", "P", "--position-start: not for method p-tuning"},
        {"prompt", "lr-units", "prefix", "--lr-units: not for method prompt"},
        {"prompt", "encoder-hidden", "8", "--encoder-hidden: not for method prompt"},
        {"prompt", "init", "kv", "cannot start from keys and values"},
        {"prompt", "p-encoder", "mlp", "--p-encoder: not for method prompt"},
        {"mlp", "p-template", "{p} {text}", "--p-template is for methods prompt"},
        {"prompt", "p-template", "{prompt} {completion}", "{p} is missing"},
        {"prompt", "p-template", "{p} [MASK] {text}", "the base has no mask token"},
        {"prompt", "p-template", "{p} {words}", "braces may contain"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        kvf_train_options o = options_for(out, &FORMS[0]);
        kvf_train_result result;
        o.method = CASES[i].method;
        set(&o, CASES[i].name, CASES[i].value);
        ck_assert_msg(kvf_train(ctx, &o, &result) == KVF_EUSAGE &&
                          strstr(kvf_ctx_error(ctx), CASES[i].line),
                      "%s: %s", CASES[i].name, kvf_ctx_error(ctx));
    }
}
END_TEST

START_TEST(templates_that_do_not_fit)
{
    kvf_train_options o = options_for(out, &FORMS[3]);
    kvf_train_result result;
    set(&o, "prefix-length", "5");
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx),
                     "--p-template has 4 virtual tokens, but --prefix-length is 5");
    o = options_for(out, &FORMS[3]);
    o.task = "token-cls";
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_EUSAGE);
    o = options_for(out, &FORMS[3]);
    o.chat_template = "chatml";
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_EUSAGE);
    ck_assert_ptr_nonnull(
        strstr(kvf_ctx_error(ctx), "--p-template and --chat-template exclude each other"));
}
END_TEST

START_TEST(resume_keeps_the_template)
{
    kvf_train_options o = options_for(out, &FORMS[3]);
    kvf_train_result result;
    train(&o);
    o.resume = true;
    set(&o, "p-template", "{p:4} {prompt} {completion}");
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "--p-template differs"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train_embed");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    TCase *cases[] = {core, errors};

    tcase_set_timeout(core, 100);
    tcase_set_timeout(errors, 100);
    tcase_add_loop_test(core, training_learns, 0, N_FORMS);
    tcase_add_loop_test(core, resumed_is_unbroken, 0, N_FORMS);
    tcase_add_loop_test(core, equal_runs_give_equal_bytes, 0, N_FORMS);
    tcase_add_loop_test(core, generates, 0, N_FORMS);
    tcase_add_loop_test(core, folds_to_a_prefix, 0, 3);
    tcase_add_test(core, folds_to_embeddings);
    tcase_add_test(core, parts_and_common_rows);
    tcase_add_test(core, starts_from_a_run);
    tcase_add_test(errors, options_that_mean_nothing);
    tcase_add_test(errors, templates_that_do_not_fit);
    tcase_add_test(errors, resume_keeps_the_template);
    for (int i = 0; i < 2; i++) {
        tcase_add_checked_fixture(cases[i], toy_run_setup, toy_run_teardown);
        suite_add_tcase(suite, cases[i]);
    }
    return ck_main(suite);
}
