/* Tests of the JSON wrapper: refusals and the place in the error line, accepted documents, order,
 * files. Numbers, building and text: test_json_text.c. */
#include "base_int.h"
#include "ck.h"
#include "infile.h"
#include "outfile.h"

#include <kvfold/json.h>
#include <string.h>
#include <unistd.h>

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static kvf_json *parse(const char *text)
{
    kvf_json *root = NULL;
    kvf_status st = kvf_json_parse(ctx, "t.json", text, strlen(text), &root);
    ck_assert_msg(st == KVF_OK, "%s: %s", text, kvf_ctx_error(ctx));
    return root;
}

static void check_text(const kvf_json *value, unsigned style, const char *want)
{
    char *text = kvf_json_text(value, style);
    ck_assert_ptr_nonnull(text);
    ck_assert_str_eq(text, want);
    kvf_json_text_free(text);
}

/* ---- refusals -------------------------------------------------------------------------------- */

#define TEXT(s) s, sizeof(s) - 1

static const struct {
    const char *text;
    size_t n;
    const char *says; /* start of the line; a leading * marks a part of it */
} REFUSED[] = {
    {TEXT(""), "t.json:1: empty"},
    {TEXT("  \n "), "t.json:2: "},
    {TEXT("{\"a\":1,\n\"a\":2}"), "t.json:2: duplicate object key"},
    {TEXT("{\"b\":{\"a\":1,\"a\":1}}"), "*duplicate"},
    {TEXT("{} x"), "t.json:1: end of file expected"},
    {TEXT("1 2"), "t.json:1: end of file expected"},
    {TEXT("{}\n\n{}"), "t.json:3: end of file expected"},
    {TEXT("[NaN]"), "t.json:1: "},
    {TEXT("NaN"), "t.json:1: "},
    {TEXT("[Infinity]"), "t.json:1: "},
    {TEXT("[-Infinity]"), "t.json:1: "},
    {TEXT("[1e999]"), "*overflow"},
    {TEXT("[\n\n1,]"), "t.json:3: "},
    {TEXT("{\"a\":1,}"), "t.json:1: "},
    {TEXT("{\"a\" 1}"), "t.json:1: "},
    {TEXT("{a:1}"), "t.json:1: "},
    {TEXT("['a']"), "t.json:1: "},
    {TEXT("[01]"), "t.json:1: "},
    {TEXT("[+1]"), "t.json:1: "},
    {TEXT("[.5]"), "t.json:1: "},
    {TEXT("[1.]"), "t.json:1: "},
    {TEXT("[-]"), "t.json:1: "},
    {TEXT("[1e]"), "t.json:1: "},
    {TEXT("[99999999999999999999-]"), "t.json:1: "},
    {TEXT("[--99999999999999999999]"), "t.json:1: "},
    {TEXT("[099999999999999999999]"), "t.json:1: "},
    {TEXT("[tru]"), "t.json:1: "},
    {TEXT("[1"), "t.json:1: "},
    {TEXT("[\"abc"), "t.json:1: "},
    {TEXT("[\"abc\\"), "t.json:1: "},
    {TEXT("[\"a\nb\"]"), "*t.json:"},
    {TEXT("[\"\\x\"]"), "t.json:1: "},
    {TEXT("[\"\\ud800\"]"), "t.json:1: "},
    {TEXT("[\"\xff\"]"), "t.json:1: unable to decode byte 0xff"},
    {TEXT("[\"\xc0\x80\"]"), "t.json:1: unable to decode"},
    {TEXT("[\"\xed\xa0\x80\"]"), "t.json:1: "},
    {TEXT("{\"a\\u0000b\":1}"), "t.json:1: "},
    {TEXT("\xef\xbb\xbf{}"), "t.json:1: "},
    {TEXT("[1]\0"), "t.json:1: "},
    {TEXT("/* c */ 1"), "t.json:1: "},
    {TEXT("]"), "t.json:1: "},
    {TEXT("}]}]"), "t.json:1: "},
};

START_TEST(refused)
{
    kvf_json *root = NULL;
    const char *says = REFUSED[_i].says, *line;
    /* exact size, so that a sanitizer detects one byte too many */
    char *copy = NULL;

    ck_assert_int_eq(kvf__alloc(ctx, REFUSED[_i].n, &copy), KVF_OK);
    memcpy(copy, REFUSED[_i].text, REFUSED[_i].n);
    ck_assert_int_eq(kvf_json_parse(ctx, "t.json", copy, REFUSED[_i].n, &root), KVF_EFORMAT);
    ck_assert_ptr_null(root);
    line = kvf_ctx_error(ctx);
    if (says[0] == '*')
        ck_assert_msg(strstr(line, says + 1) != NULL, "%s", line);
    else
        ck_assert_msg(strncmp(line, says, strlen(says)) == 0, "%s", line);
    kvf__free(copy);
}
END_TEST

