/* Clients with keys of their own (--token-file): their models, their limits, names at run time. */
#include <kvfold/train.h>
#include <sys/stat.h>

#include "serve_fx.h"

static char folder[600], tokens[600];
static const char *folders[1];

static void in_folder(const char *name, int64_t P, uint64_t seed)
{
    char path[1400];
    snprintf(path, sizeof path, "%s/%s.h5", folder, name);
    put_prefix(&s, path, P, seed);
}

static void write_tokens(const char *lines)
{
    toy_write(s.dir, "tokens", lines);
    snprintf(tokens, sizeof tokens, "%s/tokens", s.dir);
    s.options.token_file = tokens;
}

static void open_tenants(void)
{
    char path[700];
    setup();
    snprintf(folder, sizeof folder, "%s/folder", s.dir);
    ck_assert_int_eq(mkdir(folder, 0755), 0);
    snprintf(path, sizeof path, "%s/a", folder);
    ck_assert_int_eq(mkdir(path, 0755), 0);
    in_folder("a/x", 3, 1);
    in_folder("b", 4, 2);
    folders[0] = folder;
    s.options.prefix_dirs = folders;
    s.options.n_prefix_dirs = 1;
    write_tokens("\xEF\xBB\xBFroot\n\n  alice a/* bare\nbob b two\t[ab] \r\n");
}

/* Sends a request with a key; returns the status. */
static int ask_as(const char *token, const char *method, const char *url, const char *body)
{
    char extra[200];
    snprintf(extra, sizeof extra, "Authorization: Bearer %s\r\n", token);
    return fetch(&s, method, url, extra, body, text, ROOM);
}

static int complete_as(const char *token, const char *model)
{
    return ask_as(token, "POST", "/v1/completions", body_of(model, "a", 1, false));
}

/* ---- models ---------------------------------------------------------------------------------- */

START_TEST(tenants_have_their_models)
{
    static const struct {
        const char *token, *model;
        int status;
    } rows[] = {{"root", "a/x", 200},  {"root", "b", 200},      {"root", "one", 200},
                {"alice", "a/x", 200}, {"alice", "bare", 200},  {"alice", "b", 404},
                {"alice", "two", 404}, {"alice", "a/no", 404},  {"bob", "b", 200},
                {"bob", "two", 200},   {"bob", "a/x", 404},     {"bob", "bare", 404},
                {"eve", "b", 401},     {"alice a/*", "b", 401}, {"", "b", 401},
                {"roo", "b", 401},     {"bo b", "b", 401},      {"a/*", "a/x", 401}};
    serve_start(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_msg(complete_as(rows[i].token, rows[i].model) == rows[i].status, "%s %s: %s",
                      rows[i].token, rows[i].model, text);
    ck_assert_int_eq(ask_as("alice", "GET", "/v1/models", NULL), 200);
    has("\"id\":\"a/x\"");
    has("\"id\":\"bare\"");
    ck_assert_ptr_null(strstr(text, "\"id\":\"b\""));
    ck_assert_ptr_null(strstr(text, "\"id\":\"one\""));
    has("\"has_more\":false");
    ck_assert_int_eq(ask_as("alice", "GET", "/v1/models?limit=1", NULL), 200);
    has("\"has_more\":true");
    ck_assert_int_eq(ask_as("alice", "GET", "/v1/models?limit=2", NULL), 200);
    has("\"has_more\":false");
    ck_assert_int_eq(ask_as("alice", "GET", "/v1/models/b", NULL), 404);
    ck_assert_int_eq(ask_as("alice", "GET", "/v1/models/a/x", NULL), 200);
    ck_assert_int_eq(ask_as("alice", "POST", "/tokenize", "{\"prompt\":\"a\"}"), 200);
    ck_assert_int_eq(ask_as("alice", "POST", "/tokenize", "{\"model\":\"b\",\"prompt\":\"a\"}"),
                     404);
    ck_assert_int_eq(ask_as("alice", "GET", "/metrics", NULL), 403);
    has("permission_error");
    ck_assert_int_eq(ask_as("root", "GET", "/metrics", NULL), 200);
    has("kvfold_tenant_requests_total{tenant=\"1\"} 3\n");
    has("kvfold_tenant_requests_total{tenant=\"3\"} 7\n");
    has("kvfold_tenant_rows{tenant=\"4\"} 0\n");
    serve_end(&s);
}
END_TEST

START_TEST(token_files_are_checked)
{
    static const char *const bad[][2] = {
        {"", "0 lines with a token"},
        {" \n\t\r\n", "0 lines with a token"},
        {"a\nb x\n\na y\n", "tokens:4: the token of line 1 again"}};
    char many[400] = "t";
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_tokens(bad[i][0]);
        check_start(KVF_EFORMAT, bad[i][1]);
    }
    for (int i = 0; i < 65; i++)
        strcat(many, " p*");
    write_tokens(many);
    check_start(KVF_EFORMAT, "tokens:1: more than 64 patterns");
    s.options.token_file = NULL;
    s.options.tenant_rows = 1;
    check_start(KVF_EUSAGE, "limits of tenants need a token file");
}
END_TEST

