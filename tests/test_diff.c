/* The numbers of diff, on tensors written by hand: f64 sums, NaN that are equal, types that differ
 * while values do not, and what is no number. */
#include "ck.h"
#include "file_int.h"

#include <kvfold/merge.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static kvf_ctx *ctx;
static char first[512], second[512];
static kvf_json *found;

static void setup(void)
{
    const char *dir = ck_tmpdir();
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    snprintf(first, sizeof first, "%s/a.safetensors", dir);
    snprintf(second, sizeof second, "%s/b.safetensors", dir);
    found = NULL;
}

static void teardown(void)
{
    kvf_json_free(found);
    unlink(first);
    unlink(second);
    kvf_ctx_free(ctx);
}

/* Two files with one tensor "x" each, compared. */
static const kvf_json *compare(kvf__view a, kvf__view b)
{
    const kvf__tensor x = {.name = (char *)"x", .view = a}, y = {.name = (char *)"x", .view = b};
    kvf_json_free(found);
    found = NULL;
    ck_assert(!kvf__safetensors_write(ctx, first, true, &x, 1));
    ck_assert(!kvf__safetensors_write(ctx, second, true, &y, 1));
    ck_assert_msg(!kvf_diff(ctx, first, second, false, &found), "%s", kvf_ctx_error(ctx));
    return kvf_json_at(kvf_json_get(kvf_json_get(found, "tensors"), "changed"), 0);
}

static kvf__view view_of(const void *data, kvf__dtype dtype, int64_t n)
{
    return (kvf__view){.data = data, .dtype = dtype, .rank = 1, .dim = {n}};
}

static double real_of(const kvf_json *entry, const char *key)
{
    return kvf_json_real(kvf_json_get(entry, key), NAN);
}

START_TEST(numbers)
{
    const float a[] = {3, 4}, b[] = {3, -4};
    const kvf_json *x = compare(view_of(a, KVF__F32, 2), view_of(b, KVF__F32, 2));
    ck_assert_double_eq(real_of(x, "max_abs"), 8);
    ck_assert_double_eq(real_of(x, "relative_l2"), 8.0 / 5);
    ck_assert_double_eq_tol(real_of(x, "cosine"), -7.0 / 25, 1e-15);
    ck_assert_int_eq(kvf_json_int(kvf_json_get(x, "unequal"), 0), 1);
    ck_assert(!kvf_json_bool(kvf_json_get(found, "same"), true));
    ck_assert_double_eq(real_of(kvf_json_get(found, "tensors"), "max_abs"), 8);
    ck_assert_ptr_null(compare(view_of(a, KVF__F32, 2), view_of(a, KVF__F32, 2)));
    ck_assert(kvf_json_bool(kvf_json_get(found, "same"), false));
}
END_TEST

/* Far apart in place and in size: every chunk counts, in f64. */
START_TEST(long_ones)
{
    enum { N = 10000 };
    float *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b);
    for (int i = 0; i < N; i++)
        a[i] = b[i] = 1;
    b[0] = 1.5f;
    b[N - 1] = 3;
    const kvf_json *x = compare(view_of(a, KVF__F32, N), view_of(b, KVF__F32, N));
    ck_assert_int_eq(kvf_json_int(kvf_json_get(x, "unequal"), 0), 2);
    ck_assert_double_eq(real_of(x, "max_abs"), 2);
    ck_assert_double_eq_tol(real_of(x, "relative_l2"), sqrt(4.25 / N), 1e-12);
    free(a);
    free(b);
}
END_TEST

START_TEST(types_and_what_is_no_number)
{
    const float wide[] = {1, -2, 0.5f}, zeros[3] = {0};
    const uint16_t half[] = {0x3c00, 0xc000, 0x3800};
    const double a[] = {NAN, 1, 2}, b[] = {NAN, 1, 2.0000000001}, c[] = {0, 1, 2};
    const int64_t i[] = {1, 2, 3}, j[] = {1, 2, 4};

    const kvf_json *x = compare(view_of(wide, KVF__F32, 3), view_of(half, KVF__F16, 3));
    ck_assert_str_eq(kvf_json_str(kvf_json_get(x, "dtype_b"), NULL), "f16");
    ck_assert_double_eq(real_of(x, "max_abs"), 0);
    x = compare(view_of(zeros, KVF__F32, 3), view_of(wide, KVF__F32, 3));
    ck_assert(isnan(real_of(x, "relative_l2")) && isnan(real_of(x, "cosine")));
    x = compare(view_of(a, KVF__F64, 3), view_of(b, KVF__F64, 3));
    ck_assert_double_eq_tol(real_of(x, "max_abs"), 1e-10, 1e-15);
    ck_assert_int_eq(kvf_json_int(kvf_json_get(x, "unequal"), 0), 1);
    x = compare(view_of(a, KVF__F64, 3), view_of(c, KVF__F64, 3));
    ck_assert_int_eq(kvf_json_int(kvf_json_get(x, "unequal"), 0), 1);
    ck_assert_int_eq(kvf_json_typeof(kvf_json_get(x, "max_abs")), KVF_JSON_NULL);
    x = compare(view_of(i, KVF__I64, 3), view_of(j, KVF__I64, 3));
    ck_assert(x && !kvf_json_get(x, "unequal") && !kvf_json_get(x, "max_abs"));
    x = compare(view_of(wide, KVF__F32, 3), view_of(wide, KVF__F32, 2));
    ck_assert_int_eq(kvf_json_int(kvf_json_at(kvf_json_get(x, "shape_b"), 0), 0), 2);
    ck_assert_ptr_null(kvf_json_get(x, "unequal"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("diff");
    TCase *core = tcase_create("core");

    tcase_add_checked_fixture(core, setup, teardown);
    tcase_set_timeout(core, 60);
    suite_add_tcase(suite, core);
    tcase_add_test(core, numbers);
    tcase_add_test(core, long_ones);
    tcase_add_test(core, types_and_what_is_no_number);
    return ck_main(suite);
}
