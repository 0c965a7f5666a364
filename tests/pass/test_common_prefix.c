/* Common prefixes: a batch packed as a tree gives the loss and the gradient of the same rows packed
 * one by one, in fewer tokens. */
#include "data_int.h"
#include "toy_model.h"

#include <math.h>

static toy t;

static void setup(void)
{
    toy_create(&t, toy_llama, KVF__F32);
}

static void setup_gpt2(void)
{
    toy_create(&t, toy_gpt2, KVF__F32);
}

static void setup_qwen3(void)
{
    toy_create(&t, toy_qwen3, KVF__F32);
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

enum { MAX_ROWS = 12, MAX_TOKENS = 600 };

typedef struct rows {
    kvf__dataset set;
    int64_t start[MAX_ROWS + 1], order[MAX_ROWS];
    int32_t ids[MAX_TOKENS], labels[MAX_TOKENS];
} rows;

/* A row of `head` tokens from stream `stem`, then `middle` from stream `branch`, then `tail` of its
 * own, of which the last `labelled` carry loss. */
typedef struct shape {
    int stem, head, branch, middle, tail, labelled;
} shape;

static void add_tokens(rows *r, int stream, int n)
{
    kvf__rng rng = kvf__rng_make(99, (uint64_t)stream);
    for (int i = 0; i < n; i++)
        r->ids[r->start[r->set.n + 1]++] = (int32_t)kvf__rng_below(
            &rng, (uint64_t)kvf__model_desc(t.model)->V);
}

static void add_row(rows *r, const shape *s)
{
    int64_t n = r->set.n, end;
    r->start[n + 1] = r->start[n];
    add_tokens(r, s->stem, s->head);
    add_tokens(r, s->branch, s->middle);
    add_tokens(r, 1000 + (int)n, s->tail);
    end = r->start[n + 1];
    for (int64_t i = r->start[n]; i < end; i++)
        r->labels[i] = i >= end - s->labelled ? r->ids[i] : KVF__NO_LABEL;
    r->order[n] = n;
    r->set.n++;
}

static void make_rows(rows *r, const shape *shapes)
{
    *r = (rows){0};
    for (; shapes->tail; shapes++)
        add_row(r, shapes);
    r->set.start = r->start;
    r->set.ids = r->ids;
    r->set.labels = r->labels;
}

static const shape CASES[][MAX_ROWS] = {
    {{1, 20, 0, 0, 5, 3}, {1, 20, 0, 0, 9, 4}, {1, 20, 0, 0, 7, 7}}, /* one system turn */
    {{1, 30, 2, 12, 5, 3},
     {1, 30, 3, 12, 9, 4},
     {1, 30, 2, 12, 7, 2},
     {1, 30, 3, 12, 2, 1},
     {1, 30, 0, 0, 4, 4}}, /* a tree */
    {{1, 20, 0, 0, 5, 3},
     {2, 20, 0, 0, 5, 3},
     {1, 20, 0, 0, 6, 3},
     {2, 20, 0, 0, 4, 1}}, /* two families */
    {{1, 40, 0, 0, 8, 48},
     {1, 40, 0, 0, 8, 3},
     {1, 40, 0, 0, 8, 4}},                    /* labels inside the common prefix */
    {{1, 3, 0, 0, 8, 3}, {1, 3, 0, 0, 8, 3}}, /* too little to share */
    {{1, 20, 0, 0, 5, 0}, {1, 20, 0, 0, 5, 2}, {1, 20, 0, 0, 5, 1}}, /* a row without labels */
};
#define N_CASES ((int)(sizeof CASES / sizeof CASES[0]))

static double run(const rows *r, bool causal, bool share, const kvf__prefix *prefix,
                  kvf__prefix *dprefix, kvf__batch_sizes *sizes)
{
    const kvf__batch_rules rules = {.causal = causal, .share = share};
    kvf__batcher batcher = {0};
    kvf__pass *pass = NULL;
    double loss = 0;
    ck_assert_int_eq(kvf__batcher_init(t.ctx, &batcher, rules, MAX_ROWS, MAX_TOKENS, MAX_TOKENS),
                     KVF_OK);
    kvf__batcher_fill(&batcher, &r->set, r->order, r->set.n);
    *sizes = batcher.sizes;
    const kvf__pass_limits limits = {.rows = sizes->rows,
                                     .tokens = sizes->tokens,
                                     .row_len = sizes->row_len,
                                     .labels = sizes->labels,
                                     .P = 12,
                                     .common_len = sizes->common_len,
                                     .common_tokens = sizes->common_tokens,
                                     .backward = true};
    ck_assert_msg(!kvf__pass_create(t.ctx, t.model, &limits, &pass), "%s", kvf_ctx_error(t.ctx));
    loss = toy_gradient(&t, pass, &batcher.batch, prefix, 0.125f, dprefix);
    kvf__pass_free(pass);
    kvf__batcher_done(&batcher);
    return loss;
}

/* Gives a prefix a random state, if layers of the base have one. Returns the state's floats. */
static size_t add_state(kvf__prefix *prefix)
{
    const kvf__desc *desc = kvf__model_desc(t.model);
    const int64_t n = kvf__mixer_state_at(desc, desc->L);
    kvf__rng rng = kvf__rng_make(78, 1);
    float *state = calloc((size_t)n + 1, sizeof *state);
    for (int64_t i = 0; i < n; i++)
        state[i] = (float)(0.5 * kvf__rng_normal(&rng));
    ck_assert(!kvf__prefix_set_state(t.ctx, prefix, n ? state : NULL, n));
    free(state);
    return (size_t)n;
}

static void compare(const shape *shapes, double loss_bound, double gradient_bound)
{
    rows r;
    kvf__prefix prefix, whole, shared;
    kvf__batch_sizes full, plain, tree;
    make_rows(&r, shapes);
    toy_prefix(&t, &prefix, 5, 0.5);
    toy_prefix(&t, &whole, 5, 0);
    toy_prefix(&t, &shared, 5, 0);
    const size_t states = add_state(&prefix);
    add_state(&whole);
    add_state(&shared);
    double want = run(&r, false, false, &prefix, &whole, &full);
    double trimmed = run(&r, true, false, &prefix, &shared, &plain);
    ck_assert_double_eq_tol(trimmed, want, loss_bound * want);
    ck_assert(ck_rel_l2(shared.kv, whole.kv, kvf__prefix_count(&whole)) <= gradient_bound);
    if (states) ck_assert(ck_rel_l2(shared.state, whole.state, states) <= gradient_bound);
    double got = run(&r, true, true, &prefix, &shared, &tree);
    ck_assert_double_eq_tol(got, want, loss_bound * want);
    double error = ck_rel_l2(shared.kv, whole.kv, kvf__prefix_count(&whole));
    ck_assert_msg(error <= gradient_bound, "gradient is %g away", error);
    error = states ? ck_rel_l2(shared.state, whole.state, states) : 0;
    ck_assert_msg(error <= gradient_bound, "gradient of the state is %g away", error);
    ck_assert_int_lt(plain.tokens, full.tokens);
    ck_assert_int_le(tree.tokens, plain.tokens);
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&whole);
    kvf__prefix_done(&shared);
}

