/* Tests of the figures of diff on tensors written by hand: f64 sums, equal NaN, different types
 * with equal values, and values that are not finite. Also checks that every part of a file is
 * compared. */
#include "file_int.h"
#include "h5_fixture.h"

#include <kvfold/merge.h>

static const char *first, *second;
static kvf_json *found;

static void begin(void)
{
    setup();
    first = in_dir("a.safetensors");
    second = in_dir("b.safetensors");
    found = NULL;
}

static void end(void)
{
    kvf_json_free(found);
    teardown();
}

static void same_number(double got, const kvf_json *entry, const char *key)
{
    const double want = kvf_json_real(kvf_json_get(entry, key), NAN);
    ck_assert(got == want || (isnan(got) && isnan(want)));
}

static const char *text_at(const kvf_json *object, const char *key)
{
    return kvf_json_str(kvf_json_get(object, key), NULL);
}

/* The struct has the members of the JSON object. */
static void expect_same(const kvf_diff_result *r)
{
    static const char *const LISTS[] = {"changed", "removed", "added"};
    const kvf_json *tensors = kvf_json_get(found, "tensors");
    size_t n = 0;
    ck_assert_str_eq(r->kind, text_at(found, "kind"));
    ck_assert_int_eq(r->same, kvf_json_bool(kvf_json_get(found, "same"), false));
    ck_assert_uint_eq(r->n_facts, kvf_json_size(kvf_json_get(found, "facts")));
    for (size_t i = 0; i < r->n_facts; i++) {
        const kvf_json *fact = kvf_json_at(kvf_json_get(found, "facts"), i);
        ck_assert_str_eq(r->facts[i].name, text_at(fact, "name"));
        ck_assert_int_eq(!r->facts[i].a, !kvf_json_get(fact, "a"));
        ck_assert_int_eq(!r->facts[i].b, !kvf_json_get(fact, "b"));
    }
    for (int list = 0; list < 3; list++)
        for (size_t i = 0; i < kvf_json_size(kvf_json_get(tensors, LISTS[list])); i++, n++) {
            const kvf_json *entry = kvf_json_at(kvf_json_get(tensors, LISTS[list]), i);
            const kvf_json *shape_b = kvf_json_get(entry, "shape_b");
            const kvf_diff_tensor *t = &r->tensors[n];
            ck_assert_str_eq(t->name, text_at(entry, "name"));
            ck_assert(!t->a.dtype == (list == 2) && !t->b.dtype == (list == 1));
            ck_assert_int_eq(t->unequal, kvf_json_int(kvf_json_get(entry, "unequal"), -1));
            same_number(t->max_abs, entry, "max_abs");
            same_number(t->cosine, entry, "cosine");
            if (text_at(entry, "dtype_b")) ck_assert_str_eq(t->b.dtype, text_at(entry, "dtype_b"));
            if (shape_b) ck_assert_int_eq(t->b.shape[0], kvf_json_int(kvf_json_at(shape_b, 0), -1));
            if (!list)
                ck_assert_int_eq(t->a.rank, (int)kvf_json_size(kvf_json_get(entry, "shape")));
        }
    ck_assert_uint_eq(n, r->n_tensors);
}

static void diff(const char *a, const char *b)
{
    kvf_diff_result result;
    kvf_json_free(found);
    found = NULL;
    ck_assert_msg(!kvf_diff(ctx, a, b, false, &result, &found), "%s", kvf_ctx_error(ctx));
    expect_same(&result);
    kvf_diff_result_done(&result);
}

