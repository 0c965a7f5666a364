/* Request bodies: the parsed request, the reasons for refusals, and safety for any bytes. */
#include "access.h"
#include "ck.h"
#include "request.h"

enum { MOST = 100 };

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static bool parse(const char *body, bool chat, kvf__request *out, kvf__problem *problem)
{
    return kvf__request_parse(ctx, body, strlen(body), chat ? KVF__CHAT : KVF__COMPLETIONS, MOST,
                              out, problem);
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(what_is_asked_is_read)
{
    kvf__request r;
    kvf__problem p;
    ck_assert(parse("{\"model\":\"m\",\"prompt\":\"Hi\",\"max_tokens\":7,\"temperature\":0.5,"
                    "\"top_p\":0.9,\"top_k\":3,\"seed\":-2,\"stop\":[\"a\",\"bc\"],\"stream\":true,"
                    "\"stream_options\":{\"include_usage\":true},\"n\":5,\"echo\":false,"
                    "\"logprobs\":null,\"user\":\"u\",\"frequency_penalty\":0.0,"
                    "\"presence_penalty\":-1.5,\"repetition_penalty\":1.2,\"min_p\":0.05,"
                    "\"logit_bias\":{\"12\":-100,\"3\":2.5}}",
                    false, &r, &p));
    ck_assert_str_eq(r.model, "m");
    ck_assert_uint_eq(r.n_prompts, 1);
    ck_assert_str_eq(r.prompts[0].text, "Hi");
    ck_assert_int_eq(r.max_tokens, 7);
    ck_assert(r.sampling.temperature == 0.5 && r.sampling.top_p == 0.9 && r.sampling.top_k == 3);
    ck_assert(r.sampling.min_p == 0.05);
    const kvf__penalties *penalties = &r.sampling.penalties;
    ck_assert(penalties->frequency == 0 && penalties->presence == -1.5);
    ck_assert(penalties->repetition == 1.2 && penalties->n_bias == 2);
    ck_assert(penalties->bias[0].id + penalties->bias[1].id == 15);
    ck_assert(r.seeded && r.seed == (uint64_t)-2);
    ck_assert(r.stream && r.usage && r.kind == KVF__COMPLETIONS);
    ck_assert_int_eq(r.n, 5);
    ck_assert_uint_eq(r.n_stop, 2);
    ck_assert_str_eq(r.stop[1], "bc");
    kvf__request_forget(&r);
    ck_assert(penalties->bias[0].id + penalties->bias[1].id == 15);
    ck_assert(!r.root && !r.prompts && !r.model);
    ck_assert_str_eq(r.stop[1], "bc");
    ck_assert_int_eq(r.n, 5);
    kvf__request_done(&r);
}
END_TEST

START_TEST(defaults_are_the_api_s)
{
    kvf__request r;
    kvf__problem p;
    ck_assert(parse("{\"model\":\"m\",\"prompt\":[1,2,60]}", false, &r, &p));
    ck_assert_int_eq(r.max_tokens, 16);
    ck_assert(r.sampling.temperature == 1 && r.sampling.top_p == 1 && !r.sampling.top_k);
    ck_assert(!r.seeded && !r.stream && r.n == 1);
    ck_assert(r.n_prompts == 1 && !r.prompts[0].text);
    ck_assert_uint_eq(r.prompts[0].ids.n, 3);
    ck_assert_int_eq(r.prompts[0].ids.data[2], 60);
    kvf__request_done(&r);
    ck_assert(parse("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
                    "{\"role\":\"assistant\",\"content\":\"y\",\"refusal\":null},"
                    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                    "{\"type\":\"text\",\"text\":\"b\"}]}]}",
                    true, &r, &p));
    ck_assert_int_eq(r.max_tokens, MOST);
    ck_assert_uint_eq(r.n_messages, 3);
    ck_assert_str_eq(r.messages[1].role, "assistant");
    ck_assert_str_eq(r.messages[2].content, "ab");
    kvf__request_done(&r);
}
END_TEST

/* Values above the server's limits are cut to the limits. */
START_TEST(many_tokens_are_cut)
{
    kvf__request r;
    kvf__problem p;
    ck_assert(parse("{\"model\":\"m\",\"prompt\":\"a\",\"max_tokens\":101}", false, &r, &p));
    ck_assert_int_eq(r.max_tokens, MOST);
    kvf__request_done(&r);
    ck_assert(parse("{\"model\":\"m\",\"max_completion_tokens\":2147483647,\"messages\":"
                    "[{\"role\":\"user\",\"content\":\"x\",\"name\":\"n\"}]}",
                    true, &r, &p));
    ck_assert_int_eq(r.max_tokens, MOST);
    ck_assert_str_eq(r.messages[0].content, "x");
    kvf__request_done(&r);
}
END_TEST

START_TEST(logprobs_are_read)
{
    static const struct {
        bool chat;
        const char *body;
        int64_t logprobs;
    } rows[] = {
        {false, "{\"model\":\"m\",\"prompt\":\"a\"}", -1},
        {false, "{\"model\":\"m\",\"prompt\":\"a\",\"logprobs\":false}", -1},
        {false, "{\"model\":\"m\",\"prompt\":\"a\",\"logprobs\":0}", 0},
        {false, "{\"model\":\"m\",\"prompt\":\"a\",\"logprobs\":20,\"echo\":true,\"max_tokens\":0}",
         20},
#define CHAT "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
        {true, CHAT "\"logprobs\":true}", 0},
        {true, CHAT "\"logprobs\":false,\"top_logprobs\":0}", -1},
        {true, CHAT "\"top_logprobs\":4,\"logprobs\":true}", 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kvf__request r;
        kvf__problem p;
        ck_assert_msg(parse(rows[i].body, rows[i].chat, &r, &p), "%s: %s", rows[i].body, p.message);
        ck_assert_int_eq(r.logprobs, rows[i].logprobs);
        ck_assert(r.echo == (r.logprobs == 20) && (r.max_tokens > 0) == !r.echo);
        kvf__request_done(&r);
    }
    kvf__request r;
    kvf__problem p;
    ck_assert(!parse(CHAT "\"top_logprobs\":4}", true, &r, &p));
    ck_assert_str_eq(p.param, "top_logprobs");
    ck_assert(!parse(CHAT "\"logprobs\":5}", true, &r, &p));
    ck_assert_str_eq(p.param, "logprobs");
}
END_TEST

START_TEST(several_prompts_are_read)
{
    kvf__request r;
    kvf__problem p;
    ck_assert(parse("{\"model\":\"m\",\"prompt\":[\"a\",\"\",\"c\"],\"n\":2}", false, &r, &p));
    ck_assert_uint_eq(r.n_prompts, 3);
    ck_assert_str_eq(r.prompts[0].text, "a");
    ck_assert_str_eq(r.prompts[1].text, "");
    ck_assert_str_eq(r.prompts[2].text, "c");
    kvf__request_done(&r);
    ck_assert(parse("{\"model\":\"m\",\"prompt\":[[1,2],[3]]}", false, &r, &p));
    ck_assert(r.n_prompts == 2 && !r.prompts[0].text && !r.prompts[1].text);
    ck_assert(r.prompts[0].ids.n == 2 && r.prompts[1].ids.n == 1);
    ck_assert_int_eq(r.prompts[1].ids.data[0], 3);
    kvf__request_done(&r);
}
END_TEST

/* U+0000 is text like any other character. */
START_TEST(nul_is_text)
{
    kvf__request r;
    kvf__problem p;
    ck_assert(parse("{\"model\":\"m\",\"prompt\":\"a\\u0000b\"}", false, &r, &p));
    ck_assert_uint_eq(r.prompts[0].bytes, 3);
    ck_assert_mem_eq(r.prompts[0].text, "a\0b", 3);
    kvf__request_done(&r);
    ck_assert(parse("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"},"
                    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\\u0000\"},"
                    "{\"type\":\"text\",\"text\":\"c\"}]}]}",
                    true, &r, &p));
    ck_assert_uint_eq(r.messages[0].bytes, 3);
    ck_assert_mem_eq(r.messages[0].content, "a\0b", 3);
    ck_assert_uint_eq(r.messages[1].bytes, 2);
    ck_assert_mem_eq(r.messages[1].content, "\0c", 2);
    kvf__request_done(&r);
}
END_TEST

START_TEST(tokenizing_is_read)
{
    kvf__request r;
    kvf__problem p;
    const char *text = "{\"prompt\":\"a\\u0000b\",\"add_special_tokens\":false}",
               *ids = "{\"model\":\"m\",\"tokens\":[]}",
               *chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                       "\"add_generation_prompt\":false,\"return_token_strs\":true}";
    ck_assert(kvf__request_parse(ctx, text, strlen(text), KVF__TOKENIZE, MOST, &r, &p));
    ck_assert(!r.model && r.n_prompts == 1 && r.prompts[0].bytes == 3 && !r.form.add_special);
    kvf__request_done(&r);
    ck_assert(kvf__request_parse(ctx, chat, strlen(chat), KVF__TOKENIZE, MOST, &r, &p));
    ck_assert(r.n_messages == 1 && !r.form.generation && r.form.written);
    kvf__request_done(&r);
    ck_assert(kvf__request_parse(ctx, ids, strlen(ids), KVF__DETOKENIZE, MOST, &r, &p));
    ck_assert(r.n_prompts == 1 && !r.prompts[0].ids.n);
    kvf__request_done(&r);
}
END_TEST

static const struct {
    kvf__request_kind kind;
    const char *body, *param;
} BAD_TOKENS[] = {
    {KVF__TOKENIZE, "{}", "prompt"},
    {KVF__TOKENIZE, "{\"prompt\":[1]}", "prompt"},
    {KVF__TOKENIZE, "{\"prompt\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
     "prompt"},
    {KVF__TOKENIZE, "{\"prompt\":\"a\",\"max_tokens\":1}", "max_tokens"},
    {KVF__DETOKENIZE, "{\"model\":\"m\"}", "tokens"},
    {KVF__DETOKENIZE, "{\"tokens\":[-1]}", "tokens"},
    {KVF__DETOKENIZE, "{\"tokens\":7}", "tokens"},
};

START_TEST(bad_tokenizing_is_refused)
{
    kvf__request r;
    kvf__problem p;
    const char *body = BAD_TOKENS[_i].body;
    ck_assert(!kvf__request_parse(ctx, body, strlen(body), BAD_TOKENS[_i].kind, MOST, &r, &p));
    ck_assert_uint_eq(p.status, 400);
    ck_assert_str_eq(p.param, BAD_TOKENS[_i].param);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

#define P "{\"model\":\"m\",\"prompt\":\"x\","
static const struct {
    bool chat;
    const char *body, *param, *text;
} BAD[] = {
    {false, "", "", "body"},
    {false, "{\"model\":\"m\",\"prompt\":\"x\"", "", "body"},
    {false, P "\"prompt\":\"y\"}", "", "duplicate"},
    {false, "[]", "", "not a JSON object"},
    {false, "{\"prompt\":\"x\"}", "model", "missing"},
    {false, "{\"model\":\"m\"}", "prompt", "missing"},
    {false, "{\"model\":\"m\\u0000\",\"prompt\":\"a\"}", "model", "name of a model"},
    {true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\\u0000\",\"content\":\"a\"}]}",
     "messages", "role"},
    {false, P "\"stop\":\"a\\u0000b\"}", "stop", "1 to 256"},
    {false, "{\"model\":\"m\",\"prompt\":[\"a\",3]}", "prompt", "token ids"},
    {false, "{\"model\":\"m\",\"prompt\":[[1],[]]}", "prompt", "token ids"},
    {false, "{\"model\":\"m\",\"prompt\":[[[1]]]}", "prompt", "token ids"},
    {false, "{\"model\":\"m\",\"prompt\":{}}", "prompt", "token ids"},
    {false, "{\"model\":\"m\",\"prompt\":[\"a\",\"b\",\"c\"],\"n\":43}", "n", "128 in total"},
    {false, "{\"model\":\"m\",\"prompt\":[1,-1]}", "prompt", "token ids"},
    {false, "{\"model\":\"m\",\"prompt\":[]}", "prompt", "want a text"},
    {false, P "\"max_tokens\":0}", "max_tokens", "from 1 to 2147483647"},
    {false, P "\"max_tokens\":2147483648}", "max_tokens", "from 1 to 2147483647"},
    {false, P "\"max_tokens\":1.5}", "max_tokens", "whole"},
    {false, P "\"temperature\":-1}", "temperature", "from 0 to 2"},
    {false, P "\"temperature\":\"1\"}", "temperature", "number"},
    {false, P "\"top_p\":0}", "top_p", "above 0"},
    {false, P "\"top_k\":-1}", "top_k", "from 0"},
    {false, P "\"stop\":\"\"}", "stop", "1 to 256"},
    {false, P "\"stop\":[1]}", "stop", "1 to 256"},
    {false, P "\"stream\":1}", "stream", "true or false"},
    {false, P "\"stream_options\":{\"x\":1}}", "stream_options", "include_usage"},
    {false, P "\"stream_options\":{\"include_usage\":true}}", "stream_options", "only with"},
    {false, P "\"n\":0}", "n", "from 1 to 128"},
    {false, P "\"n\":129}", "n", "from 1 to 128"},
    {false, P "\"logprobs\":21}", "logprobs", "from 0 to 20"},
    {false, P "\"logprobs\":true}", "logprobs", "from 0 to 20"},
    {false, P "\"echo\":1}", "echo", "true or false"},
    {false, P "\"best_of\":2}", "best_of", "not supported"},
    {false, P "\"logit_bias\":{\"1\":101}}", "logit_bias", "-100 to 100"},
    {false, P "\"logit_bias\":{\"a\":1}}", "logit_bias", "token ids"},
    {false, P "\"logit_bias\":{\"-1\":1}}", "logit_bias", "token ids"},
    {false, P "\"logit_bias\":{\"4294967296\":1}}", "logit_bias", "token ids"},
    {false, P "\"logit_bias\":{\"\":1}}", "logit_bias", "token ids"},
    {false, P "\"logit_bias\":[1]}", "logit_bias", "an object"},
    {false, P "\"min_p\":1.5}", "min_p", "from 0 to 1"},
    {false, P "\"presence_penalty\":2.5}", "presence_penalty", "from -2 to 2"},
    {false, P "\"frequency_penalty\":\"1\"}", "frequency_penalty", "from -2 to 2"},
    {false, P "\"repetition_penalty\":0}", "repetition_penalty", "from 0.01 to 100"},
    {false, P "\"messages\":[]}", "messages", "unknown field"},
    {false, P "\"tokens\":3}", "tokens", "unknown field"},
    {true, "{\"model\":\"m\"}", "messages", "missing"},
    {true, "{\"model\":\"m\",\"messages\":[]}", "messages", "1 to 4096"},
    {true, "{\"model\":\"m\",\"messages\":[1]}", "messages", "messages[0]: want an object"},
    {true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\"}]}", "messages", "content"},
    {true, "{\"model\":\"m\",\"messages\":[{\"content\":\"x\"}]}", "messages", "role"},
    {true,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
     "messages", "parts of type text"},
    {true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"name\":\"\"}]}",
     "messages", "name: want a text"},
    {true,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[]}]}",
     "messages", "only role, content and name"},
    {true, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{}]}",
     "tools", "not supported"},
};