START_TEST(line_of_a_line)
{
    kvf_json *root = NULL;

    ck_assert_int_eq(kvf_json_parse(ctx, "data.jsonl:17", TEXT("{\"a\" 1}"), &root), KVF_EFORMAT);
    ck_assert_int_eq(strncmp(kvf_ctx_error(ctx), "data.jsonl:17: ':' expected", 27), 0);
    ck_assert_int_eq(kvf_json_parse(ctx, "a:b", TEXT("[1,\n2"), &root), KVF_EFORMAT);
    ck_assert_int_eq(strncmp(kvf_ctx_error(ctx), "a:b:2: ", 7), 0);
}
END_TEST

/* "[[[...]]]" or {"a":{"a":...}}, nested n deep. */
static char *nested(const char *open, const char *close, int n)
{
    kvf__buf text = {0};
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(kvf__buf_printf(ctx, &text, "%s", open), KVF_OK);
    ck_assert_int_eq(kvf__buf_printf(ctx, &text, "1"), KVF_OK);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(kvf__buf_printf(ctx, &text, "%s", close), KVF_OK);
    return text.data;
}

START_TEST(depth)
{
    const char *pairs[][2] = {{"[", "]"}, {"{\"a\":", "}"}, {"\n[", "]"}};
    kvf_json *root = NULL;

    for (int i = 0; i < 3; i++) {
        char *good = nested(pairs[i][0], pairs[i][1], 128);
        char *bad = nested(pairs[i][0], pairs[i][1], 129);
        kvf_json_free(parse(good));
        ck_assert_int_eq(kvf_json_parse(ctx, "t", bad, strlen(bad), &root), KVF_EFORMAT);
        ck_assert_str_eq(kvf_ctx_error(ctx), i == 2 ? "t:130: nested deeper than 128 levels"
                                                    : "t:1: nested deeper than 128 levels");
        kvf__free(good);
        kvf__free(bad);
    }
    /* brackets in strings and many siblings add no depth */
    char *quoted = nested("[", "[", 300);
    kvf_json *string = kvf_json_new_str(quoted);
    char *text = kvf_json_text(string, 0);
    kvf_json_free(parse(text));
    kvf_json_text_free(text);
    kvf_json_free(string);
    kvf__free(quoted);
    kvf_json_free(parse("[\"\\\"[[[\\\\\",[],[],[]]"));
}
END_TEST

/* Empty lists take fifty times their text size in memory. */
START_TEST(many_small_values_are_refused)
{
    enum { BYTES = 9 << 20 };
    kvf__buf text = {0};
    kvf_json *root = NULL;
    ck_assert_int_eq(kvf__buf_printf(ctx, &text, "[[]"), KVF_OK);
    while (text.n < BYTES)
        ck_assert_int_eq(kvf__buf_add(ctx, &text, ",[]", 3), KVF_OK);
    ck_assert_int_eq(kvf__buf_addc(ctx, &text, ']'), KVF_OK);
    ck_assert_int_eq(kvf_json_parse(ctx, "t", text.data, text.n, &root), KVF_EFORMAT);
    ck_assert_str_eq(kvf_ctx_error(ctx), "t: its lists and objects would take 552 MiB, more than "
                                         "14 times its 9437185 bytes");
    kvf__buf_done(&text);
}
END_TEST

START_TEST(deep_nesting_is_cheap_to_refuse)
{
    enum { N = 5000000 };
    char *text = NULL;
    kvf_json *root = NULL;

    ck_assert_int_eq(kvf__alloc(ctx, N, &text), KVF_OK);
    memset(text, '[', N);
    ck_assert_int_eq(kvf_json_parse(ctx, "t", text, N, &root), KVF_EFORMAT);
    kvf__free(text);
}
END_TEST

START_TEST(truncated_at_every_byte)
{
    const char *whole = "{\"a\": [1, -2.5e3, \"x\\u00e9\\n\", true], \"b\": {\"c\": null}, "
                        "\"big\": 123456789012345678901234567890}";
    size_t n = strlen(whole);

    kvf_json_free(parse(whole));
    for (size_t i = 0; i < n; i++) {
        kvf_json *root = NULL;
        char *copy = NULL;
        ck_assert_int_eq(kvf__strndup(ctx, whole, i, &copy), KVF_OK);
        ck_assert_int_eq(kvf_json_parse(ctx, "t", copy, i, &root), KVF_EFORMAT);
        ck_assert_ptr_null(root);
        kvf__free(copy);
    }
}
END_TEST

