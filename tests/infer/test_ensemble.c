/* Several prefixes answer together: the next token comes from the mean of their probabilities.
 * Evaluation computes the same mean on its own path. Equal prefixes answer as one of them, and
 * prefixes that need other rows are refused. */
#include <kvfold/kvfold.h>

#include "generate.h"
#include "toy_base.h"

enum { N_PREFIXES = 3, N_PROMPTS = 5, NEW = 8 };

static const char *const PROMPTS[N_PROMPTS] = {"the answer is a b", "the answer is a c", "x",
                                               "nothing like it", "1+1="};
static const int64_t LENGTHS[N_PREFIXES] = {4, 9, 1};

static kvf_ctx *ctx;
static const char *dir;
static kvf_base *base;
static kvf_prefix prefixes[N_PREFIXES];

static void make_prefix(kvf_prefix *p, int64_t P, uint64_t seed)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    kvf__rng rng = kvf__rng_make(seed, 7);
    ck_assert_int_eq(kvf__prefix_init(ctx, &p->file.prefix, d->L, d->G, P, d->D), KVF_OK);
    for (size_t i = 0; i < kvf__prefix_count(&p->file.prefix); i++)
        p->file.prefix.kv[i] = (float)(1.5 * kvf__rng_normal(&rng));
    p->file.id.P = P;
    p->file.id.position_start = P;
    p->task = KVF__TASK_LM;
}

static void setup(void)
{
    const kvf_ctx_options options = {.threads = 2};
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    dir = ck_tmpdir();
    toy_folder(dir, 5, 0);
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    ck_assert_msg(!kvf_base_open(ctx, dir, &exact, &base), "%s", kvf_ctx_error(ctx));
    for (int i = 0; i < N_PREFIXES; i++)
        make_prefix(&prefixes[i], LENGTHS[i], (uint64_t)i + 1);
}

static void teardown(void)
{
    for (int i = 0; i < N_PREFIXES; i++)
        kvf__prefix_done(&prefixes[i].file.prefix);
    kvf_base_free(base);
    kvf_ctx_free(ctx);
}

/* The joint completion of the n listed prefixes. */
static void complete(const int *which, size_t n, double temperature, int64_t batch, char **texts)
{
    const kvf_prefix *more[N_PREFIXES];
    kvf_generate_options o = kvf_generate_defaults();
    for (size_t i = 1; i < n; i++)
        more[i - 1] = &prefixes[which[i]];
    o.max_tokens = NEW;
    o.temperature = temperature;
    o.seed = 8;
    o.chat_template = "none";
    o.batch_size = batch;
    o.more = more;
    o.n_more = n - 1;
    ck_assert_msg(
        !kvf_generate(ctx, base, &prefixes[which[0]], PROMPTS, N_PROMPTS, &o, texts, NULL), "%s",
        kvf_ctx_error(ctx));
}

static bool same_and_free(char **a, char **b)
{
    bool same = true;
    for (int i = 0; i < N_PROMPTS; i++)
        same &= !strcmp(a[i], b[i]);
    kvf_texts_free(b, N_PROMPTS);
    return same;
}

/* ---- core ------------------------------------------------------------------------------------ */

/* Loop rows: greedy, drawn. */
static const double TEMPERATURES[] = {0, 0.9};

START_TEST(one_prefix_twice_is_that_prefix)
{
    static const int twice[] = {1, 1};
    char *alone[N_PROMPTS], *both[N_PROMPTS];
    complete(twice, 1, TEMPERATURES[_i], N_PROMPTS, alone);
    complete(twice, 2, TEMPERATURES[_i], N_PROMPTS, both);
    ck_assert(same_and_free(alone, both));
    kvf_texts_free(alone, N_PROMPTS);
}
END_TEST

/* The order and the batch do not matter, and the joint completion differs from that of one
 * prefix. */
START_TEST(several_answer_as_one)
{
    static const int order[] = {0, 1, 2}, other[] = {2, 0, 1};
    char *together[N_PROMPTS], *texts[N_PROMPTS];
    complete(order, 3, TEMPERATURES[_i], N_PROMPTS, together);
    complete(order, 3, TEMPERATURES[_i], 1, texts);
    ck_assert(same_and_free(together, texts));
    complete(other, 3, TEMPERATURES[_i], 2, texts);
    ck_assert(same_and_free(together, texts));
    for (int i = 0; i < N_PREFIXES; i++) {
        complete(&order[i], 1, TEMPERATURES[_i], N_PROMPTS, texts);
        ck_assert(!same_and_free(together, texts));
    }
    kvf_texts_free(together, N_PROMPTS);
}
END_TEST

