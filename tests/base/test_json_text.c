/* Tests of the JSON wrapper: numbers of all sizes are read back exactly, objects are built, values
 * become text. A chain of calls with a failure in it gives no text. Reading and refusals:
 * test_json.c. */
#include "base_int.h"
#include "ck.h"
#include "json_pack.h"
#include "rng.h"

#include <float.h>
#include <kvfold/json.h>
#include <math.h>
#include <string.h>

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

/* ---- numbers --------------------------------------------------------------------------------- */

static const struct {
    const char *text;
    kvf_json_type type;
    int64_t i;
    double r;
} NUMBERS[] = {
    {"9223372036854775807", KVF_JSON_INT, INT64_MAX, 9223372036854775807.0},
    {"-9223372036854775808", KVF_JSON_INT, INT64_MIN, -9223372036854775808.0},
    {"9223372036854775808", KVF_JSON_REAL, -1, 9223372036854775808.0},
    {"-9223372036854775809", KVF_JSON_REAL, -1, -9223372036854775808.0},
    {"18446744073709551615", KVF_JSON_REAL, -1, 18446744073709551616.0},
    {"1000000000000000019884624838656", KVF_JSON_REAL, -1, 1e30},
    {"-1000000000000000019884624838656", KVF_JSON_REAL, -1, -1e30},
    {"999999999999999999", KVF_JSON_INT, 999999999999999999, 1e18},
    {"12345678901234567890.5", KVF_JSON_REAL, -1, 12345678901234567890.5},
    {"0.12345678901234567890123", KVF_JSON_REAL, -1, 0.12345678901234567890123},
    {"12345678901234567890e2", KVF_JSON_REAL, -1, 12345678901234567890e2},
    {"12345678901234567890E-2", KVF_JSON_REAL, -1, 12345678901234567890E-2},
    {"1e5", KVF_JSON_REAL, -1, 1e5},
    {"1.0", KVF_JSON_REAL, -1, 1.0},
    {"0", KVF_JSON_INT, 0, 0.0},
    {"-0", KVF_JSON_INT, 0, 0.0},
    {"5e-324", KVF_JSON_REAL, -1, 5e-324},
};

START_TEST(numbers)
{
    char *nested_text = NULL;
    kvf_json *root = parse(NUMBERS[_i].text), *list;

    ck_assert_int_eq(kvf_json_typeof(root), NUMBERS[_i].type);
    ck_assert(kvf_json_int(root, -1) == NUMBERS[_i].i);
    ck_assert(kvf_json_real(root, 0.25) == NUMBERS[_i].r);
    kvf_json_free(root);

    /* the same between others, twice, and untouched inside a string */
    ck_assert_int_eq(kvf__asprintf(ctx, &nested_text, "[7,%s, \"%s\" ,%s,8]", NUMBERS[_i].text,
                                   NUMBERS[_i].text, NUMBERS[_i].text),
                     KVF_OK);
    list = parse(nested_text);
    ck_assert_uint_eq(kvf_json_size(list), 5);
    ck_assert(kvf_json_real(kvf_json_at(list, 1), 0.25) == NUMBERS[_i].r);
    ck_assert_str_eq(kvf_json_str(kvf_json_at(list, 2), NULL), NUMBERS[_i].text);
    ck_assert(kvf_json_real(kvf_json_at(list, 3), 0.25) == NUMBERS[_i].r);
    ck_assert_int_eq(kvf_json_int(kvf_json_at(list, 4), 0), 8);
    kvf_json_free(list);
    kvf__free(nested_text);
}
END_TEST

static const struct {
    double value;
    const char *text;
} REALS[] = {
    {0.1, "0.1"},
    {1, "1.0"},
    {-0.0, "-0.0"},
    {1e22, "1e+22"},
    {1.0 / 3, "0.3333333333333333"},
    {0.1 + 0.2, "0.30000000000000004"},
    {1e-5, "1e-05"},
    {5e-324, "4.94065645841247e-324"},
    {DBL_MAX, "1.7976931348623157e+308"},
    {123456789.0, "123456789.0"},
    {NAN, "null"},
    {INFINITY, "null"},
    {-INFINITY, "null"},
};

START_TEST(reals_as_text)
{
    kvf_json *real = kvf_json_new_real(REALS[_i].value), *back;

    check_text(real, KVF_JSON_COMPACT, REALS[_i].text);
    if (isfinite(REALS[_i].value)) {
        back = parse(REALS[_i].text);
        ck_assert_int_eq(kvf_json_typeof(back), KVF_JSON_REAL);
        ck_assert(kvf_json_real(back, 0.5) == REALS[_i].value);
        kvf_json_free(back);
    }
    kvf_json_free(real);
}
END_TEST

START_TEST(random_reals_come_back)
{
    kvf__rng rng = kvf__rng_make(1, 1);

    for (int i = 0; i < 5000; i++) {
        double value = kvf__rng_normal(&rng) * pow(10, (double)kvf__rng_below(&rng, 600) - 300);
        kvf_json *real = kvf_json_new_real(value);
        char *text = kvf_json_text(real, 0);
        kvf_json *back = parse(text);
        ck_assert(kvf_json_real(back, 0) == value);
        kvf_json_free(back);
        kvf_json_text_free(text);
        kvf_json_free(real);
    }
}
END_TEST

/* ---- building and text ----------------------------------------------------------------------- */