START_TEST(sharing_changes_nothing_in_f32)
{
    /* The delta rule amplifies another order of sums at each token. */
    const bool delta = kvf__model_desc(t.model)->mixer.kind == KVF__MIXER_DELTA;
    compare(CASES[_i], 1e-5, delta ? 3e-5 : 1e-5);
}
END_TEST

START_TEST(sharing_stays_near_in_bf16)
{
    ck_need(kvf__cpu_has_bf16(), "this CPU has no bf16 products");
    toy_create(&t, toy_llama, KVF__BF16);
    /* Sums of bf16 products in another order: the loss differed by 0.003 and the gradient by 0.017,
     * the distance of bf16 itself from f32. */
    compare(CASES[_i], 6e-3, 4e-2);
    toy_free(&t);
}
END_TEST

/* The derivative along a random change with the gradient's signs, so that differences in f32 are
 * near, at a tree of rows. */
START_TEST(gradient_of_a_state_is_that_of_differences)
{
    rows r;
    kvf__prefix prefix, d;
    kvf__batch_sizes sizes;
    double ends[2], want = 0;
    /* the delta rule is more curved */
    const float step = kvf__model_desc(t.model)->mixer.kind == KVF__MIXER_DELTA ? 1e-4f : 1e-3f;
    make_rows(&r, CASES[1]);
    toy_prefix(&t, &prefix, 5, 0.5);
    toy_prefix(&t, &d, 5, 0);
    const size_t n = add_state(&prefix);
    add_state(&d);
    run(&r, true, true, &prefix, &d, &sizes);
    float *along = malloc(n * sizeof *along), *was = malloc(n * sizeof *was);
    kvf__rng rng = kvf__rng_make(5, 5);
    memcpy(was, prefix.state, n * sizeof *was);
    for (size_t i = 0; i < n; i++) {
        along[i] = (float)kvf__rng_normal(&rng);
        if (d.state[i] != 0) along[i] = copysignf(along[i], d.state[i]);
        want += (double)along[i] * (double)d.state[i] / 0.125; /* the scale of run() */
    }
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++)
            prefix.state[i] = was[i] + (side ? step : -step) * along[i];
        ends[side] = run(&r, true, true, &prefix, &d, &sizes);
    }
    const double got = (ends[1] - ends[0]) / (2 * (double)step);
    ck_assert_msg(fabs(got - want) < 0.005 * fabs(want), "%g, want %g", got, want);
    free(along);
    free(was);
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&d);
}
END_TEST

