/* Cross-origin requests (--cors), and the access log. */
#include <kvfold/train.h>

#include "serve_fx.h"

/* ---- pages elsewhere ------------------------------------------------------------------------- */

/* Sends a request from a page of this origin; returns the status. */
static int ask_from(const char *method, const char *origin, const char *more)
{
    char extra[256];
    snprintf(extra, sizeof extra, "Origin: %s\r\n%s", origin, more ? more : "");
    return fetch(&s, method, "/v1/models", extra, NULL, text, ROOM);
}

START_TEST(pages_of_named_origins_may_read)
{
    static const char *const named[] = {"https://app.example", "http://localhost:3000"};
    static const char *const any[] = {"*"};
    char path[600];
    toy_write(s.dir, "token", "s3cret\n");
    snprintf(path, sizeof path, "%s/token", s.dir);
    s.options.token_file = path;
    s.options.cors = _i ? any : named;
    s.options.n_cors = _i ? 1 : 2;
    serve_start(&s);
    /* a browser asks first, without the token */
    ck_assert_int_eq(ask_from("OPTIONS", "https://app.example",
                              "Access-Control-Request-Method: GET\r\n"
                              "Access-Control-Request-Headers: authorization, x-more\r\n"),
                     204);
    has(_i ? "Access-Control-Allow-Origin: *" : "Access-Control-Allow-Origin: https://app.example");
    has("Access-Control-Allow-Headers: authorization, x-more");
    has("Access-Control-Allow-Methods: GET, POST");
    if (!_i) has("Vary: Origin");
    /* refusals can be read too */
    ck_assert_int_eq(ask_from("GET", "http://localhost:3000", NULL), 401);
    has("Access-Control-Allow-Origin: ");
    ck_assert_int_eq(ask_from("GET", "http://localhost:3000", "Authorization: Bearer s3cret\r\n"),
                     200);
    has("Access-Control-Allow-Origin: ");
    if (!_i) {
        ck_assert_int_eq(ask_from("OPTIONS", "https://app.example.x", NULL), 401);
        ck_assert_ptr_null(strstr(text, "Access-Control"));
        ck_assert_int_eq(
            ask_from("OPTIONS", "https://app.example.x", "Authorization: Bearer s3cret\r\n"), 405);
        ck_assert_ptr_null(strstr(text, "Access-Control"));
    }
    serve_end(&s);
}
END_TEST

START_TEST(what_is_no_origin_is_refused)
{
    static const char *const bad[] = {"app.example",  "https://",         "https://app.example/",
                                      "://x",         "https://a.b/path", "HTTPS://app.example",
                                      "https://a b.c"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        s.options.cors = &bad[i];
        s.options.n_cors = 1;
        check_start(KVF_EUSAGE, "want * or an origin such as https://app.example");
    }
}
END_TEST

/* ---- the access log -------------------------------------------------------------------------- */

static void read_log(const char *path)
{
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, ROOM - 1, file)] = 0;
    fclose(file);
}

START_TEST(requests_are_logged)
{
    char path[600];
    snprintf(path, sizeof path, "%s/access.log", s.dir);
    toy_write(s.dir, "access.log", "{\"earlier\":1}\n");
    s.options.access_log = path;
    serve_start(&s);
    is_served();
    ck_assert_int_eq(complete("four", "x", 1), 404);
    ck_assert_int_eq(fetch(&s, "GET", "/no\xff\"way", NULL, NULL, text, ROOM), 404);
    ck_assert_int_eq(
        fetch(&s, "POST", "/v1/completions", NULL, body_of("one", "x", 1, true), text, ROOM), 200);
    serve_end(&s);
    read_log(path);
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    ck_assert_int_eq(lines, 5);
    has("{\"earlier\":1}\n{\"time\":\"20");
    has("\"client\":\"127.0.0.1\",\"method\":\"POST\",\"path\":\"/v1/"
        "completions\",\"status\":200,");
    has("\"model\":\"two\",\"prompt_tokens\":13,\"new_tokens\":12}\n");
    has("\"status\":404,");
    has("\"path\":\"/no\xef\xbf\xbd\\\"way\"");
    has("\"model\":\"one\",");
    ck_assert_ptr_null(strstr(text, "are you there")); /* nothing of the request's text */
}
END_TEST

/* A client that disconnects is logged with the status 499, which servers use for that. */
START_TEST(who_leaves_is_logged)
{
    char path[600];
    snprintf(path, sizeof path, "%s/access.log", s.dir);
    serve_long_rows();
    s.options.access_log = path;
    serve_start(&s);
    int fd = ask_long(LONG_BODY(""));
    ck_assert(becomes("rows", 1, 60));
    close(fd);
    ck_assert(becomes("rows", 0, 60));
    serve_end(&s);
    read_log(path);
    has("\"status\":499,\"bytes\":0,");
}
END_TEST

START_TEST(a_log_that_cannot_be_written_is_refused)
{
    char path[600];
    snprintf(path, sizeof path, "%s/no/access.log", s.dir);
    s.options.access_log = path;
    check_start(KVF_EIO, "cannot append: No such file or directory");
}
END_TEST

/* The web page needs no token, and its policy forbids requests to other hosts. */
START_TEST(the_page_is_open_and_alone)
{
    char path[600];
    toy_write(s.dir, "token", "secret\n");
    snprintf(path, sizeof path, "%s/token", s.dir);
    s.options.token_file = path;
    serve_start(&s);
    ck_assert_int_eq(fetch(&s, "GET", "/", NULL, NULL, text, ROOM), 200);
    has("\r\nContent-Type: text/html; charset=utf-8\r\n");
    has("\r\nContent-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src 'sha256-");
    ck_assert_ptr_null(strstr(text, "http://"));
    ck_assert_ptr_null(strstr(text, "https://"));
    ck_assert_ptr_null(strstr(text, "innerHTML"));
    ck_assert_int_eq(fetch(&s, "GET", "/v1/models", NULL, NULL, text, ROOM), 401);
    ck_assert_int_eq(
        fetch(&s, "GET", "/v1/models", "Authorization: Bearer secret\r\n", NULL, text, ROOM), 200);
    has("\"facts\":{\"prefix\":true,\"tasks\":[\"lm\"],\"architecture\":\"llama\","
        "\"task\":\"lm\",\"method\":\"direct\",\"prefix_length\":2}");
    has("\"facts\":{\"prefix\":false,\"tasks\":[\"lm\"],\"architecture\":\"llama\"}");
    serve_end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_access");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    TCase *all[] = {core, errors};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tcase_set_timeout(all[i], 120);
        tcase_add_checked_fixture(all[i], setup, teardown);
        suite_add_tcase(suite, all[i]);
    }
    tcase_add_loop_test(core, pages_of_named_origins_may_read, 0, 2);
    tcase_add_test(core, the_page_is_open_and_alone);
    tcase_add_test(core, requests_are_logged);
    tcase_add_test(core, who_leaves_is_logged);
    tcase_add_test(errors, what_is_no_origin_is_refused);
    tcase_add_test(errors, a_log_that_cannot_be_written_is_refused);
    return ck_main(suite);
}
