/* Prefixes of folders (--prefix-dir): names, changes of files, memory, lists. */
#include <kvfold/train.h>
#include <sys/stat.h>

#include "serve_fx.h"

static char folder[600];
static const char *folders[1];

static const char *file_of(const char *name)
{
    static char path[2000];
    ck_assert_int_lt(snprintf(path, sizeof path, "%s/%s.h5", folder, name), (int)sizeof path);
    return path;
}

static void open_folder(void)
{
    setup();
    snprintf(folder, sizeof folder, "%s/folder", s.dir);
    ck_assert_int_eq(mkdir(folder, 0755), 0);
    folders[0] = folder;
    s.options.prefix_dirs = folders;
    s.options.n_prefix_dirs = 1;
}

/* Checks that an answer has the bits of `generate` with this file. */
static void answers_as(const char *model, const char *path)
{
    char want[256], got[256];
    generate(path, "are you", 3, 0.8, want);
    ck_assert_msg(complete(model, "are you", 3) == 200, "%s: %s", model, text);
    member(text, "text", got, sizeof got);
    ck_assert_str_eq(got, want);
}

static void becomes_status(const char *model, int status)
{
    const double until = kvf__clock() + 10;
    while (complete(model, "a", 1) != status) {
        ck_assert_msg(kvf__clock() < until, "%s: %s", model, text);
        usleep(20000);
    }
}

static bool is_listed(const char *name)
{
    char quoted[700];
    snprintf(quoted, sizeof quoted, "\"id\":\"%s\"", name);
    ck_assert_int_eq(fetch(&s, "GET", "/v1/models", NULL, NULL, text, ROOM), 200);
    return strstr(text, quoted) != NULL;
}

/* ---- names ----------------------------------------------------------------------------------- */

