/* The server over real sockets, on the toy base: answers equal those of kvf_generate, alone and
 * with other requests. */
#include <kvfold/train.h>

#include "chain_base.h"
#include "serve_fx.h"

enum { CHOICES = 3 };
#define MANY_BODY(stream)                                                                          \
    "{\"model\":\"two\",\"prompt\":\"the answer is\",\"max_tokens\":12,\"temperature\":0.8,"       \
    "\"seed\":11,\"n\":3,\"stream\":" stream "}"

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(a_model_s_name_picks_its_prefix)
{
    static const char *const names[] = {"one", "two", "three", "bare"};
    char want[256], got[256];
    serve_start(&s);
    for (int i = 0; i < 4; i++) {
        generate(i < N_FILES ? s.path[i] : NULL, "the answer is", 7, 0.8, want);
        ck_assert_int_eq(complete(names[i], "the answer is", 7), 200);
        member(text, "text", got, sizeof got);
        ck_assert_str_eq(got, want);
        has("\"object\":\"text_completion\"");
        has("\"usage\":{\"prompt_tokens\":13,");
    }
    serve_end(&s);
    ck_assert_int_eq(s.status, KVF_ESTOPPED);
    ck_assert_int_eq(s.totals.requests, 4);
}
END_TEST

START_TEST(a_stream_says_the_same)
{
    char want[256], got[256] = "", piece[64];
    serve_start(&s);
    generate(s.path[0], "the answer is", 9, 0.8, want);
    ck_assert_int_eq(fetch(&s, "POST", "/v1/completions", NULL,
                           body_of("one", "the answer is", 9, true), text, ROOM),
                     200);
    has("Content-Type: text/event-stream");
    for (const char *at = text; (at = strstr(at, "data: {")) != NULL; at++) {
        member(at, "text", piece, sizeof piece);
        strcat(got, piece);
    }
    ck_assert_str_eq(got, want);
    has("\"finish_reason\":\"");
    has("data: [DONE]");
    serve_end(&s);
}
END_TEST

