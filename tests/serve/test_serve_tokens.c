/* Requests of clients without a tokenizer: tokens of texts and chats, texts of tokens, and the
 * tokenizer's special tokens. */
#include "serve_fx.h"

static int post(const char *url, const char *body)
{
    return fetch(&s, "POST", url, NULL, body, text, ROOM);
}

/* The body of the answer in `text`. */
static void body_is(const char *want)
{
    const char *body = strstr(text, "\r\n\r\n");
    ck_assert_ptr_nonnull(body);
    ck_assert_str_eq(body + 4, want);
}

START_TEST(the_tokenizer_is_described)
{
    toy_write(s.dir, "tokenizer_config.json",
              "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"pad_token\":\"&\","
              "\"chat_template\":\"{{ messages }}\"}");
    s.options.chat_template = "none"; /* the base's template is unknown to kvfold */
    s.options.n_prefixes = 0;         /* the prefixes need another tokenizer */
    serve_start(&s);
    ck_assert_int_eq(fetch(&s, "GET", "/tokenizer_info", NULL, NULL, text, ROOM), 200);
    body_is("{\"bos_token\":\"<s>\",\"bos_token_id\":59,\"eos_token\":\"</s>\",\"eos_token_id\":60,"
            "\"pad_token\":\"&\",\"pad_token_id\":58,\"add_bos_token\":false,\"vocab_size\":61,"
            "\"chat_template\":\"{{ messages }}\"}\n");
    serve_end(&s);
}
END_TEST

START_TEST(nothing_is_made_up_of_the_tokenizer)
{
    toy_write(s.dir, "tokenizer_config.json", "{}");
    s.options.n_prefixes = 0;
    serve_start(&s);
    ck_assert_int_eq(fetch(&s, "GET", "/tokenizer_info", NULL, NULL, text, ROOM), 200);
    has("\"pad_token\":null,\"pad_token_id\":null,");
    has("\"chat_template\":null}");
    serve_end(&s);
}
END_TEST

START_TEST(texts_become_tokens_and_back)
{
    serve_start(&s);
    ck_assert_int_eq(post("/tokenize", "{\"prompt\":\"a b</s>\"}"), 200);
    body_is("{\"count\":4,\"max_model_len\":300,\"tokens\":[1,0,2,60],\"token_strs\":null}\n");
    ck_assert_int_eq(post("/tokenize",
                          "{\"model\":\"three\",\"prompt\":\"b \",\"return_token_strs\":"
                          "true,\"add_special_tokens\":false}"),
                     200); /* a prefix of 12 precedes its rows */
    body_is(
        "{\"count\":2,\"max_model_len\":288,\"tokens\":[2,0],\"token_strs\":[\"b\",\"\u0120\"]}\n");
    ck_assert_int_eq(post("/tokenize", "{\"prompt\":\"\"}"), 200);
    has("{\"count\":0,");
    ck_assert_int_eq(post("/detokenize", "{\"tokens\":[1,0,2,60]}"), 200);
    body_is("{\"prompt\":\"a b</s>\"}\n");
    ck_assert_int_eq(post("/detokenize", "{\"tokens\":[]}"), 200);
    body_is("{\"prompt\":\"\"}\n");
    is_served();
    serve_end(&s);
}
END_TEST

/* Ids as in a chat's prompt, with and without the beginning of the answer. */
START_TEST(chats_become_tokens)
{
    const kvf__message message = {.role = "user", .content = "hi"};
    kvf__chat chat;
    s.options.chat_template = "chatml";
    serve_start(&s);
    ck_assert_int_eq(kvf__chat_init(s.ctx, s.base->tokenizer, "chatml", &chat), KVF_OK);
    for (int opened = 0; opened < 2; opened++) {
        char body[200], want[1024];
        size_t n = 0;
        kvf__ids ids = {0};
        ck_assert_int_eq(
            kvf__chat_encode(s.ctx, s.base->tokenizer, &chat, &message, 1, opened, &ids, NULL),
            KVF_OK);
        for (size_t i = 0; i < ids.n; i++)
            n += (size_t)snprintf(want + n, sizeof want - n, "%c%d", i ? ',' : '[',
                                  (int)ids.data[i]);
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                 "\"add_generation_prompt\":%s}",
                 opened ? "true" : "false");
        ck_assert_int_eq(post("/tokenize", body), 200);
        has(want);
        kvf__ids_done(&ids);
    }
    kvf__chat_done(&chat);
    serve_end(&s);
}
END_TEST

START_TEST(bad_ones_are_refused)
{
    serve_start(&s);
    ck_assert_int_eq(post("/tokenize", "{\"model\":\"four\",\"prompt\":\"a\"}"), 404);
    ck_assert_int_eq(post("/detokenize", "{\"tokens\":[1,900]}"), 400);
    has("tokens: id 900 is outside the vocabulary");
    ck_assert_int_eq(post("/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"),
                     400);
    has("the base has no chat template, and none is given");
    ck_assert_int_eq(fetch(&s, "GET", "/tokenize", NULL, NULL, text, ROOM), 405);
    is_served();
    serve_end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_tokens");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    TCase *all[] = {core, errors};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tcase_set_timeout(all[i], 60);
        tcase_add_checked_fixture(all[i], setup, teardown);
        suite_add_tcase(suite, all[i]);
    }
    tcase_add_test(core, the_tokenizer_is_described);
    tcase_add_test(core, nothing_is_made_up_of_the_tokenizer);
    tcase_add_test(core, texts_become_tokens_and_back);
    tcase_add_test(core, chats_become_tokens);
    tcase_add_test(errors, bad_ones_are_refused);
    return ck_main(suite);
}
