/* Whole runs on a toy base: training learns, and equal runs give equal bytes. A resumed run equals
 * an unbroken one, and folding changes no bit. Invalid options and data get one error line. */
#include "renderer.h"
#include "toy_run.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static kvf_train_options options_for(const char *path)
{
    kvf_train_options o = toy_run_options(path);
    o.prefix_length = 4;
    o.encoder_hidden = 16;
    o.lr = 0.05;
    return o;
}

/* ---- core ------------------------------------------------------------------------------------ */

static const char *const METHODS[] = {"mlp", "direct", "projected"};

START_TEST(training_learns)
{
    kvf_train_options o = options_for(out);
    o.method = METHODS[_i];
    o.steps = 60;
    o.eval_every = 30;
    kvf_base *bare = NULL;
    kvf_eval_options eval = {.data = valid};
    kvf_eval_result before;
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    ck_assert_int_eq(kvf_base_open(ctx, base, &exact, &bare), KVF_OK);
    ck_assert_int_eq(kvf_eval(ctx, bare, NULL, 0, &eval, &before), KVF_OK);
    kvf_train_result after = train(&o);
    ck_assert_msg(after.best_valid_loss < before.loss - 0.5, "loss %g, bare base %g",
                  after.best_valid_loss, before.loss);
    ck_assert_int_eq(after.steps, 60);
    ck_assert_str_eq(after.precision, "f32");
    ck_assert(after.tokens_per_second > 0 && after.peak_rss_bytes > 0);
    kvf_base_free(bare);
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

/* steps of the first call, options: resumed and unbroken must be equal bytes */
static const struct {
    int64_t first;
    const char *method;
    kvf_schedule schedule;
    const char *shuffle;
    int64_t batch_tokens;
} RESUMES[] = {
    {3, "mlp", KVF_SCHEDULE_CONSTANT, "on", 0},       {3, "direct", KVF_SCHEDULE_CONSTANT, "on", 0},
    {3, "projected", KVF_SCHEDULE_CONSTANT, "on", 0}, {3, "mlp", KVF_SCHEDULE_LINEAR, "off", 0},
    {3, "mlp", KVF_SCHEDULE_COSINE, "on", 40},
};

START_TEST(resume_equals_no_stop)
{
    kvf_train_options whole = options_for(out), part = options_for(other);
    whole.method = part.method = RESUMES[_i].method;
    whole.schedule = part.schedule = RESUMES[_i].schedule;
    whole.schedule_steps = part.schedule_steps = 6;
    whole.shuffle = part.shuffle = !strcmp(RESUMES[_i].shuffle, "on");
    whole.batch_tokens = part.batch_tokens = RESUMES[_i].batch_tokens;
    train(&whole);
    part.steps = RESUMES[_i].first;
    train(&part);
    ck_assert(!equal_files(out, other));
    part.steps = 6;
    part.resume = true;
    ck_assert_int_eq(train(&part).steps, 6);
    ck_assert(equal_files(out, other));
    ck_assert(train(&part).finished_before);
    ck_assert(equal_files(out, other));
}
END_TEST

/* --resume alone takes every other option from the file. */
START_TEST(resume_needs_no_options_again)
{
    expect_resume_equals_no_stop(options_for(out), options_for(other));
}
END_TEST

typedef struct watch {
    int stop, stop_at;
    uint64_t allocations[64];
    int64_t steps;
} watch;

static void on_event(void *user, const kvf_event *event)
{
    watch *w = user;
    if (event->kind != KVF_EVENT_STEP) return;
    if (event->step < 64) w->allocations[event->step] = kvf__ctx_allocations(ctx);
    w->steps = event->step;
    if (event->step == w->stop_at) w->stop = SIGINT;
}

START_TEST(a_stop_request_saves_and_resumes)
{
    watch w = {.stop_at = 4};
    kvf_train_options whole = options_for(out), part = options_for(other);
    kvf_train_result result = {0};
    train(&whole);
    kvf_ctx_set_stop(ctx, &w.stop);
    part.event = on_event;
    part.event_user = &w;
    ck_assert_int_eq(kvf_train(ctx, &part, &result), KVF_ESTOPPED);
    ck_assert_int_eq(result.steps, 4);
    ck_assert_str_eq(kvf_ctx_error(ctx), "stopped after step 4 of 6; --resume continues");
    kvf_ctx_set_stop(ctx, NULL);
    part.resume = true;
    train(&part);
    ck_assert(equal_files(out, other));
}
END_TEST

START_TEST(a_step_allocates_nothing_after_the_first)
{
    watch w = {.stop_at = -1};
    kvf_train_options o = options_for(out);
    o.steps = 30;
    o.eval_every = o.save_every = 1000;
    o.event = on_event;
    o.event_user = &w;
    train(&o);
    ck_assert_int_eq(w.steps, 30);
    for (int step = 2; step <= 30; step++)
        ck_assert_msg(w.allocations[step] == w.allocations[1], "step %d allocated", step);
}
END_TEST

/* Computing a step in parts changes only rounding. */
START_TEST(accumulation_is_weighted_by_tokens)
{
    kvf_train_options o = options_for(out), parts = options_for(other);
    kvf_train_result whole = train(&o);
    parts.grad_accum = 3;
    kvf_train_result split = train(&parts);
    ck_assert_double_eq_tol(split.train_loss, whole.train_loss, 1e-4 * whole.train_loss);
    ck_assert_double_eq_tol(split.valid_loss, whole.valid_loss, 1e-4 * whole.valid_loss);
}
END_TEST

/* Loss of a file on the validation rows. */
static double loss_of(const char *file)
{
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    kvf_eval_options eval = {.data = valid};
    kvf_eval_result result;
    kvf_base *model = NULL;
    kvf_prefix *prefix = NULL;
    ck_assert_msg(!kvf_base_open(ctx, base, &exact, &model), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_prefix_open_on(ctx, file, model, KVF_CHECKPOINT_DEFAULT, &prefix), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_prefix_check(ctx, prefix, model, false), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_eval(ctx, model, &prefix, 1, &eval, &result), "%s", kvf_ctx_error(ctx));
    kvf_prefix_free(prefix);
    kvf_base_free(model);
    return result.loss;
}

START_TEST(folded_equals_unfolded_bit_for_bit)
{
    kvf_train_options o = options_for(out);
    o.method = METHODS[_i];
    kvf_merge_options merge = {.run = out, .out = other, .base = base, .probe = valid};
    kvf_merge_result merged;
    kvf_train_result result = train(&o);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq(merged.max_abs_diff, 0);
    ck_assert_double_eq(merged.probe_max_abs_diff, 0);
    double live = loss_of(out), folded = loss_of(other);
    ck_assert_msg(live == folded, "live %.17g, folded %.17g", live, folded);
    ck_assert_msg(live == result.best_valid_loss, "live %.17g, in training %.17g", live,
                  result.best_valid_loss);
}
END_TEST

static const struct {
    const char *method;
    kvf_checkpoint checkpoint;
    int64_t neurons;
} IN_MEMORY[] = {{"mlp", KVF_CHECKPOINT_DEFAULT, 0}, {"mlp", KVF_CHECKPOINT_BEST, 3},
                 {"direct", KVF_CHECKPOINT_LAST, 0}, {"projected", KVF_CHECKPOINT_LAST, 0},
                 {"prompt", KVF_CHECKPOINT_BEST, 0}, {"p-tuning", KVF_CHECKPOINT_LAST, 0}};

static void same_values(const float *a, const float *b, size_t n)
{
    ck_assert(!n || !memcmp(a, b, n * sizeof *a));
}

/* The prefix of a run without a file is that of the file. */
START_TEST(training_in_memory_equals_the_file)
{
    kvf_train_options o = options_for(out);
    kvf_train_result result, filed;
    kvf_prefix *want = NULL, *got = NULL;
    kvf_base *opened = NULL;
    o.method = IN_MEMORY[_i].method;
    o.ffn_length = IN_MEMORY[_i].neurons;
    o.steps = 4;
    o.eval_every = 2;
    filed = train(&o);
    ck_assert_int_eq(kvf_base_open(ctx, base, NULL, &opened), KVF_OK);
    ck_assert_int_eq(kvf_prefix_open_on(ctx, out, opened, IN_MEMORY[_i].checkpoint, &want), KVF_OK);
    remove(out);
    o.out = NULL;
    ck_assert_msg(!kvf_train_prefix(ctx, &o, IN_MEMORY[_i].checkpoint, &result, &got), "%s",
                  kvf_ctx_error(ctx));
    ck_assert(access(out, F_OK) != 0);
    ck_assert(result.train_loss == filed.train_loss && result.best_step == filed.best_step);
    const kvf__artifact *a = &want->file, *b = &got->file;
    same_values(a->prefix.kv, b->prefix.kv, kvf__prefix_count(&a->prefix));
    same_values(a->prefix.neurons.w, b->prefix.neurons.w, kvf__neurons_count(&a->prefix.neurons));
    same_values(a->vectors.x, b->vectors.x, (size_t)(a->vectors.P * a->vectors.C));
    ck_assert_int_eq(a->id.position_start, b->id.position_start);
    ck_assert_int_eq(want->step, got->step);
    ck_assert(a->prefix.P + a->vectors.P == 4 && a->prefix.P == b->prefix.P);
    kvf_prefix_free(want);
    kvf_prefix_free(got);
    kvf_base_free(opened);
}
END_TEST

START_TEST(merge_rounds_to_smaller_types)
{
    static const struct {
        kvf_dtype dtype;
        double bound;
    } TYPES[] = {{KVF_DTYPE_F16, 2e-3},
                 {KVF_DTYPE_BF16, 1.6e-2}}; /* half a unit in the last place below 8: 2^-9, 2^-6 */
    kvf_train_options o = options_for(out);
    o.optimizer_adamw = true; /* a small prefix: the bounds are of its size */
    o.beta1 = 0.9;
    train(&o);
    for (int i = 0; i < 2; i++) {
        kvf_merge_options merge = {
            .run = out, .out = other, .dtype = TYPES[i].dtype, .force = true};
        kvf_merge_result merged;
        ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
        ck_assert(merged.max_abs_diff > 0 && merged.max_abs_diff < TYPES[i].bound);
        ck_assert_double_eq_tol(loss_of(other), loss_of(out), 3e-4); /* measured: 7e-5 */
    }
}
END_TEST

/* init text, and the same prefix through a file: the first loss is the same for both methods. */
START_TEST(starting_values_are_met)
{
    double first[3];
    kvf_train_options o = options_for(out);
    o.init = "text";
    o.init_text = "abc def";
    o.steps = 1;
    o.shuffle = false;
    o.event = remember_first;
    o.force = true;
    for (int i = 0; i < 2; i++) {
        o.method = METHODS[i];
        o.lr = i ? 1e-30 : 0.05; /* direct: keeps the start */
        o.event_user = &first[i];
        train(&o);
    }
    kvf_merge_options merge = {.run = out, .out = other};
    kvf_merge_result merged;
    ck_assert_int_eq(kvf_merge(ctx, &merge, &merged), KVF_OK);
    o.method = "mlp";
    o.init = "kv";
    o.init_kv = other;
    o.event_user = &first[2];
    train(&o);
    ck_assert_double_eq_tol(first[0], first[1], 1e-4 * first[1]);
    ck_assert_double_eq_tol(first[2], first[1], 1e-4 * first[1]);
}
END_TEST

static const struct {
    const char *layers;
    uint8_t mask[3];
} SOME_LAYERS[] = {{"1", {0, 1, 0}}, {"0,2", {1, 0, 1}}, {"2,0-1", {1, 1, 1}}};

/* A prefix in some layers, for every method: the other layers emit zeros and are not attended to.
 * eval gives the same for run and file. The bare base's loss differs from that of a prefix of
 * zeros. */
START_TEST(layers_without_prefix)
{
    kvf_train_options o = options_for(out);
    kvf_prefix *prefix = NULL;
    const uint8_t *mask = SOME_LAYERS[_i / 3].mask;
    const bool some = memchr(mask, 0, 3) != NULL;
    o.method = METHODS[_i % 3];
    o.layers = SOME_LAYERS[_i / 3].layers;
    kvf_merge_options merge = {.run = out, .out = other, .base = base, .probe = valid};
    kvf_merge_result merged;
    kvf_train_result result = train(&o);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq(merged.probe_max_abs_diff, 0);
    ck_assert(loss_of(out) == loss_of(other) && loss_of(out) == result.best_valid_loss);
    ck_assert_int_eq(kvf_prefix_open(ctx, other, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    size_t n = kvf__prefix_count(&prefix->file.prefix), each = n / (size_t)prefix->file.id.L;
    ck_assert_int_eq(prefix->file.id.L, 3);
    ck_assert_mem_eq(prefix->file.prefix.layer_mask, mask, 3);
    for (size_t i = 0; i < n; i++)
        ck_assert(mask[i / each] || prefix->file.prefix.kv[i] == 0);
    for (size_t l = 0; l < 3; l++)
        ck_assert(!mask[l] || prefix->file.prefix.kv[l * each] != 0);
    char all_layers[16];
    snprintf(all_layers, sizeof all_layers, "0-%d", (int)prefix->file.id.L - 1);
    kvf_prefix_free(prefix);
    const kvf_export_options peft = {.path = other, .out = "peft", .format = KVF_EXPORT_PEFT};
    if (some) ck_assert_int_eq(kvf_export(ctx, &peft), KVF_EUNSUPPORTED);
    o.force = true;
    o.layers = all_layers;
    kvf_train_result both = train(&o);
    o.layers = NULL;
    kvf_train_result all = train(&o);
    ck_assert(both.best_valid_loss == all.best_valid_loss);
    ck_assert((both.best_valid_loss != result.best_valid_loss) == some);
}
END_TEST

START_TEST(resumed_with_layers)
{
    kvf_train_options whole = options_for(out), part = options_for(other);
    whole.layers = part.layers = "0,2";
    expect_resume_equals_no_stop(whole, part);
    part.resume = true;
    part.layers = "0-2";
    expect_failure(&part, KVF_EUSAGE, "--layers differs");
}
END_TEST

START_TEST(bad_layers)
{
    static const struct {
        const char *layers, *part;
    } BAD[] = {
        {",", "--layers: \",\": want layers as A-B or A, or a list of those"},
        {"0,", "want layers"},
        {"0,,2", "want layers"},
        {"0-", "want layers"},
        {"-1", "want layers"},
        {"2-1", "want layers"},
        {"0 2", "want layers"},
        {"0-1-2", "want layers"},
        {"0,x", "want layers"},
        {"0,0", "--layers: \"0,0\": layer 0 is given twice"},
        {"0-1,1-2", "layer 1 is given twice"},
        {"0,3", "--layers 0,3: the base has layers 0 to 2"},
        {"99999999999999999999", "the base has layers 0 to 2"},
    };
    kvf_train_options o = options_for(out);
    o.layers = BAD[_i].layers;
    expect_failure(&o, KVF_EUSAGE, BAD[_i].part);
    ck_assert(!kvf__exists(out));
}
END_TEST

START_TEST(every_init_starts)
{
    static const char *const INITS[] = {"vocab", "random", "zero"};
    kvf_train_options o = options_for(out);
    double first[3];
    o.force = true;
    o.event = remember_first;
    for (int i = 0; i < 3; i++) {
        o.init = INITS[i];
        o.event_user = &first[i];
        train(&o);
    }
    ck_assert(first[0] != first[1] && first[1] != first[2]);
}
END_TEST

START_TEST(init_from_continues_a_run)
{
    kvf_train_options o = options_for(out), next = options_for(other);
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
    ck_assert_double_eq_tol(first, loss_of(out), 1e-5);
}
END_TEST

/* position_start is stored and used: 0 and P give different losses. */
START_TEST(position_start_is_kept)
{
    kvf_train_options o = options_for(out), zero = options_for(other);
    o.steps = zero.steps = 3;
    zero.position_start = "0";
    double at_p = train(&o).best_valid_loss, at_0 = train(&zero).best_valid_loss;
    ck_assert(at_p != at_0);
    ck_assert(loss_of(out) == at_p);
    ck_assert(loss_of(other) == at_0);
    kvf_export_options export = {
        .path = other, .out = base, .format = KVF_EXPORT_PEFT, .force = true};
    ck_assert_int_eq(kvf_export(ctx, &export), KVF_EUNSUPPORTED);
}
END_TEST

/* A kill at any instant leaves the last saved file whole, and the resumed run equals the unbroken
 * one. One thread: OpenMP does not survive a fork. */
START_TEST(a_kill_loses_nothing_saved)
{
    kvf_ctx_options single = {.threads = 1};
    kvf_train_options whole = options_for(out), part = options_for(other);
    int resumed = 0;
    kvf_ctx_free(ctx);
    ck_assert_int_eq(kvf_ctx_create(&single, &ctx), KVF_OK);
    whole.steps = part.steps = 12;
    whole.save_every = part.save_every = 1;
    part.resume = true;
    train(&whole);
    for (useconds_t wait = 20000; wait < 200000; wait += 30000) {
        pid_t child = fork();
        if (!child) {
            kvf_train_result result;
            _exit(kvf_train(ctx, &part, &result) != KVF_OK);
        }
        usleep(wait);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        resumed += !access(other, F_OK);
        train(&part);
        ck_assert(equal_files(out, other));
        ck_assert_int_eq(unlink(other), 0);
    }
    ck_assert_int_gt(resumed, 0); /* or the kills came too early to test anything */
}
END_TEST

/* ---- generation ------------------------------------------------------------------------------ */

START_TEST(generation_does_not_depend_on_the_batch)
{
    static const char *const PROMPTS[] = {"w1:", "w23: a", "abc", "w5:", "x"};
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    kvf_train_options o = options_for(out);
    kvf_base *model = NULL;
    kvf_prefix *prefix = NULL;
    char *together[5], *alone[5];
    train(&o);
    ck_assert_int_eq(kvf_base_open(ctx, base, &exact, &model), KVF_OK);
    ck_assert_int_eq(kvf_prefix_open(ctx, out, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    for (int greedy = 0; greedy < 2; greedy++) {
        kvf_generate_options g = kvf_generate_defaults();
        kvf_generate_stats stats = {0};
        g.max_tokens = 12;
        g.temperature = greedy ? 0 : 0.8;
        g.seed = 4;
        ck_assert_msg(!kvf_generate(ctx, model, prefix, PROMPTS, 5, &g, together, &stats), "%s",
                      kvf_ctx_error(ctx));
        ck_assert(stats.new_tokens > 5 && stats.prompt_tokens == 3 + 6 + 3 + 3 + 1);
        g.batch_size = 2;
        ck_assert_int_eq(kvf_generate(ctx, model, prefix, PROMPTS, 5, &g, alone, NULL), KVF_OK);
        for (int i = 0; i < 5; i++)
            ck_assert_str_eq(together[i], alone[i]);
        kvf_texts_free(together, 5);
        kvf_texts_free(alone, 5);
    }
    kvf_prefix_free(prefix);
    kvf_base_free(model);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(outputs_are_not_overwritten)
{
    kvf_train_options o = options_for(out);
    train(&o);
    expect_failure(&o, KVF_EEXIST, "exists");
    o.out = "/nonexistent/run.h5";
    expect_failure(&o, KVF_EIO, "/nonexistent");
}
END_TEST

START_TEST(resume_refuses_what_changed)
{
    kvf_train_options o = options_for(out);
    o.schedule = KVF_SCHEDULE_LINEAR;
    train(&o);
    o.resume = true;
    o.steps = 9;
    expect_failure(&o, KVF_EUSAGE, "exceeds the linear schedule's length of 6 steps");
    o.steps = 6;
    o.lr = 0.06;
    expect_failure(&o, KVF_EUSAGE, "--lr differs");
    o.lr = 0.05;
    toy_rows(dir, "train.jsonl", 23, 0);
    expect_failure(&o, KVF_EMISMATCH, "a different data file");
    toy_rows(dir, "train.jsonl", 24, 0);
    o.valid = NULL;
    expect_failure(&o, KVF_EMISMATCH, "a different validation file");
    o.valid = valid;
    toy_folder(base, 6, 0);
    expect_failure(&o, KVF_EMISMATCH, "a different base");
}
END_TEST

START_TEST(numbers_that_are_not_finite_stop_the_run)
{
    kvf_train_options o = options_for(out);
    train(&o);
    ck_assert_int_eq(rename(out, other), 0);
    toy_folder(base, 5, NAN);
    o.out = out;
    o.init = "random";
    o.valid = NULL;
    expect_failure(&o, KVF_ENUMERIC, "step 1: ");
    ck_assert_int_ne(access(out, F_OK), 0);
    o.out = other; /* the failing run does not touch the file of the good run */
    o.force = true;
    kvf_prefix *prefix = NULL;
    expect_failure(&o, KVF_ENUMERIC, "step 1: ");
    ck_assert_int_eq(kvf_prefix_open(ctx, other, KVF_CHECKPOINT_BEST, &prefix), KVF_OK);
    kvf_prefix_free(prefix);
}
END_TEST

START_TEST(a_prefix_for_another_base_is_refused)
{
    kvf_train_options o = options_for(out);
    kvf_base *model = NULL;
    kvf_prefix *prefix = NULL;
    train(&o);
    toy_folder(base, 6, 0);
    ck_assert_int_eq(kvf_base_open(ctx, base, NULL, &model), KVF_OK);
    ck_assert_int_eq(kvf_prefix_open(ctx, out, KVF_CHECKPOINT_LAST, &prefix), KVF_OK);
    ck_assert_int_eq(kvf_prefix_check(ctx, prefix, model, false), KVF_EMISMATCH);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "--allow-other-base"));
    ck_assert_int_eq(kvf_prefix_check(ctx, prefix, model, true), KVF_OK);
    kvf_prefix_free(prefix);
    kvf_base_free(model);
}
END_TEST

/* option, value, part of the line */
static const struct {
    const char *name, *value, *line;
} OPTIONS[] = {
    {"prefix-length", "-1", "whole number"}, {"prefix-length", "1e3", "whole number"},
    {"lr", "abc", "a number above 0"},       {"lr", "nan", "a number above 0"},
    {"method", "lora", "mlp|direct"},        {"method", "ml", "mlp|direct"},
    {"shuffle", "yes", "on or off"},         {"colour", "red", "not known"},
    {"seed", "-1", "whole number"},          {"steps", "99999999999", "whole number"},
};

START_TEST(bad_options_get_one_line)
{
    kvf_train_options o = kvf_train_defaults();
    ck_assert_int_eq(kvf_train_set(ctx, &o, OPTIONS[_i].name, OPTIONS[_i].value), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), OPTIONS[_i].line));
}
END_TEST

START_TEST(what_needs_a_file_is_refused_in_memory)
{
    kvf_train_options o = options_for(out);
    kvf_train_result result;
    kvf_prefix *prefix = NULL;
    const kvf_checkpoint last = KVF_CHECKPOINT_LAST;
    ck_assert_int_eq(kvf_train_prefix(ctx, &o, last, &result, &prefix), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx),
                     "without a run file: --out, --resume and --dry-run have no meaning");
    o.out = NULL;
    o.method = "adapter";
    ck_assert_int_eq(kvf_train_prefix(ctx, &o, last, &result, &prefix), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "want a method of prefixes"));
    o.method = "mlp";
    o.steps = 1;
    o.valid = NULL;
    ck_assert_int_eq(kvf_train_prefix(ctx, &o, KVF_CHECKPOINT_BEST, &result, &prefix), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "the run in memory: no best checkpoint yet"));
    ck_assert_ptr_null(prefix);
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx), "--out is needed");
}
END_TEST

