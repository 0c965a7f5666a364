/* A batch in sections: rows of several runs in one pass. Each run has a prefix with its own length,
 * mask and place, or vectors. Compared with the same rows in separate passes. */
#include "data_int.h"
#include "toy_model.h"

static toy t;
static const char *const *const CONFIGS[] = {&toy_llama, &toy_gpt2, &toy_qwen3, &toy_lfm2,
                                             &toy_qwen3_5};
enum { N_CONFIGS = 5, MOST_P = 9 };

static void setup(void)
{
    t = (toy){0};
}

static void teardown(void)
{
    toy_free(&t);
}

/* Contents of the test's sections: rows, prefix (masked: without layer 0), or vectors. */
static const struct {
    int64_t lengths[5], P, position_start;
    bool masked, vectors, common_rows;
    float scale;
} RUNS[] = {
    {{7, 12, 3, 0}, 5, 5, false, false, false, 0.5f},
    {{20, 0}, 9, 0, false, false, false, 2},
    {{4, 4, 9, 0}, 0, 3, false, false, false, 1},
    {{11, 6, 0}, 4, 4, true, false, false, 0.25f},
    {{9, 10, 0}, 3, 0, false, true, false, 1},
    {{6, 5, 8, 0}, 2, 2, false, false, true, 0.125f},
    {{1, 0}, 6, 6, false, false, false, 1},
};
enum { N_RUNS = sizeof RUNS / sizeof RUNS[0] };

typedef struct one {
    toy_batch batch;
    int32_t parent[TOY_ROWS];
    kvf__prefix prefix, alone, joined; /* value; only the gradient, in one pass */
    kvf__vectors vectors, valone, vjoined;
    double loss, joined_loss;
} one;

static void make_vectors(one *r)
{
    int64_t C = kvf__model_desc(t.model)->C;
    kvf__rng rng = kvf__rng_make(9, 9);
    ck_assert(!kvf__vectors_init(t.ctx, &r->vectors, 3, C));
    ck_assert(!kvf__vectors_init(t.ctx, &r->valone, 3, C));
    ck_assert(!kvf__vectors_init(t.ctx, &r->vjoined, 3, C));
    for (int64_t i = 0; i < 3 * C; i++)
        r->vectors.x[i] = (float)kvf__rng_normal(&rng);
    for (int64_t row = 0; row < r->batch.b.n_rows; row++)
        for (int p = 0; p < 3; p++)
            r->batch.ids[r->batch.start[row] + p] = kvf__virtual_id(p);
}

/* Rows 1 and 2 continue row 0. */
static void make_common_rows(one *r)
{
    for (int64_t row = 0; row < r->batch.b.n_rows; row++)
        r->parent[row] = row ? 0 : -1;
    r->batch.b.parent = r->parent;
}

static void make_run(one *r, int i)
{
    int64_t P = RUNS[i].vectors ? 0 : RUNS[i].P;
    *r = (one){.loss = 0};
    toy_batch_make(&r->batch, kvf__model_desc(t.model), RUNS[i].lengths, 0.6, 20 + (uint64_t)i);
    toy_prefix(&t, &r->prefix, P, 1);
    toy_prefix(&t, &r->alone, P, 0);
    toy_prefix(&t, &r->joined, P, 0);
    if (RUNS[i].masked) r->prefix.layer_mask[0] = 0;
    kvf__prefix_clear_masked(&r->prefix);
    for (size_t k = 0; k < kvf__prefix_count(&r->prefix); k++)
        r->prefix.kv[k] *= 1 + 0.1f * (float)i;
    if (RUNS[i].vectors) make_vectors(r);
    if (RUNS[i].common_rows) make_common_rows(r);
}

static void free_run(one *r)
{
    kvf__prefix_done(&r->prefix);
    kvf__prefix_done(&r->alone);
    kvf__prefix_done(&r->joined);
    kvf__vectors_done(&r->vectors);
    kvf__vectors_done(&r->valone);
    kvf__vectors_done(&r->vjoined);
}

static kvf__pass *make_pass(int64_t sections, bool recompute)
{
    const kvf__pass_limits limits = {.rows = 20,
                                     .tokens = 200,
                                     .row_len = 30,
                                     .labels = 150,
                                     .P = MOST_P,
                                     .common_len = 10,
                                     .common_tokens = 20,
                                     .sections = sections,
                                     .backward = true,
                                     .recompute = recompute};
    kvf__pass *pass = NULL;
    ck_assert_msg(!kvf__pass_create(t.ctx, t.model, &limits, &pass), "%s", kvf_ctx_error(t.ctx));
    return pass;
}

