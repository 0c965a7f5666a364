/* Language-model runs that train more than a prefix before rows: --train-head and --infix. Each
 * learns, resumes like an unbroken run, folds without a changed bit, and generates the same in any
 * batch. Unsupported options are refused. */
#include "toy_run.h"

#include <string.h>

/* Loop rows: the features of a run. */
enum { HEAD, INFIX, BOTH, KINDS };

static kvf_train_options options_for(int kind, const char *path)
{
    kvf_train_options o = toy_run_options(path);
    o.prefix_length = 4;
    o.encoder_hidden = 16;
    o.lr = 0.05;
    o.train_head = kind != INFIX;
    o.infix = kind != HEAD;
    return o;
}

static kvf_prefix *open_prefix(const char *path)
{
    kvf_prefix *prefix = NULL;
    ck_assert_msg(!kvf_prefix_open(ctx, path, KVF_CHECKPOINT_DEFAULT, &prefix), "%s",
                  kvf_ctx_error(ctx));
    return prefix;
}

static double loss_of(const char *path, bool share_off)
{
    const kvf_eval_options eval = {.data = valid, .share_off = share_off};
    kvf_base *model = open_base();
    kvf_prefix *prefix = open_prefix(path);
    kvf_eval_result result = {0};
    ck_assert_msg(!kvf_eval(ctx, model, &prefix, 1, &eval, &result), "%s", kvf_ctx_error(ctx));
    kvf_prefix_free(prefix);
    kvf_base_free(model);
    return result.loss;
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(training_learns)
{
    kvf_train_options o = options_for(_i, out);
    kvf_base *bare = open_base();
    kvf_eval_options eval = {.data = valid};
    kvf_eval_result before;
    o.steps = 30;
    o.eval_every = 30;
    ck_assert_int_eq(kvf_eval(ctx, bare, NULL, 0, &eval, &before), KVF_OK);
    kvf_train_result after = train(&o);
    ck_assert_msg(after.best_valid_loss < before.loss - 0.5, "loss %g, bare base %g",
                  after.best_valid_loss, before.loss);
    int64_t encoder = 4 * 16 + 16 * 16 + 16 + 16 * 96 + 96, head = 61 * 24;
    ck_assert_int_eq(after.trainable_parameters, encoder + (o.train_head ? head : 0));
    kvf_base_free(bare);
}
END_TEST

/* The copy of the head gives the loss of the base's. */
START_TEST(the_first_loss_is_the_base_s)
{
    kvf_train_options o = options_for(HEAD, out);
    double first[2];
    o.steps = 1;
    o.event = remember_first;
    for (int i = 0; i < 2; i++) {
        o.train_head = i;
        o.event_user = &first[i];
        o.force = true;
        train(&o);
    }
    ck_assert_double_eq_tol(first[0], first[1], 1e-6 * first[0]);
}
END_TEST

START_TEST(resume_equals_no_stop)
{
    expect_resume_equals_no_stop(options_for(_i, out), options_for(_i, other));
}
END_TEST

START_TEST(folded_equals_unfolded_bit_for_bit)
{
    kvf_train_options o = options_for(_i, out);
    kvf_merge_options merge = {.run = out, .out = other, .base = base, .probe = valid};
    kvf_merge_result merged;
    kvf_train_result result = train(&o);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq(merged.max_abs_diff, 0);
    ck_assert_double_eq(merged.probe_max_abs_diff, 0);
    ck_assert_double_eq(loss_of(out, false), result.best_valid_loss);
    ck_assert_double_eq(loss_of(other, false), result.best_valid_loss);
    ck_assert_double_eq_tol(loss_of(other, true), result.best_valid_loss,
                            1e-5 * result.best_valid_loss);
}
END_TEST

START_TEST(init_from_continues_a_run)
{
    kvf_train_options o = options_for(_i, out), next = options_for(_i, other);
    double first = 0;
    train(&o);
    next.init_from = out;
    next.steps = 1;
    next.event = remember_first;
    next.event_user = &first;
    next.data = valid;
    next.batch_size = 100;
    next.shuffle = false;
    train(&next);
    ck_assert_double_eq_tol(first, loss_of(out, false), 1e-5);
}
END_TEST

static uint64_t allocations[8];

static void count(void *user, const kvf_event *event)
{
    (void)user;
    if (event->kind == KVF_EVENT_STEP && event->step < 8)
        allocations[event->step] = kvf__ctx_allocations(ctx);
}

START_TEST(a_step_allocates_nothing_after_the_first)
{
    kvf_train_options o = options_for(_i, out);
    o.valid = NULL;
    o.save_every = 6;
    o.event = count;
    train(&o);
    ck_assert_uint_gt(allocations[1], 0);
    for (int step = 2; step <= 5; step++)
        ck_assert_uint_eq(allocations[step], allocations[1]);
}
END_TEST

/* ---- generation ------------------------------------------------------------------------------ */

/* More rows than the decoder's steps handle go through passes: two ways to the same texts. Prompts
 * with a common beginning share the part before the infix. */
START_TEST(generation_does_not_depend_on_the_batch)
{
    enum { N = 33 };
    static char text[N][32];
    const char *prompts[N];
    char *together[N], *alone[N];
    kvf_train_options o = options_for(_i, out);
    o.steps = 20;
    o.eval_every = 20;
    train(&o);
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], i % 3 ? "a long beginning %d:" : "w%d:", i / 2);
        prompts[i] = text[i];
    }
    kvf_base *model = open_base();
    kvf_prefix *prefix = open_prefix(out);
    kvf_generate_options g = kvf_generate_defaults();
    g.max_tokens = 4;
    g.batch_size = N;
    ck_assert_msg(!kvf_generate(ctx, model, prefix, prompts, N, &g, together, NULL), "%s",
                  kvf_ctx_error(ctx));
    g.batch_size = 1;
    ck_assert_int_eq(kvf_generate(ctx, model, prefix, prompts, N, &g, alone, NULL), KVF_OK);
    int other_than_first = 0;
    for (int i = 0; i < N; i++) {
        ck_assert_str_eq(together[i], alone[i]);
        other_than_first += strcmp(together[i], together[0]) != 0;
    }
    ck_assert_int_gt(other_than_first, 0);
    kvf_texts_free(together, N);
    kvf_texts_free(alone, N);
    kvf_prefix_free(prefix);
    kvf_base_free(model);
}
END_TEST