START_TEST(what_cannot_be_done_is_refused)
{
    kvf__request r = {0};
    kvf__problem p = {0};
    ck_assert_msg(!parse(BAD[_i].body, BAD[_i].chat, &r, &p), "%s is taken", BAD[_i].body);
    ck_assert_int_eq(p.status, 400);
    ck_assert_str_eq(p.param, BAD[_i].param);
    ck_assert_msg(strstr(p.message, BAD[_i].text) != NULL, "%s: %s", BAD[_i].body, p.message);
    ck_assert_ptr_null(r.root);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

static const char SEED[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
    "\"text\":\"\\u00e9\"}]}],\"stop\":[\"a\",\"b\"],\"stream\":true,\"temperature\":0.5,"
    "\"stream_options\":{\"include_usage\":false}}";

static void take_any(const char *body, size_t n)
{
    for (int chat = 0; chat < 2; chat++) {
        kvf__request r;
        kvf__problem p = {0};
        if (kvf__request_parse(ctx, body, n, chat ? KVF__CHAT : KVF__COMPLETIONS, MOST, &r, &p))
            kvf__request_done(&r);
        else
            ck_assert(p.status >= 400 && *p.message);
    }
}

START_TEST(every_beginning_and_every_changed_byte)
{
    char body[sizeof SEED];
    const size_t n = sizeof SEED - 1;
    for (size_t i = 0; i <= n; i++)
        take_any(SEED, i);
    for (size_t i = 0; i < n; i++)
        for (int how = 0; how < 4; how++) {
            static const char others[] = {0, '"', '[', (char)0xff};
            memcpy(body, SEED, sizeof SEED);
            body[i] = others[how];
            take_any(body, n);
        }
}
END_TEST

START_TEST(tokens_are_compared_whole)
{
    ck_assert(kvf__token_equal("secret", "secret"));
    ck_assert(!kvf__token_equal("", "secret"));
    ck_assert(!kvf__token_equal("secre", "secret"));
    ck_assert(!kvf__token_equal("secretsecret", "secret"));
    ck_assert(!kvf__token_equal("secreT", "secret"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("request");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors"),
          *limits = tcase_create("limits");
    TCase *const all[] = {core, errors, limits};
    for (int i = 0; i < 3; i++)
        tcase_add_checked_fixture(all[i], setup, teardown);
    tcase_add_test(core, what_is_asked_is_read);
    tcase_add_test(core, defaults_are_the_api_s);
    tcase_add_test(core, many_tokens_are_cut);
    tcase_add_test(core, logprobs_are_read);
    tcase_add_test(core, several_prompts_are_read);
    tcase_add_test(core, tokenizing_is_read);
    tcase_add_loop_test(core, bad_tokenizing_is_refused, 0, 7);
    tcase_add_test(core, nul_is_text);
    tcase_add_loop_test(errors, what_cannot_be_done_is_refused, 0, sizeof BAD / sizeof BAD[0]);
    tcase_add_test(limits, every_beginning_and_every_changed_byte);
    tcase_add_test(limits, tokens_are_compared_whole);
    for (int i = 0; i < 3; i++)
        suite_add_tcase(suite, all[i]);
    return ck_main(suite);
}