/* Choice i of n is the kvf_generate result for the i-th of n equal prompts, each alone. */
static void generate_many(const char *file, const char *prompt, uint64_t seed, char (*out)[256])
{
    const char *prompts[CHOICES];
    char *said[CHOICES];
    kvf_prefix *prefix = NULL;
    kvf_generate_options options = kvf_generate_defaults();
    ck_assert_int_eq(kvf_prefix_open(s.ctx, file, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    options.max_tokens = NEW;
    options.seed = seed;
    options.temperature = 0.8;
    options.batch_size = 1;
    for (int i = 0; i < CHOICES; i++)
        prompts[i] = prompt;
    ck_assert_int_eq(kvf_generate(s.ctx, s.base, prefix, prompts, CHOICES, &options, said, NULL),
                     KVF_OK);
    for (int i = 0; i < CHOICES; i++)
        snprintf(out[i], sizeof out[i], "%s", said[i]);
    kvf_texts_free(said, CHOICES);
    kvf_prefix_free(prefix);
}

/* Index of the choice of an object or event. */
static int index_at(const char *at)
{
    const char *found = strstr(at, "\"index\":");
    ck_assert_ptr_nonnull(found);
    return atoi(found + strlen("\"index\":"));
}

START_TEST(several_choices_draw_each_its_own)
{
    char want[CHOICES][256], got[CHOICES][256] = {""}, piece[256], usage[80];
    const char *at;
    s.options.max_rows = CHOICES; /* one row less than needed to begin while another runs */
    serve_start(&s);
    generate_many(s.path[1], "the answer is", 11, want);
    ck_assert_str_ne(want[0], want[1]);
    snprintf(usage, sizeof usage, "\"prompt_tokens\":13,\"completion_tokens\":%zu,", /* bytes */
             strlen(want[0]) + strlen(want[1]) + strlen(want[2]));
    int beside = dial(&s);
    ask(beside, "POST", "/v1/completions", NULL, body_of("one", "beside", 1, false));
    ck_assert_int_eq(fetch(&s, "POST", "/v1/completions", NULL, MANY_BODY("false"), text, ROOM),
                     200);
    at = text;
    for (int i = 0; i < CHOICES; i++) {
        at = strstr(at, "{\"index\":");
        ck_assert_ptr_nonnull(at);
        ck_assert_int_eq(index_at(at), i);
        member(at++, "text", piece, sizeof piece);
        ck_assert_str_eq(piece, want[i]);
    }
    has(usage);
    ck_assert_int_eq(hear(beside, text, ROOM), 200);
    ck_assert_int_eq(fetch(&s, "POST", "/v1/completions", NULL,
                           MANY_BODY("true,\"stream_options\":{\"include_usage\":true}"), text,
                           ROOM),
                     200);
    for (at = text; (at = strstr(at, "{\"index\":")) != NULL; at++) {
        member(at, "text", piece, sizeof piece);
        strcat(got[index_at(at)], piece);
    }
    for (int i = 0; i < CHOICES; i++)
        ck_assert_str_eq(got[i], want[i]);
    has("\"choices\":[],\"usage\":{");
    has(usage);
    ck_assert_ptr_eq(strstr(strstr(text, "[DONE]") + 1, "[DONE]"), NULL);
    serve_end(&s);
}
END_TEST

/* ---- files with more than keys and values ---------------------------------------------------- */

static const struct own_file {
    const char *method;
    bool head, infix;
    const char *refused; /* NULL: the file is served */
} OWN[] = {
    {"direct", true, false, NULL},
    {"prompt", false, false, NULL},
    {"direct", false, true, NULL},
    {"p-tuning", true, false, NULL},
    {"adapter", false, false, "changes the base itself"},
};
enum { N_OWN = sizeof OWN / sizeof OWN[0], N_SERVED = 4 };

/* Trains it into path. */
static void make_own(const struct own_file *own, const char *path)
{
    kvf_train_options o = short_run(own->method, path);
    o.train_head = own->head;
    o.infix = own->infix;
    o.prefix_length = 4;
    o.head_lr = 0.1;
    o.adapter_size = 4;
    train_run(&o);
}

/* Three kinds of files that can be served together get the answers of generate, all at once and
 * alone. */
START_TEST(heads_and_virtual_tokens_of_one_s_own)
{
    static const char *const names[] = {"one", "two", "three", "bare"};
    char want[4][256], got[256];
    int fds[12];
    for (int i = 0; i < N_FILES; i++)
        make_own(&OWN[_i + i], s.path[i]);
    for (int i = 0; i < 4; i++)
        generate(i < N_FILES ? s.path[i] : NULL, "the answer is", 5, 0.8, want[i]);
    for (int i = 0; i < 3; i++)
        ck_assert_str_ne(want[i], want[3]);
    serve_start(&s);
    for (int i = 0; i < 12; i++) {
        fds[i] = dial(&s);
        ask(fds[i], "POST", "/v1/completions", NULL,
            body_of(names[i % 4], "the answer is", 5, false));
    }
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(hear(fds[i], text, ROOM), 200);
        member(text, "text", got, sizeof got);
        ck_assert_str_eq(got, want[i % 4]);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(complete(names[i], "the answer is", 5), 200);
        member(text, "text", got, sizeof got);
        ck_assert_str_eq(got, want[i]);
    }
    serve_end(&s);
}
END_TEST

START_TEST(what_cannot_stand_beside_others_is_refused)
{
    for (int i = N_SERVED; i < N_OWN; i++) {
        make_own(&OWN[i], s.path[0]);
        check_start(KVF_EUSAGE, OWN[i].refused);
    }
}
END_TEST

START_TEST(models_health_and_metrics)
{
    serve_start(&s);
    ck_assert_int_eq(fetch(&s, "GET", "/health", NULL, NULL, text, ROOM), 200);
    has("{\"status\":\"ok\"}");
    ck_assert_int_eq(fetch(&s, "GET", "/v1/models", NULL, NULL, text, ROOM), 200);
    has("\"id\":\"three\"");
    has("\"id\":\"bare\"");
    ck_assert_int_eq(fetch(&s, "GET", "/v1/models/two", NULL, NULL, text, ROOM), 200);
    has("{\"id\":\"two\",\"object\":\"model\"");
    ck_assert_int_eq(fetch(&s, "GET", "/v1/models/four", NULL, NULL, text, ROOM), 404);
    has("model_not_found");
    is_served();
    ck_assert_int_eq(fetch(&s, "GET", "/metrics", NULL, NULL, text, ROOM), 200);
    has("kvfold_requests_total{result=\"answered\"} 1\n");
    has("kvfold_requests_total{result=\"refused\"} 1\n");
    has("kvfold_prompt_tokens_total 13\n");
    has("kvfold_first_token_seconds_count 1\n");
    serve_end(&s);
}
END_TEST

/* 64 at once, more than there are rows, over 32 prefixes of unequal length and the bare base. */
enum { CLIENTS = 64, PREFIXES = 32 };

typedef struct client {
    pthread_t thread;
    char body[256], want[256], got[256];
    int status;
} client;

static void *run_client(void *user)
{
    client *c = user;
    char answer[4096];
    c->status = fetch(&s, "POST", "/v1/completions", NULL, c->body, answer, sizeof answer);
    if (c->status == 200) member(answer, "text", c->got, sizeof c->got);
    return NULL;
}

static void make_client(client *c, int i, const kvf_serve_prefix *prefixes)
{
    const int which = i % (PREFIXES + 1);
    char prompt[64];
    snprintf(prompt, sizeof prompt, "client %d asks", i);
    generate(which < PREFIXES ? prefixes[which].path : NULL, prompt, (uint64_t)i, i % 2 ? 0.8 : 0,
             c->want);
    snprintf(c->body, sizeof c->body,
             "{\"model\":\"%s\",\"prompt\":\"%s\",\"max_tokens\":%d,\"temperature\":%s,"
             "\"seed\":%d}",
             which < PREFIXES ? prefixes[which].name : "bare", prompt, NEW, i % 2 ? "0.8" : "0", i);
}

START_TEST(company_changes_no_answer)
{
    static client clients[CLIENTS];
    static char names[PREFIXES][16], paths[PREFIXES][600];
    static kvf_serve_prefix prefixes[PREFIXES];
    for (int i = 0; i < PREFIXES; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        snprintf(paths[i], sizeof paths[i], "%s/%s.h5", s.dir, names[i]);
        put_prefix(&s, paths[i], 1 + i * 7 % 23, (uint64_t)i);
        prefixes[i] = (kvf_serve_prefix){.name = names[i], .path = paths[i]};
    }
    s.options.prefixes = prefixes;
    s.options.n_prefixes = PREFIXES;
    s.options.max_rows = 24;
    for (int i = 0; i < CLIENTS; i++)
        make_client(&clients[i], i, prefixes);
    serve_start(&s);
    for (int i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(clients[i].thread, NULL);
    serve_end(&s);
    for (int i = 0; i < CLIENTS; i++) {
        ck_assert_int_eq(clients[i].status, 200);
        ck_assert_str_eq(clients[i].got, clients[i].want);
    }
}
END_TEST

/* A prefix whose values overflow is answered with an error; other requests are not affected. */
START_TEST(logits_that_are_not_finite_are_no_text)
{
    put_scaled_prefix(&s, s.path[0], 2, 1, 1e38);
    serve_start(&s);
    ck_assert_int_eq(complete("one", "are you there", 3), 500);
    has("the logits of token 1 are not finite");
    is_served();
    serve_end(&s);
}
END_TEST

START_TEST(a_replaced_file_is_read_again)
{
    char before[256], after[256], got[256];
    serve_start(&s);
    generate(s.path[0], "the answer is", 7, 0.8, before);
    ck_assert_int_eq(complete("one", "the answer is", 7), 200);
    put_prefix(&s, s.path[0], 40, 77); /* longer than any before */
    generate(s.path[0], "the answer is", 7, 0.8, after);
    ck_assert_str_ne(before, after);
    for (int tries = 0; tries < 100; tries++) {
        ck_assert_int_eq(complete("one", "the answer is", 7), 200);
        member(text, "text", got, sizeof got);
        if (!strcmp(got, after)) break;
        ck_assert_str_eq(got, before);
        usleep(50000);
    }
    ck_assert_str_eq(got, after);
    toy_write(s.dir, "one.h5", "no prefix at all");
    usleep(1200000);
    ck_assert_int_eq(complete("one", "the answer is", 7), 200);
    member(text, "text", got, sizeof got);
    ck_assert_str_eq(got, after);
    ck_assert_int_eq(fetch(&s, "GET", "/metrics", NULL, NULL, text, ROOM), 200);
    has("kvfold_prefix_reloads_total 1\n");
    has("kvfold_prefix_reload_failures_total 1\n");
    serve_end(&s);
}
END_TEST

/* Requests sent before the stop are answered, later ones are not. */
START_TEST(a_stop_leaves_no_answer_out)
{
    char want[256], got[256];
    int fds[6];
    s.options.max_rows = 2;
    serve_start(&s);
    generate(s.path[2], "the last one", 1, 0.8, want);
    for (int i = 0; i < 6; i++) {
        fds[i] = dial(&s);
        ask(fds[i], "POST", "/v1/completions", NULL, body_of("three", "the last one", 1, i % 2));
    }
    for (bool all = false; !all; all = strstr(text, "kvfold_queue_length 0\n") == NULL)
        fetch(&s, "GET", "/metrics", NULL, NULL, text, ROOM);
    serve_end(&s);
    ck_assert_int_eq(s.status, KVF_ESTOPPED);
    int answered = 0;
    for (int i = 0; i < 6; i++) {
        int status = hear(fds[i], text, ROOM);
        if (i % 2 || status != 200) continue;
        member(text, "text", got, sizeof got);
        ck_assert_str_eq(got, want);
        answered++;
    }
    ck_assert_int_eq(answered, 3);
    ck_assert_int_eq(s.totals.requests, 6);
}
END_TEST

/* Characters split into bytes, and U+0000, whole and streamed. */
START_TEST(bytes_become_text)
{
    static const char *const tokens[] = {"x",      "a",      "<0x00>", "b",      "<0xF0>", "<0x9F>",
                                         "<0x98>", "<0x80>", "<0xC3>", "<0xA9>", "c",      "</s>"};
    const chain c = {tokens, 12, "", NULL, "{\"eos_token\":\"</s>\"}", 11};
    const char *want = "a\\u0000b\xF0\x9F\x98\x80\xC3\xA9"
                       "c";
    char got[256], *at = text;
    chain_folder(s.ctx, s.dir, &c);
    s.options.n_prefixes = 0;
    serve_start(&s);
    ck_assert_int_eq(fetch(&s, "POST", "/v1/completions", NULL,
                           "{\"model\":\"bare\",\"prompt\":\"x\",\"temperature\":0}", text, ROOM),
                     200);
    member(text, "text", got, sizeof got);
    ck_assert_str_eq(got, want);
    ck_assert_int_eq(fetch(&s, "POST", "/v1/completions", NULL,
                           "{\"model\":\"bare\",\"prompt\":\"x\",\"temperature\":0,"
                           "\"stream\":true}",
                           text, ROOM),
                     200);
    for (*got = 0; (at = strstr(at, "\"text\":\"")) != NULL; at++)
        member(at, "text", got + strlen(got), sizeof got - strlen(got));
    ck_assert_str_eq(got, want);
    serve_end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 100);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, a_model_s_name_picks_its_prefix);
    tcase_add_test(core, a_stream_says_the_same);
    tcase_add_test(core, several_choices_draw_each_its_own);
    tcase_add_loop_test(core, heads_and_virtual_tokens_of_one_s_own, 0, N_SERVED - N_FILES + 1);
    tcase_add_test(core, what_cannot_stand_beside_others_is_refused);
    tcase_add_test(core, models_health_and_metrics);
    tcase_add_test(core, company_changes_no_answer);
    tcase_add_test(core, logits_that_are_not_finite_are_no_text);
    tcase_add_test(core, a_replaced_file_is_read_again);
    tcase_add_test(core, a_stop_leaves_no_answer_out);
    tcase_add_test(core, bytes_become_text);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
