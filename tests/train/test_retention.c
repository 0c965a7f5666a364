/* --retain and --kl-to-base on the toy base. The retention set does not change training, and its
 * reported losses equal those of eval. The KL loss has a correct gradient, keeps the text nearer to
 * the base, and resumes bit for bit. */
#include "trainer.h"

#include "retention.h"
#include "toy_run.h"

#include <math.h>

static char text[512];

static void setup(void)
{
    toy_run_setup();
    toy_path(text, dir, "text.jsonl");
    toy_write(
        dir, "text.jsonl",
        "{\"text\": \"zyx zyx wvu zyx, and so on\"}\n{\"text\": \"plain words, plain words\"}\n"
        "{\"text\": \"kvkvkv 12345\"}\n{\"text\": \"zyx wvu tsr qpo\"}\n"
        "{\"text\": \"one two three four five\"}\n{\"text\": \"54321 12345 11111\"}\n");
}

static kvf_train_options options(const char *path, double weight)
{
    kvf_train_options o = toy_run_options(path);
    o.prefix_length = 5;
    o.method = "direct";
    o.retention = text;
    o.kl_to_base = weight;
    return o;
}

/* ---- core ------------------------------------------------------------------------------------ */

static double eval_loss(const char *file, const char *prefix_path, kvf_checkpoint checkpoint)
{
    const kvf_base_options f32 = {.precision = KVF_PRECISION_F32};
    const kvf_eval_options how = {.data = file};
    kvf_base *loaded = NULL;
    kvf_prefix *prefix = NULL;
    kvf_eval_result result;
    ck_assert(!kvf_base_open(ctx, base, &f32, &loaded));
    if (prefix_path) ck_assert(!kvf_prefix_open(ctx, prefix_path, checkpoint, &prefix));
    ck_assert_msg(!kvf_eval(ctx, loaded, &prefix, prefix ? 1 : 0, &how, &result), "%s",
                  kvf_ctx_error(ctx));
    kvf_prefix_free(prefix);
    kvf_base_free(loaded);
    return result.loss;
}

START_TEST(retention_says_what_eval_says)
{
    kvf_train_options o = options(out, 0), without = options(other, 0);
    without.retention = NULL;
    kvf_train_result r = train(&o), bare = train(&without);
    ck_assert_double_eq(r.retention_base_loss, eval_loss(text, NULL, KVF_CHECKPOINT_LAST));
    ck_assert_double_eq(r.retention_loss, eval_loss(text, out, KVF_CHECKPOINT_LAST));
    ck_assert_double_ne(r.retention_start_loss, r.retention_base_loss);
    ck_assert_double_ne(r.retention_start_loss, r.retention_loss);
    ck_assert(isnan(bare.retention_loss) && isnan(bare.retention_base_loss));
    /* it changes nothing */
    ck_assert_double_eq(r.train_loss, bare.train_loss);
    ck_assert_double_eq(r.valid_loss, bare.valid_loss);
    ck_assert_double_eq(eval_loss(valid, out, KVF_CHECKPOINT_LAST),
                        eval_loss(valid, other, KVF_CHECKPOINT_LAST));
}
END_TEST

/* Reported at every validation, and nowhere else; without validation data too. */
START_TEST(history_has_it)
{
    kvf_train_options o = options(out, 1);
    kvf__artifact run = {0};
    o.valid = NULL;
    kvf_train_result r = train(&o);
    ck_assert(!kvf__artifact_read_all(ctx, out, KVF__KIND_RUN, &run));
    ck_assert_ptr_nonnull(run.history.retention_loss);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(isnan(run.history.retention_loss[i]) != 0, i % 3 != 2);
        ck_assert_double_gt(run.history.kl_to_base[i], 0);
    }
    ck_assert_double_eq(run.history.retention_loss[5], r.retention_loss);
    kvf__artifact_done(&run);
}
END_TEST

