/* Recomputation: a pass that recomputes its layers gives the same bits as one that keeps them, in
 * loss, gradient and run file, and uses less memory. */
#include <kvfold/kvfold.h>

#include "artifact.h"
#include "pass_priv.h"
#include "toy_base.h"

static toy t;

static void setup_llama(void)
{
    toy_create(&t, toy_llama, KVF__F32);
}
static void setup_gpt2(void)
{
    toy_create(&t, toy_gpt2, KVF__F32);
}
static void setup_neox(void)
{
    toy_create(&t, toy_neox, KVF__F32);
}
static void setup_phi3(void)
{
    toy_create(&t, toy_phi3, KVF__F32);
}
static void setup_gemma(void)
{
    toy_create(&t, toy_gemma, KVF__F32);
}
static void setup_olmo2(void)
{
    toy_create(&t, toy_olmo2, KVF__F32);
}
static void setup_qwen3(void)
{
    toy_create(&t, toy_qwen3, KVF__F32);
}
/* Without bf16 products there is no model, and the tests are skipped. */
static void setup_llama_bf16(void)
{
    if (kvf__cpu_has_bf16()) toy_create(&t, toy_llama, KVF__BF16);
}
static void setup_gpt2_bf16(void)
{
    if (kvf__cpu_has_bf16()) toy_create(&t, toy_gpt2, KVF__BF16);
}
static void setup_lfm2(void)
{
    toy_create(&t, toy_lfm2, KVF__F32);
}
static void setup_qwen3_5(void)
{
    toy_create(&t, toy_qwen3_5, KVF__F32);
}
static void teardown(void)
{
    toy_free(&t);
}

static kvf__pass *make_pass(bool recompute)
{
    const kvf__pass_limits limits = {.rows = TOY_ROWS,
                                     .tokens = TOY_TOKENS,
                                     .row_len = 290,
                                     .labels = TOY_TOKENS,
                                     .P = 12,
                                     .common_len = 64,
                                     .common_tokens = 128,
                                     .backward = true,
                                     .recompute = recompute};
    kvf__pass *pass = NULL;
    ck_assert_msg(!kvf__pass_create(t.ctx, t.model, &limits, &pass), "%s", kvf_ctx_error(t.ctx));
    return pass;
}

static double seconds_of(const kvf__pass *pass, const char *name)
{
    kvf__timing times[64];
    size_t n = kvf__pass_timings(pass, times, 64);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(times[i].name, name)) return times[i].seconds;
    ck_abort_msg("no component \"%s\"", name);
    return 0;
}

/* ---- core: run on every model ---------------------------------------------------------------- */

/* parent: for each row, for shared common prefixes. off: a layer without prefix, from the end if
 * negative. */
static const struct {
    const char *name;
    int64_t lengths[8], P;
    double share;
    const int32_t *parent;
    int masked, off;
} CASES[] = {
    {"rows", {17, 1, 64, 9, 30}, 7, 0.5, NULL, 0, 0},
    {"every token labelled, rows of padding", {29, 280}, 12, 1, NULL, 0, 0},
    {"no prefix", {17, 5}, 0, 0.5, NULL, 0, 0},
    {"one token", {1}, 1, 1, NULL, 0, 0},
    {"lowest layer masked", {12, 20}, 5, 0.5, NULL, 1, 0},
    {"last layer masked", {12, 20}, 5, 0.5, NULL, 1, -1},
    {"common prefixes", {20, 9, 7, 30, 4, 11}, 6, 0.4, (const int32_t[]){-1, 0, 0, -1, 3, 4}, 0, 0},
    {"common prefixes without a prefix below",
     {20, 9, 7, 30, 4, 11},
     6,
     0.4,
     (const int32_t[]){-1, 0, 0, -1, 3, 4},
     1,
     0},
    {"rows again, in used memory", {17, 1, 64, 9, 30}, 7, 0.5, NULL, 0, 0},
};
#define N_CASES (sizeof CASES / sizeof CASES[0])

