/* Growth and end of answers, on bases with known tokens. Text sent piece by piece equals the text
 * of the whole answer, and is never taken back. */
#include "chain_base.h"
#include "engine.h"
#include "generate.h"

#include <time.h>

static kvf_ctx *ctx;
static kvf_base *base;

static void setup(void)
{
    const kvf_ctx_options options = {.threads = 1};
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_base_free(base);
    base = NULL;
    kvf_ctx_free(ctx);
}

static void open_chain(const chain *c)
{
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    const char *dir = ck_tmpdir();
    kvf_base_free(base);
    base = NULL;
    chain_folder(ctx, dir, c);
    ck_assert_msg(!kvf_base_open(ctx, dir, &exact, &base), "%s", kvf_ctx_error(ctx));
}

/* The concatenated pieces. */
typedef struct heard {
    kvf__buf text;
    int64_t tokens;
    int pieces;
    kvf__finish finish;
} heard;

static bool take_piece(void *user, size_t prompt, const char *text, size_t bytes)
{
    heard *h = user;
    ck_assert_uint_eq(prompt, 0);
    ck_assert_uint_gt(bytes, 0);
    ck_assert_int_eq(kvf__buf_add(NULL, &h->text, text, bytes), KVF_OK);
    h->pieces++;
    return true;
}

static void take_text(void *user, const char *text, size_t n, int64_t new_tokens, kvf__finish end)
{
    heard *h = user;
    if (n) take_piece(h, 0, text, n);
    h->tokens = new_tokens;
    h->finish = end;
}

static void is_text(const char *what, const char *got, size_t n, const char *want, size_t want_n)
{
    ck_assert_msg(n == want_n && !memcmp(got, want, n), "%s: \"%.*s\", want \"%.*s\"", what, (int)n,
                  got, (int)want_n, want);
}

/* The answer to "x" from the server's rows. */
static heard by_engine(const char *stop, int64_t max_tokens)
{
    const int32_t prompt = 0;
    const kvf__ends ends = kvf__completion_ends(base, NULL, &(kvf__chat){0});
    heard h = {0};
    int64_t row;
    kvf__engine *engine = NULL;
    const kvf__row_request order = {.prompt = &prompt,
                                    .n = 1,
                                    .max_tokens = max_tokens,
                                    .sampling = {.top_p = 1},
                                    .stop = &stop,
                                    .n_stop = stop != NULL,
                                    .ends = &ends,
                                    .text = take_text,
                                    .user = &h};
    ck_assert_int_eq(kvf__engine_create(ctx, base, 1, max_tokens + 1, &engine), KVF_OK);
    ck_assert_int_eq(kvf__engine_add(ctx, engine, &order, &row), KVF_OK);
    while (!h.finish)
        ck_assert_int_eq(kvf__engine_step(ctx, engine), KVF_OK);
    kvf__engine_free(engine);
    return h;
}

/* Whole and piece by piece, from `generate` and from the server's rows. */
static void answers(const char *stop, int64_t max_tokens, const char *want, size_t n,
                    int64_t tokens, kvf__finish finish)
{
    const char *prompt = "x";
    heard said = {0};
    char *text = NULL;
    kvf_generate_stats stats;
    kvf_generate_options o = kvf_generate_defaults();
    o.max_tokens = max_tokens;
    o.stop = &stop;
    o.n_stop = stop != NULL;
    o.token = take_piece;
    o.token_user = &said;
    ck_assert_msg(!kvf_generate(ctx, base, NULL, &prompt, 1, &o, &text, &stats), "%s",
                  kvf_ctx_error(ctx));
    is_text("whole", text, kvf_text_bytes(text), want, n);
    is_text("pieces", said.text.n ? said.text.data : "", said.text.n, want, n);
    kvf_texts_free(&text, 1);
    kvf__buf_done(&said.text);
    said = by_engine(stop, max_tokens);
    is_text("served", said.text.n ? said.text.data : "", said.text.n, want, n);
    ck_assert_int_eq(said.tokens, tokens);
    ck_assert_int_eq(said.finish, finish);
    kvf__buf_done(&said.text);
}

#define BAD        "\xEF\xBF\xBD"
#define SMILE      "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"
#define SMILE_TEXT "\xF0\x9F\x98\x80"
#define YOU        "<0xE4>", "<0xBD>", "<0xA0>"
#define YOU_TEXT   "\xE4\xBD\xA0"
#define STOP       KVF__FINISH_STOP
#define LENGTH     KVF__FINISH_LENGTH
enum { MOST_TOKENS = 16 };

