/* The server and invalid, slow or silent clients: each gets one clear answer, and does not block
 * the others. */
#include <errno.h>
#include <kvfold/train.h>
#include <sys/stat.h>

#include "serve_fx.h"

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *method, *url, *extra, *body;
    int status;
    const char *has;
} BAD[] = {
    {"GET", "/nowhere", NULL, NULL, 404, "there is no /nowhere on this server"},
    {"GET", "/v1/completions", NULL, NULL, 405, "Allow: POST"},
    {"POST", "/v1/models", NULL, "{}", 405, "Allow: GET"},
    {"POST", "/v1/completions", NULL, "{", 400, "\"error\""},
    {"POST", "/v1/completions", NULL, "{\"model\":\"one\",\"prompt\":\"a\",\"n\":129}", 400,
     "\"param\":\"n\""},
    {"POST", "/v1/completions", NULL, "{\"model\":\"one\",\"prompt\":\"a\",\"logprobs\":21}", 400,
     "logprobs: want a whole number from 0 to 20"},
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

/* The status of a request with this Host; NULL: a request without Host, as before HTTP 1.1. */
static int status_for(const char *host)
{
    char request[256];
    int fd = dial(&s);
    if (host)
        snprintf(request, sizeof request,
                 "GET /v1/models HTTP/1.1\r\nConnection: close\r\nHost: %s\r\n\r\n", host);
    else
        snprintf(request, sizeof request, "GET /v1/models HTTP/1.0\r\n\r\n");
    say(fd, request);
    return hear(fd, text, ROOM);
}

/* A page elsewhere, whose name was pointed at this server, sends that Host. */
START_TEST(other_names_than_its_own_are_refused)
{
    static const char *const own[] = {
        "localhost", "LocalHost:8080", "localhost.", "127.0.0.1",        "127.0.0.1:1",
        "127.3.2.1", "[::1]",          "[::1]:99",   "Proxy.example:80", "two.example"};
    static const char *const others[] = {"rebound.example",
                                         "rebound.example:8080",
                                         "localhost.x",
                                         "10.0.0.1",
                                         "127.0.0.1.x",
                                         "[::2]",
                                         "[::1",
                                         "[::1]x",
                                         "",
                                         "proxy.example.x",
                                         "proxy",
                                         "localhost:x",
                                         "::1"};
    static const char *const allowed[] = {"proxy.example", "two.example"};
    char name[256];
    s.options.allow_hosts = allowed;
    s.options.n_allow_hosts = 2;
    serve_start(&s);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        ck_assert_msg(status_for(own[i]) == 200, "%s: %s", own[i], text);
    ck_assert_int_eq(gethostname(name, sizeof name), 0);
    ck_assert_int_eq(status_for(name), 200);
    ck_assert_int_eq(status_for(NULL), 200);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ck_assert_msg(status_for(others[i]) == 421, "%s: %s", others[i], text);
    has("\"error\":{\"message\":");
    int fd = dial(&s);
    say(fd, "POST /v1/completions HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
    ck_assert_int_eq(hear(fd, text, ROOM), 421);
    is_served();
    serve_end(&s);
}
END_TEST

/* A server reachable from other machines accepts any Host, because it cannot know its own names.
 * --allow-host restricts them. */
START_TEST(an_open_address_has_any_name)
{
    static const char *const allowed[] = {"proxy.example"};
    s.options.host = "0.0.0.0";
    serve_start(&s);
    ck_assert_int_eq(status_for("any.example"), 200);
    serve_end(&s);
    s.options.allow_hosts = allowed;
    s.options.n_allow_hosts = 1;
    serve_start(&s);
    ck_assert_int_eq(status_for("any.example"), 421);
    ck_assert_int_eq(status_for("proxy.example"), 200);
    ck_assert_int_eq(status_for("0.0.0.0:80"), 200);
    serve_end(&s);
}
END_TEST

START_TEST(what_cannot_be_served_is_said_at_once)
{
    s.prefixes[1].name = "one";
    check_start(KVF_EUSAGE, "\"one\" is given twice");
    s.prefixes[1].name = "bare";
    check_start(KVF_EUSAGE, "the base's name");
    s.prefixes[1].name = "a b";
    check_start(KVF_EUSAGE, "want 1 to 64 letters");
    s.prefixes[1] = (kvf_serve_prefix){.name = "two", .path = "nowhere.h5"};
    check_start(KVF_EIO, "nowhere.h5");
    s.prefixes[1].path = s.path[1];
    s.options.host = "example.org";
    check_start(KVF_EUSAGE, "numeric address");
    s.options.host = "127.0.0.1";
    s.options.max_rows = 0;
    check_start(KVF_EUSAGE, "max-rows 0");
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

/* Connections that send nothing, half a header, half a body, or a byte now and then. */
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
            say(fds[i], "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n"
                        "Content-Type: application/json\r\n\r\n{\"mod");
    }
    drip = dial(&s);
    say(drip, "POST /v1/completions HTTP/1.1\r\nX: ");
    is_served();
    bool open = true;
    for (int i = 0; i < 60 && open; i++) { /* no pause is as long as the timeout */
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

/* Clients that disconnect in the middle of their answer. */
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

/* The socket on which this process listens at the server's port, -1: none. */
static int listening_socket(void)
{
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in at;
        socklen_t n = sizeof at, m = sizeof(int);
        int listens = 0;
        if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &m) && listens &&
            !getsockname(fd, (struct sockaddr *)&at, &n) && ntohs(at.sin_port) == s.port)
            return fd;
    }
    return -1;
}