/* Compares two files with one tensor "x" each. */
static const kvf_json *compare(kvf__view a, kvf__view b)
{
    const kvf__tensor x = {.name = (char *)"x", .view = a}, y = {.name = (char *)"x", .view = b};
    ck_assert(!kvf__safetensors_write(ctx, first, true, &x, 1));
    ck_assert(!kvf__safetensors_write(ctx, second, true, &y, 1));
    diff(first, second);
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

/* Differences far apart in place and size: every chunk counts, in f64. */
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

/* ---- nothing is left out --------------------------------------------------------------------- */

/* Equal to itself; different with `second` in its place. */
static kvf_json *compare_files(bool same)
{
    diff(in_dir("a.h5"), in_dir(same ? "a.h5" : "b.h5"));
    ck_assert(kvf_json_bool(kvf_json_get(found, "same"), !same) == same);
    return found;
}

/* Every column of the history, with one value changed in the middle in b.h5. */
START_TEST(every_column)
{
    char name[64];
    kvf__artifact file;
    make_run_file(&file, true);
    for (int i = 0; i < KVF__COLUMNS; i++)
        if (!file.history.column[i])
            ck_ok(kvf__alloc_array(ctx, (size_t)file.history.n, 8, &file.history.column[i]));
    ck_ok(kvf__artifact_write(ctx, in_dir("a.h5"), true, &file));
    memset((char *)file.history.column[_i] + 8, 1, 8);
    ck_ok(kvf__artifact_write(ctx, in_dir("b.h5"), true, &file));
    kvf__artifact_done(&file);
    compare_files(true);
    const kvf_json *changed = kvf_json_get(kvf_json_get(compare_files(false), "tensors"),
                                           "changed");
    ck_assert_uint_eq(kvf_json_size(changed), 1);
    snprintf(name, sizeof name, "history/%s", kvf__columns[_i].name);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(kvf_json_at(changed, 0), "name"), NULL), name);
}
END_TEST

/* Heads of two tasks, of which one label of the second is `label`. */
static void write_tasks(const char *path, const char *label, const char *task, bool regression)
{
    char *labels[] = {(char *)"no", (char *)label};
    kvf__head_task tasks[] = {
        {.name = (char *)"one", .task = (char *)"seq-cls", .n_labels = 2, .labels = labels},
        {.name = (char *)"two", .task = (char *)task, .regression = regression}};
    kvf__artifact file;
    make_run_file(&file, false);
    kvf__free(file.id.task);
    ck_ok(kvf__strdup(ctx, KVF__MULTI_TASK, &file.id.task));
    file.head.tasks = tasks;
    file.head.n_tasks = 2;
    add_param(&file.head.params, "one/classifier.weight", 2, 4, 1);
    add_param(&file.head.params, "two/classifier.weight", 2, 4, 1);
    ck_ok(kvf__artifact_write(ctx, path, true, &file));
    file.head.tasks = NULL;
    file.head.n_tasks = 0;
    kvf__artifact_done(&file);
}

START_TEST(heads_of_several_tasks)
{
    write_tasks(in_dir("a.h5"), "yes", "seq-cls", false);
    compare_files(true);
    write_tasks(in_dir("b.h5"), "perhaps", "seq-cls", false);
    compare_files(false);
    write_tasks(in_dir("b.h5"), "yes", "token-cls", false);
    compare_files(false);
    write_tasks(in_dir("b.h5"), "yes", "seq-cls", true);
    const kvf_json *fact = kvf_json_at(kvf_json_get(compare_files(false), "facts"), 0);
    const kvf_json *two = kvf_json_get(kvf_json_get(fact, "b"), "two");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(fact, "name"), NULL), "heads");
    ck_assert(kvf_json_bool(kvf_json_get(two, "regression"), false));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("diff");
    TCase *core = tcase_create("core");

    tcase_add_checked_fixture(core, begin, end);
    tcase_set_timeout(core, 60);
    suite_add_tcase(suite, core);
    tcase_add_test(core, numbers);
    tcase_add_test(core, long_ones);
    tcase_add_test(core, types_and_what_is_no_number);
    tcase_add_loop_test(core, every_column, 0, KVF__COLUMNS);
    tcase_add_test(core, heads_of_several_tasks);
    return ck_main(suite);
}