/* ---- names at run time ----------------------------------------------------------------------- */

static int control(const char *token, const char *what, const char *name, const char *path)
{
    char url[64], body[1500];
    snprintf(url, sizeof url, "/v1/%s_lora_adapter", what);
    snprintf(body, sizeof body,
             path ? "{\"lora_name\":\"%s\",\"lora_path\":\"%s\"}" : "{\"lora_name\":\"%s\"}", name,
             path);
    return ask_as(token, "POST", url, body);
}

START_TEST(names_change_at_run_time)
{
    char path[1400];
    snprintf(path, sizeof path, "%s/out.h5", folder);
    ck_assert_int_eq(symlink(s.path[1], path), 0);
    in_folder("bad", 4, 9);
    snprintf(path, sizeof path, "%s/bad.h5", folder);
    ck_assert_int_eq(truncate(path, 700), 0);
    snprintf(path, sizeof path, "%s/a/x.h5", folder);
    serve_start(&s);
    ck_assert_int_eq(control("root", "load", "new", path), 200);
    has("Success: LoRA adapter 'new' added successfully.\n");
    has("Content-Type: text/plain");
    ck_assert_int_eq(complete_as("root", "new"), 200);
    ck_assert_int_eq(control("root", "load", "new", "a/x.h5"), 200); /* again, by a relative path */
    ck_assert_int_eq(control("root", "load", "new", "b.h5"), 400);
    ck_assert_int_eq(control("root", "load", "one", "b.h5"), 400);
    ck_assert_int_eq(control("root", "unload", "one", NULL), 400);
    ck_assert_int_eq(control("root", "unload", "none", NULL), 404);
    static const char *const outside[] = {"/etc/passwd", "../one.h5", "out.h5",
                                          "no.h5",       ".",         "a/../../one.h5"};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        ck_assert_msg(control("root", "load", "evil", outside[i]) == 404, "%s: %s", outside[i],
                      text);
    ck_assert_int_eq(control("root", "load", "evil", s.path[0]), 404);
    ck_assert_int_eq(control("root", "load", "evil", "a"), 404); /* a folder */
    snprintf(path, sizeof path, "%s/pipe", folder);
    ck_assert_int_eq(mkfifo(path, 0644), 0);
    ck_assert_int_eq(control("root", "load", "evil", "pipe"), 404);
    ck_assert_int_eq(control("root", "load", "evil", "bad.h5"), 500);
    ck_assert_int_eq(complete_as("root", "evil"), 404);
    ck_assert_int_eq(control("root", "load", "a\\u0001", "b.h5"), 400);
    ck_assert_int_eq(control("root", "load", "", "b.h5"), 400);
    ck_assert_int_eq(ask_as("root", "POST", "/v1/load_lora_adapter", "{\"lora_name\":\"a\"}"), 400);
    ck_assert_int_eq(ask_as("root", "POST", "/v1/unload_lora_adapter", "{}"), 400);
    /* taken away and given back */
    ck_assert_int_eq(control("root", "unload", "b", NULL), 200);
    has("Success: LoRA adapter 'b' removed successfully.");
    ck_assert_int_eq(complete_as("root", "b"), 404);
    ck_assert_int_eq(ask_as("root", "GET", "/v1/models", NULL), 200);
    ck_assert_ptr_null(strstr(text, "\"id\":\"b\""));
    ck_assert_int_eq(control("root", "unload", "b", NULL), 404);
    usleep(2500000); /* a pass over the folder changes nothing */
    ck_assert_int_eq(complete_as("root", "b"), 404);
    ck_assert_int_eq(complete_as("root", "new"), 200);
    ck_assert_int_eq(control("root", "load", "b", "b.h5"), 200);
    ck_assert_int_eq(complete_as("root", "b"), 200);
    ck_assert_int_eq(control("root", "unload", "new", NULL), 200);
    ck_assert_int_eq(complete_as("root", "new"), 404);
    /* for keys of all models alone */
    ck_assert_int_eq(control("alice", "load", "a/y", "a/x.h5"), 403);
    ck_assert_int_eq(control("alice", "unload", "a/x", NULL), 403);
    ck_assert_int_eq(control("eve", "unload", "b", NULL), 401);
    serve_end(&s);
    s.options.token_file = NULL;
    serve_start(&s);
    ck_assert_int_eq(control("root", "unload", "b", NULL), 403);
    has("--token-file");
    serve_end(&s);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

static double tenant_figure(const char *name, int line)
{
    char pattern[100];
    ck_assert_int_eq(ask_as("root", "GET", "/metrics", NULL), 200);
    snprintf(pattern, sizeof pattern, "\nkvfold_tenant_%s{tenant=\"%d\"} ", name, line);
    const char *at = strstr(text, pattern);
    ck_assert_msg(at != NULL, "no %s in %s", pattern, text);
    return atof(at + strlen(pattern));
}

START_TEST(tokens_a_minute)
{
    s.options.tenant_tokens = 60; /* one a second */
    serve_start(&s);
    int answered = 0;
    while (answered < 30 && complete_as("alice", "a/x") == 200)
        answered++;
    ck_assert_int_eq(answered, (60 + NEW) / (NEW + 1)); /* a prompt of one token */
    has("HTTP/1.1 429 ");
    has("Retry-After: ");
    has("\"code\":\"rate_limit_exceeded\"");
    has("the limit of 60 tokens a minute is reached");
    ck_assert_int_eq(complete_as("bob", "b"), 200);
    ck_assert(tenant_figure("refused_total", 3) == 1);
    ck_assert(tenant_figure("generated_tokens_total", 3) == answered * NEW);
    ck_assert(tenant_figure("prompt_tokens_total", 4) == 1);
    serve_end(&s);
}
END_TEST

START_TEST(rows_and_queue)
{
    int fd[4];
    serve_long_rows();
    s.options.n_prefix_dirs = 0;
    s.options.max_rows = 3;
    s.options.tenant_rows = 1;
    s.options.tenant_queue = 2;
    write_tokens("root\nalice bare\nbob bare\n");
    serve_start(&s);
    for (int i = 0; i < 3; i++) { /* one runs, two wait */
        fd[i] = dial(&s);
        ask(fd[i], "POST", "/v1/completions", "Authorization: Bearer alice\r\n", LONG_BODY());
        for (const double until = kvf__clock() + 20;
             tenant_figure("requests_total", 2) < i + 1 || tenant_figure("rows", 2) < 1;) {
            ck_assert(kvf__clock() < until);
            usleep(10000);
        }
    }
    ck_assert(tenant_figure("rows", 2) == 1);
    ck_assert_int_eq(complete_as("alice", "bare"), 429);
    has("2 requests of this API key are waiting already");
    ck_assert_int_eq(complete_as("bob", "bare"), 200);
    ck_assert(tenant_figure("rows", 2) == 1);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    for (const double until = kvf__clock() + 20; tenant_figure("rows", 2) > 0; usleep(10000))
        ck_assert(kvf__clock() < until);
    ck_assert_int_eq(complete_as("alice", "bare"), 200);
    serve_end(&s);
}
END_TEST

/* ---- prompts that are kept ------------------------------------------------------------------- */

static char long_prompt[280]; /* a part of 256 tokens, and the beginning of a second one */

/* Completes the long prompt on model b, and compares the text with that of kvf_generate; returns
 * the number of tokens from the cache. */
static int cached_as(const char *token)
{
    char path[700], want[256], got[256];
    snprintf(path, sizeof path, "%s/b.h5", folder);
    generate(path, long_prompt, 1, 0.8, want);
    ck_assert_int_eq(ask_as(token, "POST", "/v1/completions", body_of("b", long_prompt, 1, false)),
                     200);
    member(text, "text", got, sizeof got);
    ck_assert_str_eq(got, want);
    const char *details = strstr(text, "\"prompt_tokens_details\":{\"cached_tokens\":");
    return details ? atoi(strrchr(details, ':') + 1) : -1;
}

START_TEST(kept_prompts_stay_with_their_tenant)
{
    char body[800];
    for (int i = 0; i < 270; i++)
        long_prompt[i] = (char)('a' + i * i % 23);
    s.options.cache_memory = 1 << 24;
    serve_start(&s);
    ck_assert_int_eq(cached_as("root"), 0);
    ck_assert_int_eq(cached_as("root"), 256);
    ck_assert_int_eq(cached_as("bob"), 0);
    ck_assert_int_eq(cached_as("bob"), 256);
    in_folder("b", 5, 9);
    ck_assert_int_eq(cached_as("bob"), 0);
    in_folder("b", 4, 2); /* the first one again */
    ck_assert_int_eq(cached_as("bob"), 256);
    snprintf(body, sizeof body,
             "{\"model\":\"b\",\"prompt\":[\"%s\",\"a\"],\"max_tokens\":2,\"n\":3,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true}}",
             long_prompt);
    ck_assert_int_eq(ask_as("bob", "POST", "/v1/completions", body), 200);
    const double until = kvf__clock() + 20;
    has("\"cached_tokens\":256}");
    do /* counts are published between steps */
        ck_assert_int_eq(ask_as("root", "GET", "/metrics", NULL), 200);
    while (kvf__clock() < until && !strstr(text, "\nkvfold_cached_prompt_tokens_total 1536\n"));
    has("\nkvfold_cached_prompt_tokens_total 1536\n");
    serve_end(&s);
    s.options.cache_memory = 0;
    serve_start(&s);
    ck_assert_int_eq(cached_as("bob"), -1);
    serve_end(&s);
    s.options.cache_memory = 100;
    check_start(KVF_EUSAGE, "cache-memory 100: 256 tokens of this base need ");
}
END_TEST

START_TEST(metrics_are_bounded)
{
    static char lines[4000];
    for (int i = 1; i <= 120; i++)
        sprintf(lines + strlen(lines), i == 1 ? "root\n" : "t%d bare\n", i);
    write_tokens(lines);
    serve_start(&s);
    ck_assert_int_eq(complete_as("t119", "bare"), 200);
    ck_assert(tenant_figure("requests_total", 100) == 0);
    has("kvfold_tenant_requests_total{tenant=\"others\"} 1\n");
    ck_assert_ptr_null(strstr(text, "{tenant=\"101\"}"));
    serve_end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_tenants");
    TCase *tc = tcase_create("tenants");
    tcase_add_checked_fixture(tc, open_tenants, teardown);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, tenants_have_their_models);
    tcase_add_test(tc, token_files_are_checked);
    tcase_add_test(tc, names_change_at_run_time);
    tcase_add_test(tc, tokens_a_minute);
    tcase_add_test(tc, rows_and_queue);
    tcase_add_test(tc, kept_prompts_stay_with_their_tenant);
    tcase_add_test(tc, metrics_are_bounded);
    suite_add_tcase(suite, tc);
    return ck_main(suite);
}