START_TEST(build)
{
    kvf_json *root = kvf_json_object(), *list = kvf_json_array();

    ck_assert(kvf_json_set(root, "n", kvf_json_new_int(INT64_MIN)));
    ck_assert(kvf_json_set(root, "on", kvf_json_new_bool(true)));
    ck_assert(kvf_json_set(root, "none", kvf_json_new_null()));
    ck_assert(kvf_json_add(list, kvf_json_new_str("x")));
    ck_assert(kvf_json_add(list, kvf_json_object()));
    ck_assert(kvf_json_add(list, kvf_json_array()));
    ck_assert(kvf_json_set(root, "list", list));
    ck_assert(kvf_json_set(root, "n", kvf_json_new_int(1))); /* replaces, keeps its place */
    check_text(root, KVF_JSON_COMPACT,
               "{\"n\":1,\"on\":true,\"none\":null,\"list\":[\"x\",{},[]]}");
    check_text(
        root, KVF_JSON_INDENT | KVF_JSON_SORTED,
        "{\n  \"list\": [\n    \"x\",\n    {},\n    []\n  ],\n  \"n\": 1,\n  \"none\": null,\n"
        "  \"on\": true\n}");
    kvf_json_free(root);
}
END_TEST

/* One check at the end of a chain is enough. */
START_TEST(failed_build_has_no_text)
{
    kvf_json *root = kvf_json_object(), *list = kvf_json_array();

    ck_assert(kvf_json_set(root, "list", list));
    check_text(root, 0, "{\"list\":[]}");
    ck_assert(!kvf_json_add(list, NULL));
    ck_assert_ptr_null(kvf_json_text(root, 0));
    ck_assert_int_eq(kvf_json_typeof(kvf_json_at(list, 0)), KVF_JSON_NONE);
    kvf_json_free(root);

    root = kvf_json_object();
    ck_assert(!kvf_json_set(root, "a", NULL));
    ck_assert(kvf_json_set(root, "b", kvf_json_new_int(1)));
    ck_assert_ptr_null(kvf_json_text(root, KVF_JSON_SORTED));
    kvf_json_free(root);

    root = kvf_json_object();
    ck_assert(!kvf_json_set(root, "\xff", kvf_json_new_int(1)));
    ck_assert_ptr_null(kvf_json_text(root, 0));
    kvf_json_free(root);
    ck_assert(!kvf_json_set(NULL, "a", kvf_json_new_int(1)));
    ck_assert(!kvf_json_add(NULL, kvf_json_new_int(1)));
    ck_assert_ptr_null(kvf_json_new_str(NULL));
}
END_TEST

START_TEST(values_by_a_format)
{
    kvf_json *value = kvf__json_pack("{s:s, s:I, s:s?, s:[f, o]}", "text", "\xc3\xa9", "number",
                                     INT64_MIN, "none", (char *)NULL, "list", 0.5,
                                     kvf_json_new_str("\xff"));
    check_text(value, KVF_JSON_COMPACT,
               "{\"text\":\"\xc3\xa9\",\"number\":-9223372036854775808,\"none\":null,"
               "\"list\":[0.5,\"\xef\xbf\xbd\"]}");
    kvf_json_free(value);
    /* values made before and after a failure are freed */
    ck_assert_ptr_null(kvf__json_pack("{s:o, s:o, s:o}", "a", kvf_json_array(), "b",
                                      (kvf_json *)NULL, "c", kvf_json_array()));
    ck_assert_ptr_null(kvf__json_pack("[s]", "\xff"));
}
END_TEST

static const struct {
    const char *in, *out;
} STRINGS[] = {
    {"", "\"\""},
    {"a/b", "\"a/b\""},
    {"\"\\\b\f\n\r\t\x01\x1f\x7f", "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\""},
    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
    {"a\xff"
     "b",
     "\"a\xef\xbf\xbd"
     "b\""},
    {"\xc3", "\"\xef\xbf\xbd\""},
    {"\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\""},
    {"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},                                 /* overlong */
    {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},                 /* surrogate */
    {"\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* > 10FFFF */
    {"\xe0\x80\x80x", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx\""},
    {"\xf0\x9f\x98x", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx\""},
};

START_TEST(strings_as_text)
{
    kvf_json *string = kvf_json_new_str(STRINGS[_i].in), *back;

    ck_assert_ptr_nonnull(string);
    check_text(string, KVF_JSON_COMPACT, STRINGS[_i].out);
    back = parse(STRINGS[_i].out);
    ck_assert_str_eq(kvf_json_str(back, NULL), kvf_json_str(string, NULL));
    kvf_json_free(back);
    kvf_json_free(string);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
    Suite *suite = suite_create("json_text");
    TCase *core = ck_case(suite, "core", setup, teardown, 30);
    TCase *limits = ck_case(suite, "limits", setup, teardown, 30);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 30);

    tcase_add_test(core, build);
    tcase_add_test(core, values_by_a_format);
    tcase_add_loop_test(core, strings_as_text, 0, COUNT(STRINGS));
    tcase_add_loop_test(core, reals_as_text, 0, COUNT(REALS));
    tcase_add_loop_test(limits, numbers, 0, COUNT(NUMBERS));
    tcase_add_test(limits, random_reals_come_back);
    tcase_add_test(errors, failed_build_has_no_text);
    return ck_main(suite);
}