static bool is_refused(void)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)s.port),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool refused = connect(fd, (const struct sockaddr *)&to, sizeof to) && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

/* A descriptor closed while the daemon uses it is soon that of another file. */
START_TEST(the_socket_outlives_its_daemon)
{
    serve_start(&s);
    const int listens = listening_socket();
    struct stat before, now;
    ck_assert_int_ge(listens, 0);
    ck_assert_int_eq(fstat(listens, &before), 0);
    int fd = dial(&s), refused = 0; /* not read to its end, so the server cannot finish */
    ask(fd, "POST", "/v1/completions", NULL,
        "{\"model\":\"two\",\"prompt\":\"a\",\"max_tokens\":250,\"stream\":true,\"n\":100}");
    ck_assert_int_gt(recv(fd, text, 20, 0), 0);
    s.stop = 15;
    for (int i = 0; i < 600 && !(refused = is_refused()); i++)
        usleep(10000);
    ck_assert(refused);
    ck_assert_int_eq(fstat(listens, &now), 0);
    ck_assert(now.st_ino == before.st_ino && now.st_dev == before.st_dev);
    hear(fd, text, ROOM);
    serve_end(&s);
    ck_assert(fstat(listens, &now) || now.st_ino != before.st_ino);
}
END_TEST

enum { SOON = 2 }; /* seconds; on an idle machine one is enough */

/* A client that left holds no row: streamed or not, after closing the connection or only its own
 * side. */
START_TEST(who_hangs_up_frees_its_row)
{
    serve_long_rows();
    serve_start(&s);
    for (int how = 0; how < 4; how++) {
        int fd = ask_long(how % 2 ? LONG_BODY(",\"stream\":true,\"n\":20")
                                  : LONG_BODY(",\"n\":20"));
        ck_assert(becomes("rows", 16, 60));
        if (how / 2)
            shutdown(fd, SHUT_WR);
        else
            close(fd);
        ck_assert_msg(becomes("rows", 0, SOON), "way %d", how);
        ck_assert(figure("requests_total{result=\"gone\"}") == how + 1);
        if (how / 2) close(fd);
    }
    int fd = ask_long(LONG_BODY(",\"n\":20"));
    ck_assert(becomes("rows", 16, 60));
    close(fd);
    const double begin = kvf__clock();
    serve_end(&s);
    ck_assert_msg(kvf__clock() - begin < SOON, "the stop took %.1f s", kvf__clock() - begin);
    ck_assert_int_eq(s.totals.requests, 0);
}
END_TEST

START_TEST(who_hangs_up_frees_its_place)
{
    int fds[4];
    serve_long_rows();
    s.options.max_rows = 1;
    s.options.max_queue = 4;
    serve_start(&s);
    int runs = ask_long(LONG_BODY(",\"stream\":true"));
    ck_assert(becomes("rows", 1, 60));
    for (int i = 0; i < 4; i++)
        fds[i] = ask_long(i % 2 ? LONG_BODY(",\"stream\":true") : LONG_BODY(""));
    ck_assert(becomes("queue_length", 4, 60));
    for (int i = 1; i < 4; i++)
        close(fds[i]);
    ck_assert(becomes("queue_length", 1, SOON));
    ck_assert(figure("rows") == 1);
    close(runs); /* the remaining client has the row now */
    ck_assert(becomes("queue_length", 0, SOON));
    ck_assert(becomes("rows", 1, SOON));
    close(fds[0]);
    ck_assert(becomes("rows", 0, SOON));
    serve_end(&s);
    ck_assert_int_eq(s.status, KVF_ESTOPPED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_guard");
    TCase *const cases[] = {tcase_create("errors"), tcase_create("limits")};
    for (int i = 0; i < 2; i++) {
        tcase_set_timeout(cases[i], 100);
        tcase_add_checked_fixture(cases[i], setup, teardown);
        suite_add_tcase(suite, cases[i]);
    }
    tcase_add_test(cases[0], bad_requests_are_refused);
    tcase_add_test(cases[0], without_the_token_nothing_is_said);
    tcase_add_test(cases[0], other_names_than_its_own_are_refused);
    tcase_add_test(cases[0], an_open_address_has_any_name);
    tcase_add_test(cases[0], what_cannot_be_served_is_said_at_once);
    tcase_add_test(cases[1], oversized_requests_are_cut_off);
    tcase_add_test(cases[1], half_open_connections_shut_out_no_one);
    tcase_add_test(cases[1], a_full_queue_is_said);
    tcase_add_test(cases[1], those_who_leave_are_let_go);
    tcase_add_test(cases[1], the_socket_outlives_its_daemon);
    tcase_add_test(cases[1], who_hangs_up_frees_its_row);
    tcase_add_test(cases[1], who_hangs_up_frees_its_place);
    return ck_main(suite);
}
