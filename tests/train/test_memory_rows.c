/* Rows in memory are equivalent to a file of the same lines. They give the same rows and, also on
 * an open base, the same run bytes. Invalid rows are refused. */
#include "memory_rows.h"
#include "open_base.h"
#include "toy_run.h"

#include <math.h>
#include <sys/stat.h>

static void read_path(const char *path, char *text, size_t cap)
{
    kvf__buf all = {0};
    ck_assert_int_eq(kvf__read_file(ctx, path, cap - 1, &all), KVF_OK);
    memcpy(text, all.data, all.n + 1);
    kvf__buf_done(&all);
}

static kvf_rows *new_rows(void)
{
    kvf_rows *rows = NULL;
    ck_assert_msg(!kvf_rows_create(ctx, &rows), "%s", kvf_ctx_error(ctx));
    return rows;
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(rows_are_lines_of_json)
{
    char text[1024];
    const int32_t ids[] = {3, 4, 5}, labels[] = {-100, 4, 6};
    const kvf_message messages[] = {{"user", "a\"b"}, {"assistant", "c"}};
    static const char spread[] = "{\"a\":\n [1,\r\n2]}", plain[] = "{ \"b\" : 1.50 }";
    kvf_rows *rows = new_rows();
    ck_assert_int_eq(kvf_rows_add_pair(ctx, rows, "p", " c\n"), KVF_OK);
    ck_assert_int_eq(kvf_rows_add_text(ctx, rows, "t"), KVF_OK);
    ck_assert_int_eq(kvf_rows_add_ids(ctx, rows, ids, labels, 3), KVF_OK);
    ck_assert_int_eq(kvf_rows_add_ids(ctx, rows, ids, NULL, 2), KVF_OK);
    ck_assert_int_eq(kvf_rows_add_messages(ctx, rows, messages, 2), KVF_OK);
    ck_assert_int_eq(kvf_rows_add_json(ctx, rows, spread, sizeof spread - 1), KVF_OK);
    ck_assert_int_eq(kvf_rows_add_json(ctx, rows, plain, sizeof plain - 1), KVF_OK);
    ck_assert_int_eq(kvf_rows_count(rows), 7);
    read_path(kvf_rows_path(rows), text, sizeof text);
    ck_assert_str_eq(text, "{\"prompt\":\"p\",\"completion\":\" c\\n\"}\n"
                           "{\"text\":\"t\"}\n"
                           "{\"input_ids\":[3,4,5],\"labels\":[-100,4,6]}\n"
                           "{\"input_ids\":[3,4],\"labels\":[3,4]}\n"
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\\"b\"},{\"role\":"
                           "\"assistant\",\"content\":\"c\"}]}\n"
                           "{\"a\":[1,2]}\n"
                           "{ \"b\" : 1.50 }\n");
    kvf_rows_free(rows);
    kvf_rows_free(NULL);
}
END_TEST

typedef struct counter {
    int left;
    kvf_status last;
} counter;

static kvf_status next_row(void *user, kvf_rows *rows, bool *end)
{
    counter *c = user;
    if (!c->left--) {
        *end = true;
        return c->last;
    }
    return kvf_rows_add_text(ctx, rows, "again");
}

START_TEST(a_callback_gives_rows_until_it_ends)
{
    kvf_rows *rows = new_rows();
    counter five = {5, KVF_OK}, fails = {2, KVF_EIO};
    ck_assert_int_eq(kvf_rows_read(rows, next_row, &five), KVF_OK);
    ck_assert_int_eq(kvf_rows_count(rows), 5);
    ck_assert_int_eq(kvf_rows_read(rows, next_row, &fails), KVF_EIO);
    ck_assert_int_eq(kvf_rows_count(rows), 7);
    kvf_rows_free(rows);
}
END_TEST

/* The lines of a file as rows. */
static kvf_rows *rows_of(const char *path)
{
    char line[512];
    kvf_rows *rows = new_rows();
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file))
        ck_assert_int_eq(kvf_rows_add_json(ctx, rows, line, strcspn(line, "\n")), KVF_OK);
    fclose(file);
    return rows;
}

