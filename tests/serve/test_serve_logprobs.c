/* Log-probabilities in answers. Those of prompts (echo) have the bits of `score` for the row alone.
 * Those of new tokens equal the values used for the draw. A greedy token is the likeliest. */
#include <math.h>

#include "serve_fx.h"

static kvf_json *answer; /* the last one, parsed */

static int post(const char *url, const char *body)
{
    const int status = fetch(&s, "POST", url, NULL, body, text, ROOM);
    const char *json = strstr(text, "\r\n\r\n");
    kvf_json_free(answer);
    answer = NULL;
    ck_assert_ptr_nonnull(json);
    ck_assert_msg(!kvf_json_parse(s.ctx, "answer", json + 4, strlen(json + 4), &answer), "%s",
                  text);
    return status;
}

static const kvf_json *choice(size_t i)
{
    return kvf_json_at(kvf_json_get(answer, "choices"), i);
}

static const kvf_json *list_of(size_t i, const char *name)
{
    return kvf_json_get(kvf_json_get(choice(i), "logprobs"), name);
}

static double real_at(const kvf_json *list, size_t i)
{
    return kvf_json_real(kvf_json_at(list, i), NAN);
}

/* The largest value of an object. */
static double best_of(const kvf_json *top)
{
    double best = -INFINITY;
    for (void *it = kvf_json_iter((kvf_json *)top); it; it = kvf_json_next((kvf_json *)top, it))
        best = fmax(best, kvf_json_real(kvf_json_iter_value(it), -INFINITY));
    return best;
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* Scores of a text's tokens from the second on, and the two likeliest at each. */
static int64_t score_alone(const char *file, const char *prompt, kvf_token_score *scores,
                           kvf__candidate *top)
{
    int32_t labels[100];
    kvf__ids ids = {0};
    kvf_prefix *prefix = NULL;
    kvf__scorer *scorer = NULL;
    ck_assert_int_eq(kvf__encode(s.ctx, s.base->tokenizer, prompt, strlen(prompt), true, &ids),
                     KVF_OK);
    ck_assert_uint_le(ids.n, 100);
    for (size_t i = 0; i < ids.n; i++)
        labels[i] = i ? ids.data[i] : KVF__NO_LABEL;
    if (file)
        ck_assert_int_eq(kvf_prefix_open(s.ctx, file, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    const kvf__scorer_limits limits = {.tokens = (int64_t)ids.n,
                                       .P = prefix ? prefix->file.prefix.P : 0};
    const kvf__score_row row = {
        .prefix = prefix, .ids = ids.data, .labels = labels, .n = (int64_t)ids.n, .n_top = 2};
    ck_assert_int_eq(kvf__scorer_create(s.ctx, s.base, &limits, &scorer), KVF_OK);
    ck_assert_int_eq(kvf__score_row_run(s.ctx, scorer, &row, scores, top), KVF_OK);
    kvf__scorer_free(scorer);
    kvf_prefix_free(prefix);
    const int64_t n = (int64_t)ids.n;
    kvf__ids_done(&ids);
    return n;
}

static void echo_is_scored(const char *model, const char *file, const char *prompt,
                           const char *as_json, size_t index)
{
    kvf_token_score want[100];
    kvf__candidate top[200];
    char body[512];
    const int64_t n = score_alone(file, prompt, want, top);
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":%s,\"max_tokens\":0,\"echo\":true,\"logprobs\":2}",
             model, as_json);
    ck_assert_msg(post("/v1/completions", body) == 200, "%s", text);
    const kvf_json *values = list_of(index, "token_logprobs"),
                   *tops = list_of(index, "top_logprobs"), *tokens = list_of(index, "tokens"),
                   *offsets = list_of(index, "text_offset");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(choice(index), "text"), NULL), prompt);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(choice(index), "finish_reason"), NULL), "length");
    ck_assert_int_eq((int64_t)kvf_json_size(values), n);
    ck_assert_int_eq((int64_t)kvf_json_size(tokens), n);
    ck_assert(kvf_json_typeof(kvf_json_at(values, 0)) == KVF_JSON_NULL);
    ck_assert(kvf_json_typeof(kvf_json_at(tops, 0)) == KVF_JSON_NULL);
    for (int64_t i = 1; i < n; i++) {
        const char letter[2] = {prompt[i], 0};
        ck_assert_str_eq(kvf_json_str(kvf_json_at(tokens, (size_t)i), NULL), letter);
        ck_assert(kvf_json_int(kvf_json_at(offsets, (size_t)i), -1) == i);
        ck_assert((float)real_at(values, (size_t)i) == want[i - 1].logprob); /* the same bits */
        ck_assert((float)best_of(kvf_json_at(tops, (size_t)i)) == top[2 * (i - 1)].logit);
        if (want[i - 1].greedy)
            ck_assert(real_at(values, (size_t)i) == best_of(kvf_json_at(tops, (size_t)i)));
    }
}