START_TEST(names_come_from_paths)
{
    char path[1400], deep[300], target[700];
    mkdir(file_of("sub"), 0755); /* a folder with the ending of a file */
    snprintf(path, sizeof path, "%s/sub", folder);
    mkdir(path, 0755);
    put_prefix(&s, file_of("plain"), 4, 11);
    put_prefix(&s, file_of("sub/inner"), 5, 12);
    put_prefix(&s, file_of("sub.h5/f"), 5, 13);
    put_prefix(&s, file_of("\xC3\xBC x.y"), 6, 14);
    /* not served */
    put_prefix(&s, file_of("line\nbreak"), 4, 15);
    put_prefix(&s, file_of("\xFF"), 4, 15);
    put_prefix(&s, file_of(".hidden"), 4, 15);
    put_prefix(&s, file_of("one"), 4, 15); /* the name of a --prefix */
    ck_assert_int_eq(mkfifo(file_of("pipe"), 0644), 0);
    memset(deep, 'd', 200);
    snprintf(deep + 200, sizeof deep - 200, "/");
    snprintf(path, sizeof path, "%s/%s", folder, deep);
    mkdir(path, 0755);
    memset(deep + 201, 'e', 54);
    deep[255] = 0; /* 255 bytes */
    put_prefix(&s, file_of(deep), 4, 16);
    snprintf(path, sizeof path, "%se", deep);
    put_prefix(&s, file_of(path), 4, 16);
    /* links: inside, outside, to a folder */
    ck_assert_int_eq(symlink("plain.h5", file_of("link")), 0);
    ck_assert_int_eq(symlink(s.path[1], file_of("outside")), 0);
    snprintf(path, sizeof path, "%s/linked", folder);
    ck_assert_int_eq(symlink("sub", path), 0);
    serve_start(&s);
    static const char *const good[] = {"plain", "sub/inner", "sub.h5/f", "\xC3\xBC x.y", "link"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ck_assert_msg(is_listed(good[i]), "%s: %s", good[i], text);
    ck_assert(is_listed(deep));
    static const char *const bad[] = {"line\\nbreak",   "outside", "linked/inner", "pipe",
                                      ".hidden",        "../one",  "/etc/passwd",  "sub",
                                      "folder/./plain", "",        "plain.h5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(!is_listed(bad[i]), "%s", bad[i]);
        ck_assert_msg(complete(bad[i], "a", 1) == 404, "%s: %s", bad[i], text);
    }
    ck_assert_int_eq((int)figure("models"), 3 + 1 + 6);
    ck_assert_int_eq((int)figure("prefix_loads_total"), 0);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        answers_as(good[i], file_of(good[i]));
    answers_as("one", s.path[0]);
    ck_assert_int_eq((int)figure("prefix_loads_total"), 5);
    /* a link that is turned around after the pass */
    snprintf(target, sizeof target, "%s/link.new", folder);
    ck_assert_int_eq(symlink(s.path[1], target), 0);
    ck_assert_int_eq(rename(target, file_of("link")), 0);
    ck_assert_int_eq(complete("link", "a", 1), 500);
    has("the link leaves the folder");
    becomes_status("link", 404);
    serve_end(&s);
}
END_TEST

START_TEST(folders_are_checked_at_the_start)
{
    folders[0] = "no-such-folder";
    check_start(KVF_EIO, "no-such-folder: want a folder that can be read");
    folders[0] = s.path[0];
    check_start(KVF_EIO, "one.h5: want a folder that can be read");
    folders[0] = folder;
    s.options.prefix_memory = 0;
    check_start(KVF_EUSAGE, "prefix-memory 0: want 1 to ");
}
END_TEST

/* ---- changes --------------------------------------------------------------------------------- */

START_TEST(changes_are_noticed)
{
    char path[2000], other[2000];
    FILE *file;
    put_prefix(&s, file_of("a"), 4, 21);
    put_prefix(&s, file_of("b"), 4, 22);
    serve_start(&s);
    answers_as("a", file_of("a"));
    put_prefix(&s, file_of("c"), 7, 23);
    answers_as("c", file_of("c"));     /* by the first request */
    for (uint64_t i = 0; i < 5; i++) { /* of one size, within a step of the clock */
        put_prefix(&s, file_of("a"), 4, 30 + i);
        answers_as("a", file_of("a"));
    }
    /* written in place: an error of its own while it is damaged */
    strcpy(path, file_of("a"));
    strcpy(other, file_of("b"));
    file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    fseek(file, -2000, SEEK_END);
    fputs("damaged", file);
    fclose(file);
    ck_assert_int_eq(complete("a", "a", 1), 500);
    has("\"message\":\"the model \\\"a\\\": ");
    ck_assert_ptr_null(strstr(text, "/proc"));
    ck_assert_ptr_null(strstr(text, folder));
    answers_as("b", other);
    ck_assert_int_eq(truncate(path, 0), 0);
    ck_assert_int_eq(complete("a", "a", 1), 500);
    put_prefix(&s, path, 4, 40);
    answers_as("a", path);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(complete("a", "a", 1), 404);
    answers_as("b", other);
    for (const double until = kvf__clock() + 10; is_listed("a"); usleep(20000))
        ck_assert(kvf__clock() < until);
    put_prefix(&s, path, 4, 41);
    answers_as("a", path);
    serve_end(&s);
}
END_TEST

/* Names that no pass would find, asked for before one has run. */
START_TEST(other_spellings_are_no_names)
{
    static const char *const names[] = {".b",     "a/.b", "a/../c", "a//b", "./c",  "/c",    "c/",
                                        "link/b", "out",  "pipe",   "a",    "c.h5", "../one"};
    char path[700];
    serve_start(&s);
    ck_assert_int_eq(complete("nothing", "a", 1), 404);
    snprintf(path, sizeof path, "%s/a", folder);
    ck_assert_int_eq(mkdir(path, 0755), 0);
    ck_assert_int_eq(symlink("a", strcat(strcpy(path, folder), "/link")), 0);
    put_prefix(&s, file_of(".b"), 4, 1);
    put_prefix(&s, file_of("a/.b"), 4, 2);
    put_prefix(&s, file_of("a/b"), 4, 3);
    put_prefix(&s, file_of("c"), 4, 4);
    ck_assert_int_eq(symlink(s.path[0], file_of("out")), 0);
    ck_assert_int_eq(symlink("c.h5", file_of("in")), 0);
    ck_assert_int_eq(mkfifo(file_of("pipe"), 0644), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ck_assert_msg(complete(names[i], "a", 1) == 404, "%s: %s", names[i], text);
    ck_assert_int_eq(complete("in", "a", 1), 200);
    answers_as("a/b", file_of("a/b"));
    serve_end(&s);
}
END_TEST

static void restart(double prefix_memory)
{
    serve_end(&s);
    s.options.prefix_memory = (int64_t)prefix_memory;
    serve_start(&s);
}

/* ---- load ------------------------------------------------------------------------------------ */

enum { CLIENTS = 8, VERSIONS = 2, MODELS = 4 };
static char wanted[MODELS][VERSIONS][256];
static volatile bool stop_clients;
static bool in_place; /* files are written in place, not renamed: errors are allowed */

typedef struct client {
    pthread_t thread;
    int model, answers, odd;
} client;

static void *keep_asking(void *user)
{
    client *c = user;
    static __thread char reply[ROOM], got[256], body[512], name[8];
    snprintf(name, sizeof name, "m%d", c->model);
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":\"are you\",\"max_tokens\":%d,\"temperature\":0.8,"
             "\"seed\":3}",
             name, NEW);
    while (!stop_clients) {
        const int status = fetch(&s, "POST", "/v1/completions", NULL, body, reply, ROOM);
        if (status == 200) member(reply, "text", got, sizeof got);
        const bool refused = in_place && (status == 500 || status == 503);
        c->odd += !refused && (status != 200 || (strcmp(got, wanted[c->model][0]) != 0 &&
                                                 strcmp(got, wanted[c->model][1]) != 0));
        c->answers++;
    }
    return NULL;
}

static void put_version(int model, int version)
{
    char name[8], path[600];
    snprintf(name, sizeof name, "m%d", model);
    snprintf(path, sizeof path, "%s/new.h5", s.dir); /* this process has the old one open */
    put_prefix(&s, path, 4 + model, (uint64_t)(50 + 10 * model + version));
    ck_assert_int_eq(rename(path, file_of(name)), 0);
}

/* Files are replaced while clients ask; memory for two of four prefixes. */
START_TEST(replaced_under_load)
{
    client clients[CLIENTS] = {{.model = 0}};
    char name[8];
    for (int m = 0; m < MODELS; m++)
        for (int v = VERSIONS - 1; v >= 0; v--) {
            put_version(m, v);
            snprintf(name, sizeof name, "m%d", m);
            generate(file_of(name), "are you", 3, 0.8, wanted[m][v]);
        }
    serve_start(&s);
    ck_assert_int_eq(complete("m3", "a", 1), 200);
    const double one = figure("prefix_bytes");
    restart(2 * one);
    stop_clients = false;
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].model = i % MODELS;
        pthread_create(&clients[i].thread, NULL, keep_asking, &clients[i]);
    }
    const double until = kvf__clock() + 2;
    for (int i = 0; kvf__clock() < until; i++) {
        put_version(i % MODELS, i / MODELS % VERSIONS);
        ck_assert(figure("prefix_bytes") <= 2 * one);
        usleep(10000);
    }
    stop_clients = true;
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        ck_assert_int_eq(clients[i].odd, 0);
        ck_assert_int_gt(clients[i].answers, 0);
    }
    ck_assert(figure("prefix_drops_total") > 0);
    serve_end(&s);
}
END_TEST

