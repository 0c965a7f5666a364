/* Tests of the random numbers. Their values must never change: runs are repeated from stored
 * seeds. */
#include "base_int.h"
#include "ck.h"
#include "rng.h"

#include <math.h>

/* Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors): counter and key
 * words all 0, all ones, and digits of pi; low and high two words of the output. */
static const struct {
    uint64_t seed, stream, counter, want, high;
} KNOWN[] = {
    {0, 0, 0, 0xe169c58d6627e8d5, 0x9b00dbd8bc57ac4c},
    {UINT64_MAX, UINT64_MAX, UINT64_MAX, 0x41c83b0e408f276d, 0x6d5451fda20bc7c6},
    {0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, 0x94fdccebd16cfe09,
     0x24126ea15001e420},
};

START_TEST(known_answers)
{
    kvf__rng rng = kvf__rng_make(KNOWN[_i].seed, KNOWN[_i].stream);

    rng.counter = KNOWN[_i].counter;
    ck_assert_uint_eq(kvf__rng_u64(&rng), KNOWN[_i].want);
    ck_assert_uint_eq(rng.counter, KNOWN[_i].counter + 1);
    rng.counter = KNOWN[_i].counter;
    uint64_t both[2];
    kvf__rng_u128(&rng, both);
    ck_assert_uint_eq(both[0], KNOWN[_i].want);
    ck_assert_uint_eq(both[1], KNOWN[_i].high);
}
END_TEST

/* Values of a second implementation, written in Python from the definition in rng.c. */
START_TEST(values_stay_the_same)
{
    const uint64_t u64s[] = {0xe55410cc67ee6f2c, 0x600f6196e5dde940, 0xf000aacd24ecfc6e,
                             0x7e42d578945bcada};
    const double uniforms[] = {0.8958139895475427, 0.3752346986201399, 0.9375101805534775,
                               0.4932073039420707};
    const double normals[] = {-1.5060702168999816, -2.3527447586599486, 0.5244387448407402,
                              -1.0504749807628284};
    const uint64_t belows[] = {4, 0, 4, 4, 9, 7, 9, 4, 0, 8};
    const int64_t shuffled[] = {7, 0, 5, 1, 2, 3, 8, 6, 9, 4};
    int64_t items[10];
    kvf__rng rng = kvf__rng_make(42, 7);

    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(kvf__rng_u64(&rng), u64s[i]);
    rng = kvf__rng_make(42, 7);
    for (int i = 0; i < 4; i++)
        ck_assert(kvf__rng_uniform(&rng) == uniforms[i]);
    rng = kvf__rng_make(42, 7);
    for (int i = 0; i < 4; i++) /* log and cos of libm: exact to a few units in the last place */
        ck_assert_double_eq_tol(kvf__rng_normal(&rng), normals[i], 1e-14);
    ck_assert_uint_eq(rng.counter, 8);
    rng = kvf__rng_make(42, 7);
    for (int i = 0; i < 10; i++)
        ck_assert_uint_eq(kvf__rng_below(&rng, 10), belows[i]);
    rng = kvf__rng_make(42, 7);
    for (int i = 0; i < 10; i++)
        items[i] = i;
    kvf__rng_shuffle(&rng, items, 10);
    ck_assert_mem_eq(items, shuffled, sizeof items);
}
END_TEST

/* Just over half the range: about every second value is rejected. */
START_TEST(below_rejects)
{
    const uint64_t want[] = {7301479365977468715u, 8070638330312457325u, 7686660939319991988u,
                             772204401361428085u,  1331623716150855205u, 6814197874384685385u};
    kvf__rng rng = kvf__rng_make(42, 7);

    for (int i = 0; i < 6; i++)
        ck_assert_uint_eq(kvf__rng_below(&rng, ((uint64_t)1 << 63) + 1), want[i]);
    ck_assert_uint_eq(rng.counter, 12);
    for (int i = 0; i < 20; i++)
        ck_assert_uint_eq(kvf__rng_below(&rng, 1), 0);
    kvf__rng_below(&rng, UINT64_MAX);
}
END_TEST

START_TEST(state_is_three_numbers)
{
    kvf__rng rng = kvf__rng_make(1, 2), saved;
    double later[5];

    for (int i = 0; i < 11; i++)
        kvf__rng_normal(&rng);
    saved = rng;
    for (int i = 0; i < 5; i++)
        later[i] = kvf__rng_uniform(&rng);
    for (int i = 0; i < 5; i++)
        ck_assert(kvf__rng_uniform(&saved) == later[i]);
}
END_TEST

START_TEST(shuffle_keeps_items)
{
    enum { N = 1000 };
    int64_t items[N], seen[N] = {0};
    kvf__rng rng = kvf__rng_make(5, 0);
    int moved = 0;

    for (int i = 0; i < N; i++)
        items[i] = i;
    kvf__rng_shuffle(&rng, items, N);
    for (int i = 0; i < N; i++) {
        seen[items[i]]++;
        moved += items[i] != i;
    }
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(seen[i], 1);
    ck_assert_int_gt(moved, N - 20);
    kvf__rng_shuffle(&rng, NULL, 0);
    kvf__rng_shuffle(&rng, items, 1);
}
END_TEST

/* ---- distribution: fixed seeds, so these pass always or never; bounds are about 5 sigma ------ */

enum { DRAWS = 200000 };

