/* Completions do not depend on what is computed with them: prompts that begin alike share that,
 * few rows take steps from the file's weights and many take passes. */
#include "generate.h"
#include "toy_base.h"

/* Letters of the toy tokenizer are tokens. The first three share 12 or 15, the fourth is the
 * beginning of another, the sixth is the fifth again. */
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
    ck_assert_int_ge(stats.prompt_tokens, (int64_t)letters); /* shared ones count as often */
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

/* More rows than take steps of their own. */
START_TEST(many_rows_say_what_few_say)
{
    const char *many[MANY];
    for (int i = 0; i < MANY; i++)
        many[i] = PROMPTS[i % N];
    same_texts(many, MANY, _i ? 0.9 : 0);
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
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