static void run_alone(kvf__pass *pass, one *r, int i)
{
    const kvf__vectors *vectors = RUNS[i].vectors ? &r->vectors : NULL;
    const kvf__input input = {.batch = &r->batch.b,
                              .condition.prefix = &r->prefix,
                              .condition.vectors = vectors,
                              .condition.position_start = RUNS[i].position_start};
    const kvf__grads grads = {.prefix = &r->alone, .vectors = vectors ? &r->valone : NULL};
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
    ck_assert(!kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = true, .scale = RUNS[i].scale},
                              &r->loss));
    ck_assert_msg(!kvf__pass_bwd(t.ctx, pass, &grads), "%s", kvf_ctx_error(t.ctx));
}

/* All runs in one pass; token_loss [labels]. */
static void run_joined(kvf__pass *pass, one *runs, int n, float *token_loss)
{
    kvf__stacked_batch stacked = {0};
    kvf__section sections[N_RUNS];
    kvf__grads grads[N_RUNS];
    double sum = 0;
    ck_assert(!kvf__stacked_init(t.ctx, &stacked, 20, 200, 150, 0));
    for (int i = 0; i < n; i++) {
        kvf__stacked_add(&stacked, &runs[i].batch.b);
        sections[i] = (kvf__section){.rows = runs[i].batch.b.n_rows,
                                     .condition.prefix = &runs[i].prefix,
                                     .condition.vectors = RUNS[i].vectors ? &runs[i].vectors : NULL,
                                     .condition.position_start = RUNS[i].position_start,
                                     .loss_scale = RUNS[i].scale,
                                     .loss_sum = &runs[i].joined_loss};
        grads[i] = (kvf__grads){.prefix = &runs[i].joined,
                                .vectors = RUNS[i].vectors ? &runs[i].vjoined : NULL};
    }
    const kvf__input input = {.batch = &stacked.batch, .sections = sections, .n_sections = n};
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
    ck_assert(!kvf__pass_loss(
        t.ctx, pass, &(kvf__loss){.gradient = true, .scale = 1, .token_loss = token_loss}, &sum));
    ck_assert_msg(!kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.sections = grads}), "%s",
                  kvf_ctx_error(t.ctx));
    kvf__stacked_done(&stacked);
}

static double relative(const float *got, const float *want, size_t n)
{
    return n ? ck_rel_l2(got, want, n) : 0;
}

/* ---- parity ---------------------------------------------------------------------------------- */

/* f32 sums run in another order with other rows: 1e-5 relative, as for a batch and its rows. Loop
 * rows: the models, then the same with layers recomputed. */
START_TEST(sections_equal_runs_alone)
{
    static one runs[N_RUNS];
    float token_loss[150];
    bool recompute = _i >= N_CONFIGS;
    toy_create(&t, *CONFIGS[_i % N_CONFIGS], KVF__F32);
    kvf__pass *alone = make_pass(0, false), *joined = make_pass(N_RUNS, recompute);
    for (int i = 0; i < N_RUNS; i++) {
        make_run(&runs[i], i);
        run_alone(alone, &runs[i], i);
    }
    run_joined(joined, runs, N_RUNS, token_loss);
    const float *at = token_loss;
    for (int i = 0; i < N_RUNS; i++) {
        one *r = &runs[i];
        double loss = 0;
        for (int64_t j = 0; j < r->batch.b.n_labels; j++)
            loss += (double)*at++;
        ck_assert_msg(fabs(loss - r->loss) <= 1e-5 * r->loss, "run %d: loss %g, alone %g", i, loss,
                      r->loss);
        ck_assert_double_eq_tol(r->joined_loss, loss, 1e-6 * loss);
        double off = relative(r->joined.kv, r->alone.kv, kvf__prefix_count(&r->alone));
        ck_assert_msg(off <= 1e-5, "run %d: gradient off by %g", i, off);
        off = relative(r->vjoined.x, r->valone.x, (size_t)(r->valone.P * r->valone.C));
        ck_assert_msg(off <= 1e-5, "run %d: gradient of vectors off by %g", i, off);
        free_run(r);
    }
    kvf__pass_free(alone);
    kvf__pass_free(joined);
}
END_TEST

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(one_section_is_no_section)
{
    static one r;
    float token_loss[150];
    toy_create(&t, *CONFIGS[_i], KVF__F32);
    kvf__pass *alone = make_pass(0, false), *joined = make_pass(2, false);
    make_run(&r, 0);
    run_alone(alone, &r, 0);
    run_joined(joined, &r, 1, token_loss);
    ck_assert_mem_eq(r.joined.kv, r.alone.kv, kvf__prefix_count(&r.alone) * sizeof(float));
    free_run(&r);
    kvf__pass_free(alone);
    kvf__pass_free(joined);
}
END_TEST