/* Generation agrees with evaluation: the greedy completion of a prompt, used as its reference, has
 * a lower loss than any change of its first token. */
START_TEST(generation_agrees_with_evaluation)
{
    const char *prompts[] = {"w31:"};
    char *text[1], row[256];
    double losses[3];
    kvf_train_options o = options_for(_i, out);
    o.steps = 40;
    o.eval_every = 40;
    train(&o);
    kvf_base *model = open_base();
    kvf_prefix *prefix = open_prefix(out);
    kvf_generate_options g = kvf_generate_defaults();
    g.max_tokens = 4;
    ck_assert_int_eq(kvf_generate(ctx, model, prefix, prompts, 1, &g, text, NULL), KVF_OK);
    ck_assert_uint_ge(strlen(text[0]), 2);
    for (int i = 0; i < 3; i++) {
        snprintf(row, sizeof row, "{\"prompt\": \"w31:\", \"completion\": \"%s%s\"}\n",
                 i ? &"qz"[i - 1] : text[0], i ? text[0] + 1 : "");
        toy_write(dir, "one.jsonl", row);
        toy_path(valid, dir, "one.jsonl");
        losses[i] = loss_of(out, false);
    }
    ck_assert(losses[0] < losses[1] && losses[0] < losses[2]);
    kvf_texts_free(text, 1);
    kvf_prefix_free(prefix);
    kvf_base_free(model);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(what_does_not_go_together)
{
    kvf_train_options o = options_for(HEAD, out);
    o.task = "seq-cls";
    expect_failure(&o, KVF_EUSAGE, "--train-head is for --task lm");
    o = options_for(INFIX, out);
    o.task = "seq-cls";
    expect_failure(&o, KVF_EUSAGE, "--infix is for --task lm");
    o = options_for(INFIX, out);
    o.prefix_dropout = 0.1;
    o.prefix_dropout_per_row = true;
    expect_failure(&o, KVF_EUSAGE, "--infix: not with --prefix-dropout-per-row");
    o = options_for(INFIX, out);
    ck_assert(!kvf_train_set(ctx, &o, "position-start", "P"));
    expect_failure(&o, KVF_EUSAGE, "--infix: not with --position-start");
    toy_write(dir, "train.jsonl", "{\"text\": \"abc abc\"}\n");
    o = options_for(INFIX, out);
    expect_failure(&o, KVF_EDATA, "row 1 has no prompt");
}
END_TEST

START_TEST(what_other_runs_cannot_take)
{
    kvf_train_options o = options_for(BOTH, out), next = options_for(HEAD, other);
    train(&o);
    next.init_from = out;
    expect_failure(&next, KVF_EUSAGE, "its prefix is placed inside rows, but this run's before");
    o = options_for(HEAD, out);
    o.force = true;
    train(&o);
    next = options_for(HEAD, other);
    next.train_head = false;
    next.init_from = out;
    expect_failure(&next, KVF_EUSAGE, "use --train-head too");
}
END_TEST

/* An infix has no PEFT form; a trained head does. */
START_TEST(export_says_what_it_can)
{
    char adapter[512];
    kvf_train_options o = options_for(_i, out);
    train(&o);
    toy_path(adapter, dir, "adapter");
    const kvf_export_options export = {.path = out, .out = adapter, .format = KVF_EXPORT_PEFT};
    kvf_status st = kvf_export(ctx, &export);
    ck_assert_int_eq(st, _i == HEAD ? KVF_OK : KVF_EUNSUPPORTED);
    if (_i != HEAD) ck_assert(strstr(kvf_ctx_error(ctx), "inside rows (--infix)") != NULL);
}
END_TEST

/* Prefixes before and inside rows use other batches. */
START_TEST(ensembles_stand_in_one_place)
{
    kvf_train_options o = options_for(INFIX, out), next = options_for(HEAD, other);
    const kvf_eval_options eval = {.data = valid};
    kvf_eval_result result;
    train(&o);
    train(&next);
    kvf_base *model = open_base();
    kvf_prefix *prefixes[] = {open_prefix(out), open_prefix(other)};
    ck_assert_int_eq(kvf_eval(ctx, model, prefixes, 2, &eval, &result), KVF_EUSAGE);
    ck_assert(strstr(kvf_ctx_error(ctx),
                     "prefix 2 is placed before rows, but the first one inside") != NULL);
    for (int i = 0; i < 2; i++)
        kvf_prefix_free(prefixes[i]);
    kvf_base_free(model);
}
END_TEST

/* Any position: it is stored and used, and resuming keeps it. */
START_TEST(position_start_is_any_number)
{
    kvf_train_options o = toy_run_options(out), rest = toy_run_options(other);
    o.position_start = rest.position_start = "31";
    expect_resume_equals_no_stop(o, rest);
    kvf_prefix *prefix = NULL;
    ck_assert(!kvf_prefix_open(ctx, out, KVF_CHECKPOINT_DEFAULT, &prefix));
    ck_assert_int_eq(kvf_prefix_position_start(prefix), 31);
    kvf_prefix_free(prefix);
}
END_TEST

static const struct {
    const char *start;
    int64_t max_length;
    const char *part;
} BAD_STARTS[] = {
    {"x", 0, "--position-start: want P or a whole number from 0 to 2^31 - 1, found \"x\""},
    {"-1", 0, "--position-start: want P or a whole number from 0 to 2^31 - 1, found \"-1\""},
    {"3.5", 0, "--position-start: want P or a whole number from 0 to 2^31 - 1, found \"3.5\""},
    {"", 0, "--position-start: want P or a whole number from 0 to 2^31 - 1, found \"\""},
    {"2147483648", 0,
     "--position-start: want P or a whole number from 0 to 2^31 - 1, found \"2147483648\""},
    {"300", 0, "--position-start 300 leaves no position for text: the base has 300 positions"},
    {"299", 0, "--position-start 299 leaves no position for text: the base has 300 positions"},
    {"2147483647", 0, "--position-start 2147483647 leaves no position for text"},
    {"250", 51, "--max-length 51: at most 50 tokens fit after the prefix"},
};

START_TEST(position_start_has_limits)
{
    kvf_train_options o = toy_run_options(out);
    o.position_start = BAD_STARTS[_i].start;
    o.max_length = BAD_STARTS[_i].max_length;
    expect_failure(&o, KVF_EUSAGE, BAD_STARTS[_i].part);
}
END_TEST

START_TEST(position_start_reaches_the_last_position)
{
    kvf_train_options o = toy_run_options(out);
    o.position_start = "250";
    o.max_length = 50;
    o.steps = 1;
    train(&o);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train_lm");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");

    suite_add_tcase(suite, core);
    tcase_add_checked_fixture(core, toy_run_setup, toy_run_teardown);
    tcase_set_timeout(core, 60);
    tcase_add_loop_test(core, training_learns, 0, KINDS);
    tcase_add_test(core, the_first_loss_is_the_base_s);
    tcase_add_loop_test(core, resume_equals_no_stop, 0, KINDS);
    tcase_add_loop_test(core, folded_equals_unfolded_bit_for_bit, 0, KINDS);
    tcase_add_loop_test(core, init_from_continues_a_run, 0, KINDS);
    tcase_add_loop_test(core, a_step_allocates_nothing_after_the_first, 0, KINDS);
    tcase_add_loop_test(core, generation_does_not_depend_on_the_batch, 0, KINDS);
    tcase_add_loop_test(core, generation_agrees_with_evaluation, 0, KINDS);
    tcase_add_test(core, position_start_is_any_number);
    tcase_add_test(core, position_start_reaches_the_last_position);

    suite_add_tcase(suite, errors);
    tcase_add_checked_fixture(errors, toy_run_setup, toy_run_teardown);
    tcase_set_timeout(errors, 60);
    tcase_add_test(errors, what_does_not_go_together);
    tcase_add_loop_test(errors, position_start_has_limits, 0,
                        sizeof BAD_STARTS / sizeof BAD_STARTS[0]);
    tcase_add_test(errors, what_other_runs_cannot_take);
    tcase_add_loop_test(errors, export_says_what_it_can, 0, KINDS);
    tcase_add_test(errors, ensembles_stand_in_one_place);
    return ck_main(suite);
}