START_TEST(prompts_are_scored)
{
    serve_start(&s);
    echo_is_scored("two", s.path[1], "the answer", "\"the answer\"", 0);
    echo_is_scored("bare", NULL, "the answer", "\"the answer\"", 0);
    echo_is_scored("three", s.path[2], "ab c", "[1,2,0,3]", 0);
    echo_is_scored("one", s.path[0], "xyz", "[\"the answer\",\"xyz\"]", 1);
    echo_is_scored("one", s.path[0], "ba", "[[1],[2,1]]", 1);
    ck_assert_int_eq((int64_t)kvf_json_size(list_of(0, "token_logprobs")), 1);
    is_served();
    serve_end(&s);
}
END_TEST

/* ---- new tokens ------------------------------------------------------------------------------ */

#define GREEDY "\"prompt\":\"the answer\",\"max_tokens\":6,\"temperature\":0"

/* The answer's text is the same with and without; its values equal those of its own echo. */
START_TEST(new_tokens_have_theirs)
{
    char said[100], body[256];
    double values[6];
    serve_start(&s);
    ck_assert_int_eq(post("/v1/completions", "{\"model\":\"two\"," GREEDY "}"), 200);
    snprintf(said, sizeof said, "%s", kvf_json_str(kvf_json_get(choice(0), "text"), NULL));
    ck_assert(kvf_json_typeof(kvf_json_get(choice(0), "logprobs")) == KVF_JSON_NULL);
    ck_assert_int_eq(post("/v1/completions", "{\"model\":\"two\",\"logprobs\":1," GREEDY "}"), 200);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(choice(0), "text"), NULL), said);
    const kvf_json *got = list_of(0, "token_logprobs");
    const size_t n = kvf_json_size(got);
    ck_assert(n > 0 && n <= 6 && n == strlen(said));
    for (size_t i = 0; i < n; i++) {
        values[i] = real_at(got, i);
        ck_assert(values[i] == best_of(kvf_json_at(list_of(0, "top_logprobs"), i)));
    }
    snprintf(body, sizeof body,
             "{\"model\":\"two\",\"prompt\":\"the answer%s\",\"max_tokens\":0,\"echo\":true,"
             "\"logprobs\":0}",
             said);
    ck_assert_int_eq(post("/v1/completions", body), 200);
    for (size_t i = 0; i < n; i++) /* steps sum in another order than passes */
        ck_assert_double_eq_tol(real_at(list_of(0, "token_logprobs"), 10 + i), values[i], 1e-4);
    serve_end(&s);
}
END_TEST

/* A request for one token gets one token after the prompt, even if it is the end token. Clients
 * that score texts through echo drop that last token. Chats leave it out. */
START_TEST(the_end_token_has_its_own)
{
    s.options.chat_template = "chatml";
    serve_start(&s);
    ck_assert_int_eq(post("/v1/completions", "{\"model\":\"one\",\"prompt\":[1,2,3],\"echo\":true,"
                                             "\"max_tokens\":1,\"logprobs\":1,\"logit_bias\":"
                                             "{\"60\":100}}"),
                     200);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(choice(0), "text"), NULL), "abc");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(choice(0), "finish_reason"), NULL), "stop");
    ck_assert_uint_eq(kvf_json_size(list_of(0, "tokens")), 4);
    ck_assert_str_eq(kvf_json_str(kvf_json_at(list_of(0, "tokens"), 3), NULL), "</s>");
    ck_assert(real_at(list_of(0, "token_logprobs"), 3) < 0);
    ck_assert_int_eq(
        post("/v1/chat/completions",
             "{\"model\":\"one\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
             "\"logprobs\":true,\"logit_bias\":{\"60\":100}}"),
        200);
    ck_assert_uint_eq(kvf_json_size(list_of(0, "content")), 0);
    serve_end(&s);
}
END_TEST

