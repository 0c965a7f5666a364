/* Tests of the run file: round trips, equal bytes, damage, missing parts, a full disk. */
#include "artifact_priv.h"
#include "h5_fixture.h"

#include <signal.h>
#include <sys/resource.h>

static kvf__artifact file, back; /* large: not for the stack */

static void write_sample(const char *path, bool trained)
{
    make_run_file(&file, trained);
    ck_ok(kvf__artifact_write(ctx, path, false, &file));
}

static kvf_status read_status(const char *path)
{
    kvf_status st = kvf__artifact_read_all(ctx, path, KVF__KIND_RUN, &back);
    kvf__artifact_done(&back);
    return st;
}

/* ---- core ------------------------------------------------------------------------------------ */

static void ck_same_history(const kvf__history *got, const kvf__history *want)
{
    size_t bytes = (size_t)want->n * 8;

    ck_assert_int_eq(got->n, want->n);
    ck_assert_int_eq(memcmp(got->step, want->step, bytes), 0);
    ck_assert_int_eq(memcmp(got->tokens, want->tokens, bytes), 0);
    ck_assert_int_eq(memcmp(got->train_loss, want->train_loss, bytes), 0);
    ck_assert_int_eq(memcmp(got->valid_loss, want->valid_loss, bytes), 0);
    ck_assert_int_eq(memcmp(got->valid_metric, want->valid_metric, bytes), 0);
    ck_assert_int_eq(memcmp(got->lr, want->lr, bytes), 0);
    ck_assert_int_eq(memcmp(got->grad_norm, want->grad_norm, bytes), 0);
    ck_assert_int_eq(memcmp(got->prefix_norm, want->prefix_norm, bytes), 0);
}

