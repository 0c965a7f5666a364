/* Tests of heads in prefix and run files: round trips, required members, and label names in damaged
 * files. */
#include "artifact_priv.h"
#include "h5_fixture.h"

#include <kvfold/io.h>

static kvf__artifact file, back; /* large: not for the stack */

static char *const NAMES[] = {(char *)"B-p\xc3\xa9rson", (char *)"I-p\xc3\xa9rson", (char *)"O"};

static void add_head(kvf__head_values *head, size_t labels)
{
    kvf__params_owned params = {0};

    add_param(&params, "classifier.weight", 3, 8, 0.25f);
    add_param(&params, "classifier.bias", 3, 0, -1);
    ck_ok(kvf__head_values_copy(ctx, &params.params, NAMES, labels, labels == 0, head));
    kvf__params_owned_done(&params);
}

static void set_task(kvf__identity *id, const char *task)
{
    kvf__free(id->task);
    ck_ok(kvf__strdup(ctx, task, &id->task));
}

static void make_run(bool trained)
{
    make_run_file(&file, trained);
    set_task(&file.id, "token-cls");
    add_head(&file.head, 3);
    if (!trained) return;
    add_param(&file.best_head, "classifier.weight", 3, 8, 7);
    add_param(&file.best_head, "classifier.bias", 3, 0, 8);
    add_param(&file.m, "classifier.weight", 3, 8, 9);
    add_param(&file.m, "classifier.bias", 3, 0, 10);
    add_param(&file.v, "classifier.weight", 3, 8, 11);
    add_param(&file.v, "classifier.bias", 3, 0, 12);
}

static void write_prefix(const char *path, size_t labels)
{
    kvf__artifact prefix;

    make_prefix_file(&prefix, KVF__BF16);
    set_task(&prefix.id, "token-cls");
    add_head(&prefix.head, labels);
    ck_ok(kvf__artifact_write(ctx, path, false, &prefix));
    kvf__artifact_done(&prefix);
}

static void done(void)
{
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}

static kvf_status read_prefix_status(const char *path)
{
    kvf__artifact prefix = {0};
    kvf_status st = kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &prefix);
    kvf__artifact_done(&prefix);
    return st;
}

/* ---- core ------------------------------------------------------------------------------------ */

static void ck_same_head(const kvf__head_values *got, const kvf__head_values *want)
{
    ck_same_params(&got->params.params, &want->params.params);
    ck_assert_uint_eq(got->n_labels, want->n_labels);
    for (size_t i = 0; i < want->n_labels; i++)
        ck_assert_str_eq(got->labels[i], want->labels[i]);
    ck_assert_int_eq(got->regression, want->regression);
}

START_TEST(run_round_trip)
{
    make_run(_i == 1);
    ck_ok(kvf__artifact_write(ctx, in_dir("r.h5"), false, &file));
    ck_ok(kvf__artifact_read_all(ctx, in_dir("r.h5"), KVF__KIND_RUN, &back));
    ck_assert_str_eq(back.id.task, "token-cls");
    ck_same_head(&back.head, &file.head);
    ck_same_params(&back.best_head.params, &file.best_head.params);
    ck_same_params(&back.m.params, &file.m.params);
    ck_same_params(&back.v.params, &file.v.params);
    ck_ok(kvf__artifact_write(ctx, in_dir("again.h5"), false, &back));
    ck_same_bytes(in_dir("r.h5"), in_dir("again.h5"));
    done();
}
END_TEST

START_TEST(prefix_round_trip)
{
    kvf__artifact prefix = {0};
    kvf__head_values want;
    size_t labels = _i ? 3 : 0;

    write_prefix(in_dir("p.h5"), labels);
    add_head(&want, labels);
    ck_ok(kvf__artifact_read(ctx, in_dir("p.h5"), KVF__KIND_PREFIX, &prefix));
    ck_same_head(&prefix.head, &want);
    kvf__artifact_done(&prefix);
    kvf__head_values_done(&want);
}
END_TEST

/* A file of task lm may hold a language-model head and no other head. */
START_TEST(head_of_a_language_model)
{
    kvf__artifact prefix = {0}, got = {0};
    kvf__params_owned params = {0};

    make_prefix_file(&prefix, KVF__F32);
    set_task(&prefix.id, "lm");
    add_param(&params, _i ? "score.weight" : "lm_head.weight", 61, 8, 0.25f);
    ck_ok(kvf__head_values_copy(ctx, &params.params, NULL, 0, false, &prefix.head));
    kvf_status st = kvf__artifact_write(ctx, in_dir("p.h5"), false, &prefix);
    ck_assert_int_eq(st, _i ? KVF_EUSAGE : KVF_OK);
    if (!_i) {
        ck_ok(kvf__artifact_read(ctx, in_dir("p.h5"), KVF__KIND_PREFIX, &got));
        ck_same_head(&got.head, &prefix.head);
    }
    kvf__params_owned_done(&params);
    kvf__artifact_done(&prefix);
    kvf__artifact_done(&got);
}
END_TEST

