/* Kept inputs of a layer: equal bits in any batch. Losses, gradients and whole runs are the same
 * whether states are computed, kept in memory, or read from a file. */
#include "artifact.h"
#include "kept_states.h"
#include "kernels_int.h"
#include "pass_priv.h"
#include "toy_run.h"
#include "trainer.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

/* ---- a pass ---------------------------------------------------------------------------------- */

static const char *const *const MODELS[] = {&toy_llama, &toy_gpt2, &toy_qwen3,
                                            &toy_olmo2, &toy_neox, &toy_phi3,
                                            &toy_gemma, &toy_lfm2, &toy_qwen3_5};
enum { N_MODELS = sizeof MODELS / sizeof MODELS[0], LAYER = 1, P = 5 };

static toy t;
static kvf__pass *pass;
static kvf__prefix prefix, want, got;
static float states[2][TOY_TOKENS * 24];

/* _i counts models, in f32 and then in bf16. */
static bool setup_model(int i)
{
    const kvf__pass_limits limits = {.rows = TOY_ROWS,
                                     .tokens = TOY_TOKENS,
                                     .row_len = 290,
                                     .labels = TOY_TOKENS,
                                     .P = P,
                                     .common_len = 64,
                                     .common_tokens = 128,
                                     .lowest = LAYER,
                                     .backward = true};
    bool alike = false;
    if (i >= N_MODELS && !kvf__cpu_has_bf16()) return false;
    toy_create(&t, *MODELS[i % N_MODELS], i < N_MODELS ? KVF__F32 : KVF__BF16);
    ck_assert_msg(!kvf__pass_create(t.ctx, t.model, &limits, &pass), "%s", kvf_ctx_error(t.ctx));
    kvf__prefix *const all[] = {&prefix, &want, &got};
    for (int k = 0; k < 3; k++) {
        toy_prefix(&t, all[k], P, 0.7);
        all[k]->layer_mask[0] = 0;
    }
    ck_assert_int_eq(kvf__model_rows_alike(t.ctx, t.model, 128, &alike), KVF_OK);
    ck_assert_msg(alike || i >= N_MODELS || kvf__cpu_best() < KVF__CPU_AVX2, "f32 rows differ");
    return alike;
}

static void teardown_model(void)
{
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&want);
    kvf__prefix_done(&got);
    kvf__pass_free(pass);
    if (t.ctx) toy_free(&t);
}

static double gradient(const kvf__batch *batch, kvf__entry entry, kvf__prefix *dprefix)
{
    const kvf__input input = {
        .batch = batch, .condition = {.prefix = &prefix, .position_start = P}, .entry = entry};
    double loss = 0;
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
    memset(dprefix->kv, 0, kvf__prefix_count(dprefix) * sizeof(float));
    ck_assert_int_eq(kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = true, .scale = 1}, &loss),
                     KVF_OK);
    ck_assert_int_eq(kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.prefix = dprefix}), KVF_OK);
    return loss;
}

/* Rows of 1, 3 and 70 tokens after a common prefix of 20, and the last two of them alone. */
static const int64_t SHARED[] = {20, 3, 70, 1, 0}, ALONE[] = {23, 90, 0};
static const int32_t PARENT[] = {-1, 0, 0, -1};

START_TEST(equal_bits_in_any_batch)
{
    toy_batch shared, alone;
    ck_need(setup_model(_i), "no such products, or rows depend on others on this CPU");
    const kvf__desc *d = kvf__model_desc(t.model);
    toy_batch_make(&shared, d, SHARED, 0.5, 3);
    toy_batch_make(&alone, d, ALONE, 0.5, 4);
    shared.b.parent = PARENT;
    memcpy(alone.ids, shared.ids, 23 * sizeof *alone.ids);
    memcpy(alone.ids + 23, shared.ids, 20 * sizeof *alone.ids);
    memcpy(alone.ids + 43, shared.ids + 23, 70 * sizeof *alone.ids);
    gradient(&shared.b, (kvf__entry){.layer = LAYER, .x = states[0]}, &want);
    gradient(&alone.b, (kvf__entry){.layer = LAYER, .x = states[1]}, &want);

    const size_t C = (size_t)d->C, bytes = C * sizeof(float);
    ck_assert_mem_eq(states[0], states[1], 23 * bytes);
    ck_assert_mem_eq(states[0], states[1] + 23 * C, 20 * bytes);
    ck_assert_mem_eq(states[0] + 23 * C, states[1] + 43 * C, 70 * bytes);
}
END_TEST

START_TEST(known_equals_computed)
{
    toy_batch batch;
    ck_need(setup_model(_i), "no such products, or rows depend on others on this CPU");
    toy_batch_make(&batch, kvf__model_desc(t.model), SHARED, 0.5, 3);
    batch.b.parent = PARENT;
    kvf__entry entry = {.layer = LAYER, .x = states[0]};
    double computed = gradient(&batch.b, entry, &want);
    entry.known = true;
    ck_assert(gradient(&batch.b, entry, &got) == computed);
    ck_assert_mem_eq(got.kv, want.kv, kvf__prefix_count(&want) * sizeof(float));
    ck_assert(want.kv[kvf__prefix_count(&want) - 1] != 0);

    /* the entry determines the bits, not the tokens */
    states[0][0] += 1;
    ck_assert(gradient(&batch.b, entry, &got) != computed);
}
END_TEST