static void make_case(size_t i, toy_batch *batch, kvf__prefix *prefix)
{
    const kvf__desc *d = kvf__model_desc(t.model);
    toy_batch_make(batch, d, CASES[i].lengths, CASES[i].share, 3);
    batch->b.parent = CASES[i].parent;
    toy_prefix(&t, prefix, CASES[i].P, 0.7);
    if (CASES[i].masked) prefix->layer_mask[CASES[i].off < 0 ? d->L - 1 : CASES[i].off] = 0;
}

static double run(kvf__pass *pass, const kvf__batch *batch, const kvf__prefix *prefix,
                  float *token_loss, kvf__prefix *dprefix)
{
    double loss = 0;
    toy_fwd(&t, pass, batch, prefix);
    ck_assert_msg(
        !kvf__pass_loss(t.ctx, pass,
                        &(kvf__loss){.gradient = true, .scale = 0.25f, .token_loss = token_loss},
                        &loss),
        "%s", kvf_ctx_error(t.ctx));
    ck_assert_msg(!kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.prefix = dprefix}), "%s",
                  kvf_ctx_error(t.ctx));
    return loss;
}

static void compare(size_t i, kvf__pass *keeping, kvf__pass *again)
{
    toy_batch batch;
    kvf__prefix prefix = {0}, want = {0}, got = {0};
    float want_loss[TOY_TOKENS], got_loss[TOY_TOKENS];
    make_case(i, &batch, &prefix);
    toy_prefix(&t, &want, CASES[i].P, 0.1); /* a gradient is added to the existing values */
    toy_prefix(&t, &got, CASES[i].P, 0.1);
    const size_t n = kvf__prefix_count(&want) * sizeof(float);

    double a = run(keeping, &batch.b, &prefix, want_loss, &want);
    double b = run(again, &batch.b, &prefix, got_loss, &got);
    ck_assert_msg(a == b, "%s: loss %.17g, recomputed %.17g", CASES[i].name, a, b);
    ck_assert_msg(!memcmp(want_loss, got_loss, (size_t)batch.b.n_labels * sizeof(float)),
                  "%s: losses of tokens differ", CASES[i].name);
    ck_assert_msg(!memcmp(want.kv, got.kv, n), "%s: the gradient is %g away", CASES[i].name,
                  ck_rel_l2(got.kv, want.kv, kvf__prefix_count(&want)));
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&want);
    kvf__prefix_done(&got);
}

/* One pair of passes for all cases: no state may carry over from one batch to the next. */
START_TEST(same_bits)
{
    ck_need(t.model, "this CPU has no bf16 products");
    kvf__pass *keeping = make_pass(false), *again = make_pass(true);
    for (size_t i = 0; i < N_CASES; i++)
        compare(i, keeping, again);
    ck_assert_double_gt(seconds_of(again, "recompute"), 0);
    ck_assert_double_eq(seconds_of(keeping, "recompute"), 0);
    kvf__pass_free(keeping);
    kvf__pass_free(again);
}
END_TEST

/* Loss and gradient may be requested again after one forward pass. */
START_TEST(backward_twice)
{
    ck_need(t.model, "this CPU has no bf16 products");
    toy_batch batch;
    kvf__prefix prefix = {0}, first = {0}, second = {0};
    kvf__pass *pass = make_pass(true);
    double loss = 0;
    make_case(0, &batch, &prefix);
    toy_prefix(&t, &first, CASES[0].P, 0);
    toy_prefix(&t, &second, CASES[0].P, 0);

    double before = run(pass, &batch.b, &prefix, NULL, &first);
    ck_assert_int_eq(
        kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = true, .scale = 0.25f}, &loss), KVF_OK);
    ck_assert_int_eq(kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.prefix = &second}), KVF_OK);
    ck_assert(loss == before);
    ck_assert_mem_eq(first.kv, second.kv, kvf__prefix_count(&first) * sizeof(float));
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&first);
    kvf__prefix_done(&second);
    kvf__pass_free(pass);
}
END_TEST