/* A run of byte tokens is text only as a whole: `tokenizers` decides so, and pieces must match. */
static const struct {
    const char *tokens[MOST_TOKENS], *stop;
    int64_t max_tokens;
    const char *want;
    int64_t n_tokens;
    kvf__finish finish;
} RUNS[] = {
    {{"x", SMILE, YOU, "a", "</s>"}, NULL, 20, SMILE_TEXT YOU_TEXT "a", 8, STOP},
    {{"x", SMILE, YOU, "</s>"}, NULL, 20, SMILE_TEXT YOU_TEXT, 7, STOP},
    {{"x", "a", SMILE, YOU, "</s>"}, NULL, 7, "a" BAD BAD BAD BAD BAD BAD, 7, LENGTH},
    {{"x", SMILE, YOU, "</s>"}, NULL, 4, SMILE_TEXT, 4, LENGTH},
    {{"x", SMILE, "<0xE4>", "a", "</s>"}, NULL, 20, BAD BAD BAD BAD BAD "a", 6, STOP},
    {{"x", "a", "<0xFF>", "<0x41>", "b", "</s>"}, NULL, 20, "a" BAD BAD "b", 4, STOP},
    /* a stop text is detected inside a run, and at once */
    {{"x", "a", "<0x0A>", SMILE, "</s>"}, "\n", 20, "a", 2, STOP},
    {{"x", SMILE, YOU, "<0xE5>", "a", "</s>"}, YOU_TEXT, 20, SMILE_TEXT, 7, STOP},
    {{"x", "a", SMILE, YOU, "</s>"}, SMILE_TEXT YOU_TEXT, 20, "a", 8, STOP},
    {{"x", "a", SMILE, YOU, "b", "</s>"},
     "a" SMILE_TEXT "b",
     20,
     "a" SMILE_TEXT YOU_TEXT "b",
     9,
     STOP},
    {{"x", "a", SMILE, "<0xE4>", "b", "</s>"},
     "a" SMILE_TEXT "!",
     20,
     "a" BAD BAD BAD BAD BAD "b",
     7,
     STOP},
    {{"x", "a", "b", "c", "</s>"}, "bc", 2, "ab", 2, LENGTH},
    {{"x", "a", "b", "c", "</s>"}, "bc", 3, "a", 3, STOP},
};

START_TEST(runs_of_bytes)
{
    chain c = {.tokens = RUNS[_i].tokens, .tokenizer_config = "{\"eos_token\":\"</s>\"}"};
    while (c.n < MOST_TOKENS && c.tokens[c.n])
        c.n++;
    open_chain(&c);
    answers(RUNS[_i].stop, RUNS[_i].max_tokens, RUNS[_i].want, strlen(RUNS[_i].want),
            RUNS[_i].n_tokens, RUNS[_i].finish);
}
END_TEST

START_TEST(a_zero_byte_is_text)
{
    static const char *const tokens[] = {"x", "a", "<0x00>", "b", "c", "</s>"};
    const chain c = {tokens, 6, "", NULL, "{\"eos_token\":\"</s>\"}", 5};
    open_chain(&c);
    answers(NULL, 20, "a\0bc", 4, 4, STOP);
    answers("c", 20, "a\0b", 3, 4, STOP);
    answers("b", 20, "a\0", 2, 3, STOP);
}
END_TEST

/* ---- ends ------------------------------------------------------------------------------------ */

/* Tokens 1 to 5 are a to e, 6 is the tokenizer's EOS, then f. The ending token is not part of the
 * text. */
static const struct {
    const char *config, *generation, *want;
    int64_t n_tokens;
} ENDS[] = {
    {"", NULL, "abcde", 5},
    {",\"eos_token_id\":3", NULL, "ab", 2},
    {",\"eos_token_id\":[5,3]", NULL, "ab", 2},
    {",\"eos_token_id\":[7]", NULL, "abcde", 6}, /* its EOS is an ordinary special token */
    {",\"eos_token_id\":3", "{\"eos_token_id\":4}", "abc", 3},
    {",\"eos_token_id\":[3,2]", "{\"eos_token_id\":[5,4]}", "abc", 3},
    {",\"eos_token_id\":3", "{\"temperature\":0.6}", "ab", 2},
    {",\"eos_token_id\":3", "{\"eos_token_id\":null}", "ab", 2},
    {"", "{\"eos_token_id\":[2,3]}", "a", 1},
};

static const char *const LETTERS[] = {"x", "a", "b", "c", "d", "e", "</s>", "f", "g"};

START_TEST(several_ids_end_an_answer)
{
    const chain c = {LETTERS, 9, ENDS[_i].config, ENDS[_i].generation, "{\"eos_token\":\"</s>\"}",
                     8};
    open_chain(&c);
    answers(NULL, 20, ENDS[_i].want, strlen(ENDS[_i].want), ENDS[_i].n_tokens, STOP);
}
END_TEST