START_TEST(allocation_fails)
{
    const char *text = "{\"n\": 123456789012345678901234567890}";
    kvf_json *root = NULL;

    kvf__ctx_fail_allocation(ctx, 0); /* the copy in which the number is replaced */
    ck_assert_int_eq(kvf_json_parse(ctx, "t", text, strlen(text), &root), KVF_ENOMEM);
    ck_assert_ptr_null(root);
    kvf_json_free(parse(text));
}
END_TEST

/* ---- accepted documents ---------------------------------------------------------------------- */

START_TEST(types_and_getters)
{
    kvf_json *root = parse("{\"i\":-5,\"r\":2.5,\"s\":\"x\",\"t\":true,\"f\":false,\"n\":null,"
                           "\"a\":[1,2],\"o\":{}}");
    const kvf_json_type want[] = {KVF_JSON_INT,  KVF_JSON_REAL, KVF_JSON_STRING, KVF_JSON_BOOL,
                                  KVF_JSON_BOOL, KVF_JSON_NULL, KVF_JSON_ARRAY,  KVF_JSON_OBJECT};
    size_t i = 0;

    for (void *it = kvf_json_iter(root); it; it = kvf_json_next(root, it))
        ck_assert_int_eq(kvf_json_typeof(kvf_json_iter_value(it)), want[i++]);
    ck_assert_uint_eq(i, 8);
    ck_assert_int_eq(kvf_json_int(kvf_json_get(root, "i"), 0), -5);
    ck_assert(kvf_json_real(kvf_json_get(root, "i"), 0) == -5.0);
    ck_assert(kvf_json_real(kvf_json_get(root, "r"), 0) == 2.5);
    ck_assert_int_eq(kvf_json_int(kvf_json_get(root, "r"), 77), 77);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(root, "s"), NULL), "x");
    ck_assert(kvf_json_bool(kvf_json_get(root, "t"), false));
    ck_assert(!kvf_json_bool(kvf_json_get(root, "f"), true));
    ck_assert_uint_eq(kvf_json_size(kvf_json_get(root, "a")), 2);
    ck_assert_int_eq(kvf_json_int(kvf_json_at(kvf_json_get(root, "a"), 1), 0), 2);
    ck_assert_ptr_null(kvf_json_at(kvf_json_get(root, "a"), 2));
    ck_assert_ptr_null(kvf_json_at(kvf_json_get(root, "a"), SIZE_MAX));
    ck_assert_uint_eq(kvf_json_size(root), 8);
    ck_assert_ptr_null(kvf_json_get(root, "absent"));
    kvf_json_free(root);
}
END_TEST

START_TEST(nothing_in_nothing_out)
{
    kvf_json *number = parse("1");
    kvf_json *const values[] = {NULL, number};

    for (int i = 0; i < 2; i++) {
        kvf_json *v = values[i];
        size_t n = 5;
        ck_assert_ptr_null(kvf_json_get(v, "a"));
        ck_assert_ptr_null(kvf_json_at(v, 0));
        ck_assert_uint_eq(kvf_json_size(v), 0);
        ck_assert_ptr_null(kvf_json_str(v, &n));
        ck_assert_uint_eq(n, 0);
        ck_assert(kvf_json_bool(v, true));
        ck_assert_ptr_null(kvf_json_iter(v));
        ck_assert_ptr_null(kvf_json_next(v, NULL));
    }
    ck_assert_int_eq(kvf_json_typeof(NULL), KVF_JSON_NONE);
    ck_assert_int_eq(kvf_json_int(NULL, -3), -3);
    ck_assert(kvf_json_real(NULL, -3.5) == -3.5);
    ck_assert_ptr_null(kvf_json_iter_key(NULL));
    ck_assert_ptr_null(kvf_json_iter_value(NULL));
    ck_assert_ptr_null(kvf_json_text(NULL, 0));
    kvf_json_free(NULL);
    kvf_json_text_free(NULL);
    kvf_json_free(number);
}
END_TEST

START_TEST(any_root)
{
    const char *const roots[] = {"null", "true", "-1", "0.5", "\"s\"", "[]", "{}"};
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        kvf_json *root = parse(roots[i]);
        check_text(root, KVF_JSON_COMPACT, roots[i]);
        kvf_json_free(root);
    }
}
END_TEST

