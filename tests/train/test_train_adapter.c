/* Whole runs of method adapter on a toy base: the run learns, starts at the bare base's loss, and
 * resumes bit for bit. It folds without changing a bit and generates. Unsupported options are
 * refused. */
#include "renderer.h"
#include "toy_run.h"

#include <unistd.h>

static const char *const PLACES[] = {"serial", "parallel", "attn", "ffn"};

static kvf_train_options options_for(const char *path)
{
    kvf_train_options o = toy_run_options(path);
    o.method = "adapter";
    o.adapter_size = 8;
    o.lr = 0.01;
    return o;
}

typedef struct opened {
    kvf_base *base;
    kvf_prefix *prefix;
} opened;

/* file NULL: the bare base. */
static opened open_file(const char *file)
{
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    opened o = {0};
    if (file)
        ck_assert_msg(!kvf_prefix_open(ctx, file, KVF_CHECKPOINT_DEFAULT, &o.prefix), "%s",
                      kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_base_open_for(ctx, base, &exact, o.prefix, &o.base), "%s",
                  kvf_ctx_error(ctx));
    if (file)
        ck_assert_msg(!kvf_prefix_check(ctx, o.prefix, o.base, false), "%s", kvf_ctx_error(ctx));
    return o;
}

static void close_file(opened *o)
{
    kvf_base_free(o->base);
    kvf_prefix_free(o->prefix);
}

/* Loss on the validation rows; drop: layers without their adapters, NULL: none. */
static double loss_of(const char *file, const char *drop)
{
    kvf_eval_options eval = {.data = valid};
    kvf_eval_result result;
    opened o = open_file(file);
    if (drop) ck_assert_msg(!kvf_base_drop_layers(ctx, o.base, drop), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_eval(ctx, o.base, &o.prefix, file != NULL, &eval, &result), "%s",
                  kvf_ctx_error(ctx));
    close_file(&o);
    return result.loss;
}

/* ---- core ------------------------------------------------------------------------------------ */

/* --adapter-norms off: norms are not parameters, run and file give the same bits, and the adapter
 * widths common in the literature work. */
START_TEST(norms_stay_as_they_are)
{
    static const int64_t WIDTHS[] = {2, 256};
    kvf_train_options o = options_for(out);
    const kvf_merge_options merge = {.run = out, .out = other};
    kvf_merge_result merged;
    double bare = loss_of(NULL, NULL);
    o.adapter_norms_off = true;
    o.adapter_size = WIDTHS[_i];
    o.steps = 40;
    o.eval_every = 40;
    kvf_train_result after = train(&o);
    ck_assert_msg(after.best_valid_loss < bare - 0.2, "loss %g, bare base %g",
                  after.best_valid_loss, bare);
    ck_assert_int_eq(after.trainable_parameters, 6 * (2 * 24 * WIDTHS[_i] + 24 + WIDTHS[_i]));
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert(loss_of(out, NULL) == after.best_valid_loss);
    ck_assert(loss_of(other, NULL) == after.best_valid_loss);
}
END_TEST

START_TEST(training_learns)
{
    kvf_train_options o = options_for(out);
    double bare = loss_of(NULL, NULL);
    o.steps = 60;
    o.eval_every = 30;
    o.adapter_placement = PLACES[_i];
    kvf_train_result after = train(&o);
    ck_assert_msg(after.best_valid_loss < bare - 0.5, "loss %g, bare base %g",
                  after.best_valid_loss, bare);
    /* 3 layers of width 24; norms: two per layer and the last */
    int64_t halves = _i >= 2 ? 1 : 2;
    int64_t bottlenecks = 3 * halves * (2 * 24 * 8 + 24 + 8);
    ck_assert_int_eq(after.trainable_parameters, bottlenecks + 7 * 24);
    kvf_base *from = open_base();
    ck_assert_int_eq(after.parameters, kvf__base_parameters(from) + bottlenecks);
    kvf_base_free(from);
}
END_TEST

/* The bits of the same form without adapters, and of the folded form except for rounding. */
START_TEST(starts_at_the_bare_base)
{
    kvf_train_options o = options_for(out);
    double first = 0;
    o.data = valid;
    o.batch_size = 100;
    o.shuffle = false;
    o.steps = 1;
    o.lr = 1e-30;
    o.adapter_placement = PLACES[_i];
    o.event = remember_first;
    o.event_user = &first;
    train(&o);
    double loss = loss_of(out, NULL), bare = loss_of(NULL, NULL);
    ck_assert(loss == loss_of(out, "0-2"));
    ck_assert_double_eq_tol(loss, bare, 2e-6 * bare);
    ck_assert_double_eq_tol(first, bare, 2e-6 * bare);
}
END_TEST