static double chi_square(const int64_t *counts, int bins, double total)
{
    double expected = total / bins, sum = 0;
    for (int i = 0; i < bins; i++)
        sum += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    return sum;
}

START_TEST(uniform_is_flat)
{
    int64_t counts[64] = {0};
    kvf__rng rng = kvf__rng_make(3, (uint64_t)_i);
    double sum = 0;

    for (int i = 0; i < DRAWS; i++) {
        double u = kvf__rng_uniform(&rng);
        ck_assert(u >= 0 && u < 1);
        counts[(int)(u * 64)]++;
        sum += u;
    }
    ck_assert_double_lt(fabs(sum / DRAWS - 0.5), 5 * sqrt(1.0 / 12 / DRAWS));
    ck_assert_double_lt(chi_square(counts, 64, DRAWS), 63 + 5 * sqrt(2.0 * 63));
    ck_assert_double_gt(chi_square(counts, 64, DRAWS), 63 - 5 * sqrt(2.0 * 63));
}
END_TEST

START_TEST(every_bit_is_fair)
{
    int64_t ones[64] = {0};
    kvf__rng rng = kvf__rng_make(0, 0);

    for (int i = 0; i < DRAWS; i++) {
        uint64_t value = kvf__rng_u64(&rng);
        for (int bit = 0; bit < 64; bit++)
            ones[bit] += value >> bit & 1;
    }
    for (int bit = 0; bit < 64; bit++)
        ck_assert_double_lt(fabs((double)ones[bit] - DRAWS / 2.0), 5 * sqrt(DRAWS / 4.0));
}
END_TEST

START_TEST(normal_has_its_moments)
{
    kvf__rng rng = kvf__rng_make(9, (uint64_t)_i);
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    int beyond2 = 0;

    for (int i = 0; i < DRAWS; i++) {
        double x = kvf__rng_normal(&rng);
        ck_assert(isfinite(x));
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
        beyond2 += fabs(x) > 2;
    }
    ck_assert_double_lt(fabs(m1 / DRAWS), 5 * sqrt(1.0 / DRAWS));
    ck_assert_double_lt(fabs(m2 / DRAWS - 1), 5 * sqrt(2.0 / DRAWS));
    ck_assert_double_lt(fabs(m3 / DRAWS), 5 * sqrt(15.0 / DRAWS));
    ck_assert_double_lt(fabs(m4 / DRAWS - 3), 5 * sqrt(96.0 / DRAWS));
    ck_assert_double_lt(fabs((double)beyond2 / DRAWS - 0.0455003), 5 * sqrt(0.0434 / DRAWS));
}
END_TEST

START_TEST(below_is_flat)
{
    int64_t counts[7] = {0};
    kvf__rng rng = kvf__rng_make(11, 0);

    for (int i = 0; i < DRAWS; i++)
        counts[kvf__rng_below(&rng, 7)]++;
    ck_assert_double_lt(chi_square(counts, 7, DRAWS), 6 + 5 * sqrt(12.0));
}
END_TEST

/* All 24 orders of 4 items are equally frequent. */
START_TEST(shuffle_is_flat)
{
    int64_t counts[256] = {0}, orders[24];
    kvf__rng rng = kvf__rng_make(13, 0);
    int n = 0;

    for (int i = 0; i < DRAWS / 4; i++) {
        int64_t items[4] = {0, 1, 2, 3};
        kvf__rng_shuffle(&rng, items, 4);
        counts[items[0] | items[1] << 2 | items[2] << 4 | items[3] << 6]++;
    }
    for (int i = 0; i < 256; i++) {
        if (!counts[i]) continue;
        ck_assert_int_lt(n, 24);
        orders[n++] = counts[i];
    }
    ck_assert_int_eq(n, 24);
    ck_assert_double_lt(chi_square(orders, 24, DRAWS / 4), 23 + 5 * sqrt(46.0));
}
END_TEST

/* Neighbouring seeds, streams and counters are as independent as distant ones. */
START_TEST(neighbours_are_unrelated)
{
    kvf__rng base = kvf__rng_make(100, 0);
    kvf__rng others[] = {{101, 0, 0}, {100, 1, 0}, {100, 0, 1}, {0, 100, 0}};

    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
        double sum = 0;
        base.counter = 0;
        for (int i = 0; i < DRAWS; i++)
            sum += (kvf__rng_uniform(&base) - 0.5) * (kvf__rng_uniform(&others[k]) - 0.5);
        ck_assert_double_lt(fabs(sum / DRAWS), 5 * (1.0 / 12) / sqrt(DRAWS));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rng");
    TCase *core = tcase_create("core");
    TCase *spread = tcase_create("distribution");

    tcase_set_timeout(core, 30);
    tcase_set_timeout(spread, 60);
    tcase_add_loop_test(core, known_answers, 0, (int)(sizeof KNOWN / sizeof KNOWN[0]));
    tcase_add_test(core, values_stay_the_same);
    tcase_add_test(core, below_rejects);
    tcase_add_test(core, state_is_three_numbers);
    tcase_add_test(core, shuffle_keeps_items);
    tcase_add_loop_test(spread, uniform_is_flat, 0, 3);
    tcase_add_test(spread, every_bit_is_fair);
    tcase_add_loop_test(spread, normal_has_its_moments, 0, 3);
    tcase_add_test(spread, below_is_flat);
    tcase_add_test(spread, shuffle_is_flat);
    tcase_add_test(spread, neighbours_are_unrelated);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, spread);
    return ck_main(suite);
}
