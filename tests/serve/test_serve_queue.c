/* Effects of a request on other clients. Parsing does not interrupt their streams, and a waiting
 * request holds only the memory of its ids. Requests are served in order of arrival, row by row. */
#include <kvfold/train.h>
#include <malloc.h>
#include <poll.h>

#include "serve_fx.h"

enum { MEGABYTE = 1000000, BIG = 8, JUNK = 12 };

/* {"model": "bare", MEMBER: n times `what`, MORE}; to be freed. */
static char *big_body(const char *member, const char *open, const char *what, size_t n,
                      const char *close, const char *more)
{
    const size_t room = n * strlen(what) + 300;
    char *body = malloc(room);
    size_t at = (size_t)snprintf(body, room, "{\"model\":\"bare\",\"%s\":%s", member, open);
    for (size_t i = 0; i < n; i++, at += strlen(what))
        memcpy(body + at, what, strlen(what));
    snprintf(body + at, room - at, "%s%s}", close, more);
    return body;
}

/* ---- silence --------------------------------------------------------------------------------- */

/* Reads a stream for this many seconds, or until `others` are all readable; returns the longest
 * gap. */
static double longest_gap(int stream, const struct pollfd *others, size_t n, double seconds)
{
    struct pollfd fds[BIG + 1] = {{stream, POLLIN, 0}};
    const double begin = kvf__clock();
    double last = begin, gap = 0;
    size_t left = n ? n : 1;
    for (size_t i = 0; i < n; i++)
        fds[i + 1] = others[i];
    while (left && kvf__clock() - begin < seconds) {
        const int some = poll(fds, n + 1, 100);
        const double now = kvf__clock();
        if (now - last > gap) gap = now - last;
        if (some > 0 && fds[0].revents) {
            ck_assert_int_gt(recv(stream, text, ROOM, 0), 0);
            last = now;
        }
        for (size_t i = 1; i <= n; i++)
            if (fds[i].fd >= 0 && fds[i].revents) {
                fds[i].fd = -1; /* poll ignores it */
                left--;
            }
    }
    return gap;
}

START_TEST(big_prompts_silence_no_stream)
{
    struct pollfd fds[BIG];
    char *body = big_body("prompt", "\"", " ab", MEGABYTE / 3, "\"", "");
    serve_long_rows();
    s.options.max_body = 2 * MEGABYTE;
    serve_start(&s);
    int stream = ask_long(LONG_BODY(",\"stream\":true"));
    ck_assert(becomes("rows", 1, 60));
    const double alone = longest_gap(stream, NULL, 0, 1);
    for (int i = 0; i < BIG; i++)
        fds[i] = (struct pollfd){ask_long(body), POLLIN, 0};
    const double begin = kvf__clock();
    const double beside = longest_gap(stream, fds, BIG, 90), took = kvf__clock() - begin;
    printf("gaps of a stream: %.3f s alone, %.3f s beside %d prompts of 1 MB, refused in %.3f s\n",
           alone, beside, BIG, took);
    for (int i = 0; i < BIG; i++) {
        ck_assert_int_eq(hear(fds[i].fd, text, ROOM), 400);
        has("the text has more than");
    }
    ck_assert_msg(beside < 0.1 + 2 * alone || beside < took / 4,
                  "%.3f s of silence, alone %.3f s, in %.3f s", beside, alone, took);
    close(stream);
    serve_end(&s);
    free(body);
}
END_TEST

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes in use; a sanitizer's allocator does not count them. */
static double memory_in_use(void)
{
    const struct mallinfo2 now = mallinfo2();
    return (double)(now.uordblks + now.hblkhd);
}

/* A waiting request keeps its ids, not its body. */
START_TEST(what_waits_holds_no_body)
{
    int fds[JUNK];
    char *body = big_body("user", "[[]", ",[]", MEGABYTE / 3, "]", ",\"prompt\":\"a\"");
    serve_long_rows();
    s.options.max_rows = 1;
    s.options.max_body = 2 * MEGABYTE;
    serve_start(&s);
    int stream = ask_long(LONG_BODY(",\"stream\":true"));
    ck_assert(becomes("rows", 1, 60));
    const double before = memory_in_use();
    for (int i = 0; i < JUNK; i++)
        fds[i] = ask_long(body);
    ck_assert(becomes("queue_length", JUNK, 60));
    for (int i = 0; figure("queue_bytes") > JUNK * 4096 && i < 600; i++)
        usleep(100000);
    ck_assert_double_le(figure("queue_bytes"), JUNK * 4096);
    ck_assert_double_le(memory_in_use() - before, 4.0 * MEGABYTE); /* of which the stream is part */
    for (int i = 0; i < JUNK; i++)
        close(fds[i]);
    close(stream);
    serve_end(&s);
    free(body);
}
END_TEST