START_TEST(inspect_shows_it)
{
    kvf_json *tree = NULL;

    make_run(true);
    ck_ok(kvf__artifact_write(ctx, in_dir("r.h5"), false, &file));
    ck_ok(kvf_inspect(ctx, in_dir("r.h5"), &tree));
    const kvf_json *attributes = kvf_json_get(tree, "attributes");
    const kvf_json *tensors = kvf_json_get(tree, "tensors");
    ck_json_eq(kvf_json_get(attributes, "labels"),
               "[\"B-p\xc3\xa9rson\",\"I-p\xc3\xa9rson\",\"O\"]");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(attributes, "task"), NULL), "token-cls");
    ck_assert_uint_eq(kvf_json_size(tensors), 21);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(kvf_json_at(tensors, 3), "name"), NULL),
                     "head/classifier.weight");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(kvf_json_at(tensors, 5), "name"), NULL),
                     "head/labels");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(kvf_json_at(tensors, 9), "name"), NULL),
                     "best/head/classifier.weight");
    kvf_json_free(tree);
    done();
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(refuses_to_write)
{
    const char *path = in_dir("r.h5");
    char *label;

    make_run(true);
    set_task(&file.id, "lm");
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EUSAGE, "task \"lm\" with 2");
    set_task(&file.id, "token-cls");
    file.m.params.n = file.v.params.n = 3;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ESHAPE, "moments of 3 parameters");
    file.m.params.n = file.v.params.n = 5;
    file.best_head.params.n = 1;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ESHAPE, "the best head has 1");
    file.best_head.params.n = 2;
    label = file.head.labels[0];
    file.head.labels[0] = file.head.labels[2];
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EUSAGE, "are both \"O\"");
    file.head.labels[0] = (char *)"\xff";
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EUSAGE, "not UTF-8");
    file.head.labels[0] = (char *)"";
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EUSAGE, "label 0 has no name");
    file.head.labels[0] = label;
    ck_assert_int_eq(files_in_dir(), 0);
    done();
}
END_TEST

/* Writes a run whose head contradicts its attributes, bypassing the checks of the writer. */
static void write_forged(const char *path, const char *task, bool head, bool bad_best)
{
    kvf__h5 h5 = KVF__H5_NOTHING;
    kvf__h5_id at = KVF__H5_NONE;

    make_run(true);
    set_task(&file.id, task);
    h5 = kvf__h5_create(ctx, path, false, "run", 0);
    at = kvf__param_group_write(&h5, h5.file, "encoder", &file.values.params);
    kvf__identity_write(&h5, at, true, &file.id);
    kvf__h5_put_u8s(&h5, at, "layer_mask", file.layer_mask, 3);
    kvf__h5_release(&at);
    if (head) kvf__head_write(&h5, "token-cls", &file.head);
    if (bad_best) {
        at = kvf__h5_group_create(&h5, h5.file, "best");
        kvf__h5_put_i64(&h5, at, "step", 1);
        kvf__h5_put_text(&h5, at, "metric", "f1");
        kvf__h5_put_f64(&h5, at, "value", 1);
        kvf__param_group_write(&h5, at, "encoder", &file.best.params);
        file.best_head.params.item[0].dim[0] = 8;
        file.best_head.params.item[0].dim[1] = 3;
        kvf__param_group_write(&h5, at, "head", &file.best_head.params);
        kvf__h5_release(&at);
    }
    ck_ok(kvf__h5_close(&h5));
    kvf__artifact_done(&file);
}

START_TEST(heads_that_do_not_fit)
{
    write_forged(in_dir("a.h5"), "token-cls", false, false);
    ck_fails(kvf__artifact_read(ctx, in_dir("a.h5"), KVF__KIND_RUN, &back), KVF_EFORMAT,
             "task is \"token-cls\", but there is no /head");
    write_forged(in_dir("b.h5"), "lm", true, false);
    ck_fails(kvf__artifact_read(ctx, in_dir("b.h5"), KVF__KIND_RUN, &back), KVF_EFORMAT,
             "task is \"lm\", whose head has only lm_head.weight");
    write_forged(in_dir("c.h5"), "token-cls", true, true);
    ck_fails(kvf__artifact_read(ctx, in_dir("c.h5"), KVF__KIND_RUN, &back), KVF_ESHAPE,
             "is [8, 3], but the head's is [3, 8]");
}
END_TEST