/* A batch that never changes has the same bits with and without an entry, also for rows of few
 * tokens. */
START_TEST(fixed_equals_none)
{
    toy_batch batch;
    ck_need(setup_model(_i) || t.ctx, "no such products on this CPU");
    toy_batch_make(&batch, kvf__model_desc(t.model), SHARED, 0.5, 3);
    batch.b.parent = PARENT;
    kvf__entry entry = {.layer = LAYER, .x = states[0], .fixed = true};
    double without = gradient(&batch.b, (kvf__entry){0}, &want);
    for (int known = 0; known < 2; known++) {
        entry.known = known;
        ck_assert(gradient(&batch.b, entry, &got) == without);
        ck_assert_mem_eq(got.kv, want.kv, kvf__prefix_count(&want) * sizeof(float));
    }
}
END_TEST

/* ---- runs ------------------------------------------------------------------------------------ */

/* Two and a half epochs of rows with common prefixes. */
static kvf_train_options run_options(const char *path, const char *keep)
{
    kvf_train_options o = toy_run_options(path);
    o.prefix_length = 4;
    o.method = "direct";
    o.steps = o.schedule_steps = 12;
    o.layers = "1-2";
    o.keep_states = keep;
    return o;
}

static void expect_equal_values(const char *a, const char *b)
{
    kvf__artifact x = {0}, y = {0};
    ck_assert_int_eq(kvf__artifact_read_all(ctx, a, KVF__KIND_RUN, &x), KVF_OK);
    ck_assert_int_eq(kvf__artifact_read_all(ctx, b, KVF__KIND_RUN, &y), KVF_OK);
    ck_assert_uint_eq(x.values.params.n, y.values.params.n);
    for (size_t i = 0; i < x.values.params.n; i++)
        ck_assert_mem_eq(x.values.params.item[i].value, y.values.params.item[i].value,
                         (size_t)x.values.params.item[i].n * sizeof(float));
    ck_assert_mem_eq(x.history.train_loss, y.history.train_loss, 12 * sizeof(double));
    ck_assert_mem_eq(x.history.grad_norm, y.history.grad_norm, 12 * sizeof(double));
    for (int64_t i = 2; i < 12; i += 3)
        ck_assert(kvf__history_at(&x.history, KVF__COLUMN_valid_loss, i) ==
                  kvf__history_at(&y.history, KVF__COLUMN_valid_loss, i));
    kvf__artifact_done(&x);
    kvf__artifact_done(&y);
}

