/* Biases and penalties of logits, and min-p after the other cuts, as defined by transformers and
 * OpenAI: tests/golden/sampling.json. */
#include "ck.h"
#include "infile.h"
#include "sample.h"

#include <math.h>

enum { MOST = 64 };

static kvf_ctx *ctx;
static kvf_json *golden;

static void setup(void)
{
    kvf__mapfile file = {0};
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    ck_assert_int_eq(kvf__mapfile_open(ctx, ck_source("tests/golden/sampling.json"), &file),
                     KVF_OK);
    ck_assert_msg(!kvf_json_parse(ctx, "golden", (const char *)file.data, file.n, &golden), "%s",
                  kvf_ctx_error(ctx));
    kvf__mapfile_close(&file);
}

static void teardown(void)
{
    kvf_json_free(golden);
    kvf_ctx_free(ctx);
}

static int64_t reals(const kvf_json *list, float *out)
{
    for (size_t i = 0; i < kvf_json_size(list); i++)
        out[i] = (float)kvf_json_real(kvf_json_at(list, i), NAN);
    return (int64_t)kvf_json_size(list);
}

static int64_t ints(const kvf_json *list, int32_t *out)
{
    for (size_t i = 0; i < kvf_json_size(list); i++)
        out[i] = (int32_t)kvf_json_int(kvf_json_at(list, i), -1);
    return (int64_t)kvf_json_size(list);
}

static double real(const kvf_json *c, const char *name)
{
    return kvf_json_real(kvf_json_get(c, name), NAN);
}

static void penalized_is(const kvf_json *c)
{
    float logits[MOST], want[MOST], got[MOST];
    int32_t prompt[MOST], out[MOST], counts[MOST] = {0};
    kvf_token_bias bias[MOST];
    const kvf_json *biases = kvf_json_get(c, "bias");
    kvf__penalties p = {.bias = bias,
                        .n_bias = kvf_json_size(biases),
                        .repetition = real(c, "repetition"),
                        .frequency = real(c, "frequency"),
                        .presence = real(c, "presence")};
    const int64_t V = reals(kvf_json_get(c, "logits"), logits);
    const kvf__said said = {.prompt = prompt,
                            .n_prompt = ints(kvf_json_get(c, "prompt"), prompt),
                            .out = out,
                            .n_out = ints(kvf_json_get(c, "out"), out)};
    for (size_t i = 0; i < p.n_bias; i++) {
        const kvf_json *pair = kvf_json_at(biases, i);
        bias[i].id = (int32_t)kvf_json_int(kvf_json_at(pair, 0), -1);
        bias[i].bias = (float)kvf_json_real(kvf_json_at(pair, 1), NAN);
    }
    ck_assert_int_eq(reals(kvf_json_get(c, "want"), want), V);
    ck_assert(kvf__penalties_any(&p));
    kvf__penalize(&p, &said, logits, V, counts, got);
    /* the same few operations in f32; the rounding of summed penalties differs */
    ck_close(got, want, (size_t)V, 1e-6, 1e-6);
    for (int64_t i = 0; i < V; i++)
        ck_assert_int_eq(counts[i], 0);
}

START_TEST(penalties_are_those_of_transformers_and_openai)
{
    const kvf_json *cases = kvf_json_get(golden, "penalties");
    ck_assert_uint_eq(kvf_json_size(cases), 7);
    for (size_t i = 0; i < kvf_json_size(cases); i++)
        penalized_is(kvf_json_at(cases, i));
}
END_TEST

/* A seeded draw returns every allowed id and no others. */
static void alive_is(const kvf_json *c)
{
    enum { DRAWS = 20000 };
    float logits[MOST];
    int32_t alive[MOST];
    bool want[MOST] = {false}, drawn[MOST] = {false};
    kvf__candidate scratch[MOST];
    kvf__rng rng = kvf__rng_make(4, 2);
    const kvf__sampling sampling = {.temperature = real(c, "temperature"),
                                    .top_p = real(c, "top_p"),
                                    .min_p = real(c, "min_p"),
                                    .top_k = kvf_json_int(kvf_json_get(c, "top_k"), 0)};
    const int64_t V = reals(kvf_json_get(c, "logits"), logits),
                  n = ints(kvf_json_get(c, "alive"), alive);
    for (int64_t i = 0; i < n; i++)
        want[alive[i]] = true;
    for (int i = 0; i < DRAWS; i++)
        drawn[kvf__sample(&sampling, logits, V, &rng, scratch)] = true;
    for (int64_t i = 0; i < V; i++)
        ck_assert_msg(drawn[i] == want[i], "min_p %g: id %d is drawn %d, want %d", sampling.min_p,
                      (int)i, drawn[i], want[i]);
}

START_TEST(min_p_cuts_as_transformers)
{
    const kvf_json *cases = kvf_json_get(golden, "min_p");
    ck_assert_uint_eq(kvf_json_size(cases), 8);
    for (size_t i = 0; i < kvf_json_size(cases); i++)
        alive_is(kvf_json_at(cases, i));
}
END_TEST

START_TEST(nothing_asked_is_nothing_changed)
{
    const kvf__penalties none = {0}, one = {.repetition = 1};
    ck_assert(!kvf__penalties_any(&none) && !kvf__penalties_any(&one));
    const kvf_token_bias high = {MOST, 1};
    const kvf__penalties biased = {.bias = &high, .n_bias = 1};
    ck_assert(kvf__penalties_any(&biased));
    ck_assert_int_eq(kvf__penalties_check(ctx, &biased, MOST + 1), KVF_OK);
    ck_assert_int_eq(kvf__penalties_check(ctx, &biased, MOST), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "logit_bias: id 64 is outside the vocabulary of 64");
    const kvf_token_bias infinite[] = {{1, (float)1e39}, {1, -INFINITY}, {1, NAN}};
    for (size_t i = 0; i < 3; i++) {
        const kvf__penalties bad = {.bias = &infinite[i], .n_bias = 1};
        ck_assert_int_eq(kvf__penalties_check(ctx, &bad, MOST), KVF_EUSAGE);
    }
}
END_TEST

/* Virtual tokens of a prompt have no logits. */
START_TEST(virtual_tokens_do_not_count)
{
    const int32_t prompt[] = {-1, -2, 1};
    const kvf__said said = {.prompt = prompt, .n_prompt = 3};
    const kvf__penalties p = {.repetition = 2, .frequency = 1};
    const float logits[3] = {3, 4, -NAN};
    int32_t counts[3] = {0};
    float got[3];
    kvf__penalize(&p, &said, logits, 3, counts, got);
    ck_assert(got[0] == 3 && got[1] == 2 && isnan(got[2]));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("penalties");
    TCase *core = tcase_create("golden"), *limits = tcase_create("limits");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(limits, setup, teardown);
    tcase_add_test(core, penalties_are_those_of_transformers_and_openai);
    tcase_add_test(core, min_p_cuts_as_transformers);
    tcase_add_test(limits, nothing_asked_is_nothing_changed);
    tcase_add_test(limits, virtual_tokens_do_not_count);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    return ck_main(suite);
}
