/* Choosing the next token: greedy and its ties, cuts by top-k and top-p, frequencies of a seeded
 * draw. */
#include "ck.h"
#include "sample.h"

#include <math.h>

#define V     6
#define DRAWS 20000

static const float LOGITS[V] = {0, 2, 1, -1, 2, -30};
static kvf__candidate scratch[V];

static void frequencies(const kvf__sampling *sampling, double out[V])
{
    kvf__rng rng = kvf__rng_make(3, 0);
    for (int i = 0; i < V; i++)
        out[i] = 0;
    for (int i = 0; i < DRAWS; i++)
        out[kvf__sample(sampling, LOGITS, V, &rng, scratch)] += 1.0 / DRAWS;
}

START_TEST(greedy_takes_the_first_of_the_largest)
{
    kvf__sampling greedy = {.top_p = 1};
    kvf__rng rng = kvf__rng_make(0, 0);
    ck_assert_int_eq(kvf__sample(&greedy, LOGITS, V, &rng, scratch), 1);
    ck_assert_uint_eq(rng.counter, 0); /* no random number is consumed */
}
END_TEST

START_TEST(frequencies_follow_the_softmax)
{
    static const double TEMPERATURES[] = {0.5, 1, 3};
    kvf__sampling sampling = {.temperature = TEMPERATURES[_i], .top_p = 1};
    double got[V], sum = 0;
    frequencies(&sampling, got);
    for (int i = 0; i < V; i++)
        sum += exp(LOGITS[i] / sampling.temperature);
    for (int i = 0; i < V; i++) /* 0.015: four standard deviations of a fraction of 20,000 */
        ck_assert_double_eq_tol(got[i], exp(LOGITS[i] / sampling.temperature) / sum, 0.015);
}
END_TEST

/* top_k, top_p, number of ids that may be drawn: the largest ones, ties by id */
static const struct {
    int64_t top_k;
    double top_p;
    int alive;
} CUTS[] = {
    {1, 1, 1},   {2, 1, 2},    {3, 1, 3},   {0, 0.01, 1},
    {0, 0.5, 2}, {0, 0.85, 3}, {2, 0.5, 1}, {100, 1, 6},
};
static const int RANKED[V] = {1, 4, 2, 0, 3, 5};

START_TEST(cuts_leave_the_largest)
{
    kvf__sampling sampling = {.temperature = 1, .top_k = CUTS[_i].top_k, .top_p = CUTS[_i].top_p};
    double got[V];
    frequencies(&sampling, got);
    for (int rank = 0; rank < V; rank++) {
        if (rank < CUTS[_i].alive && rank < 5) /* the sixth has probability e^-32 */
            ck_assert_msg(got[RANKED[rank]] > 0, "rank %d is never drawn", rank);
        if (rank >= CUTS[_i].alive) ck_assert_msg(got[RANKED[rank]] == 0, "rank %d is drawn", rank);
    }
}
END_TEST

START_TEST(equal_seeds_give_equal_draws)
{
    kvf__sampling sampling = {.temperature = 1, .top_p = 1};
    kvf__rng a = kvf__rng_make(9, 4), b = kvf__rng_make(9, 4);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(kvf__sample(&sampling, LOGITS, V, &a, scratch),
                         kvf__sample(&sampling, LOGITS, V, &b, scratch));
}
END_TEST

START_TEST(logits_that_are_not_finite_give_no_token)
{
    static const struct {
        float logits[3];
        int32_t token;
    } cases[] = {{{NAN, 0, 1}, -1},
                 {{0, INFINITY, 1}, -1},
                 {{-INFINITY, -INFINITY, -INFINITY}, -1},
                 {{-INFINITY, 0, -INFINITY}, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int drawn = 0; drawn < 2; drawn++) {
            kvf__sampling sampling = {.temperature = drawn, .top_p = drawn ? 0.9 : 1};
            kvf__rng rng = kvf__rng_make(1, 1);
            ck_assert_int_eq(kvf__sample(&sampling, cases[i].logits, 3, &rng, scratch),
                             cases[i].token);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sample");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits");
    tcase_add_test(core, greedy_takes_the_first_of_the_largest);
    tcase_add_loop_test(core, frequencies_follow_the_softmax, 0, 3);
    tcase_add_loop_test(core, cuts_leave_the_largest, 0, (int)(sizeof CUTS / sizeof CUTS[0]));
    tcase_add_test(core, equal_seeds_give_equal_draws);
    tcase_add_test(limits, logits_that_are_not_finite_give_no_token);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    return ck_main(suite);
}