/* One request may exceed the limit of all; then no other is accepted. */
START_TEST(a_queue_has_a_limit_in_bytes)
{
    char *body = big_body("prompt", "\"", "x", 60000, "\"", ",\"max_tokens\":1");
    serve_long_rows();
    s.options.max_rows = 1;
    s.options.max_queue_bytes = 1000;
    serve_start(&s);
    int stream = ask_long(LONG_BODY(",\"stream\":true"));
    ck_assert(becomes("rows", 1, 60));
    int waits = ask_long(body);
    ck_assert(becomes("queue_length", 1, 60));
    ck_assert_int_eq(complete("bare", "x", 1), 503);
    has("bytes of requests are waiting already: try again later");
    has("\"code\":\"overloaded\"");
    ck_assert(figure("queue_length") == 1);
    close(waits);
    ck_assert(becomes("queue_bytes", 0, 60));
    waits = ask_long(LONG_BODY(""));
    ck_assert(becomes("queue_length", 1, 60));
    close(waits);
    close(stream);
    serve_end(&s);
    free(body);
}
END_TEST

/* ---- order ----------------------------------------------------------------------------------- */

/* A request whose tokenization takes long is not overtaken. */
START_TEST(who_comes_first_is_first)
{
    char *body = big_body("prompt", "\"", "the one ", 500, "\"", ",\"max_tokens\":1");
    serve_long_rows();
    s.options.max_rows = 1;
    serve_start(&s);
    for (int i = 0; i < 5; i++) {
        int first = ask_long(body);
        ck_assert_int_eq(complete("bare", "x", 1), 200);
        struct pollfd fd = {first, POLLIN, 0};
        ck_assert_int_eq(poll(&fd, 1, 0), 1);
        ck_assert_int_eq(hear(first, text, ROOM), 200);
    }
    serve_end(&s);
    free(body);
}
END_TEST

/* ---- rows ------------------------------------------------------------------------------------ */

static bool has_said(int fd)
{
    struct pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
}

/* A request with many choices leaves the others their turns, for any number of remaining
 * choices. */
START_TEST(many_choices_do_not_hold_all_rows)
{
    serve_long_rows();
    s.options.max_rows = 4;
    serve_start(&s);
    int many = ask_long("{\"model\":\"bare\",\"prompt\":\"b\",\"max_tokens\":600,\"n\":128,"
                        "\"temperature\":0}");
    ck_assert(becomes("rows", 4, 60));
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(complete("bare", "x", 1), 200);
    ck_assert(!has_said(many));
    ck_assert(becomes("rows", 4, 60)); /* it has all of them again */
    close(many);
    serve_end(&s);
}
END_TEST

/* With one row, the second of two requests with three choices each begins before the first ends. */
START_TEST(rows_go_round)
{
    static const char body[] = "{\"model\":\"bare\",\"prompt\":\"b\",\"max_tokens\":40,\"n\":3,"
                               "\"temperature\":0,\"stream\":true}";
    serve_long_rows();
    s.options.max_rows = 1;
    serve_start(&s);
    int before = ask_long(LONG_BODY(""));
    ck_assert(becomes("rows", 1, 60));
    int first = ask_long(body);
    ck_assert(becomes("queue_length", 1, 60));
    int second = ask_long(body);
    ck_assert(becomes("queue_length", 2, 60));
    close(before);
    ck_assert_int_eq(hear(first, text, ROOM), 200);
    has("data: [DONE]");
    ck_assert(has_said(second));
    ck_assert_int_eq(hear(second, text, ROOM), 200);
    has("data: [DONE]");
    serve_end(&s);
}
END_TEST

/* Free rows are used, also one after the other; a request that would wait is refused. */
START_TEST(nothing_waits_without_a_queue)
{
    int fds[2];
    serve_long_rows();
    s.options.max_rows = 2;
    s.options.max_queue = 0;
    serve_start(&s);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(complete("bare", "x", 1), 200);
    for (int i = 0; i < 2; i++)
        fds[i] = ask_long(LONG_BODY(""));
    ck_assert(becomes("rows", 2, 60));
    ck_assert_int_eq(complete("bare", "x", 1), 503);
    has("\"code\":\"overloaded\"");
    close(fds[0]);
    ck_assert(becomes("rows", 1, 60));
    ck_assert_int_eq(complete("bare", "x", 1), 200);
    close(fds[1]);
    ck_assert(becomes("rows", 0, 60));
    int many = ask_long(LONG_BODY(",\"n\":128"));
    ck_assert(becomes("rows", 2, 60));
    ck_assert_int_eq(complete("bare", "x", 1), 503);
    close(many);
    serve_end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_queue");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 200);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, big_prompts_silence_no_stream);
    tcase_add_test(core, what_waits_holds_no_body);
    tcase_add_test(core, a_queue_has_a_limit_in_bytes);
    tcase_add_test(core, who_comes_first_is_first);
    tcase_add_test(core, many_choices_do_not_hold_all_rows);
    tcase_add_test(core, rows_go_round);
    tcase_add_test(core, nothing_waits_without_a_queue);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