/* Rows of data end in the tokenizer's EOS; so do answers with a prefix trained on them. */
START_TEST(a_prefix_ends_as_its_rows_did)
{
    const chain c = {LETTERS, 9, ",\"eos_token_id\":3", NULL, "{\"eos_token\":\"</s>\"}", 8};
    const kvf_prefix prefix = {0};
    open_chain(&c);
    const kvf__ends bare = kvf__completion_ends(base, NULL, &(kvf__chat){0});
    const kvf__ends behind = kvf__completion_ends(base, &prefix, &(kvf__chat){0});
    ck_assert(bare.n == 1 && kvf__ends_has(&bare, 3));
    ck_assert(behind.n == 2 && kvf__ends_has(&behind, 3) && kvf__ends_has(&behind, 6));
}
END_TEST

START_TEST(bad_ends_are_refused)
{
    static const char *const bad[] = {"\"</s>\"", "[1,\"a\"]", "-2", "{}", "1.5"};
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    char generation[64];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const chain c = {LETTERS, 9, "", generation, NULL, 8};
        const char *dir = ck_tmpdir();
        snprintf(generation, sizeof generation, "{\"eos_token_id\":%s}", bad[i]);
        chain_folder(ctx, dir, &c);
        ck_assert_int_eq(kvf_base_open(ctx, dir, &exact, &base), KVF_EFORMAT);
        ck_assert_msg(strstr(kvf_ctx_error(ctx), "generation_config.json: eos_token_id") != NULL,
                      "%s", kvf_ctx_error(ctx));
    }
}
END_TEST

/* A base file made from a folder ends at the same tokens as the folder. */
START_TEST(a_base_file_keeps_the_ends)
{
    const chain c = {LETTERS, 9, ",\"eos_token_id\":3", "{\"eos_token_id\":[5,4]}", NULL, 8};
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    char path[600];
    char kind[64];
    open_chain(&c);
    snprintf(path, sizeof path, "%s/base.h5", ck_tmpdir());
    const kvf_import_options import = {.path = base->path, .out = path};
    ck_assert_msg(!kvf_import(ctx, &import, kind), "%s", kvf_ctx_error(ctx));
    kvf_base_free(base);
    base = NULL;
    ck_assert_msg(!kvf_base_open(ctx, path, &exact, &base), "%s", kvf_ctx_error(ctx));
    answers(NULL, 20, "abc", 3, 3, STOP);
}
END_TEST

/* A model in a loop of four-byte characters that form one run. It would take seconds if every token
 * decoded or searched the whole run again. */
START_TEST(long_answers_take_a_time_in_proportion)
{
    enum { SHORT = 1000, LONG = 16000 };
    static const char *const tokens[] = {"x", SMILE};
    const chain c = {tokens, 5, "", NULL, NULL, 1};
    const char *stop = "never";
    const kvf__ends none = {0};
    const int64_t counts[] = {SHORT, LONG};
    double seconds[2] = {1e9, 1e9};
    open_chain(&c);
    for (int k = 0; k < 6; k++) {
        kvf__completion answer = {.limit = LONG + 1, .stop = &stop, .n_stop = 1, .ends = &none};
        const clock_t begin = clock();
        for (int64_t i = 0; i < counts[k % 2]; i++) {
            ck_assert_int_eq(kvf__completion_add(ctx, base, &answer, 1 + (int32_t)(i % 4)), KVF_OK);
            ck_assert_uint_eq(kvf__completion_ready(&answer), 0);
        }
        const double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
        if (took < seconds[k % 2]) seconds[k % 2] = took;
        ck_assert_uint_eq(answer.text.n, (size_t)counts[k % 2]);
        kvf__completion_done(&answer);
    }
    ck_assert_msg(seconds[1] < 0.02 + 5 * LONG / SHORT * seconds[0], "%d tokens %.4f s, %d %.4f s",
                  SHORT, seconds[0], LONG, seconds[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("completion");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_loop_test(core, runs_of_bytes, 0, sizeof RUNS / sizeof RUNS[0]);
    tcase_add_test(core, a_zero_byte_is_text);
    tcase_add_loop_test(core, several_ids_end_an_answer, 0, sizeof ENDS / sizeof ENDS[0]);
    tcase_add_test(core, a_prefix_ends_as_its_rows_did);
    tcase_add_test(core, bad_ends_are_refused);
    tcase_add_test(core, a_base_file_keeps_the_ends);
    tcase_add_test(core, long_answers_take_a_time_in_proportion);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
