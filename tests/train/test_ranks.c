/* Division of a step's rows between processes. tests/dist tests their joint computation. */
#include "ck.h"
#include "ranks_int.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 40, MOST = 7 };

static kvf__dataset data;
static kvf__ranks ranks;
static int64_t start[ROWS + 1], group[ROWS + 1], rows[ROWS], load[MOST], examples[ROWS];
static kvf__unit units[ROWS];
static int32_t owner[ROWS];

/* Rows of 1 to 97 tokens, listed backwards. */
static void setup(void)
{
    for (int64_t i = 0; i < ROWS; i++) {
        start[i + 1] = start[i] + 1 + i * 37 % 97;
        examples[i] = ROWS - 1 - i;
    }
    data = (kvf__dataset){.n = ROWS, .start = start, .n_groups = ROWS};
    ranks = (kvf__ranks){.rows = rows, .units = units, .owner = owner, .load = load};
}

static void teardown(void)
{
}

static int64_t take(int rank, int size, const int64_t *from, int64_t n, int64_t *out)
{
    const int64_t *own = from;
    ranks.rank = rank;
    ranks.size = size;
    kvf__ranks_rows(&ranks, &data, &own, &n);
    memcpy(out, own, (size_t)n * sizeof *out);
    return n;
}

START_TEST(every_row_has_one_rank)
{
    int size = _i;
    int64_t own[ROWS], most = 0, least = INT64_MAX, seen = 0;
    bool found[ROWS] = {false};
    for (int r = 0; r < size; r++) {
        int64_t tokens = 0, n = take(r, size, examples, ROWS, own);
        for (int64_t i = 0; i < n; i++) {
            ck_assert(!found[own[i]]);
            ck_assert(i == 0 || own[i] < own[i - 1]); /* in the order of the step */
            found[own[i]] = true;
            tokens += kvf__example_length(&data, own[i]);
        }
        seen += n;
        most = tokens > most ? tokens : most;
        least = tokens < least ? tokens : least;
        ck_assert_int_eq(kvf__ranks_other_tokens(&ranks), start[ROWS] - tokens);
    }
    ck_assert_int_eq(seen, ROWS);
    ck_assert_int_le(most - least, 97); /* the longest row */
}
END_TEST

START_TEST(groups_stay_whole)
{
    int64_t own[ROWS], forward[ROWS], groups = 0;
    for (int64_t i = 0; i < ROWS; i++)
        forward[i] = i;
    for (int64_t i = 0; i <= ROWS; i += 4) /* four choices per question */
        group[groups++] = i;
    data.group = group;
    data.n_groups = groups - 1;
    for (int r = 0; r < 3; r++) {
        int64_t n = take(r, 3, forward, ROWS, own);
        ck_assert_int_eq(n % 4, 0);
        for (int64_t i = 0; i < n; i++)
            ck_assert_int_eq(own[i] % 4, i % 4);
    }
}
END_TEST

START_TEST(there_may_be_more_ranks_than_rows)
{
    int64_t own[ROWS], seen = 0;
    for (int r = 0; r < MOST; r++)
        seen += take(r, MOST, examples, 2, own);
    ck_assert_int_eq(seen, 2);
    ck_assert_int_eq(take(MOST - 1, MOST, examples, 2, own), 0);
}
END_TEST

START_TEST(a_process_alone_has_all_rows)
{
    const int64_t *own = examples;
    int64_t n = ROWS;
    kvf__ranks_rows(NULL, &data, &own, &n);
    ck_assert_ptr_eq(own, examples);
    ck_assert_int_eq(n, ROWS);
    ck_assert_int_eq(kvf__ranks_other_tokens(NULL), 0);
    ck_assert(!kvf__ranks_follows(NULL));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_loop_test(core, every_row_has_one_rank, 1, MOST);
    tcase_add_test(core, groups_stay_whole);
    tcase_add_test(core, there_may_be_more_ranks_than_rows);
    tcase_add_test(core, a_process_alone_has_all_rows);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