START_TEST(order_is_kept)
{
    const char *text = "{\"z\":1,\"a\":2,\"m\":{\"y\":0,\"b\":0},\"A\":3,\"\":4}";
    kvf_json *root = parse(text);
    const char *const keys[] = {"z", "a", "m", "A", ""};
    size_t i = 0;

    for (void *it = kvf_json_iter(root); it; it = kvf_json_next(root, it))
        ck_assert_str_eq(kvf_json_iter_key(it), keys[i++]);
    check_text(root, KVF_JSON_COMPACT, text);
    check_text(root, KVF_JSON_SORTED, "{\"\":4,\"A\":3,\"a\":2,\"m\":{\"b\":0,\"y\":0},\"z\":1}");
    kvf_json_free(root);
}
END_TEST

START_TEST(strings_with_nul)
{
    kvf_json *root = parse("\"a\\u0000b\"");
    size_t n = 0;
    const char *text = kvf_json_str(root, &n);

    ck_assert_uint_eq(n, 3);
    ck_assert_mem_eq(text, "a\0b", 4);
    check_text(root, KVF_JSON_COMPACT, "\"a\\u0000b\"");
    kvf_json_free(root);
}
END_TEST

/* ---- files ----------------------------------------------------------------------------------- */

START_TEST(load_files)
{
    const char *dir = ck_tmpdir();
    char *path = NULL;
    kvf_json *root = NULL;

    ck_assert_int_eq(kvf__path_join(ctx, dir, "c.json", &path), KVF_OK);
    ck_assert_int_eq(kvf_json_load(ctx, path, &root), KVF_EIO);
    ck_assert_int_eq(kvf__write_file(ctx, path, false, TEXT("{\"a\":\n 1}\n")), KVF_OK);
    ck_assert_int_eq(kvf_json_load(ctx, path, &root), KVF_OK);
    ck_assert_int_eq(kvf_json_int(kvf_json_get(root, "a"), 0), 1);
    kvf_json_free(root);
    root = NULL;
    ck_assert_int_eq(kvf__write_file(ctx, path, true, TEXT("{\"a\":\n x}\n")), KVF_OK);
    ck_assert_int_eq(kvf_json_load(ctx, path, &root), KVF_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "/c.json:2: "));
    ck_assert_int_eq(kvf__write_file(ctx, path, true, "", 0), KVF_OK);
    ck_assert_int_eq(kvf_json_load(ctx, path, &root), KVF_EFORMAT);
    ck_assert_ptr_null(root);
    unlink(path);
    rmdir(dir);
    kvf__free(path);
}
END_TEST

/* A real file of another program is written back unchanged. */
START_TEST(real_file_comes_back)
{
    const char *path = ck_shared("data/xquad_en/xquad.en.json");
    kvf_json *root = NULL, *back = NULL;
    char *text, *again;

    ck_need(path, "the shared data are not there");
    ck_assert_int_eq(kvf_json_load(ctx, path, &root), KVF_OK);
    text = kvf_json_text(root, KVF_JSON_COMPACT);
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(kvf_json_parse(ctx, "again", text, strlen(text), &back), KVF_OK);
    again = kvf_json_text(back, KVF_JSON_COMPACT);
    ck_assert_str_eq(text, again);
    kvf_json_text_free(text);
    kvf_json_text_free(again);
    kvf_json_free(root);
    kvf_json_free(back);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
    Suite *suite = suite_create("json");
    TCase *core = ck_case(suite, "core", setup, teardown, 30);
    TCase *limits = ck_case(suite, "limits", setup, teardown, 30);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 30);

    tcase_add_test(core, types_and_getters);
    tcase_add_test(core, any_root);
    tcase_add_test(core, order_is_kept);
    tcase_add_test(core, strings_with_nul);
    tcase_add_test(core, load_files);
    tcase_add_test(core, real_file_comes_back);
    tcase_add_test(limits, depth);
    tcase_add_test(limits, many_small_values_are_refused);
    tcase_add_test(limits, deep_nesting_is_cheap_to_refuse);
    tcase_add_test(limits, nothing_in_nothing_out);
    tcase_add_loop_test(errors, refused, 0, COUNT(REFUSED));
    tcase_add_test(errors, line_of_a_line);
    tcase_add_test(errors, truncated_at_every_byte);
    tcase_add_test(errors, allocation_fails);
    return ck_main(suite);
}
