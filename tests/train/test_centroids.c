/* train --init centroids: the initial prefix is close to the base itself, with keys at centroids of
 * the training rows' queries. */
#include "attention.h"
#include "golden_model.h"
#include "start.h"
#include "toy_run.h"

#include <math.h>

static kvf_train_options options(const char *path, const char *method)
{
    kvf_train_options o = toy_run_options(path);
    ck_assert(!kvf_train_set(ctx, &o, "method", method));
    ck_assert(!kvf_train_set(ctx, &o, "init", "centroids"));
    ck_assert(!kvf_train_set(ctx, &o, "steps", "0"));
    o.prefix_length = 8;
    o.force = true;
    return o;
}

/* ---- core ------------------------------------------------------------------------------------ */

static const char *const METHODS[] = {"direct", "mlp"};

/* The prefix emitted by `run`. */
static kvf_prefix *emitted(const char *run, kvf_base *on)
{
    kvf_prefix *prefix = NULL;
    ck_assert_msg(!kvf_prefix_open_on(ctx, run, on, KVF_CHECKPOINT_LAST, &prefix), "%s",
                  kvf_ctx_error(ctx));
    return prefix;
}

/* Equal commands give equal files, in either method. Another seed gives other centroids; the random
 * weights of mlp do not affect this comparison. */
START_TEST(seed_decides)
{
    kvf_train_options o = options(out, METHODS[_i]);
    kvf_base *opened = open_base();
    double most = 0;
    train(&o);
    o.out = other;
    train(&o);
    ck_assert(equal_files(out, other));
    o.seed = 1;
    train(&o);
    kvf_prefix *first = emitted(out, opened), *second = emitted(other, opened);
    const kvf__prefix *a = &first->file.prefix, *b = &second->file.prefix;
    for (size_t i = 0; i < kvf__prefix_count(a); i++)
        most = fmax(most, fabs((double)(a->kv[i] - b->kv[i])));
    ck_assert_msg(most > 0.1, "seeds differ by %g", most);
    kvf_prefix_free(first);
    kvf_prefix_free(second);
    kvf_base_free(opened);
}
END_TEST

START_TEST(same_bits_at_any_number_of_threads)
{
    const kvf_ctx_options one = {.threads = 1};
    kvf_train_options o = options(out, "direct");
    kvf_base *opened = open_base();
    train(&o);
    kvf_prefix *first = emitted(out, opened);
    kvf_ctx *two = ctx;
    ck_assert_int_eq(kvf_ctx_create(&one, &ctx), KVF_OK);
    train(&o);
    kvf_ctx_free(ctx);
    ctx = two;
    kvf_prefix *second = emitted(out, opened);
    const kvf__prefix *a = &first->file.prefix, *b = &second->file.prefix;
    ck_assert_int_eq(a->P, 8);
    ck_assert(!memcmp(a->kv, b->kv, kvf__prefix_count(a) * sizeof *a->kv));
    kvf_prefix_free(first);
    kvf_prefix_free(second);
    kvf_base_free(opened);
}
END_TEST

