/* The server over real sockets, on the toy base: answers are those of kvf_generate, alone and in
 * company; those who ask badly, slowly or not at all keep nobody else from being served. */
#include <kvfold/train.h>

#include "serve_fx.h"

enum { ROOM = 1 << 16, NEW = 12 };

static served s;
static char text[ROOM];

static void setup(void)
{
    serve_prepare(&s);
}

static void teardown(void)
{
    serve_done(&s);
}

/* What kvf_generate says; file: of a prefix, NULL: none. */
static void generate(const char *file, const char *prompt, uint64_t seed, double temperature,
                     char *out)
{
    kvf_prefix *prefix = NULL;
    kvf_generate_options options = kvf_generate_defaults();
    char *said = NULL;
    if (file)
        ck_assert_int_eq(kvf_prefix_open(s.ctx, file, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    options.max_tokens = NEW;
    options.seed = seed;
    options.temperature = temperature;
    ck_assert_int_eq(kvf_generate(s.ctx, s.base, prefix, &prompt, 1, &options, &said, NULL),
                     KVF_OK);
    strcpy(out, said);
    kvf_texts_free(&said, 1);
    kvf_prefix_free(prefix);
}

static const char *body_of(const char *model, const char *prompt, uint64_t seed, bool stream)
{
    static char body[512];
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":\"%s\",\"max_tokens\":%d,\"temperature\":0.8,"
             "\"seed\":%d%s}",
             model, prompt, NEW, (int)seed, stream ? ",\"stream\":true" : "");
    return body;
}

static int complete(const char *model, const char *prompt, uint64_t seed)
{
    return fetch(&s, "POST", "/v1/completions", NULL, body_of(model, prompt, seed, false), text,
                 ROOM);
}

static void is_served(void)
{
    char want[256], got[256];
    generate(s.path[1], "are you there", 3, 0.8, want);
    ck_assert_int_eq(complete("two", "are you there", 3), 200);
    member(text, "text", got, sizeof got);
    ck_assert_str_eq(got, want);
}

enum { CHOICES = 3 };
#define MANY_BODY(stream)                                                                          \
    "{\"model\":\"two\",\"prompt\":\"the answer is\",\"max_tokens\":12,\"temperature\":0.8,"       \
    "\"seed\":11,\"n\":3,\"stream\":" stream "}"

static void has(const char *what)
{
    ck_assert_msg(strstr(text, what) != NULL, "no %s in %s", what, text);
}

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

/* Choice i of n is what kvf_generate says of the i-th of n like prompts, each alone. */
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

/* Index of the choice that an object or event is about. */
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
    s.options.max_rows = CHOICES; /* one row less than it takes to begin beside another */
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

/* ---- files that bring more than keys and values ---------------------------------------------- */

static const struct own_file {
    const char *method;
    bool head, infix;
    const char *refused; /* NULL: is served */
} OWN[] = {
    {"direct", true, false, NULL},
    {"prompt", false, false, NULL},
    {"p-tuning", true, false, NULL},
    {"direct", false, true, "stands inside rows"},
    {"adapter", false, false, "changes the base itself"},
};
enum { N_OWN = sizeof OWN / sizeof OWN[0], N_SERVED = 3 };

/* Trains it into path. */
static void make_own(const struct own_file *own, const char *path)
{
    char data[600];
    kvf_train_result result;
    kvf_train_options o = kvf_train_defaults();
    toy_write(s.dir, "rows.jsonl",
              "{\"prompt\":\"one of\",\"completion\":\" bcdefg\"}\n"
              "{\"prompt\":\"the\",\"completion\":\" answer is 7\"}\n");
    snprintf(data, sizeof data, "%s/rows.jsonl", s.dir);
    o.base = s.dir;
    o.data = data;
    o.out = path;
    o.method = own->method;
    o.train_head = own->head;
    o.infix = own->infix;
    o.prefix_length = 4;
    o.steps = 8;
    o.batch_size = 2;
    o.lr = 0.5;
    o.head_lr = 0.1;
    o.adapter_size = 4;
    o.precision = "f32";
    o.chat_template = "none";
    o.force = true;
    ck_assert_msg(!kvf_train(s.ctx, &o, &result), "%s: %s", own->method, kvf_ctx_error(s.ctx));
}

/* Those that can stand beside others are answered what generate says, all at once and alone. */
START_TEST(heads_and_virtual_tokens_of_one_s_own)
{
    static const char *const names[] = {"one", "two", "three", "bare"};
    char want[4][256], got[256];
    int fds[12];
    for (int i = 0; i < N_SERVED; i++)
        make_own(&OWN[i], s.path[i]);
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
        prefixes[i] = (kvf_serve_prefix){names[i], paths[i]};
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

/* What was asked before the stop is answered, what comes later is not. */
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

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *method, *url, *extra, *body;
    int status;
    const char *has;
} BAD[] = {
    {"GET", "/", NULL, NULL, 404, "there is no / here"},
    {"GET", "/v1/completions", NULL, NULL, 405, "Allow: POST"},
    {"POST", "/v1/models", NULL, "{}", 405, "Allow: GET"},
    {"POST", "/v1/completions", NULL, "{", 400, "\"error\""},
    {"POST", "/v1/completions", NULL, "{\"model\":\"one\",\"prompt\":\"a\",\"n\":17}", 400,
     "\"param\":\"n\""},
    {"POST", "/v1/completions", NULL, "{\"model\":\"one\",\"prompt\":\"a\",\"logprobs\":2}", 400,
     "logprobs: not supported"},
    {"POST", "/v1/completions", NULL, "{\"model\":\"four\",\"prompt\":\"a\"}", 404,
     "model_not_found"},
    {"POST", "/v1/completions", NULL, "{\"model\":\"one\",\"prompt\":[900]}", 400,
     "outside the vocabulary"},
    {"POST", "/v1/completions", NULL, "{\"model\":\"one\",\"prompt\":\"\"}", 400, "no tokens"},
    {"POST", "/v1/chat/completions", NULL,
     "{\"model\":\"one\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 400, "template"},
    {"POST", "/v1/completions", "Content-Type: text/plain\r\nContent-Length: 2\r\n", NULL, 415,
     "application/json"},
};

START_TEST(bad_requests_are_refused)
{
    serve_start(&s);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        int fd = dial(&s);
        ask(fd, BAD[i].method, BAD[i].url, BAD[i].extra, BAD[i].body);
        if (BAD[i].status == 415) say(fd, "{}");
        ck_assert_msg(hear(fd, text, ROOM) == BAD[i].status, "%s %s: %s", BAD[i].method, BAD[i].url,
                      text);
        has(BAD[i].has);
        has("\"error\":{\"message\":");
    }
    is_served();
    serve_end(&s);
}
END_TEST

START_TEST(without_the_token_nothing_is_said)
{
    static const char *const wrong[] = {
        NULL, "Authorization: Bearer wrong\r\n", "Authorization: Basic s3cret\r\n",
        "Authorization: Bearer s3cret2\r\n", "Authorization: Bearer \r\n"};
    char path[600];
    toy_write(s.dir, "token", "s3cret\n");
    snprintf(path, sizeof path, "%s/token", s.dir);
    s.options.token_file = path;
    serve_start(&s);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_int_eq(fetch(&s, "GET", "/v1/models", wrong[i], NULL, text, ROOM), 401);
        has("WWW-Authenticate: Bearer");
        ck_assert_int_eq(fetch(&s, "POST", "/v1/completions", wrong[i],
                               body_of("one", "x", 1, false), text, ROOM),
                         401);
    }
    ck_assert_int_eq(fetch(&s, "GET", "/health", NULL, NULL, text, ROOM), 200);
    ck_assert_int_eq(fetch(&s, "POST", "/v1/completions", "Authorization: Bearer s3cret\r\n",
                           body_of("one", "x", 1, false), text, ROOM),
                     200);
    serve_end(&s);
}
END_TEST

