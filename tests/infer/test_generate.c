/* Completions do not depend on the other prompts of a call. Prompts with a common beginning share
 * it. Few rows take steps from the file's weights, and many rows take passes. */
#include "draft.h"
#include "generate.h"
#include "toy_base.h"

/* Letters of the toy tokenizer are tokens. The first three prompts share 12 or 15, the fourth is
 * the beginning of another, the sixth equals the fifth. */
static const char *const PROMPTS[] = {
    "the answer is a b", "the answer is a c", "the answer was d",   "the answer is",
    "nothing like it",   "nothing like it",   "nothing like these", "x"};
enum { N = sizeof PROMPTS / sizeof PROMPTS[0], MANY = 5 * N, NEW = 10 };

static kvf_ctx *ctx;
static kvf_base *base;

static void setup(void)
{
    const kvf_ctx_options options = {.threads = 2};
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    const char *dir = ck_tmpdir();
    toy_folder(dir, 5, 0);
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    ck_assert_msg(!kvf_base_open(ctx, dir, &exact, &base), "%s", kvf_ctx_error(ctx));
}

static void teardown(void)
{
    kvf_base_free(base);
    kvf_ctx_free(ctx);
}

static void complete(const char *const *prompts, size_t n, int64_t batch, double temperature,
                     char **texts)
{
    kvf_generate_options options = kvf_generate_defaults();
    kvf_generate_stats stats;
    size_t letters = 0;
    options.max_tokens = NEW;
    options.batch_size = batch;
    options.temperature = temperature;
    options.seed = 8;
    options.chat_template = "none";
    ck_assert_msg(!kvf_generate(ctx, base, NULL, prompts, n, &options, texts, &stats), "%s",
                  kvf_ctx_error(ctx));
    for (size_t i = 0; i < n; i++)
        letters += strlen(prompts[i]);
    ck_assert_int_ge(stats.prompt_tokens, (int64_t)letters); /* shared tokens count for each row */
}

static void same_texts(const char *const *prompts, size_t n, double temperature)
{
    char *together[MANY], *alone[MANY];
    complete(prompts, n, (int64_t)n, temperature, together);
    complete(prompts, n, 1, temperature, alone);
    for (size_t i = 0; i < n; i++)
        ck_assert_str_eq(together[i], alone[i]);
    kvf_texts_free(together, n);
    kvf_texts_free(alone, n);
}

START_TEST(shared_beginnings_change_no_text)
{
    same_texts(PROMPTS, N, _i ? 0.9 : 0);
}
END_TEST

/* More rows than the decoder's steps handle. */
START_TEST(many_rows_say_what_few_say)
{
    const char *many[MANY];
    for (int i = 0; i < MANY; i++)
        many[i] = PROMPTS[i % N];
    same_texts(many, MANY, _i ? 0.9 : 0);
}
END_TEST

/* ---- drafts ---------------------------------------------------------------------------------- */

static kvf_status draft(size_t n, kvf_generate_options options, int64_t tokens, char **texts,
                        kvf_generate_stats *stats)
{
    options.max_tokens = 30;
    options.chat_template = "none";
    options.draft = tokens;
    return kvf_generate(ctx, base, NULL, PROMPTS, n, &options, texts, stats);
}

/* Plain, with a penalty, and with a stop text; together and alone. */
START_TEST(drafts_change_no_text)
{
    static const char *const stop[] = {"e"};
    kvf_generate_options how[3];
    for (int i = 0; i < 3; i++)
        how[i] = kvf_generate_defaults();
    how[1].repetition_penalty = 1.1;
    how[2].stop = stop;
    how[2].n_stop = 1;
    for (size_t n = 1; n <= 4; n += 3) {
        char *with[4], *without[4];
        kvf_generate_stats a, b;
        ck_assert_msg(!draft(n, how[_i], 6, with, &a), "%s", kvf_ctx_error(ctx));
        ck_assert_int_eq(draft(n, how[_i], 0, without, &b), KVF_OK);
        for (size_t i = 0; i < n; i++)
            ck_assert_str_eq(with[i], without[i]);
        ck_assert_int_eq(a.new_tokens, b.new_tokens);
        kvf_texts_free(with, n);
        kvf_texts_free(without, n);
    }
}
END_TEST

START_TEST(drafts_are_of_the_likeliest_text)
{
    kvf_generate_options warm = kvf_generate_defaults(), wide = warm;
    char *texts[1];
    warm.temperature = 0.5;
    wide.beams = 2;
    ck_assert_int_eq(draft(1, warm, 4, texts, NULL), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx), "drafts: not with temperature above 0");
    ck_assert_int_eq(draft(1, wide, 4, texts, NULL), KVF_EUSAGE);
    ck_assert_int_eq(draft(1, kvf_generate_defaults(), 65, texts, NULL), KVF_EUSAGE);
}
END_TEST

/* Draft tokens: the tokens after the longest match, or else after the latest one. */
START_TEST(drafts_are_looked_up)
{
    static const int32_t prompt[] = {1, 2, 3, 7, 2, 3, 8, 9, 1};
    int32_t own[] = {2, 3}, out[5];
    kvf__live_row row = {.request = {.prompt = prompt, .n = 9}};
    ck_assert_int_eq(kvf__draft(&row, 5, out), 0); /* a single token is no evidence */
    row.completion.out = (kvf__ids){.data = own, .n = 2};
    ck_assert_int_eq(kvf__draft(&row, 2, out), 2);
    ck_assert(out[0] == 7 && out[1] == 2);
    row.request.n = 8;
    ck_assert_int_eq(kvf__draft(&row, 5, out), 5);
    ck_assert(out[0] == 8 && out[1] == 9 && out[2] == 2 && out[3] == 3 && out[4] == 8);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generate");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_loop_test(core, shared_beginnings_change_no_text, 0, 2);
    tcase_add_loop_test(core, many_rows_say_what_few_say, 0, 2);
    tcase_add_loop_test(core, drafts_change_no_text, 0, 3);
    tcase_add_test(core, drafts_are_of_the_likeliest_text);
    tcase_add_test(core, drafts_are_looked_up);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