START_TEST(round_trip)
{
    bool trained = _i == 1;

    write_sample(in_dir("r.h5"), trained);
    ck_ok(kvf__artifact_read_all(ctx, in_dir("r.h5"), KVF__KIND_RUN, &back));
    ck_assert_str_eq(back.id.base_name, IDENTITY.base_name);
    ck_assert_str_eq(back.id.method, "mlp");
    ck_assert(back.id.L == 3 && back.id.G == 2 && back.id.P == 5 && back.id.D == 4);
    ck_assert_int_eq(memcmp(back.layer_mask, "\1\1\1", 3), 0);
    ck_same_params(&back.values.params, &file.values.params);
    ck_same_params(&back.best.params, &file.best.params);
    ck_same_params(&back.m.params, &file.m.params);
    ck_same_params(&back.v.params, &file.v.params);
    ck_same_history(&back.history, &file.history);
    ck_assert_int_eq(back.best_step, trained ? 2 : 0);
    ck_assert_pstr_eq(back.best_metric, trained ? "valid_loss" : NULL);
    ck_assert_double_eq(back.best_value, trained ? 2.5 : 0);
    ck_json_eq(back.state, "{\"step\":4,\"rng_counter\":-1,\"loss_sum\":0.1}");
    ck_assert_uint_eq(kvf_json_size(back.options), 9);
    ck_json_eq(back.lineage, "{}");
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(without_optimizer)
{
    write_sample(in_dir("r.h5"), true);
    ck_ok(kvf__artifact_read(ctx, in_dir("r.h5"), KVF__KIND_RUN, &back));
    ck_same_params(&back.values.params, &file.values.params);
    ck_same_params(&back.best.params, &file.best.params);
    ck_assert_uint_eq(back.m.params.n + back.v.params.n, 0);
    ck_assert_int_eq(back.history.n, 0);
    ck_assert_ptr_null(back.history.step);
    ck_assert_int_eq(kvf_json_int(kvf_json_get(back.state, "step"), 0), 4);
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(equal_content_equal_bytes)
{
    write_sample(in_dir("first.h5"), _i == 1);
    usleep(20000);
    ck_ok(kvf__artifact_write(ctx, in_dir("second.h5"), false, &file));
    ck_same_bytes(in_dir("first.h5"), in_dir("second.h5"));
    ck_ok(kvf__artifact_read_all(ctx, in_dir("first.h5"), KVF__KIND_RUN, &back));
    ck_ok(kvf__artifact_write(ctx, in_dir("third.h5"), false, &back));
    ck_same_bytes(in_dir("first.h5"), in_dir("third.h5"));
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

/* Large parameters are chunked and checked, small ones contiguous; series have their units. */
START_TEST(layout_is_as_documented)
{
    kvf__h5 h5;
    kvf__h5_id encoder, history;
    kvf__h5_data large, small, tokens;
    char *units = NULL;

    write_sample(in_dir("r.h5"), true);
    h5 = kvf__h5_open(ctx, in_dir("r.h5"), "run");
    encoder = kvf__h5_group_open(&h5, h5.file, "encoder");
    large = kvf__h5_data_open(&h5, encoder, "transform.0.weight");
    ck_assert(large.chunked && large.shuffle && large.fletcher32 && large.rank == 2);
    small = kvf__h5_data_open(&h5, encoder, "transform.0.bias");
    ck_assert(!small.chunked && small.rank == 1 && small.dim[0] == 90);
    history = kvf__h5_group_open(&h5, h5.file, "history");
    tokens = kvf__h5_data_open(&h5, history, "tokens");
    units = kvf__h5_get_text(&h5, tokens.id, "units");
    ck_assert_str_eq(units, "tokens");
    kvf__free(units);
    ck_ok(kvf__h5_close(&h5)); /* open ids are closed with it */
    kvf__artifact_done(&file);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

START_TEST(refuses_to_write)
{
    const char *path = in_dir("r.h5");

    make_run_file(&file, true);
    const char *own = file.values.params.item[1].name;
    file.id.P = 0;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ESHAPE, "P 0");
    file.id.P = 5;
    file.v.params.n = 2;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ESHAPE,
             "3 first and 2 second moments");
    file.v.params.n = 3;
    file.values.params.item[1].n = 1;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ESHAPE, "\"transform.0.bias\"");
    file.values.params.item[1].n = 90;
    file.values.params.item[1].name = "a/b";
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EUSAGE, "cannot name a dataset");
    file.values.params.item[1].name = file.values.params.item[0].name;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EIO, "transform.0.weight");
    file.values.params.n = 0;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ESHAPE, "without encoder");
    file.values.params.n = 3;
    file.values.params.item[1].name = own;
    ck_assert_int_eq(files_in_dir(), 0);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(allocation_failures)
{
    kvf_status st = KVF_ENOMEM;
    const char *path = in_dir("r.h5");

    make_run_file(&file, true);
    for (int n = 0; st; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__artifact_write(ctx, path, false, &file);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert_int_eq(files_in_dir(), st == KVF_OK);
    }
    st = KVF_ENOMEM;
    for (int n = 0; st; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__artifact_read_all(ctx, path, KVF__KIND_RUN, &back);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert(st == KVF_OK || back.values.params.n == 0);
    }
    kvf__ctx_fail_allocation(ctx, -1);
    ck_same_params(&back.v.params, &file.v.params);
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

/* A disk that is full after so many bytes: one error line, the previous file is whole, and no other
 * file remains. */
START_TEST(full_disk)
{
    size_t n;
    struct rlimit limit;

    write_sample(in_dir("r.h5"), true);
    uint8_t *before = read_bytes(in_dir("r.h5"), &n);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t room = 0; room < n; room += n / 7) {
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = room;
        setrlimit(RLIMIT_FSIZE, &limit);
        file.best_value = 1.0;
        kvf_status st = kvf__artifact_write(ctx, in_dir("r.h5"), true, &file);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_FSIZE, &limit);
        ck_fails(st, KVF_EIO, "r.h5: ");
        ck_fails(st, KVF_EIO, "File too large");
        ck_assert_int_eq(files_in_dir(), 1);
    }
    size_t m;
    uint8_t *after = read_bytes(in_dir("r.h5"), &m);
    ck_assert_uint_eq(m, n);
    ck_assert_int_eq(memcmp(before, after, n), 0);
    ck_ok(kvf__artifact_write(ctx, in_dir("r.h5"), true, &file));
    ck_ok(read_status(in_dir("r.h5")));
    free(before);
    free(after);
    kvf__artifact_done(&file);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(truncated_anywhere)
{
    size_t n;

    write_sample(in_dir("r.h5"), true);
    uint8_t *bytes = read_bytes(in_dir("r.h5"), &n);
    for (size_t k = 0; k < n; k += k < 100 || k > n - 100 ? 1 : 4999) {
        write_bytes(in_dir("cut.h5"), bytes, k);
        kvf_status st = read_status(in_dir("cut.h5"));
        if (k == n - SEAL_BYTES)
            ck_ok(st);
        else
            ck_fails(st, KVF_EFORMAT, "cut.h5");
    }
    free(bytes);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(flipped_anywhere)
{
    bool sealed = _i == 0;
    size_t n, step = sealed ? 1009 : 2003;

    write_sample(in_dir("r.h5"), true);
    uint8_t *bytes = read_bytes(in_dir("r.h5"), &n);
    if (!sealed) n -= SEAL_BYTES;
    for (size_t k = 0; k < n; k += k < 3000 ? 29 : step) {
        bytes[k] ^= (uint8_t)(1u << (k % 8));
        write_bytes(in_dir("flipped.h5"), bytes, n);
        kvf_status st = read_status(in_dir("flipped.h5"));
        if (sealed || st) ck_fails(st, st, "flipped.h5");
        ck_assert(st || !sealed);
        bytes[k] ^= (uint8_t)(1u << (k % 8));
    }
    free(bytes);
    kvf__artifact_done(&file);
}
END_TEST

/* A run of one parameter [2, 3] with one error. */
typedef struct craft {
    const char *line;
    kvf_status status;
    const char *no;      /* a group that is left out */
    int64_t P;           /* 0: 5 */
    kvf__dtype dtype;    /* of the encoder's parameter */
    int rank;            /* 0: 2 */
    const char *moment;  /* name of the parameter in /optimizer/v; NULL: the encoder's */
    int64_t moment_rows; /* 0: 2 */
    int64_t history;     /* length of /history/lr; 0: 3 */
} craft;

static const craft CRAFTED[] = {
    {.status = KVF_OK},
    {"group \"encoder\" is missing", KVF_EFORMAT, .no = "encoder"},
    {"group \"history\" is missing", KVF_EFORMAT, .no = "history"},
    {"/encoder: attribute \"P\" is -1, want 1", KVF_EFORMAT, .P = -1},
    {"/encoder/w: [2, 3] of f64, want f32", KVF_ESHAPE, .dtype = KVF__F64},
    {"/encoder/w: [2, 3, 1, 1, 1] of f32, want f32, rank 1 to 4", KVF_ESHAPE, .rank = 5},
    {"/optimizer/v: parameter 0 is \"x\", but the encoder's is \"w\"", KVF_EFORMAT, .moment = "x"},
    {"/optimizer/v: \"w\" is [4, 3], but the encoder's is [2, 3]", KVF_ESHAPE, .moment_rows = 4},
    {"/history/lr: rank 1, 2 values of f64, want rank 1, f64, as many as \"step\"", KVF_ESHAPE,
     .history = 2},
};

static void put_param(kvf__h5 *h5, kvf__h5_id parent, const char *group_name, const char *name,
                      kvf__dtype dtype, int rank, int64_t rows, kvf__h5_id *out)
{
    static const double zeros[64];
    const int64_t dim[5] = {rows, 3, 1, 1, 1};
    const kvf__h5_spec spec = {.name = name, .dtype = dtype, .rank = rank, .dim = dim};

    *out = kvf__h5_group_create(h5, parent, group_name);
    kvf__h5_data_write(h5, *out, &spec, zeros, NULL);
}

static void put_history(kvf__h5 *h5, int64_t lr_length)
{
    static const char *const NAMES[] = {"step", "tokens",    "train_loss",  "valid_loss",
                                        "lr",   "grad_norm", "prefix_norm", "valid_metric"};
    static const double zeros[8];
    kvf__h5_id group;

    group = kvf__h5_group_create(h5, h5->file, "history");
    for (int i = 0; i < 8; i++) {
        int64_t n = i == 4 ? lr_length : 3;
        const kvf__h5_spec spec = {
            .name = NAMES[i], .dtype = i < 2 ? KVF__I64 : KVF__F64, .rank = 1, .dim = &n};
        kvf__h5_data_write(h5, group, &spec, zeros, NULL);
    }
    kvf__h5_release(&group);
}

static void write_crafted(const char *path, const craft *c)
{
    kvf__identity id = IDENTITY;
    kvf__h5 h5;
    kvf__h5_id encoder, optimizer, group;
    const char *no = c->no ? c->no : "";

    if (c->P) id.P = c->P;
    h5 = kvf__h5_create(ctx, path, true, "run", 0);
    put_param(&h5, h5.file, strcmp(no, "encoder") ? "encoder" : "other", "w", c->dtype,
              c->rank ? c->rank : 2, 2, &encoder);
    kvf__identity_write(&h5, encoder, true, &id);
    kvf__h5_put_u8s(&h5, encoder, "layer_mask", (const uint8_t *)"\1\1\1", 3);
    optimizer = kvf__h5_group_create(&h5, h5.file, "optimizer");
    put_param(&h5, optimizer, "m", "w", KVF__F32, 2, 2, &group);
    kvf__h5_release(&group);
    put_param(&h5, optimizer, "v", c->moment ? c->moment : "w", KVF__F32, 2,
              c->moment_rows ? c->moment_rows : 2, &group);
    kvf__h5_release(&group);
    if (strcmp(no, "history") != 0) put_history(&h5, c->history ? c->history : 3);
    kvf__h5_release(&optimizer);
    kvf__h5_release(&encoder);
    ck_ok(kvf__h5_close(&h5));
}

START_TEST(wrong_content)
{
    const craft *c = &CRAFTED[_i];

    write_crafted(in_dir("r.h5"), c);
    if (c->line)
        ck_fails(read_status(in_dir("r.h5")), c->status, c->line);
    else
        ck_ok(read_status(in_dir("r.h5")));
}
END_TEST

START_TEST(another_kind)
{
    kvf__artifact prefix;

    make_prefix_file(&prefix, KVF__F32);
    ck_ok(kvf__artifact_write(ctx, in_dir("p.h5"), false, &prefix));
    ck_fails(read_status(in_dir("p.h5")), KVF_EFORMAT,
             "is a prefix file (kvfold_kind), want a run");
    kvf__artifact_done(&prefix);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_file");
    TCase *core = ck_case(suite, "core", setup, teardown, 60);
    TCase *limits = ck_case(suite, "limits", setup, teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 60);

    tcase_add_loop_test(core, round_trip, 0, 2);
    tcase_add_test(core, without_optimizer);
    tcase_add_loop_test(core, equal_content_equal_bytes, 0, 2);
    tcase_add_test(core, layout_is_as_documented);
    tcase_add_test(limits, refuses_to_write);
    tcase_add_test(limits, allocation_failures);
    tcase_add_test(limits, full_disk);
    tcase_add_test(errors, truncated_anywhere);
    tcase_add_loop_test(errors, flipped_anywhere, 0, 2);
    tcase_add_loop_test(errors, wrong_content, 0, sizeof CRAFTED / sizeof CRAFTED[0]);
    tcase_add_test(errors, another_kind);
    return ck_main(suite);
}