START_TEST(weight_holds_the_text)
{
    kvf_train_options free_run = options(out, 0), held_run = options(other, 20);
    ck_assert(!kvf_train_set(ctx, &free_run, "init", "vocab")); /* training moves away from it */
    ck_assert(!kvf_train_set(ctx, &held_run, "init", "vocab"));
    free_run.steps = held_run.steps = 30;
    free_run.eval_every = held_run.eval_every = 30;
    kvf_train_result loose = train(&free_run), held = train(&held_run);
    ck_assert_double_eq(loose.retention_base_loss, held.retention_base_loss);
    ck_assert_double_eq(loose.retention_start_loss, held.retention_start_loss);
    double rise = loose.retention_loss - loose.retention_base_loss;
    ck_assert_msg(held.retention_loss - held.retention_base_loss < 0.5 * rise && rise > 0,
                  "base %.4f, without %.4f, held %.4f", held.retention_base_loss,
                  loose.retention_loss, held.retention_loss);
}
END_TEST

/* Up to the last token without loss, rows have loss where training has none. */
START_TEST(prompts_are_the_rows_without_loss)
{
    kvf_train_options o = options(out, 1), same = options(other, 0);
    char rows[512], swapped[512];
    toy_path(rows, dir, "rows.jsonl");
    toy_path(swapped, dir, "swapped.jsonl");
    toy_write(dir, "rows.jsonl",
              "{\"input_ids\": [23, 27, 39, 1, 2, 24, 25, 3], "
              "\"labels\": [-100, -100, -100, 1, 2, -100, -100, 3]}\n"
              "{\"input_ids\": [5, 6, 7], \"labels\": [5, 6, 7]}\n"
              "{\"input_ids\": [8, 9, 10, 11, 12], \"labels\": [-100, -100, -100, 11, 12]}\n");
    toy_write(dir, "swapped.jsonl",
              "{\"input_ids\": [23, 27, 39, 1, 2, 24, 25], "
              "\"labels\": [-100, 27, 39, -100, -100, 24, 25]}\n"
              "{\"input_ids\": [8, 9, 10], \"labels\": [-100, 9, 10]}\n");
    o.data = same.data = rows;
    o.init = same.init = "random";
    o.retention = "prompts";
    same.retention = swapped;
    same.kl_to_base = 1;
    kvf_train_result r = train(&o), want = train(&same);
    ck_assert_double_eq_tol(r.retention_base_loss, want.retention_base_loss, 1e-6);
    ck_assert_double_eq_tol(r.retention_start_loss, want.retention_start_loss, 1e-6);
    ck_assert_double_eq_tol(r.retention_loss, want.retention_loss, 1e-4);

    o.data = text; /* all of it has loss */
    o.force = true;
    expect_failure(&o, KVF_EDATA, "--retain prompts: no row of --data has tokens without loss");
}
END_TEST

START_TEST(resume_equals_no_stop)
{
    kvf_train_options whole = options(out, 2), part = options(other, 2);
    whole.schedule_steps = part.schedule_steps = 6;
    kvf_train_result r = train(&whole);
    part.steps = 3;
    train(&part);
    part.steps = 6;
    part.resume = true;
    kvf_train_result again = train(&part);
    ck_assert(equal_files(out, other));
    ck_assert_double_eq(again.retention_loss, r.retention_loss);
    ck_assert_double_eq(again.retention_start_loss, r.retention_start_loss);
    again = train(&part);
    ck_assert(again.finished_before);
    ck_assert_double_eq(again.retention_loss, r.retention_loss);
}
END_TEST