START_TEST(resumed_equals_no_stop)
{
    kvf_train_options whole = options(out, "mlp"), part = options(other, "mlp");
    whole.steps = part.steps = 6;
    expect_resume_equals_no_stop(whole, part);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

/* One virtual token; more virtual tokens than queries. */
static const int64_t LENGTHS[] = {1, 100};

START_TEST(any_length)
{
    kvf_train_options o = options(out, "direct");
    toy_rows(dir, "train.jsonl", 3, 0);
    o.prefix_length = LENGTHS[_i];
    o.steps = 1;
    ck_assert(isfinite(train(&o).train_loss));
}
END_TEST

/* ---- queries --------------------------------------------------------------------------------- */

/* Rows of a golden model whose tokens all have queries, and their queries on the bare base. */
enum { ROWS = 10, LENGTH = 24, TOKENS = ROWS * LENGTH };
static golden g;
static kvf_base bare;
static kvf__dataset rows;
static kvf__queries queries;
static float *memory;

static void open_golden(const char *name)
{
    kvf__rng rng = kvf__rng_make(3, 0);
    golden_load(&g, name, KVF__F32);
    bare = (kvf_base){.model = g.model};
    rows = (kvf__dataset){.task = KVF__TASK_TOKEN_CLS};
    ck_assert(!kvf__dataset_alloc_rows(g.ctx, &rows, ROWS, TOKENS));
    rows.n_groups = ROWS;
    rows.n_labels = TOKENS;
    for (int64_t r = 0; r <= ROWS; r++)
        rows.start[r] = r * LENGTH;
    for (int64_t i = 0; i < TOKENS; i++)
        rows.ids[i] = (int32_t)kvf__rng_below(&rng, 24);
}

static void close_golden(void)
{
    kvf__dataset_done(&rows);
    golden_unload(&g);
}

static kvf_status no_more(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    (void)user, (void)pass, (void)batch;
    return KVF_OK;
}

/* `layer` receives the queries of each layer; text begins at `position`. */
static void ask(kvf_status (*layer)(void *, int64_t, const kvf__attn *), int64_t position)
{
    const kvf__desc *desc = kvf__model_desc(g.model);
    const kvf__evaluator_options how = {.batch_tokens = INT64_MAX};
    const int64_t values = TOKENS * desc->H * desc->D;
    kvf__evaluator *evaluator = NULL;
    ck_assert(!kvf__alloc_array(g.ctx, (size_t)(4 * values), sizeof *memory, &memory));
    queries = (kvf__queries){.layer = layer,
                             .q = memory,
                             .out = memory + values,
                             .own = memory + 2 * values,
                             .own_mass = memory + 3 * values};
    const kvf__subject subject = {.condition.position_start = position, .queries = &queries};
    ck_assert(!kvf__evaluator_create(g.ctx, &bare, &rows, &how, &evaluator));
    ck_assert_msg(!kvf__evaluator_walk(g.ctx, evaluator, &subject, no_more, NULL), "%s",
                  kvf_ctx_error(g.ctx));
    kvf__evaluator_free(evaluator);
    kvf__free(memory);
}

/* Without a prefix, a row's own tokens are its only keys. Their computed answer equals that of
 * attention, for queries over the whole row, over previous tokens, and over a window. */
static const char *const BASES[] = {"bert", "llama_tied", "modernbert", "mistral", "gemma2"};

static kvf_status own_is_all(void *user, int64_t layer, const kvf__attn *attn)
{
    (void)user;
    for (int64_t i = 0; i < TOKENS * attn->H * attn->D; i++)
        ck_assert_msg(fabsf(queries.own[i] - queries.out[i]) < 1e-5F,
                      "layer %lld, %lld: %g, not %g", (long long)layer, (long long)i,
                      (double)queries.own[i], (double)queries.out[i]);
    return KVF_OK;
}

START_TEST(own_tokens_are_those_seen)
{
    open_golden(BASES[_i]);
    ask(own_is_all, 0);
    close_golden();
}
END_TEST

/* ---- formulas -------------------------------------------------------------------------------- */

enum { P = 6, MOST_D = 64 };
static kvf__prefix start;

/* Query i of head h: e holds the weights of its prefix keys, relative to a mass of 1 for its own
 * tokens. */
static void weigh(const kvf__attn *attn, int64_t layer, int64_t i, int64_t h, double *e)
{
    const int64_t D = attn->D, group = h / (attn->H / attn->G), at = i * attn->H + h;
    const float *k = start.kv + (2 * layer * attn->G + group) * P * D;
    for (int64_t p = 0; p < P; p++) {
        double score = 0;
        for (int64_t d = 0; d < D; d++)
            score += (double)(queries.q[at * D + d] * k[p * D + d]);
        e[p] = exp((double)attn->scale * score - (double)queries.own_mass[at]);
    }
}

/* Properties of each key head: the share of attention, the number of keys attended to by a query,
 * and values that are means of the base's answers. */
static kvf_status formulas_hold(void *user, int64_t layer, const kvf__attn *attn)
{
    const int64_t each = attn->H / attn->G, D = attn->D;
    (void)user;
    for (int64_t group = 0; group < attn->G; group++) {
        double share = 0, entropy = 0, weight[P] = {0}, mean[P][MOST_D] = {{0}};
        for (int64_t i = 0; i < TOKENS * each; i++) {
            const int64_t h = group * each + i % each;
            const float *answer = queries.out + (i / each * attn->H + h) * D;
            double e[P], sum = 0;
            weigh(attn, layer, i / each, h, e);
            for (int64_t p = 0; p < P; p++)
                sum += e[p];
            share += sum / (1 + sum) / (double)(TOKENS * each);
            for (int64_t p = 0; p < P; p++) {
                entropy -= e[p] / sum * log(e[p] / sum) / (double)(TOKENS * each);
                weight[p] += e[p] / sum;
                for (int64_t d = 0; d < D; d++)
                    mean[p][d] += e[p] / sum * (double)answer[d];
            }
        }
        ck_assert_double_eq_tol(share, 0.3, 0.05);
        ck_assert_double_eq_tol(exp(entropy), 1 + 0.35 * (P - 1), 0.02);
        const float *v = start.kv + ((2 * layer + 1) * attn->G + group) * P * D;
        for (int64_t p = 0; p < P; p++)
            for (int64_t d = 0; d < D; d++)
                ck_assert_double_eq_tol((double)v[p * D + d], mean[p][d] / weight[p], 1e-3);
    }
    return KVF_OK;
}

START_TEST(share_keys_and_values)
{
    open_golden(BASES[_i]);
    kvf__run run = {.ctx = g.ctx, .base = &bare, .id = {.P = P, .position_start = P}};
    const kvf__kv_shape shape = kvf__desc_kv(kvf__model_desc(g.model));
    ck_assert(!kvf__prefix_create(g.ctx, &start, &shape, P));
    ck_assert_msg(!kvf__centroids(&run, &rows, &start), "%s", kvf_ctx_error(g.ctx));
    ask(formulas_hold, P);
    kvf__prefix_done(&start);
    close_golden();
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *const REFUSED[][4] = {
    {"projected", "seed", "1", "--init centroids: want method mlp or direct"},
    {"prompt", "seed", "1", "--init centroids: want method mlp or direct"},
    {"direct", "infix", "true", "--init centroids: want a prefix before rows"},
};

START_TEST(refused)
{
    kvf_train_options o = options(out, REFUSED[_i][0]);
    ck_assert(!kvf_train_set(ctx, &o, REFUSED[_i][1], REFUSED[_i][2]));
    expect_failure(&o, KVF_EUSAGE, REFUSED[_i][3]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("centroids");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits"),
          *asked = tcase_create("queries"), *errors = tcase_create("errors");
    tcase_set_timeout(core, 60);
    tcase_set_timeout(limits, 60);
    tcase_add_checked_fixture(core, toy_run_setup, toy_run_teardown);
    tcase_add_loop_test(core, seed_decides, 0, 2);
    tcase_add_test(core, same_bits_at_any_number_of_threads);
    tcase_add_test(core, resumed_equals_no_stop);
    tcase_add_checked_fixture(limits, toy_run_setup, toy_run_teardown);
    tcase_add_loop_test(limits, any_length, 0, 2);
    tcase_add_loop_test(asked, own_tokens_are_those_seen, 0, 5);
    tcase_add_loop_test(asked, share_keys_and_values, 0, 2);
    tcase_add_checked_fixture(errors, toy_run_setup, toy_run_teardown);
    tcase_add_loop_test(errors, refused, 0, 3);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    suite_add_tcase(suite, asked);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