START_TEST(a_step_allocates_nothing)
{
    ck_need(t.model, "this CPU has no bf16 products");
    toy_batch batch;
    kvf__prefix prefix = {0}, gradient = {0};
    kvf__pass *pass = make_pass(true);
    make_case(0, &batch, &prefix);
    toy_prefix(&t, &gradient, CASES[0].P, 0);
    ck_assert_int_eq(kvf__pass_prepare(t.ctx, pass, batch.b.n_tokens, batch.b.n_labels), KVF_OK);
    uint64_t before = kvf__ctx_allocations(t.ctx);
    run(pass, &batch.b, &prefix, NULL, &gradient);
    ck_assert_uint_eq(kvf__ctx_allocations(t.ctx), before);
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&gradient);
    kvf__pass_free(pass);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

/* Only one set of layer activations remains; the inputs of the layers are added. */
START_TEST(memory_is_that_of_one_layer)
{
    ck_need(t.model, "this CPU has no bf16 products");
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *keeping = make_pass(false), *again = make_pass(true);
    size_t entered = kvf__arena_round((size_t)(d->L * TOY_TOKENS * d->C) * sizeof(float));
    size_t layer = (size_t)((char *)keeping->kept[1].qkv - (char *)keeping->kept[0].qkv);

    if (!d->mixer.kind) /* else layers differ in size */
        ck_assert_uint_eq(keeping->arena.cap - again->arena.cap,
                          (size_t)(d->L - 1) * layer - entered);
    ck_assert_ptr_eq(again->kept[0].qkv, again->kept[d->L - 1].qkv);
    kvf__pass_free(keeping);
    kvf__pass_free(again);
}
END_TEST

/* Without backward, recomputation has no use. */
START_TEST(means_nothing_without_backward)
{
    ck_need(t.model, "this CPU has no bf16 products");
    kvf__pass_limits limits = {.rows = 2, .tokens = 40, .row_len = 20, .labels = 40};
    kvf__pass *plain = NULL, *again = NULL;
    ck_assert_int_eq(kvf__pass_create(t.ctx, t.model, &limits, &plain), KVF_OK);
    limits.recompute = true;
    ck_assert_int_eq(kvf__pass_create(t.ctx, t.model, &limits, &again), KVF_OK);
    ck_assert_uint_eq(plain->arena.cap, again->arena.cap);
    kvf__pass_free(plain);
    kvf__pass_free(again);
}
END_TEST

/* ---- runs ------------------------------------------------------------------------------------ */

typedef struct runs {
    kvf_ctx *ctx;
    const char *dir;
    char base[512], data[512], plain[512], again[512];
} runs;
static runs r;

static void setup_runs(void)
{
    const kvf_ctx_options options = {.threads = 2};
    r.dir = ck_tmpdir();
    snprintf(r.base, sizeof r.base, "%s/base", r.dir);
    snprintf(r.data, sizeof r.data, "%s/train.jsonl", r.dir);
    snprintf(r.plain, sizeof r.plain, "%s/plain.h5", r.dir);
    snprintf(r.again, sizeof r.again, "%s/again.h5", r.dir);
    ck_assert_int_eq(mkdir(r.base, 0777), 0);
    toy_folder(r.base, 5, 0);
    toy_rows(r.dir, "train.jsonl", 24, 0);
    ck_assert_int_eq(kvf_ctx_create(&options, &r.ctx), KVF_OK);
}

static void teardown_runs(void)
{
    kvf_ctx_free(r.ctx);
}

static void train(const char *path, bool recompute, int64_t steps, bool resume)
{
    kvf_train_options o = kvf_train_defaults();
    kvf_train_result result;
    o.base = r.base;
    o.data = o.valid = r.data;
    o.out = path;
    o.prefix_length = 4;
    o.encoder_hidden = 16;
    o.batch_size = 5;
    o.precision = KVF_PRECISION_F32;
    o.schedule = KVF_SCHEDULE_CONSTANT;
    o.eval_every = o.save_every = 3;
    o.steps = steps;
    o.schedule_steps = 6;
    o.resume = resume;
    ck_assert_int_eq(kvf_train_set(r.ctx, &o, "recompute", recompute ? "on" : "off"), KVF_OK);
    ck_assert_msg(!kvf_train(r.ctx, &o, &result), "%s", kvf_ctx_error(r.ctx));
}