/* A base with its own head, in which one character's embedding is not finite. */
static void break_percent(void)
{
    char path[1024], config[1024];
    kvf__weights from = {0};
    kvf__tensor tensors[64];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", base);
    ck_assert_msg(!kvf__safetensors_open(ctx, path, &from), "%s", kvf_ctx_error(ctx));
    const kvf__tensor *embedding = NULL;
    for (; n < from.table.n; n++) {
        tensors[n] = from.table.items[n];
        if (!strcmp(tensors[n].name, "model.embed_tokens.weight")) embedding = &from.table.items[n];
    }
    const kvf__view *view = &embedding->view;
    size_t count = (size_t)kvf__view_count(view), C = count / 61;
    float *broken = malloc(count * sizeof *broken);
    memcpy(broken, view->data, count * sizeof *broken);
    broken[(size_t)(strchr(toy_letters, '%') - toy_letters + 1) * C] = NAN;
    tensors[n] = *embedding;
    tensors[n++].name = "lm_head.weight";
    tensors[embedding - from.table.items].view.data = broken;
    remove(path); /* which is mapped */
    ck_assert_msg(!kvf__safetensors_write(ctx, path, true, tensors, n), "%s", kvf_ctx_error(ctx));
    kvf__weights_close(&from);
    free(broken);
    const char *tie = strstr(toy_llama, "true");
    snprintf(config, sizeof config, "%.*sfalse%s", (int)(tie - toy_llama), toy_llama, tie + 4);
    toy_write(base, "config.json", config);
}

/* The skipped step may be before the stop, just before it, or just after it. */
START_TEST(resume_equals_no_stop_around_a_skipped_step)
{
    char rows[2048] = "";
    kvf__artifact run = {0};
    size_t at = 0;
    break_percent();
    for (int i = 0; i < 12; i++)
        at += (size_t)snprintf(rows + at, sizeof rows - at,
                               "{\"prompt\": \"%c%d:\", \"completion\": \" abc\"}\n",
                               i == 4 ? '%' : 'w', i);
    toy_write(dir, "train.jsonl", rows);
    kvf_train_options whole = options(out, 2), part = options(other, 2), rest;
    whole.valid = part.valid = NULL;
    whole.steps = whole.schedule_steps = part.schedule_steps = 12;
    whole.batch_size = part.batch_size = 1;
    whole.init = part.init = "random"; /* not from words */
    whole.skip_nonfinite = part.skip_nonfinite = 4;
    train(&whole);
    ck_assert(!kvf__artifact_read_all(ctx, out, KVF__KIND_RUN, &run));
    ck_assert_int_eq(kvf_json_int(kvf_json_get(run.state, "skipped_steps"), 0), 1);
    for (int64_t i = 0; i < 12; i++) {
        bool skipped = isnan(run.history.train_loss[i]);
        ck_assert_int_eq(isnan(run.history.kl_to_base[i]) != 0, skipped);
        if (!skipped) continue;
        for (int64_t stop = i ? i : 1; stop <= i + 2 && stop < 12; stop++) {
            part.steps = stop;
            part.force = true;
            train(&part);
            rest = part;
            rest.resume = true;
            rest.steps = 12;
            train(&rest);
            ck_assert_msg(equal_files(out, other), "step %d was left out, stopped after %d",
                          (int)i + 1, (int)stop);
        }
    }
    kvf__artifact_done(&run);
}
END_TEST

/* ---- grad ------------------------------------------------------------------------------------ */

/* A step on all rows: the loss is then a function of the prefix alone, for any order of rows. Value
 * and moments are as before. */
static double whole_loss(kvf__trainer *t, const float *value)
{
    kvf__param *param = &t->tuned.params.item[0];
    memcpy(param->value, value, (size_t)param->n * sizeof(float));
    ck_assert_msg(!kvf__trainer_step(t), "%s", kvf_ctx_error(ctx));
    return t->run.progress.train_loss + t->run.options.kl_to_base * t->run.progress.kl_to_base;
}