/* The template's text around a prompt is a part of its row. */
START_TEST(a_template_is_told_too)
{
    s.options.chat_template = "chatml";
    serve_start(&s);
    ck_assert_int_eq(post("/v1/completions", "{\"model\":\"one\",\"prompt\":\"abc\",\"echo\":true,"
                                             "\"max_tokens\":0,\"logprobs\":0}"),
                     200);
    const char *said = kvf_json_str(kvf_json_get(choice(0), "text"), NULL);
    ck_assert_msg(strstr(said, "user") && strstr(said, "abc"), "%s", said);
    size_t n = 0;
    for (size_t i = 0; i < kvf_json_size(list_of(0, "tokens")); i++)
        n += strlen(kvf_json_str(kvf_json_at(list_of(0, "tokens"), i), NULL));
    ck_assert_uint_eq(n, strlen(said));
    serve_end(&s);
}
END_TEST

/* Events of a stream have the values of the whole answer. */
START_TEST(streams_tell_as_much)
{
    char want[600];
    serve_start(&s);
    ck_assert_int_eq(
        post("/v1/completions", "{\"model\":\"one\",\"echo\":true,\"logprobs\":1," GREEDY "}"),
        200);
    char *values = kvf_json_text(list_of(0, "token_logprobs"), KVF_JSON_COMPACT);
    snprintf(want, sizeof want, "%s", values);
    kvf_json_text_free(values);
    ck_assert_int_eq(fetch(&s, "POST", "/v1/completions", NULL,
                           "{\"model\":\"one\",\"echo\":true,\"logprobs\":1,\"stream\":true," GREEDY
                           "}",
                           text, ROOM),
                     200);
    char got[600] = "[";
    for (const char *at = text; (at = strstr(at, "\"token_logprobs\":[")) != NULL; at++) {
        at += strlen("\"token_logprobs\":[");
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", got[1] ? "," : "",
                 (int)strcspn(at, "]"), at);
    }
    strcat(got, "]");
    ck_assert_str_eq(got, want);
    serve_end(&s);
}
END_TEST

START_TEST(chats_have_entries)
{
    s.options.chat_template = "chatml";
    serve_start(&s);
    ck_assert_int_eq(
        post("/v1/chat/completions",
             "{\"model\":\"bare\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
             "\"max_tokens\":4,\"temperature\":0,\"logprobs\":true,"
             "\"top_logprobs\":3}"),
        200);
    const kvf_json *entries = list_of(0, "content");
    ck_assert_int_eq(
        (int64_t)kvf_json_size(entries),
        kvf_json_int(kvf_json_get(kvf_json_get(answer, "usage"), "completion_tokens"), -1));
    for (size_t i = 0; i < kvf_json_size(entries); i++) {
        const kvf_json *entry = kvf_json_at(entries, i), *top = kvf_json_get(entry, "top_logprobs");
        ck_assert_uint_eq(kvf_json_size(top), 3);
        const kvf_json *first = kvf_json_at(top, 0);
        ck_assert_str_eq(kvf_json_str(kvf_json_get(first, "token"), NULL),
                         kvf_json_str(kvf_json_get(entry, "token"), NULL));
        ck_assert(kvf_json_real(kvf_json_get(first, "logprob"), 1) ==
                  kvf_json_real(kvf_json_get(entry, "logprob"), 2));
        ck_assert(kvf_json_typeof(kvf_json_get(entry, "bytes")) == KVF_JSON_ARRAY);
    }
    serve_end(&s);
}
END_TEST

START_TEST(an_echo_alone_is_the_prompt)
{
    serve_start(&s);
    ck_assert_int_eq(post("/v1/completions", "{\"model\":\"one\",\"prompt\":[1,2],\"echo\":true,"
                                             "\"max_tokens\":0,\"n\":2}"),
                     200);
    ck_assert_uint_eq(kvf_json_size(kvf_json_get(answer, "choices")), 2);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(choice(1), "text"), NULL), "ab");
    ck_assert(kvf_json_typeof(kvf_json_get(choice(1), "logprobs")) == KVF_JSON_NULL);
    serve_end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_logprobs");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, prompts_are_scored);
    tcase_add_test(core, new_tokens_have_theirs);
    tcase_add_test(core, the_end_token_has_its_own);
    tcase_add_test(core, a_template_is_told_too);
    tcase_add_test(core, streams_tell_as_much);
    tcase_add_test(core, chats_have_entries);
    tcase_add_test(core, an_echo_alone_is_the_prompt);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