START_TEST(senseless_runs_are_refused)
{
    kvf_train_options o = options_for(out);
    o.prefix_length = -1;
    expect_failure(&o, KVF_EUSAGE, "--prefix-length");
    o.prefix_length = 300;
    expect_failure(&o, KVF_EUSAGE, "leaves no position");
    o.prefix_length = 4;
    o.max_length = 5;
    expect_failure(&o, KVF_EDATA, "train.jsonl:1: the row has");
    o.max_length = 100000;
    expect_failure(&o, KVF_EUSAGE, "--max-length 100000");
    o.max_length = 0;
    o.init = "text";
    expect_failure(&o, KVF_EUSAGE, "--init-text");
    o.init = "kv";
    expect_failure(&o, KVF_EUSAGE, "--init-kv");
    o.init = "vocab";
    o.schedule_steps = 3;
    o.schedule = KVF_SCHEDULE_LINEAR;
    expect_failure(&o, KVF_EUSAGE, "exceeds the linear schedule's length of 3 steps");
    o.data = "/nonexistent.jsonl";
    expect_failure(&o, KVF_EIO, "/nonexistent.jsonl");
    o.base = "/nonexistent";
    expect_failure(&o, KVF_EIO, "/nonexistent");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, toy_run_setup, toy_run_teardown);
    tcase_add_checked_fixture(errors, toy_run_setup, toy_run_teardown);
    tcase_set_timeout(core, 60);
    tcase_set_timeout(errors, 60);
    tcase_add_loop_test(core, training_learns, 0, 3);
    tcase_add_test(core, equal_runs_give_equal_bytes);
    tcase_add_loop_test(core, resume_equals_no_stop, 0, (int)(sizeof RESUMES / sizeof RESUMES[0]));
    tcase_add_test(core, resume_needs_no_options_again);
    tcase_add_test(core, a_stop_request_saves_and_resumes);
    tcase_add_test(core, a_step_allocates_nothing_after_the_first);
    tcase_add_test(core, accumulation_is_weighted_by_tokens);
    tcase_add_loop_test(core, folded_equals_unfolded_bit_for_bit, 0, 3);
    tcase_add_loop_test(core, training_in_memory_equals_the_file, 0,
                        (int)(sizeof IN_MEMORY / sizeof IN_MEMORY[0]));
    tcase_add_test(core, merge_rounds_to_smaller_types);
    tcase_add_test(core, starting_values_are_met);
    tcase_add_loop_test(core, layers_without_prefix, 0, 9);
    tcase_add_test(core, resumed_with_layers);
    tcase_add_test(core, every_init_starts);
    tcase_add_test(core, init_from_continues_a_run);
    tcase_add_test(core, position_start_is_kept);
    tcase_add_test(core, a_kill_loses_nothing_saved);
    tcase_add_test(core, generation_does_not_depend_on_the_batch);
    tcase_add_test(errors, outputs_are_not_overwritten);
    tcase_add_test(errors, resume_refuses_what_changed);
    tcase_add_test(errors, numbers_that_are_not_finite_stop_the_run);
    tcase_add_test(errors, a_prefix_for_another_base_is_refused);
    tcase_add_loop_test(errors, bad_layers, 0, 13);
    tcase_add_loop_test(errors, bad_options_get_one_line, 0,
                        (int)(sizeof OPTIONS / sizeof OPTIONS[0]));
    tcase_add_test(errors, what_needs_a_file_is_refused_in_memory);
    tcase_add_test(errors, senseless_runs_are_refused);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