static size_t read_all(const char *path, char *to, size_t room)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    const size_t n = fread(to, 1, room, file);
    fclose(file);
    return n;
}

/* Files whose halves are written one after the other: no answer mixes them. */
START_TEST(written_in_place_under_load)
{
    static char bytes[VERSIONS][1 << 20];
    client clients[CLIENTS] = {{.model = 0}};
    size_t n = 0;
    in_place = true;
    for (int v = 0; v < VERSIONS; v++) {
        put_version(0, v);
        generate(file_of("m0"), "are you", 3, 0.8, wanted[0][v]);
        n = read_all(file_of("m0"), bytes[v], sizeof bytes[v]);
    }
    ck_assert_str_ne(wanted[0][0], wanted[0][1]);
    serve_start(&s);
    stop_clients = false;
    for (int i = 0; i < CLIENTS; i++)
        pthread_create(&clients[i].thread, NULL, keep_asking, &clients[i]);
    const double until = kvf__clock() + 2;
    for (int i = 0; kvf__clock() < until; i++) {
        FILE *file = fopen(file_of("m0"), "r+b");
        ck_assert_ptr_nonnull(file);
        fwrite(bytes[i % 2], 1, n / 2, file);
        fflush(file);
        usleep(3000);
        fwrite(bytes[i % 2] + n / 2, 1, n - n / 2, file);
        fclose(file);
        usleep(20000);
    }
    stop_clients = true;
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        ck_assert_int_eq(clients[i].odd, 0);
    }
    in_place = false;
    serve_end(&s);
}
END_TEST

START_TEST(memory_is_bounded)
{
    put_prefix(&s, file_of("small"), 2, 61);
    put_prefix(&s, file_of("large"), 60, 62);
    serve_start(&s);
    ck_assert_int_eq(complete("small", "a", 1), 200);
    const double small = figure("prefix_bytes");
    ck_assert_int_eq(complete("large", "a", 1), 200);
    const double large = figure("prefix_bytes") - small;
    ck_assert(large > small);
    restart(large - 1);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(complete("large", "a", 1), 500);
        has("bytes, more than --prefix-memory");
        answers_as("small", file_of("small"));
    }
    serve_end(&s);
}
END_TEST

