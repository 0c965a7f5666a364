/* Dropout masks: their mean, their dependence on the element alone, and their fixed definition. */
#include "ck.h"
#include "dropout.h"

#include <string.h>

enum { N = 200000 };
static float one[N], out[N], other[N];

static void setup(void)
{
    for (int i = 0; i < N; i++)
        one[i] = 1;
}

/* One loop row per rate: the dropped share, and the mean of the kept values, within five standard
 * deviations. */
static const double RATES[] = {0, 0.05, 0.1, 0.5, 0.9};

START_TEST(mean_is_preserved)
{
    double p = RATES[_i], sum = 0, zeros = 0;
    int64_t odd = 0; /* neither dropped nor scaled */
    kvf__dropout dropout = kvf__dropout_make(p);
    kvf__dropout_set(dropout, kvf__rng_make(1, 2), 0, out, one, N);
    for (int i = 0; i < N; i++) {
        odd += out[i] != 0 && out[i] != dropout.scale;
        sum += out[i];
        zeros += out[i] == 0;
    }
    ck_assert_int_eq(odd, 0);
    ck_assert_double_eq_tol(dropout.scale, 1 / (1 - p), 1e-3);
    ck_assert_double_eq_tol(zeros / N, p, 0.006);
    ck_assert_double_eq_tol(sum / N, 1, 0.006 / (1 - p) + 1e-6);
}
END_TEST

/* A part of a mask equals the same part of the whole. */
START_TEST(parts_are_those_of_the_whole)
{
    static const int64_t CUTS[] = {0, 1, 3, 4, 10, 15, 16, 29, 64};
    kvf__dropout dropout = kvf__dropout_make(0.4);
    kvf__rng stream = kvf__rng_make(3, 4);
    kvf__dropout_set(dropout, stream, 0, out, one, 64);
    stream.counter = 77; /* ignored */
    for (int i = 0; i < 8; i++)
        kvf__dropout_set(dropout, stream, CUTS[i], other + CUTS[i], one, CUTS[i + 1] - CUTS[i]);
    ck_assert_mem_eq(out, other, 64 * sizeof *out);
    for (int i = 0; i < 64; i++)
        other[i] = (float)i;
    kvf__dropout_add(dropout, stream, 0, other, one, 64);
    for (int i = 0; i < 64; i++)
        ck_assert_float_eq(other[i], (float)i + out[i]);
}
END_TEST

static bool same_mask(kvf__rng a, kvf__rng b)
{
    kvf__dropout dropout = kvf__dropout_make(0.5);
    kvf__dropout_set(dropout, a, 0, out, one, 256);
    kvf__dropout_set(dropout, b, 0, other, one, 256);
    return !memcmp(out, other, 256 * sizeof *out);
}

/* A row draws by its example and its index among the example's rows, not by its place in the
 * batch. */
START_TEST(rows_draw_by_example)
{
    const int64_t first[] = {5, 5, 6, 9}, second[] = {9, 5, 5};
    kvf__batch a = {.n_rows = 4, .example = first}, b = {.n_rows = 3, .example = second};
    kvf__rng stream = kvf__rng_make(8, 1), next = kvf__rng_make(8, 2);
    ck_assert(same_mask(kvf__dropout_row(stream, &a, 0), kvf__dropout_row(stream, &b, 1)));
    ck_assert(same_mask(kvf__dropout_row(stream, &a, 1), kvf__dropout_row(stream, &b, 2)));
    ck_assert(same_mask(kvf__dropout_row(stream, &a, 3), kvf__dropout_row(stream, &b, 0)));
    ck_assert(!same_mask(kvf__dropout_row(stream, &a, 0), kvf__dropout_row(stream, &a, 1)));
    ck_assert(!same_mask(kvf__dropout_row(stream, &a, 1), kvf__dropout_row(stream, &a, 2)));
    ck_assert(!same_mask(kvf__dropout_row(stream, &a, 2), kvf__dropout_row(next, &a, 2)));
}
END_TEST

/* Runs are resumed from stored seeds: the first 64 elements of a stream, computed by hand from the
 * definition and Philox's values. */
START_TEST(definition_stays)
{
    kvf__rng rng = kvf__rng_make(11, 12), stream = rng;
    kvf__dropout_set(kvf__dropout_make(0.25), stream, 0, out, one, 64);
    for (int i = 0; i < 64; i += 8) {
        uint64_t value[2];
        kvf__rng_u128(&rng, value);
        for (int j = 0; j < 8; j++)
            ck_assert_int_eq(out[i + j] == 0, (value[j / 4] >> 16 * (j % 4) & 0xffff) < 0x4000);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dropout");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, NULL);
    tcase_add_loop_test(core, mean_is_preserved, 0, (int)(sizeof RATES / sizeof RATES[0]));
    tcase_add_test(core, parts_are_those_of_the_whole);
    tcase_add_test(core, rows_draw_by_example);
    tcase_add_test(core, definition_stays);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
