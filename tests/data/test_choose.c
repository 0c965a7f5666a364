/* Chosen rows (--rows): shares of the classes, the seed, limits, and the fields that stay. */
#include "task_fx.h"

enum { ALL = 40 };

/* 40 rows: 24 of class x, 12 of y, 3 of z and one of w, in an order that mixes them. */
static kvf__dataset make_rows(void)
{
    static const char NAMES[] = "xyxxyzxyxx";
    kvf__buf text = {0};
    ck_assert_int_eq(kvf__buf_printf(ctx, &text, "text\tlabel\n"), KVF_OK);
    for (int i = 0; i < ALL; i++)
        ck_assert_int_eq(
            kvf__buf_printf(ctx, &text, "%c\t%c\n", 'a' + i % 8, i == 15 ? 'w' : NAMES[i % 10]),
            KVF_OK);
    kvf__dataset set = loaded("a.tsv", text.data, (kvf__dataset_options){SEQ});
    kvf__buf_done(&text);
    return set;
}

/* Chooses among the rows; lines: those of the chosen rows, as text. count: rows of w, x, y, z. */
static void choose(int64_t rows, uint64_t seed, char lines[256], int count[4])
{
    kvf__dataset set = make_rows();
    size_t at = 0;
    memset(count, 0, 4 * sizeof *count);
    lines[0] = 0;
    ck_assert_int_eq(kvf__dataset_choose(ctx, "a", &set, rows, seed), KVF_OK);
    ck_assert_int_eq(kvf__group_count(&set), rows);
    ck_assert_int_eq(set.n_labels, rows);
    ck_assert_uint_eq(set.names.n, 4);
    ck_assert(set.delimited);
    for (int64_t g = 0; g < rows; g++) {
        const kvf__source *s = &set.sources->group[g];
        count[s->gold]++;
        at += (size_t)snprintf(lines + at, 256 - at, "%lld ", (long long)s->line);
        ck_assert_int_eq(set.ids[set.start[g] + 1], (int32_t)(s->text[0] - 'a'));
    }
    kvf__dataset_done(&set);
}

/* Shares of 24, 12, 3 and 1 of 40 by the largest remainder, each at least 1. */
START_TEST(classes_keep_their_share)
{
    static const int WANT[][5] = {{4, 1, 1, 1, 1},    {5, 1, 2, 1, 1},   {8, 1, 4, 2, 1},
                                  {20, 1, 12, 6, 1},  {10, 1, 5, 3, 1},  {39, 1, 23, 12, 3},
                                  {40, 1, 24, 12, 3}, {30, 1, 18, 9, 2}, {16, 1, 9, 5, 1}};
    char lines[256];
    int count[4];
    for (size_t i = 0; i < sizeof WANT / sizeof WANT[0]; i++) {
        choose(WANT[i][0], 3, lines, count);
        for (int k = 0; k < 4; k++)
            ck_assert_msg(count[k] == WANT[i][k + 1], "%d rows: %d of class %d, want %d",
                          WANT[i][0], count[k], k, WANT[i][k + 1]);
    }
}
END_TEST

START_TEST(the_seed_decides)
{
    char a[256], b[256], other[256];
    int count[4];
    choose(8, 7, a, count);
    choose(8, 7, b, count);
    choose(8, 8, other, count);
    ck_assert_str_eq(a, b);
    ck_assert_str_ne(a, other);
    choose(ALL, 1, a, count);
    choose(ALL, 2, b, count);
    ck_assert_str_eq(a, b); /* all rows, in the order of the file */
}
END_TEST

/* Every row is chosen about equally often within its class. */
START_TEST(every_row_has_a_chance)
{
    bool seen[ALL + 2] = {false};
    char lines[256];
    int count[4], n = 0;
    for (uint64_t seed = 0; seed < 64; seed++) {
        choose(8, seed, lines, count);
        for (char *at = lines; *at; at = strchr(at, ' ') + 1)
            seen[strtol(at, NULL, 10)] = true;
    }
    for (int i = 2; i < ALL + 2; i++)
        n += seen[i];
    ck_assert_int_eq(n, ALL);
}
END_TEST

START_TEST(limits)
{
    kvf__dataset set = make_rows();
    ck_assert_int_eq(kvf__dataset_choose(ctx, "a.tsv", &set, 41, 0), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx), "a.tsv: --rows 41: there are 40 rows to train on");
    ck_assert_int_eq(kvf__dataset_choose(ctx, "a.tsv", &set, 3, 0), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx), "a.tsv: --rows 3: want a row of each of the 4 classes");
    ck_assert_int_eq(kvf__group_count(&set), ALL);
    kvf__dataset_done(&set);
}
END_TEST

/* Held-out rows are those without --rows; the chosen ones come from the rest. */
START_TEST(after_a_split)
{
    kvf__dataset set = make_rows(), same = make_rows(), held = {0}, again = {0};
    ck_assert_int_eq(kvf__dataset_split(ctx, "a", &set, 0.25, 5, &held), KVF_OK);
    ck_assert_int_eq(kvf__dataset_split(ctx, "a", &same, 0.25, 5, &again), KVF_OK);
    ck_assert_int_eq(kvf__dataset_choose(ctx, "a", &set, 12, 5), KVF_OK);
    ck_assert_int_eq(kvf__group_count(&held), 10);
    for (int64_t g = 0; g < 10; g++) {
        ck_assert_int_eq(held.sources->group[g].line, again.sources->group[g].line);
        for (int64_t k = 0; k < 12; k++)
            ck_assert_int_ne(held.sources->group[g].line, set.sources->group[k].line);
        ck_assert_int_eq(held.ids[held.start[g] + 1], held.sources->group[g].text[0] - 'a');
    }
    ck_assert_int_eq(kvf__dataset_choose(ctx, "a", &same, 31, 5), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx), "a: --rows 31: there are 30 rows to train on");
    kvf__dataset_done(&held);
    kvf__dataset_done(&again);
    kvf__dataset_done(&set);
    kvf__dataset_done(&same);
}
END_TEST

/* Tags are no classes of rows, and a data set may share its lists with another. */
START_TEST(other_tasks)
{
    kvf__dataset shared = {0};
    kvf__dataset set = loaded("a.conll", "a x\n\nb y\n\nc z\n\nd x\n", (kvf__dataset_options){TOK});
    ck_assert_int_eq(kvf__dataset_share(ctx, &set, &shared), KVF_OK);
    ck_assert_int_eq(kvf__dataset_choose(ctx, "a", &shared, 1, 0), KVF_OK);
    ck_assert_int_eq(shared.n, 1);
    ck_assert_uint_eq(shared.names.n, 3);
    ck_assert_int_eq(set.n, 4);
    ck_assert_str_eq(shared.sources->group[0].items[0],
                     set.sources->group[(shared.sources->group[0].line - 1) / 2].items[0]);
    kvf__dataset_done(&shared);
    kvf__dataset_done(&set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("choose");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, classes_keep_their_share);
    tcase_add_test(core, the_seed_decides);
    tcase_add_test(core, every_row_has_a_chance);
    tcase_add_test(core, limits);
    tcase_add_test(core, after_a_split);
    tcase_add_test(core, other_tasks);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