/* Flips each bit of the references and of their heap in a file without a seal. The result is an
 * error or other names, never a read out of bounds. */
START_TEST(damaged_names)
{
    size_t n, at = 0;
    int refused = 0, tried = 0;

    write_prefix(in_dir("p.h5"), 3);
    uint8_t *bytes = read_bytes(in_dir("p.h5"), &n);
    n -= SEAL_BYTES;
    while (at + 8 < n && memcmp(bytes + at, "B-p\xc3\xa9rson", 9))
        at++;
    ck_assert_uint_lt(at + 8, n);
    size_t heap = at - 32; /* the heap's header, or else the object's, before its first text */
    uint8_t address[4];
    while (heap > 0 && memcmp(bytes + heap, "GCOL", 4))
        heap--;
    for (int i = 0; i < 4; i++)
        address[i] = (uint8_t)(heap >> (8 * i));
    for (size_t i = 4; i + 12 < n; i++) {
        if (memcmp(bytes + i, address, 4) || bytes[i + 4] || bytes[i + 5]) continue;
        for (size_t bit = 0; bit < 16 * 8; bit++, tried++) {
            bytes[i - 4 + bit / 8] ^= (uint8_t)(1 << bit % 8);
            write_bytes(in_dir("bad.h5"), bytes, n);
            refused += read_prefix_status(in_dir("bad.h5")) != KVF_OK;
            bytes[i - 4 + bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
    ck_assert_int_ge(tried, 3 * 128);
    ck_assert_int_ge(refused, 3 * 100);
    for (size_t i = heap; i < heap + 400; i++) {
        bytes[i] ^= 0x41;
        write_bytes(in_dir("bad.h5"), bytes, n);
        read_prefix_status(in_dir("bad.h5"));
        bytes[i] ^= 0x41;
    }
    free(bytes);
}
END_TEST

/* 200 texts refer to the bytes of the first text, or alternate between the first two. They claim
 * more memory, or more heap walks, than a file of 2 MiB justifies. */
START_TEST(names_for_the_same_bytes)
{
    enum { N = 200, LONG = 1 << 20, REFERENCE = 16 };
    static const uint8_t LENGTH[] = {0, 0, 16, 0}; /* of the first two references */
    const char *const want[] = {"/labels: reading needs 209", "alternates with others"};
    char *text = calloc(1, LONG + 1), *texts[N];
    size_t n, at = 0;

    memset(text, 'a', LONG);
    for (int i = 0; i < N; i++)
        texts[i] = i < 2 ? text : (char *)"b";
    kvf__h5 h5 = kvf__h5_create(ctx, in_dir("t.h5"), false, "prefix", 0);
    kvf__h5_texts_write(&h5, h5.file, "labels", texts, N);
    ck_ok(kvf__h5_close(&h5));
    uint8_t *bytes = read_bytes(in_dir("t.h5"), &n);
    while (at + N * REFERENCE < n && (memcmp(bytes + at, LENGTH, sizeof LENGTH) ||
                                      memcmp(bytes + at + REFERENCE, LENGTH, sizeof LENGTH)))
        at++;
    ck_assert_uint_lt(at + N * REFERENCE, n);
    for (int i = 2; i < N; i++)
        memcpy(bytes + at + i * REFERENCE, bytes + at + i % (1 + _i) * REFERENCE, REFERENCE);
    if (_i == 0) memcpy(bytes + at + REFERENCE, bytes + at, REFERENCE);
    write_bytes(in_dir("bad.h5"), bytes, n - SEAL_BYTES);
    h5 = kvf__h5_open(ctx, in_dir("bad.h5"), "prefix");
    ck_assert_ptr_null(kvf__h5_texts_read(&h5, h5.file, "labels", &n));
    ck_fails(kvf__h5_close(&h5), KVF_EFORMAT, want[_i]);
    free(bytes);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_file");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");

    suite_add_tcase(suite, core);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_loop_test(core, run_round_trip, 0, 2);
    tcase_add_loop_test(core, prefix_round_trip, 0, 2);
    tcase_add_loop_test(core, head_of_a_language_model, 0, 2);
    tcase_add_test(core, inspect_shows_it);

    suite_add_tcase(suite, errors);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_set_timeout(errors, 60);
    tcase_add_test(errors, refuses_to_write);
    tcase_add_test(errors, heads_that_do_not_fit);
    tcase_add_test(errors, damaged_names);
    tcase_add_loop_test(errors, names_for_the_same_bytes, 0, 2);
    return ck_main(suite);
}