START_TEST(gradient_of_a_state_has_the_same_bits_for_any_threads)
{
    const kvf_ctx_options one = {.threads = 1};
    kvf_ctx *two = t.ctx, *other = NULL;
    rows r;
    kvf__prefix prefix, d[2];
    kvf__batch_sizes sizes;
    ck_assert(!kvf_ctx_create(&one, &other));
    make_rows(&r, CASES[2]);
    toy_prefix(&t, &prefix, 5, 0.5);
    const size_t n = add_state(&prefix);
    for (int i = 0; i < 2; i++) {
        toy_prefix(&t, &d[i], 5, 0);
        add_state(&d[i]);
        t.ctx = i ? other : two;
        run(&r, true, false, &prefix, &d[i], &sizes);
        t.ctx = two;
    }
    ck_assert_mem_eq(d[0].state, d[1].state, n * sizeof(float));
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&d[0]);
    kvf__prefix_done(&d[1]);
    kvf_ctx_free(other);
}
END_TEST

/* A common prefix ends before the first position that predicts a label: case 0 shares 19 of 20
 * tokens because of its third row. */
static const struct {
    int64_t tokens, common_tokens, common_len, rows;
} SAVED[] = {
    {19 + 5 + 9 + 7, 19, 19, 4},
    {29 + 13 + 4 + 6 + 13 + 8 + 1 + 4, 29 + 13 + 13, 42, 8},
    {20 + 4 + 5 + 20 + 4 + 3, 40, 20, 6},
    {47 + 40 + 7 + 7, 40, 40, 4},
    {10 + 10, 0, 0, 2},
    {20 + 4 + 4, 20, 20, 3},
};