/* A value that is not finite in one run does not affect the others. */
START_TEST(a_broken_run_leaves_the_others_alone)
{
    static one runs[3];
    float token_loss[150];
    toy_create(&t, toy_llama, KVF__F32);
    kvf__pass *alone = make_pass(0, false), *joined = make_pass(3, false);
    for (int i = 0; i < 3; i++) {
        make_run(&runs[i], i);
        if (i != 1) run_alone(alone, &runs[i], i);
    }
    runs[1].prefix.kv[0] = NAN;
    run_joined(joined, runs, 3, token_loss);
    int64_t first = runs[0].batch.b.n_labels, broken = 0;
    for (int64_t j = 0; j < runs[1].batch.b.n_labels; j++)
        broken += !isfinite(token_loss[first + j]);
    ck_assert_int_gt(broken, 0);
    double off = relative(runs[0].joined.kv, runs[0].alone.kv, kvf__prefix_count(&runs[0].alone));
    ck_assert_double_le(off, 1e-5);
    for (int64_t j = 0; j < runs[2].batch.b.n_labels; j++)
        ck_assert(isfinite(token_loss[first + runs[1].batch.b.n_labels + j]));
    for (int i = 0; i < 3; i++)
        free_run(&runs[i]);
    kvf__pass_free(alone);
    kvf__pass_free(joined);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

/* Sections over the rows of run 0 (3 rows), and the expected part of the error line. */
static const struct {
    int64_t rows[3], n;
    bool long_prefix, dropout;
    const char *line;
} BAD[] = {
    {{2, 2, 0}, 2, false, false, "section 1 has 2 rows, expected at most 1"},
    {{1, 1, 0}, 2, false, false, "sections have 2 rows, the batch 3"},
    {{1, 1, 1}, 3, false, false, "3 sections, the pass was made for at most 2"},
    {{1, 2, 0}, 2, true, false, "10 prefix positions, the pass was made for at most 9"},
    {{1, 2, 0}, 2, false, true, "sections exclude a prefix inside rows and dropout"},
};

START_TEST(bad_sections_are_refused)
{
    static one r;
    kvf__prefix tall = {0};
    kvf__section sections[3];
    const kvf__row_dropout drop = {.p = 0.5};
    toy_create(&t, toy_llama, KVF__F32);
    kvf__pass *pass = make_pass(2, false);
    make_run(&r, 0);
    toy_prefix(&t, &tall, 10, 1);
    for (int64_t i = 0; i < BAD[_i].n; i++)
        sections[i] = (kvf__section){.rows = BAD[_i].rows[i],
                                     .condition.prefix = BAD[_i].long_prefix ? &tall : &r.prefix};
    const kvf__input input = {.batch = &r.batch.b,
                              .sections = sections,
                              .n_sections = BAD[_i].n,
                              .row_dropout = BAD[_i].dropout ? &drop : NULL};
    ck_assert(kvf__pass_fwd(t.ctx, pass, &input));
    ck_assert_msg(strstr(kvf_ctx_error(t.ctx), BAD[_i].line), "\"%s\"", kvf_ctx_error(t.ctx));
    kvf__prefix_done(&tall);
    free_run(&r);
    kvf__pass_free(pass);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass_sections");
    TCase *parity = tcase_create("parity"), *core = tcase_create("core"),
          *errors = tcase_create("errors");
    tcase_add_checked_fixture(parity, setup, teardown);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_set_timeout(parity, 30);
    tcase_add_loop_test(parity, sections_equal_runs_alone, 0, 2 * N_CONFIGS);
    tcase_add_loop_test(core, one_section_is_no_section, 0, N_CONFIGS);
    tcase_add_test(core, a_broken_run_leaves_the_others_alone);
    tcase_add_loop_test(errors, bad_sections_are_refused, 0, sizeof BAD / sizeof BAD[0]);
    suite_add_tcase(suite, parity);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