static void check_start(kvf_status status, const char *line)
{
    serve_start(&s);
    pthread_join(s.thread, NULL);
    ck_assert_int_eq(s.port, 0);
    ck_assert_int_eq(s.status, status);
    ck_assert_msg(strstr(s.line, line) != NULL, "%s", s.line);
    s.ended = false;
}

START_TEST(what_cannot_be_served_is_said_at_once)
{
    s.prefixes[1].name = "one";
    check_start(KVF_EUSAGE, "\"one\" is given twice");
    s.prefixes[1].name = "bare";
    check_start(KVF_EUSAGE, "that of the base");
    s.prefixes[1].name = "a b";
    check_start(KVF_EUSAGE, "want 1 to 64 letters");
    s.prefixes[1] = (kvf_serve_prefix){"two", "nowhere.h5"};
    check_start(KVF_EIO, "nowhere.h5");
    s.prefixes[1].path = s.path[1];
    s.options.host = "example.org";
    check_start(KVF_EUSAGE, "in numbers");
    s.options.host = "127.0.0.1";
    s.options.max_rows = 0;
    check_start(KVF_EUSAGE, "max-rows 0");
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

/* ---- limits ---------------------------------------------------------------------------------- */

START_TEST(oversized_requests_are_cut_off)
{
    static char much[40000];
    s.options.max_body = 20000;
    serve_start(&s);
    memset(much, 'a', sizeof much - 1);
    ck_assert_int_eq(fetch(&s, "POST", "/v1/completions", NULL, much, text, ROOM), 413);
    int fd = dial(&s); /* announced and never sent */
    ask(fd, "POST", "/v1/completions",
        "Content-Type: application/json\r\nContent-Length: 99999999999\r\n", NULL);
    ck_assert_int_eq(hear(fd, text, ROOM), 413);
    fd = dial(&s); /* not announced */
    ask(fd, "POST", "/v1/completions",
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n", NULL);
    for (int i = 0; i < 3; i++) {
        say(fd, "9c3f\r\n");
        say(fd, much);
        say(fd, "\r\n");
    }
    say(fd, "0\r\n\r\n");
    ck_assert_int_eq(hear(fd, text, ROOM), 413);
    is_served();
    serve_end(&s);
}
END_TEST

/* Connections that say nothing, half a head, half a body, or a byte now and then. */
START_TEST(half_open_connections_shut_out_no_one)
{
    enum { MANY = 60 };
    int fds[MANY], drip;
    s.options.timeout = 2;
    serve_start(&s);
    for (int i = 0; i < MANY; i++) {
        fds[i] = dial(&s);
        if (i % 3 == 1) say(fds[i], "POST /v1/completions HT");
        if (i % 3 == 2)
            say(fds[i], "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n"
                        "Content-Type: application/json\r\n\r\n{\"mod");
    }
    drip = dial(&s);
    say(drip, "POST /v1/completions HTTP/1.1\r\nX: ");
    is_served();
    bool open = true;
    for (int i = 0; i < 60 && open; i++) { /* silence is never as long as the timeout */
        usleep(100000);
        open = send(drip, "x", 1, MSG_NOSIGNAL) == 1;
    }
    ck_assert(!open);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_ne(hear(fds[i], text, ROOM), 200);
        ck_assert_msg(strstr(text, "HTTP/1.1 200") == NULL, "%s", text);
    }
    close(drip);
    is_served();
    serve_end(&s);
}
END_TEST

START_TEST(a_full_queue_is_said)
{
    int fds[8], refused = 0, status;
    s.options.max_rows = 1;
    s.options.max_queue = 2;
    serve_start(&s);
    for (int i = 0; i < 8; i++) {
        fds[i] = dial(&s);
        ask(fds[i], "POST", "/v1/completions", NULL,
            "{\"model\":\"one\",\"prompt\":\"a\",\"max_tokens\":200}");
    }
    for (int i = 0; i < 8; i++) {
        status = hear(fds[i], text, ROOM);
        ck_assert_msg(status == 200 || status == 503, "status %d: %s", status, text);
        refused += status == 503;
        if (status == 503) has("Retry-After: 1");
    }
    ck_assert_int_ge(refused, 1);
    is_served();
    serve_end(&s);
}
END_TEST

/* Clients that hang up in the middle of their answer. */
START_TEST(those_who_leave_are_let_go)
{
    s.options.max_rows = 2;
    serve_start(&s);
    for (int i = 0; i < 6; i++) {
        int fd = dial(&s);
        ask(fd, "POST", "/v1/completions", NULL,
            "{\"model\":\"two\",\"prompt\":\"a\",\"max_tokens\":250,\"stream\":true,\"seed\":4}");
        recv(fd, text, 20, 0);
        close(fd);
    }
    is_served();
    serve_end(&s);
    ck_assert_int_eq(s.status, KVF_ESTOPPED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors"),
          *limits = tcase_create("limits");
    tcase_add_test(core, a_model_s_name_picks_its_prefix);
    tcase_add_test(core, a_stream_says_the_same);
    tcase_add_test(core, several_choices_draw_each_its_own);
    tcase_add_test(core, heads_and_virtual_tokens_of_one_s_own);
    tcase_add_test(core, models_health_and_metrics);
    tcase_add_test(core, company_changes_no_answer);
    tcase_add_test(core, a_replaced_file_is_read_again);
    tcase_add_test(core, a_stop_leaves_no_answer_out);
    tcase_add_test(errors, bad_requests_are_refused);
    tcase_add_test(errors, without_the_token_nothing_is_said);
    tcase_add_test(errors, what_cannot_be_served_is_said_at_once);
    tcase_add_test(errors, what_cannot_stand_beside_others_is_refused);
    tcase_add_test(limits, oversized_requests_are_cut_off);
    tcase_add_test(limits, half_open_connections_shut_out_no_one);
    tcase_add_test(limits, a_full_queue_is_said);
    tcase_add_test(limits, those_who_leave_are_let_go);
    TCase *const all[] = {core, errors, limits};
    for (int i = 0; i < 3; i++) {
        tcase_set_timeout(all[i], 100);
        tcase_add_checked_fixture(all[i], setup, teardown);
        suite_add_tcase(suite, all[i]);
    }
    return ck_main(suite);
}
