/* Golden cases of every metric: results of scikit-learn, scipy, seqeval, the SQuAD scripts,
 * sacrebleu and rouge_score (golden/make_metric_golden.py). */
#include "ck.h"
#include "metric_case.h"

#include <math.h>

/* The sums are in another order; every figure is of the order of 1 or 100. */
static const double TOLERANCE = 1e-12;

static kvf_ctx *ctx;
static kvf_json *cases;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    ck_assert_int_eq(kvf_json_load(ctx, ck_source("tests/golden/metrics.json"), &cases), KVF_OK);
}

static void teardown(void)
{
    kvf_json_free(cases);
    kvf_ctx_free(ctx);
}

static void check_values(const metric_result *got, const kvf_json *want, const char *shown)
{
    const kvf_json *names = kvf_json_get(want, "names"), *v = kvf_json_get(want, "v");

    ck_assert_msg(got->n_names == kvf_json_size(names), "%s: %zu types", shown, got->n_names);
    for (size_t i = 0; i < got->n_names; i++)
        ck_assert_str_eq(got->names[i], kvf_json_str(kvf_json_at(names, i), NULL));
    ck_assert_msg(got->n == kvf_json_size(v), "%s: %zu numbers", shown, got->n);
    for (size_t i = 0; i < got->n; i++) {
        double w = kvf_json_real(kvf_json_at(v, i), NAN), g = got->v[i];
        /* the reference's mean over no entity type is nan, kvfold's is 0 */
        bool good = isnan(w) ? isnan(g) || g == 0 : fabs(g - w) <= TOLERANCE * fmax(1, fabs(w));
        ck_assert_msg(good, "%s: number %zu is %.17g, want %.17g", shown, i, g, w);
    }
}

/* All cases of one kind; few cases are an error. */
static void check_kind(const char *kind, int at_least)
{
    int n = 0;

    for (size_t i = 0; i < kvf_json_size(cases); i++) {
        const kvf_json *c = kvf_json_at(cases, i), *want = kvf_json_get(c, "want");
        metric_result got = {0};
        if (strcmp(kvf_json_str(kvf_json_get(c, "kind"), NULL), kind)) continue;
        char *shown = kvf_json_text(c, KVF_JSON_COMPACT);
        kvf_status st = metric_case(ctx, c, &got);
        if (kvf_json_typeof(want) == KVF_JSON_NULL)
            ck_assert_msg(st == KVF_EDATA, "%s: not refused", shown);
        else
            ck_assert_msg(st == KVF_OK, "%s: %s", shown, kvf_ctx_error(ctx));
        if (!st) check_values(&got, want, shown);
        metric_result_done(&got);
        kvf_json_text_free(shown);
        n++;
    }
    ck_assert_int_ge(n, at_least);
}

static const struct {
    const char *kind;
    int at_least;
} KINDS[] = {{"classes", 20}, {"numbers", 20}, {"tags", 80}, {"squad", 20},
             {"squad2", 20},  {"bleu", 20},    {"rouge", 20}};

START_TEST(agrees)
{
    check_kind(KINDS[_i].kind, KINDS[_i].at_least);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("metric_golden");
    TCase *golden = tcase_create("golden");

    tcase_add_checked_fixture(golden, setup, teardown);
    tcase_add_loop_test(golden, agrees, 0, (int)(sizeof KINDS / sizeof *KINDS));
    suite_add_tcase(s, golden);
    return ck_main(s);
}