/* Loss of `next` after a prompt, for all prefixes together. */
static double loss_of(const kvf__ids *prompt, int32_t next)
{
    kvf_prefix *all[N_PREFIXES];
    char text[2048], path[512];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"input_ids\":[");
    for (size_t i = 0; i < prompt->n; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d,", prompt->data[i]);
    n += (size_t)snprintf(text + n, sizeof text - n, "%d],\"labels\":[", next);
    for (size_t i = 0; i < prompt->n; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "-100,");
    snprintf(text + n, sizeof text - n, "%d]}\n", next);
    toy_write(dir, "one.jsonl", text);
    toy_path(path, dir, "one.jsonl");
    for (int i = 0; i < N_PREFIXES; i++)
        all[i] = &prefixes[i];
    const kvf_eval_options eval = {.data = path};
    kvf_eval_result result = {0};
    ck_assert_msg(!kvf_eval(ctx, base, all, N_PREFIXES, &eval, &result), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(result.label_tokens, 1);
    return result.loss;
}

START_TEST(first_token_is_the_likeliest_of_the_mean)
{
    static const int order[] = {0, 1, 2};
    char *texts[N_PROMPTS];
    kvf__ids prompt = {0};
    const int64_t V = kvf__model_desc(base->model)->V;
    int32_t best = 0;
    double least = 1e30, mass = 0;
    complete(order, 3, 0, N_PROMPTS, texts);
    ck_assert_int_eq(
        kvf__encode(ctx, base->tokenizer, PROMPTS[_i], strlen(PROMPTS[_i]), true, &prompt), KVF_OK);
    for (int32_t v = 0; v < V; v++) {
        const double loss = loss_of(&prompt, v);
        mass += exp(-loss);
        if (loss >= least) continue;
        least = loss;
        best = v;
    }
    ck_assert_double_eq_tol(mass, 1, 1e-5);
    kvf__buf text = {0};
    ck_assert_int_eq(kvf__decode(ctx, base->tokenizer, &best, 1, true, &text), KVF_OK);
    ck_assert_msg(!strncmp(texts[_i], text.data ? text.data : "", text.n),
                  "\"%s\" does not begin with \"%s\"", texts[_i], text.data);
    kvf__buf_done(&text);
    kvf__ids_done(&prompt);
    kvf_texts_free(texts, N_PROMPTS);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static void refused(const kvf_prefix *first, const kvf_prefix *second, const char *part)
{
    kvf_generate_options o = kvf_generate_defaults();
    char *texts[N_PROMPTS] = {0};
    o.chat_template = "none";
    o.more = &second;
    o.n_more = 1;
    ck_assert_int_eq(kvf_generate(ctx, base, first, PROMPTS, 1, &o, texts, NULL), KVF_EUSAGE);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), part) != NULL, "%s", kvf_ctx_error(ctx));
}

START_TEST(other_rows_are_refused)
{
    kvf_prefix vectors = {.task = KVF__TASK_LM}, tags = prefixes[1];
    const int64_t C = kvf__model_desc(base->model)->C;
    ck_assert_int_eq(kvf__vectors_init(ctx, &vectors.file.vectors, 3, C), KVF_OK);
    tags.task = KVF__TASK_TOKEN_CLS;
    refused(&prefixes[0], &vectors, "prefix 2 has its virtual tokens at other positions");
    refused(&prefixes[0], &tags, "of task token-cls");
    refused(NULL, &prefixes[0], "the first is missing");
    kvf__vectors_done(&vectors.file.vectors);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ensemble");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_loop_test(core, one_prefix_twice_is_that_prefix, 0, 2);
    tcase_add_loop_test(core, several_answer_as_one, 0, 2);
    tcase_add_loop_test(core, first_token_is_the_likeliest_of_the_mean, 0, N_PROMPTS);
    suite_add_tcase(suite, core);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_test(errors, other_rows_are_refused);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