START_TEST(equal_runs_give_equal_bytes)
{
    kvf_train_options o = options_for(out), again = options_for(other);
    train(&o);
    train(&again);
    ck_assert(equal_files(out, other));
    o.seed = 1;
    o.force = true;
    train(&o);
    ck_assert(!equal_files(out, other));
}
END_TEST

START_TEST(resume_equals_no_stop)
{
    kvf_train_options whole = options_for(out), part = options_for(other);
    whole.adapter_placement = part.adapter_placement = PLACES[_i];
    expect_resume_equals_no_stop(whole, part);
}
END_TEST

START_TEST(folded_equals_unfolded_bit_for_bit)
{
    kvf_train_options o = options_for(out);
    kvf_merge_options merge = {.run = out, .out = other};
    kvf_merge_result merged;
    o.adapter_placement = PLACES[_i];
    o.adapter_activation = _i ? "relu" : "tanh";
    kvf_train_result result = train(&o);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq(merged.max_abs_diff, 0);
    ck_assert_int_eq(merged.rank, 4);
    ck_assert(merged.shape[0] == 3 && merged.shape[2] == 8 && merged.shape[3] == 24);
    double live = loss_of(out, NULL);
    ck_assert(live == loss_of(other, NULL));
    ck_assert(live == result.best_valid_loss);
    ck_assert(live != loss_of(other, "0-2"));
    ck_assert(loss_of(other, "1") == loss_of(out, "1-1"));
    ck_assert(loss_of(other, "0,2") != loss_of(other, "1") &&
              loss_of(other, "0,1-2") == loss_of(other, "0-2"));
}
END_TEST

/* --recompute changes no bit; parts of a step change only rounding. */
START_TEST(ways_of_a_step)
{
    kvf_train_options o = options_for(out), again = options_for(other);
    double whole = train(&o).valid_loss;
    again.recompute = true;
    ck_assert(train(&again).valid_loss == whole);
    again.force = true;
    again.recompute = false;
    again.grad_accum = 3;
    ck_assert_double_eq_tol(train(&again).valid_loss, whole, 1e-4 * whole);
    again.grad_accum = 1;
    again.share_off = true;
    ck_assert_double_eq_tol(train(&again).valid_loss, whole, 1e-4 * whole);
}
END_TEST

typedef struct watch {
    uint64_t allocations[64];
} watch;

static void count_allocations(void *user, const kvf_event *event)
{
    watch *w = user;
    if (event->kind == KVF_EVENT_STEP && event->step < 64)
        w->allocations[event->step] = kvf__ctx_allocations(ctx);
}

START_TEST(a_step_allocates_nothing_after_the_first)
{
    watch w = {{0}};
    kvf_train_options o = options_for(out);
    o.steps = 20;
    o.eval_every = o.save_every = 1000;
    o.event = count_allocations;
    o.event_user = &w;
    train(&o);
    for (int step = 2; step <= 20; step++)
        ck_assert_msg(w.allocations[step] == w.allocations[1], "step %d allocated", step);
}
END_TEST

START_TEST(init_from_continues)
{
    kvf_train_options o = options_for(out), next = options_for(other);
    double first = 0;
    train(&o);
    next.init_from = out;
    next.data = valid;
    next.batch_size = 100;
    next.shuffle = false;
    next.steps = 1;
    next.event = remember_first;
    next.event_user = &first;
    train(&next);
    ck_assert_double_eq_tol(first, loss_of(out, NULL), 1e-5);
    next.adapter_size = 4;
    next.force = true;
    kvf_train_result result;
    ck_assert_int_eq(kvf_train(ctx, &next, &result), KVF_ESHAPE);
    ck_assert_ptr_nonnull(
        strstr(kvf_ctx_error(ctx), "0.attn.down.weight is [8, 24], but the base"));
}
END_TEST

