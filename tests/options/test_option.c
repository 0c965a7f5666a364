/* Option values for every kind of row, alternatives, and lines of recipes. */
#include "option_table.h"

#include "ck.h"

#include <string.h>

typedef struct fields {
    bool flag;
    const char *text;
    int choice;
    int64_t count;
    uint64_t seed;
    double real;
} fields;

#define AT(field) offsetof(fields, field)
static const kvf__option_row FLAG = {"flag", NULL, "", KVF_FLAG, AT(flag), ""},
                             ON_OFF = {"on-off", "on|off", "", KVF_ON_OFF, AT(flag), ""},
                             EITHER = {"group-by", "off|prefix", "", KVF_EITHER, AT(flag), ""},
                             TEXT = {"text", "TEXT", "", KVF_TEXT, AT(text), ""},
                             WORD = {"word", "a|bc", "", KVF_WORD, AT(text), ""},
                             NAMED = {"word", "a|bc|NAME:X", "", KVF_WORD, AT(text), ""},
                             CHOICE = {"choice", "a|bc", "", KVF_CHOICE, AT(choice), ""},
                             FROM_1 = {"choice", "a|bc", "", KVF_CHOICE_1, AT(choice), ""},
                             COUNT = {"count", "N", "", KVF_COUNT, AT(count), ""},
                             POSITIVE = {"count", "N", "", KVF_POSITIVE, AT(count), ""},
                             SEED = {"seed", "N", "", KVF_SEED, AT(seed), ""},
                             AMOUNT = {"real", "X", "", KVF_AMOUNT, AT(real), ""},
                             REAL = {"real", "X", "", KVF_REAL, AT(real), ""};

/* want NULL: the value is accepted, and the fields are as expected. */
static const struct {
    const kvf__option_row *row;
    const char *value, *want;
    fields expected;
} VALUES[] = {
    {&FLAG, NULL, NULL, {.flag = true}},
    {&FLAG, "false", NULL, {.flag = false}},
    {&FLAG, "yes", "true or false", {0}},
    {&ON_OFF, "on", NULL, {.flag = true}},
    {&ON_OFF, "true", "on or off", {0}},
    {&EITHER, "off", NULL, {.flag = false}},
    {&EITHER, "prefix", NULL, {.flag = true}},
    {&EITHER, "on", "off|prefix", {0}},
    {&WORD, "b", "a|bc", {0}},
    {&WORD, "", "a|bc", {0}},
    {&WORD, "a|bc", "a|bc", {0}},
    {&WORD, "a:", "a|bc", {0}},
    {&NAMED, "bc", NULL, {.text = "bc"}},
    {&NAMED, "bc:a |:", NULL, {.text = "bc:a |:"}},
    {&NAMED, "b:a", "a|bc|NAME:X", {0}},
    {&NAMED, ":", "a|bc|NAME:X", {0}},
    {&CHOICE, "a", NULL, {.choice = 0}},
    {&CHOICE, "bc", NULL, {.choice = 1}},
    {&CHOICE, "abc", "a|bc", {0}},
    {&FROM_1, "a", NULL, {.choice = 1}},
    {&FROM_1, "bc", NULL, {.choice = 2}},
    {&COUNT, "0", NULL, {.count = 0}},
    {&COUNT, "2147483647", NULL, {.count = 2147483647}},
    {&COUNT, "2147483648", "a whole number from 0 to 2147483647", {0}},
    {&COUNT, "-1", "a whole number from 0 to 2147483647", {0}},
    {&COUNT, "1.5", "a whole number from 0 to 2147483647", {0}},
    {&POSITIVE, "1", NULL, {.count = 1}},
    {&POSITIVE, "0", "a whole number from 1 to 2147483647", {0}},
    {&SEED, "9223372036854775807", NULL, {.seed = INT64_MAX}},
    {&SEED, "9223372036854775808", "a whole number from 0 to 9223372036854775807", {0}},
    {&AMOUNT, "2e-5", NULL, {.real = 2e-5}},
    {&AMOUNT, "-2", "a number, 0 or more", {0}},
    {&REAL, "-2", NULL, {.real = -2}},
    {&REAL, "nan", "a number", {0}},
    {&REAL, "2x", "a number", {0}},
};

START_TEST(values)
{
    fields got = {0};
    const char *want = kvf__option_set(VALUES[_i].row, VALUES[_i].value, &got);
    ck_assert_pstr_eq(want, VALUES[_i].want);
    ck_assert_int_eq(got.flag, VALUES[_i].expected.flag);
    ck_assert_int_eq(got.choice, VALUES[_i].expected.choice);
    ck_assert_int_eq(got.count, VALUES[_i].expected.count);
    ck_assert_uint_eq(got.seed, VALUES[_i].expected.seed);
    ck_assert(got.real == VALUES[_i].expected.real);
}
END_TEST

START_TEST(texts_are_borrowed)
{
    fields got = {0};
    const char *text = "any", *word = "bc";
    ck_assert_ptr_null(kvf__option_set(&TEXT, text, &got));
    ck_assert_ptr_eq(got.text, text);
    ck_assert_ptr_null(kvf__option_set(&WORD, word, &got));
    ck_assert_ptr_eq(got.text, word);
    ck_assert_ptr_nonnull(kvf__option_set(&WORD, "c", &got));
    ck_assert_ptr_eq(got.text, word); /* unchanged */
}
END_TEST

START_TEST(lines)
{
    char text[] = "# first\n\n  lr = 0.1 \n[name]\nmap=a=b", *at = text, *name, *value;
    int number = 0;
    char *line = kvf__option_line(&at, &number);
    ck_assert_int_eq(number, 3);
    ck_assert(kvf__option_split(line, &name, &value));
    ck_assert_str_eq(name, "lr");
    ck_assert_str_eq(value, "0.1");
    line = kvf__option_line(&at, &number);
    ck_assert_str_eq(line, "[name]");
    ck_assert(!kvf__option_split(line, &name, &value));
    ck_assert(kvf__option_split(kvf__option_line(&at, &number), &name, &value));
    ck_assert_str_eq(value, "a=b");
    ck_assert_int_eq(number, 5);
    ck_assert_ptr_null(kvf__option_line(&at, &number));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("option");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, values, 0, (int)(sizeof VALUES / sizeof VALUES[0]));
    tcase_add_test(core, texts_are_borrowed);
    tcase_add_test(core, lines);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