START_TEST(gradient_matches_differences)
{
    kvf_train_options o = options(out, 3);
    kvf__trainer *t = NULL;
    o.valid = NULL;
    o.batch_size = 24;
    o.steps = 40;
    o.method = "direct";
    ck_assert(!kvf_train_set(ctx, &o, "init", "vocab"));
    ck_assert_msg(!kvf__trainer_open(ctx, &o, &(kvf__trainer_uses){0}, &t), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_msg(!kvf__trainer_prepare(t), "%s", kvf_ctx_error(ctx));
    kvf__param *param = &t->tuned.params.item[0];
    size_t n = (size_t)param->n;
    float *value = calloc(n, sizeof *value), *moved = calloc(n, sizeof *moved);
    float *grad = calloc(n, sizeof *grad), *way = calloc(n, sizeof *way);
    kvf__rng rng = kvf__rng_make(3, 0);
    memcpy(value, param->value, n * sizeof *value);
    for (int run = 0; run < 5; run++) {
        const float step = 0.01f;
        double slope = 0;
        whole_loss(t, value);
        param = &t->tuned.params.item[0];
        memcpy(grad, param->grad, n * sizeof *grad);
        for (size_t i = 0; i < n; i++) {
            way[i] = (float)kvf__rng_normal(&rng);
            slope += (double)grad[i] * (double)way[i];
        }
        for (size_t i = 0; i < n; i++)
            moved[i] = value[i] + step * way[i];
        double up = whole_loss(t, moved);
        for (size_t i = 0; i < n; i++)
            moved[i] = value[i] - step * way[i];
        double want = (up - whole_loss(t, moved)) / (2 * (double)step);
        ck_assert_double_eq_tol(slope, want, 1e-3 + 5e-3 * fabs(want)); /* f32 losses: 6e-4 apart */
    }
    free(value);
    free(moved);
    free(grad);
    free(way);
    kvf__trainer_free(t);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *option, *value, *part;
} REFUSED[] = {
    {"method", "prompt", "--retain: not for method prompt"},
    {"method", "adapter", "--retain: not for method adapter"},
    {"task", "seq-cls", "--retain is for --task lm"},
    {"infix", "true", "--retain: not with --infix"},
    {"train-head", "true", "--kl-to-base: not with --train-head"},
};

START_TEST(what_it_refuses)
{
    kvf_train_options o = options(out, 1);
    o.method = "mlp";
    ck_assert(!kvf_train_set(ctx, &o, REFUSED[_i].option, REFUSED[_i].value));
    expect_failure(&o, KVF_EUSAGE, REFUSED[_i].part);
    ck_assert(!kvf__exists(out));
}
END_TEST

START_TEST(files_and_values)
{
    kvf_train_options o = options(out, 1);
    o.retention = NULL;
    expect_failure(&o, KVF_EUSAGE, "--kl-to-base needs --retain");
    o = options(out, -1);
    expect_failure(&o, KVF_EUSAGE, "--kl-to-base: value out of range");
    o = options(text, 0);
    o.force = true;
    expect_failure(&o, KVF_EUSAGE, "text.jsonl");
    o = options(out, 0);
    o.steps = 3;
    train(&o);
    o.resume = true;
    o.steps = 6;
    o.schedule_steps = 3;
    o.retention = NULL;
    expect_failure(&o, KVF_EMISMATCH, "a different retention file");
    o.retention = valid;
    expect_failure(&o, KVF_EMISMATCH, "a different retention file");
    o.retention = text;
    o.kl_to_base = 1;
    expect_failure(&o, KVF_EUSAGE, "--kl-to-base differs from that of the run");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("retention");
    TCase *cases = tcase_create("core");
    tcase_add_checked_fixture(cases, setup, toy_run_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, retention_says_what_eval_says);
    tcase_add_test(cases, history_has_it);
    tcase_add_test(cases, weight_holds_the_text);
    tcase_add_test(cases, prompts_are_the_rows_without_loss);
    tcase_add_test(cases, resume_equals_no_stop);
    tcase_add_test(cases, resume_equals_no_stop_around_a_skipped_step);
    suite_add_tcase(suite, cases);
    cases = tcase_create("grad");
    tcase_add_checked_fixture(cases, setup, toy_run_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, gradient_matches_differences);
    suite_add_tcase(suite, cases);
    cases = tcase_create("errors");
    tcase_add_checked_fixture(cases, setup, toy_run_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, what_it_refuses, 0, sizeof REFUSED / sizeof REFUSED[0]);
    tcase_add_test(cases, files_and_values);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