/* ---- echo and tokens ------------------------------------------------------------------------- */

/* The body of an answer, from its first choice on. */
static const char *content(void)
{
    const char *at = strstr(text, "\"choices\"");
    return at ? at : strstr(text, "\r\n\r\n");
}

/* The same file as a --prefix and in the folder. */
START_TEST(echo_scores_and_tokens)
{
    static const struct {
        const char *url, *body;
    } rows[] = {
        {"/v1/completions", "\"prompt\":\"one of\",\"echo\":true,\"logprobs\":3,\"max_tokens\":0"},
        {"/v1/completions", "\"prompt\":[\"a\",\"bc\"],\"logprobs\":2,\"temperature\":0"},
        {"/tokenize", "\"prompt\":\"one of\",\"return_token_strs\":true"},
        {"/detokenize", "\"tokens\":[5,6,7]"}};
    static char want[ROOM], body[400];
    ck_assert_int_eq(link(s.path[1], file_of("same")), 0);
    serve_start(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int k = 0; k < 2; k++) {
            snprintf(body, sizeof body, "{\"model\":\"%s\",%s}", k ? "same" : "two", rows[i].body);
            ck_assert_msg(fetch(&s, "POST", rows[i].url, NULL, body, text, ROOM) == 200, "%s",
                          text);
            if (!k) strcpy(want, content());
            ck_assert_str_eq(content(), want);
        }
    serve_end(&s);
}
END_TEST

/* ---- lists ----------------------------------------------------------------------------------- */

START_TEST(lists_have_pages)
{
    char name[40], url[200], last[64] = "";
    int seen = 0;
    for (int i = 0; i < 70; i++) {
        snprintf(name, sizeof name, "t%02d", i);
        put_prefix(&s, file_of(name), 2, 70);
    }
    serve_start(&s);
    ck_assert(is_listed("one") && is_listed("bare") && is_listed("t69"));
    has("\"has_more\":false");
    for (bool more = true; more;) {
        snprintf(url, sizeof url, "/v1/models?limit=7%s%s", *last ? "&after=" : "", last);
        ck_assert_int_eq(fetch(&s, "GET", url, NULL, NULL, text, ROOM), 200);
        const char *at = text;
        for (int i = 0; (at = strstr(at, "\"id\":\"")) != NULL; i++) {
            member(at, "id", last, sizeof last);
            at++;
            seen++;
            ck_assert_int_lt(i, 7);
        }
        more = strstr(text, "\"has_more\":true") != NULL;
    }
    ck_assert_int_eq(seen, 3 + 1 + 70);
    ck_assert_str_eq(last, "t69");
    ck_assert_int_eq(fetch(&s, "GET", "/v1/models?after=t68x", NULL, NULL, text, ROOM), 200);
    member(text, "id", last, sizeof last);
    ck_assert_str_eq(last, "t69");
    static const char *const bad[] = {"0", "-1", "", "1x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(url, sizeof url, "/v1/models?limit=%s", bad[i]);
        ck_assert_int_eq(fetch(&s, "GET", url, NULL, NULL, text, ROOM), 400);
        has("limit: want a whole number");
    }
    ck_assert_int_eq(fetch(&s, "GET", "/v1/models/t05", NULL, NULL, text, ROOM), 200);
    has("\"facts\":{\"prefix\":true}");
    ck_assert_int_eq(complete("t05", "a", 1), 200);
    ck_assert_int_eq(fetch(&s, "GET", "/v1/models/t05", NULL, NULL, text, ROOM), 200);
    has("\"prefix_length\":2");
    serve_end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_folders");
    TCase *tc = tcase_create("folders");
    tcase_add_checked_fixture(tc, open_folder, teardown);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, names_come_from_paths);
    tcase_add_test(tc, folders_are_checked_at_the_start);
    tcase_add_test(tc, changes_are_noticed);
    tcase_add_test(tc, other_spellings_are_no_names);
    tcase_add_test(tc, replaced_under_load);
    tcase_add_test(tc, written_in_place_under_load);
    tcase_add_test(tc, memory_is_bounded);
    tcase_add_test(tc, echo_scores_and_tokens);
    tcase_add_test(tc, lists_have_pages);
    suite_add_tcase(suite, tc);
    return ck_main(suite);
}