/* Loop rows: from a path, on an open base. */
START_TEST(a_run_has_the_bytes_of_one_on_files)
{
    kvf_train_options from_files = toy_run_options(out), from_memory = toy_run_options(other);
    kvf_rows *rows = rows_of(data), *held_out = rows_of(valid);
    const kvf_base_options how = {.precision = KVF_PRECISION_F32, .backward = true};
    kvf_base *opened = NULL;
    from_files.method = from_memory.method = "direct";
    from_memory.data = kvf_rows_path(rows);
    from_memory.valid = kvf_rows_path(held_out);
    if (_i) {
        ck_assert_int_eq(kvf_base_open(ctx, base, &how, &opened), KVF_OK);
        from_memory.open_base = opened;
        from_memory.base = NULL;
    }
    train(&from_files);
    train(&from_memory);
    ck_assert(equal_files(out, other));
    if (_i) { /* the base is unchanged */
        from_memory.out = out;
        from_memory.force = true;
        train(&from_memory);
        ck_assert(equal_files(out, other));
    }
    kvf_base_free(opened);
    kvf_rows_free(rows);
    kvf_rows_free(held_out);
}
END_TEST

static void expect_logits(kvf_base *opened, const float *want)
{
    const int32_t ids[] = {4, 9, 16, 25};
    float got[4 * 61];
    ck_assert_int_eq(kvf_logits(ctx, opened, NULL, ids, 4, got), KVF_OK);
    ck_assert(!memcmp(got, want, sizeof got));
}

/* A run that changes base weights changes its own copy of the open base. Its bytes equal those of a
 * run on the file, which is deleted by then. The open base still computes the same results. Loop
 * rows: methods. */
START_TEST(an_open_base_is_trained_as_a_copy)
{
    static const char *const METHODS[] = {"adapter", "full", "p-tuning", "adapter"};
    const int32_t ids[] = {4, 9, 16, 25};
    float before[4 * 61];
    char weights[600];
    kvf_train_options from_file = toy_run_options(out), from_open;
    from_file.method = METHODS[_i];
    from_file.unfreeze_base = _i == 2;
    kvf_base *opened = open_base(); /* not for backward passes */
    ck_assert_int_eq(kvf_logits(ctx, opened, NULL, ids, 4, before), KVF_OK);
    train(&from_file);
    snprintf(weights, sizeof weights, "%s/model.safetensors", base);
    ck_assert_int_eq(remove(weights), 0);
    from_open = from_file;
    from_open.out = other;
    from_open.base = NULL;
    from_open.open_base = opened;
    if (_i == 3) from_open.precision = KVF_PRECISION_AUTO; /* that of the base */
    train(&from_open);
    if (_i < 3) ck_assert(equal_files(out, other));
    expect_logits(opened, before);
    if (_i == 2) { /* it would have to be packed */
        from_open.force = true;
        from_open.weight_dtype = KVF_WEIGHTS_F32;
        expect_failure(&from_open, KVF_EUSAGE, "--weight-dtype: not with --unfreeze");
    }
    expect_logits(opened, before);
    kvf_base_free(opened);
}
END_TEST