START_TEST(generation_sees_the_adapters)
{
    static const char *const PROMPTS[] = {"w1:", "w23: a", "abc", "w5:", "x"};
    kvf_train_options o = options_for(out);
    kvf_generate_options g = kvf_generate_defaults();
    char *together[5], *alone[5], *bare[5];
    bool differs = false;
    o.steps = 30;
    train(&o);
    g.max_tokens = 12;
    opened with = open_file(out), without = open_file(NULL);
    ck_assert_msg(!kvf_generate(ctx, with.base, with.prefix, PROMPTS, 5, &g, together, NULL), "%s",
                  kvf_ctx_error(ctx));
    g.batch_size = 1;
    ck_assert_int_eq(kvf_generate(ctx, with.base, with.prefix, PROMPTS, 5, &g, alone, NULL),
                     KVF_OK);
    ck_assert_int_eq(kvf_generate(ctx, without.base, NULL, PROMPTS, 5, &g, bare, NULL), KVF_OK);
    for (int i = 0; i < 5; i++) {
        ck_assert_str_eq(together[i], alone[i]);
        differs = differs || strcmp(alone[i], bare[i]);
    }
    ck_assert(differs);
    kvf_texts_free(together, 5);
    kvf_texts_free(alone, 5);
    kvf_texts_free(bare, 5);
    close_file(&with);
    close_file(&without);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static void expect(kvf_status got, kvf_status want, const char *part)
{
    ck_assert_msg(got == want && strstr(kvf_ctx_error(ctx), part),
                  "status %s, line \"%s\", want %s and \"%s\"", kvf_status_name(got),
                  kvf_ctx_error(ctx), kvf_status_name(want), part);
}

static const struct {
    const char *method, *name, *value, *line;
} OPTIONS[] = {
    {"adapter", "prefix-length", "4", "--prefix-length: not for method adapter"},
    {"adapter", "init", "zero", "--init: not for method adapter"},
    {"adapter", "lr-units", "prefix", "--lr-units: not for method adapter"},
    {"adapter", "position-start", "0", "--position-start: not for method adapter"},
    {"adapter", "prefix-dropout", "0.1", "--prefix-dropout: not for method adapter"},
    {"adapter", "infix", "true", "--infix: not for method adapter"},
    {"mlp", "adapter-size", "8", "--adapter-size: not for method mlp"},
    {"direct", "adapter-placement", "attn", "--adapter-placement: not for method direct"},
};

START_TEST(options_of_other_methods)
{
    kvf_train_options o = options_for(out);
    kvf_train_result result;
    o.method = OPTIONS[_i].method;
    ck_assert_int_eq(kvf_train_set(ctx, &o, OPTIONS[_i].name, OPTIONS[_i].value), KVF_OK);
    expect(kvf_train(ctx, &o, &result), KVF_EUSAGE, OPTIONS[_i].line);
    ck_assert_int_ne(access(out, F_OK), 0);
}
END_TEST

START_TEST(files_where_they_do_not_fit)
{
    kvf_train_options o = options_for(out);
    kvf_merge_options merge = {.run = out, .out = other, .dtype = KVF_DTYPE_F16};
    kvf_merge_result merged;
    kvf_export_options export = {.path = out, .out = other, .format = KVF_EXPORT_PEFT};
    kvf_prefix *twin = NULL;
    train(&o);
    expect(kvf_merge(ctx, &merge, &merged), KVF_EUSAGE, "method adapter is stored in f32");
    merge.dtype = KVF_DTYPE_F32;
    merge.probe = valid;
    merge.base = base;
    expect(kvf_merge(ctx, &merge, &merged), KVF_EUSAGE, "--probe is not for method adapter");
    expect(kvf_export(ctx, &export), KVF_EUNSUPPORTED, "method adapter trains no prefix");
    ck_assert_int_ne(access(other, F_OK), 0);

    opened with = open_file(out), bare = open_file(NULL);
    ck_assert_int_eq(kvf_prefix_open(ctx, out, KVF_CHECKPOINT_LAST, &twin), KVF_OK);
    expect(kvf_prefix_check(ctx, twin, with.base, false), KVF_EUSAGE,
           "so other prefixes cannot use it");
    expect(kvf_prefix_check(ctx, twin, bare.base, false), KVF_EUSAGE, "changes the base");
    expect(kvf_base_drop_layers(ctx, bare.base, "0"), KVF_EUSAGE, "has no adapters to leave out");
    expect(kvf_base_drop_layers(ctx, with.base, "0-x"), KVF_EUSAGE, "want layers as A-B");
    expect(kvf_base_drop_layers(ctx, with.base, "0-3"), KVF_ESHAPE, "the base has layers 0-2");
    expect(kvf_base_drop_layers(ctx, with.base, "0,0"), KVF_EUSAGE, "layer 0 is given twice");
    kvf_prefix_free(twin);
    close_file(&with);
    close_file(&bare);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train_adapter");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");

    tcase_add_checked_fixture(core, toy_run_setup, toy_run_teardown);
    tcase_add_checked_fixture(errors, toy_run_setup, toy_run_teardown);
    tcase_set_timeout(core, 60);
    tcase_set_timeout(errors, 60);
    tcase_add_loop_test(core, training_learns, 0, 4);
    tcase_add_loop_test(core, norms_stay_as_they_are, 0, 2);
    tcase_add_loop_test(core, starts_at_the_bare_base, 0, 4);
    tcase_add_test(core, equal_runs_give_equal_bytes);
    tcase_add_loop_test(core, resume_equals_no_stop, 0, 4);
    tcase_add_loop_test(core, folded_equals_unfolded_bit_for_bit, 0, 4);
    tcase_add_test(core, ways_of_a_step);
    tcase_add_test(core, a_step_allocates_nothing_after_the_first);
    tcase_add_test(core, init_from_continues);
    tcase_add_test(core, generation_sees_the_adapters);
    tcase_add_loop_test(errors, options_of_other_methods, 0, sizeof OPTIONS / sizeof OPTIONS[0]);
    tcase_add_test(errors, files_where_they_do_not_fit);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