START_TEST(tokens_are_saved)
{
    const kvf__batch_rules rules = {.causal = true, .share = true};
    rows r;
    kvf__batcher batcher = {0};
    make_rows(&r, CASES[_i]);
    ck_assert_int_eq(kvf__batcher_init(t.ctx, &batcher, rules, MAX_ROWS, MAX_TOKENS, MAX_TOKENS),
                     KVF_OK);
    kvf__batcher_fill(&batcher, &r.set, r.order, r.set.n);
    ck_assert_int_eq(batcher.sizes.tokens, SAVED[_i].tokens);
    ck_assert_int_eq(batcher.sizes.common_tokens, SAVED[_i].common_tokens);
    ck_assert_int_eq(batcher.sizes.common_len, SAVED[_i].common_len);
    ck_assert_int_eq(batcher.batch.n_rows, SAVED[_i].rows);
    /* The tokens along every example's path are the beginning of its row. */
    const kvf__batch *b = &batcher.batch;
    for (int64_t row = 0; row < b->n_rows; row++) {
        if (b->example[row] < 0) continue;
        int64_t first = r.start[b->example[row]], at = 0;
        for (int64_t p = row; p >= 0; p = b->parent ? b->parent[p] : -1)
            at += b->start[p + 1] - b->start[p];
        for (int64_t p = row; p >= 0; p = b->parent ? b->parent[p] : -1) {
            int64_t n = b->start[p + 1] - b->start[p];
            at -= n;
            ck_assert_mem_eq(b->ids + b->start[p], r.ids + first + at, (size_t)n * sizeof *b->ids);
        }
    }
    kvf__batcher_done(&batcher);
}
END_TEST

/* A batch is refused if the limits exclude common prefixes, or if parents are out of order. */
START_TEST(bad_trees_are_refused)
{
    static const int64_t LENGTHS[] = {3, 3, 0};
    static const int32_t LATER[] = {1, -1}, GOOD[] = {-1, 0};
    toy_batch batch;
    kvf__pass *pass = toy_pass(&t);
    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, 0.5, 1);
    kvf__input input = {.batch = &batch.b};
    batch.b.parent = LATER;
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, &input), KVF_ESHAPE);
    ck_assert_str_eq(kvf_ctx_error(t.ctx),
                     "batch row 0: its common prefix is row 1, expected an earlier one");
    batch.b.parent = GOOD;
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, &input), KVF_ESHAPE);
    ck_assert_str_eq(kvf_ctx_error(t.ctx),
                     "batch row 1: 3 tokens of common prefixes, the pass was made for at most 0");
    kvf__pass_free(pass);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common_prefix");
    TCase *core = tcase_create("core"), *gpt2 = tcase_create("gpt2"), *bf16 = tcase_create("bf16"),
          *qwen3 = tcase_create("qwen3"), *lfm2 = tcase_create("lfm2"),
          *qwen3_5 = tcase_create("qwen3_5"), *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(gpt2, setup_gpt2, teardown);
    tcase_add_checked_fixture(qwen3, setup_qwen3, teardown);
    tcase_add_checked_fixture(lfm2, setup_lfm2, teardown);
    tcase_add_checked_fixture(qwen3_5, setup_qwen3_5, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_set_timeout(core, 60);
    tcase_add_loop_test(core, sharing_changes_nothing_in_f32, 0, N_CASES);
    tcase_add_loop_test(core, tokens_are_saved, 0, N_CASES);
    tcase_add_loop_test(gpt2, sharing_changes_nothing_in_f32, 0, N_CASES);
    tcase_add_loop_test(qwen3, sharing_changes_nothing_in_f32, 0, N_CASES);
    tcase_add_loop_test(lfm2, sharing_changes_nothing_in_f32, 0, N_CASES);
    tcase_add_loop_test(qwen3_5, sharing_changes_nothing_in_f32, 0, N_CASES);
    tcase_add_loop_test(bf16, sharing_stays_near_in_bf16, 0, N_CASES);
    tcase_add_test(errors, bad_trees_are_refused);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, gpt2);
    suite_add_tcase(suite, qwen3);
    tcase_add_test(lfm2, gradient_of_a_state_is_that_of_differences);
    tcase_add_test(qwen3_5, gradient_of_a_state_is_that_of_differences);
    tcase_add_test(lfm2, gradient_of_a_state_has_the_same_bits_for_any_threads);
    tcase_add_test(qwen3_5, gradient_of_a_state_has_the_same_bits_for_any_threads);
    suite_add_tcase(suite, lfm2);
    suite_add_tcase(suite, qwen3_5);
    suite_add_tcase(suite, bf16);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