START_TEST(a_base_that_carries_values_is_refused)
{
    kvf_train_options o = toy_run_options(out);
    kvf_session *session = NULL;
    o.method = "adapter";
    train(&o);
    ck_assert_msg(!kvf_session_open(ctx, base, out, NULL, &session), "%s", kvf_ctx_error(ctx));
    o.out = other;
    o.open_base = kvf_session_base(session);
    expect_failure(&o, KVF_EUSAGE, "changes made by a prefix");
    kvf_session_close(session);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(what_is_no_row_is_refused)
{
    static const char *const BAD[] = {"[1]", "{\"a\":1", "", "{\"a\":1} x"};
    kvf_rows *rows = new_rows();
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        ck_assert_int_eq(kvf_rows_add_json(ctx, rows, BAD[i], strlen(BAD[i])), KVF_EDATA);
        ck_assert_msg(strstr(kvf_ctx_error(ctx), "rows:1") != NULL, "%s", kvf_ctx_error(ctx));
    }
    ck_assert_int_eq(kvf_rows_add_pair(ctx, rows, "a\xE9", "b"), KVF_EDATA);
    ck_assert_int_eq(kvf_rows_add_pair(ctx, rows, "a", NULL), KVF_EUSAGE);
    ck_assert_int_eq(kvf_rows_count(rows), 0);
    ck_assert_int_eq(kvf_rows_add_text(ctx, rows, "fine"), KVF_OK);
    ck_assert_int_eq(kvf_rows_add_json(ctx, rows, "{\"prompt\":1}", 12), KVF_OK);
    kvf_train_options o = toy_run_options(out);
    o.data = kvf_rows_path(rows);
    expect_failure(&o, KVF_EDATA, "rows:2: ");
    kvf_rows_free(rows);
}
END_TEST

/* Loop rows: storage of weights. The base was opened for forward passes only, and its files are
 * gone before training on it. */
START_TEST(an_open_base_becomes_ready_to_train)
{
    const kvf_base_options how[] = {{.precision = KVF_PRECISION_F32},
                                    {.weight_dtype = KVF_WEIGHTS_F32},
                                    {.stream_layers = true}};
    const int32_t ids[] = {4, 9, 16, 25};
    float before[4 * 61];
    char weights[600];
    kvf_train_options o = toy_run_options(out);
    kvf_base *opened = NULL;
    o.weight_dtype = how[_i].weight_dtype;
    train(&o);
    ck_assert_int_eq(kvf_base_open(ctx, base, &how[_i], &opened), KVF_OK);
    ck_assert_int_eq(kvf_logits(ctx, opened, NULL, ids, 4, before), KVF_OK);
    snprintf(weights, sizeof weights, "%s/model.safetensors", base);
    ck_assert_int_eq(remove(weights), 0);
    o.out = other;
    o.base = NULL;
    o.open_base = opened;
    train(&o);
    ck_assert(equal_files(out, other));
    expect_logits(opened, before);
    kvf_base_free(opened);
}
END_TEST

START_TEST(a_base_without_memory_to_train_stays_as_it_was)
{
    const int32_t ids[] = {4, 9, 16, 25};
    float before[4 * 61];
    kvf_base *opened = open_base();
    int64_t n;
    ck_assert_int_eq(kvf_logits(ctx, opened, NULL, ids, 4, before), KVF_OK);
    for (n = 0;; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        const kvf_status st = kvf__base_add_backward(ctx, opened);
        kvf__ctx_fail_allocation(ctx, -1);
        if (!st) break;
        ck_assert_int_eq(st, KVF_ENOMEM);
        expect_logits(opened, before);
    }
    ck_assert_int_gt(n, 5);
    expect_logits(opened, before);
    kvf_base_free(opened);
}
END_TEST

START_TEST(paths_of_rows_are_shown)
{
    ck_assert_str_eq(kvf__shown_path("/proc/self/fd/0"), "/proc/self/fd/0");
    ck_assert_str_eq(kvf__shown_path("file.jsonl"), "file.jsonl");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory_rows");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, toy_run_setup, toy_run_teardown);
    tcase_add_test(core, rows_are_lines_of_json);
    tcase_add_test(core, a_callback_gives_rows_until_it_ends);
    tcase_add_loop_test(core, a_run_has_the_bytes_of_one_on_files, 0, 2);
    tcase_add_loop_test(core, an_open_base_is_trained_as_a_copy, 0, 4);
    tcase_add_test(core, what_is_no_row_is_refused);
    tcase_add_loop_test(core, an_open_base_becomes_ready_to_train, 0, 3);
    tcase_add_test(core, a_base_without_memory_to_train_stays_as_it_was);
    tcase_add_test(core, paths_of_rows_are_shown);
    tcase_add_test(core, a_base_that_carries_values_is_refused);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