static void equal_params(const char *what, const kvf__params *a, const kvf__params *b)
{
    ck_assert_uint_eq(a->n, b->n);
    ck_assert_uint_gt(a->n, 0);
    for (size_t i = 0; i < a->n; i++) {
        ck_assert_str_eq(a->item[i].name, b->item[i].name);
        ck_assert_int_eq(a->item[i].n, b->item[i].n);
        ck_assert_msg(
            !memcmp(a->item[i].value, b->item[i].value, (size_t)a->item[i].n * sizeof(float)),
            "%s: %s differs", what, a->item[i].name);
    }
}

/* Everything except /options/recompute, the option itself. */
static void equal_runs(const char *a, const char *b, const char *recompute)
{
    kvf__artifact x = {0}, y = {0};
    ck_assert_msg(!kvf__artifact_read_all(r.ctx, a, KVF__KIND_RUN, &x), "%s", kvf_ctx_error(r.ctx));
    ck_assert_msg(!kvf__artifact_read_all(r.ctx, b, KVF__KIND_RUN, &y), "%s", kvf_ctx_error(r.ctx));
    equal_params("encoder", &x.values.params, &y.values.params);
    equal_params("best", &x.best.params, &y.best.params);
    equal_params("m", &x.m.params, &y.m.params);
    equal_params("v", &x.v.params, &y.v.params);
    ck_assert_int_eq(x.history.n, 6);
    ck_assert_int_eq(y.history.n, 6);
    const size_t n = 6 * sizeof(double);
    ck_assert_mem_eq(x.history.train_loss, y.history.train_loss, n);
    ck_assert_mem_eq(x.history.valid_loss, y.history.valid_loss, n);
    ck_assert_mem_eq(x.history.grad_norm, y.history.grad_norm, n);
    ck_assert_mem_eq(x.history.prefix_norm, y.history.prefix_norm, n);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(x.options, "recompute"), NULL), "off");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(y.options, "recompute"), NULL), recompute);
    kvf__artifact_done(&x);
    kvf__artifact_done(&y);
}

START_TEST(runs_are_equal)
{
    train(r.plain, false, 6, false);
    train(r.again, true, 6, false);
    equal_runs(r.plain, r.again, "on");
}
END_TEST

START_TEST(may_change_on_resume)
{
    train(r.plain, false, 6, false);
    train(r.again, _i, 3, false);
    train(r.again, !_i, 6, true);
    equal_runs(r.plain, r.again, _i ? "off" : "on");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass_recompute");
    const struct {
        const char *name;
        SFun setup;
    } models[] = {{"llama", setup_llama},        {"gpt2", setup_gpt2},
                  {"qwen3", setup_qwen3},        {"lfm2", setup_lfm2},
                  {"qwen3_5", setup_qwen3_5},    {"olmo2", setup_olmo2},
                  {"neox", setup_neox},          {"phi3", setup_phi3},
                  {"gemma", setup_gemma},        {"llama_bf16", setup_llama_bf16},
                  {"gpt2_bf16", setup_gpt2_bf16}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        TCase *core = tcase_create(models[i].name);
        tcase_add_checked_fixture(core, models[i].setup, teardown);
        tcase_set_timeout(core, 60);
        tcase_add_test(core, same_bits);
        tcase_add_test(core, backward_twice);
        tcase_add_test(core, a_step_allocates_nothing);
        tcase_add_test(core, memory_is_that_of_one_layer);
        tcase_add_test(core, means_nothing_without_backward);
        suite_add_tcase(suite, core);
    }
    TCase *whole = tcase_create("runs");
    tcase_add_checked_fixture(whole, setup_runs, teardown_runs);
    tcase_set_timeout(whole, 60);
    tcase_add_test(whole, runs_are_equal);
    tcase_add_loop_test(whole, may_change_on_resume, 0, 2);
    suite_add_tcase(suite, whole);
    return ck_main(suite);
}