static int files(void)
{
    DIR *folder = opendir(dir);
    int n = 0;
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* In memory, in memory and file, in the file. */
static const char *const SIZES[] = {"1G", "9K", "0"};

START_TEST(runs_are_equal)
{
    kvf_train_options plain = run_options(out, NULL), kept = run_options(other, SIZES[_i]);
    train(&plain);
    const int before = files();
    train(&kept);
    expect_equal_values(out, other);
    ck_assert_int_eq(files(), before + 1);
}
END_TEST

START_TEST(resumed_equals_unbroken)
{
    kvf_train_options whole = run_options(out, SIZES[_i]), part = run_options(other, SIZES[_i]);
    expect_resume_equals_no_stop(whole, part);
}
END_TEST

/* Computed once, then reused; the loss has the bits of one without kept states. Memory does not
 * exceed the requested size. */
START_TEST(validations_are_kept)
{
    static const size_t MOST[] = {1 << 30, 9 << 10, 0};
    const kvf_train_options o = run_options(out, SIZES[_i]);
    kvf__trainer *run = NULL;
    ck_assert_msg(!kvf__trainer_open(ctx, &o, &(kvf__trainer_uses){0}, &run), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_msg(!kvf__trainer_prepare(run), "%s", kvf_ctx_error(ctx));
    ck_need(run->states, "rows depend on others on this CPU");
    ck_assert(!kvf__tuned_emit(&run->run, &run->tuned) && !kvf__trainer_validate(run));
    const double loss = run->run.progress.valid_loss;
    const kvf__states_counts first = kvf__states_count(run->states);
    ck_assert(first.computed > 0 && first.taken == 0);
    for (int times = 1; times < 4; times++) {
        ck_assert(!kvf__trainer_validate(run) && run->run.progress.valid_loss == loss);
        const kvf__states_counts now = kvf__states_count(run->states);
        ck_assert_int_eq(now.computed, first.computed);
        ck_assert_int_eq(now.taken, times * first.computed);
        ck_assert_uint_le(now.in_memory, MOST[_i]);
    }
    ck_assert(_i < 2 || kvf__states_count(run->states).in_file > 0);
    kvf__evaluator_keep(run->rows.task->evaluator, NULL);
    ck_assert(!kvf__trainer_validate(run) && run->run.progress.valid_loss == loss);
    kvf__trainer_free(run);
}
END_TEST

/* A file size limit simulates a full disk. */
START_TEST(a_full_disk)
{
    const struct rlimit small = {.rlim_cur = 30000, .rlim_max = RLIM_INFINITY};
    struct rlimit before;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    kvf__states *s = NULL;
    const kvf__states_plan plan = {
        .layer = 1, .width = 24, .rows = 4, .tokens = 4000, .batch_tokens = 2000, .beside = out};
    ck_assert_int_eq(kvf__states_create(ctx, &plan, &s), KVF_OK);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    const int32_t ids[600] = {1, 2, 3};
    const int64_t start[] = {0, 100, 600}, example[] = {0, 1};
    const kvf__batch batch = {
        .n_rows = 2, .n_tokens = 600, .start = start, .ids = ids, .example = example};
    const kvf__batch first = {
        .n_rows = 1, .n_tokens = 100, .start = start, .ids = ids, .example = example};
    kvf__input both = {.batch = &batch}, one = {.batch = &first};
    for (int times = 0; times < 2; times++) {
        kvf__states_enter(s, &both, false);
        ck_assert(!both.entry.known);
        kvf__states_keep(s, &both);
        ck_assert(!kvf__states_news(s) == (times > 0));
    }
    kvf__states_enter(s, &one, false);
    ck_assert(one.entry.known); /* there was room for it */
    kvf__states_free(s);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
}
END_TEST

/* A row is identified by its tokens, their types and their positions; so is a batch that is kept
 * whole. */
START_TEST(what_tells_rows_apart)
{
    const kvf__states_plan plan = {.layer = 1,
                                   .width = 2,
                                   .rows = 9,
                                   .tokens = 99,
                                   .batch_tokens = 9,
                                   .memory = 1 << 20,
                                   .beside = out};
    int32_t ids[] = {1, 2, 3}, types[] = {0, 0, 0};
    const int64_t start[] = {0, 3}, example[] = {0};
    const kvf__batch batch = {
        .n_rows = 1, .n_tokens = 3, .start = start, .ids = ids, .types = types, .example = example};
    kvf__input input = {.batch = &batch};
    kvf__states *s = NULL;
    ck_assert_int_eq(kvf__states_create(ctx, &plan, &s), KVF_OK);
    for (int change = 0; change < 4; change++) {
        if (change == 1) ids[2] = 4;
        if (change == 2) types[1] = 1;
        if (change == 3) input.condition.position_start = 4;
        for (int fixed = 0; fixed < 2; fixed++) { /* nor does a row match a batch of it */
            kvf__states_enter(s, &input, fixed);
            ck_assert_msg(!input.entry.known, "change %d is not told", change);
            input.entry.x[5] = (float)(change + 10 * fixed);
            kvf__states_keep(s, &input);
            ck_assert_ptr_null(kvf__states_news(s));
            input.entry.x[5] = -1;
            kvf__states_enter(s, &input, fixed);
            ck_assert(input.entry.known && input.entry.x[5] == (float)(change + 10 * fixed));
        }
    }
    kvf__states_free(s);
}
END_TEST

START_TEST(sizes)
{
    static const struct {
        const char *text;
        int64_t want; /* -2: refused */
    } ROWS[] = {{NULL, -1}, {"", -1},     {"off", -1},       {"0", 0},
                {"1", 1},   {"2K", 2048}, {"1.5M", 1572864}, {"3G", 3LL << 30},
                {"-1", -2}, {"G", -2},    {"2GB", -2},       {"1 G", -2},
                {"on", -2}, {"nan", -2},  {"1e30", -2},      {"99999999999G", -2},
                {"2g", -2}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        int64_t size = -2;
        const kvf_status st = kvf__states_size(ctx, ROWS[i].text, &size);
        ck_assert_msg(ROWS[i].want == -2 ? st == KVF_EUSAGE : !st && size == ROWS[i].want,
                      "\"%s\": %d, %lld", ROWS[i].text ? ROWS[i].text : "", (int)st,
                      (long long)size);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kept_states");
    TCase *models = tcase_create("pass");
    tcase_add_checked_fixture(models, NULL, teardown_model);
    tcase_set_timeout(models, 60);
    tcase_add_loop_test(models, equal_bits_in_any_batch, 0, 2 * N_MODELS);
    tcase_add_loop_test(models, known_equals_computed, 0, 2 * N_MODELS);
    tcase_add_loop_test(models, fixed_equals_none, 0, 2 * N_MODELS);
    suite_add_tcase(suite, models);
    TCase *runs = tcase_create("runs");
    tcase_add_checked_fixture(runs, toy_run_setup, toy_run_teardown);
    tcase_set_timeout(runs, 60);
    tcase_add_loop_test(runs, runs_are_equal, 0, 3);
    tcase_add_loop_test(runs, validations_are_kept, 0, 3);
    tcase_add_loop_test(runs, resumed_equals_unbroken, 0, 3);
    tcase_add_test(runs, a_full_disk);
    tcase_add_test(runs, what_tells_rows_apart);
    tcase_add_test(runs, sizes);
    suite_add_tcase(suite, runs);
    return ck_main(suite);
}
