/* Tests of convert-position, for every scaling of rope: keys equal those that the base computes at
 * the new positions, results do not change, and the reverse conversion restores the file. */
#include "golden_base.h"

#include "toy_run.h"

#include "artifact.h"
#include "renderer.h"

static char prefix[512], moved[512], back[512];

enum { P = 9 };

static const char *const SCALINGS[] = {
    "{\"rope_type\":\"default\",\"rope_theta\":1000.0}",
    "{\"rope_type\":\"linear\",\"rope_theta\":1000.0,\"factor\":2.0}",
    "{\"rope_type\":\"llama3\",\"rope_theta\":1000.0,\"factor\":8.0,\"low_freq_factor\":1.0,"
    "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":64}",
    "{\"rope_type\":\"yarn\",\"rope_theta\":1000.0,\"factor\":4.0,"
    "\"original_max_position_embeddings\":75}",
};
enum { N_SCALINGS = sizeof SCALINGS / sizeof SCALINGS[0] };

static void setup(void)
{
    toy_run_setup();
    toy_path(prefix, dir, "prefix.h5");
    toy_path(moved, dir, "moved.h5");
    toy_path(back, dir, "back.h5");
}

/* The toy base with another scaling. */
static void scale_base(const char *scaling)
{
    char config[2048];
    const char *at = strstr(toy_llama, "\"rope_parameters\":");
    ck_assert_ptr_nonnull(at);
    snprintf(config, sizeof config, "%.*s\"rope_parameters\":%s}", (int)(at - toy_llama), toy_llama,
             scaling);
    toy_write(base, "config.json", config);
}

/* K/V of P tokens at positions from `first`. */
static void capture(const kvf_base *model, int64_t first, kvf__prefix *to)
{
    int64_t start[2] = {0, P}, example = 0;
    int32_t ids[P] = {5, 1, 40, 7, 33, 2, 2, 19, 50};
    kvf__pass_limits limits = {.rows = 1, .tokens = P, .row_len = P, .labels = 1, .cache_len = P};
    kvf__batch batch = {
        .n_rows = 1, .n_tokens = P, .start = start, .ids = ids, .example = &example};
    kvf__cache *cache = NULL;
    kvf__pass *pass = NULL;
    ck_assert_int_eq(kvf__cache_create(ctx, model->model, 1, P, &cache), KVF_OK);
    ck_assert_int_eq(kvf__pass_create(ctx, model->model, &limits, &pass), KVF_OK);
    kvf__input input = {.batch = &batch, .cache = cache, .condition.position_start = first};
    ck_assert_msg(!kvf__pass_fwd(ctx, pass, &input), "%s", kvf_ctx_error(ctx));
    kvf__cache_read(cache, 0, 0, P, to->kv);
    kvf__pass_free(pass);
    kvf__cache_free(cache);
}

/* The K/V of real text at 0 to P - 1 as a prefix file whose rows start at `start`. */
static void make_prefix(const kvf_base *model, int64_t start, kvf__dtype dtype)
{
    const kvf__desc *d = kvf__model_desc(model->model);
    kvf__artifact file = {.kind = KVF__KIND_PREFIX, .dtype = dtype};
    file.id = (kvf__identity){.position_start = start, .L = d->L, .G = d->G, .P = P, .D = d->D};
    ck_assert_int_eq(kvf__identity_stamp(ctx, &file.id, model), KVF_OK);
    ck_assert_int_eq(kvf__strdup(ctx, "direct", &file.id.method), KVF_OK);
    ck_assert_int_eq(kvf__strdup(ctx, "lm", &file.id.task), KVF_OK);
    ck_assert_int_eq(kvf__strdup(ctx, "none", &file.id.chat_template), KVF_OK);
    ck_assert_int_eq(kvf__prefix_init(ctx, &file.prefix, d->L, d->G, P, d->D), KVF_OK);
    capture(model, 0, &file.prefix);
    ck_assert_msg(!kvf__artifact_write(ctx, prefix, true, &file), "%s", kvf_ctx_error(ctx));
    kvf__artifact_done(&file);
}

static void convert(const char *from, const char *to, const char *start)
{
    int64_t before = -1, after = -1;
    const kvf_convert_position_options options = {
        .prefix = from, .out = to, .base = base, .position_start = start, .force = true};
    ck_assert_msg(!kvf_convert_position(ctx, &options, &before, &after), "%s", kvf_ctx_error(ctx));
}

static kvf__artifact read_back(const char *path)
{
    kvf__artifact file = {0};
    ck_assert_msg(!kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &file), "%s",
                  kvf_ctx_error(ctx));
    return file;
}

static double loss_of(const kvf_base *model, const char *path)
{
    const kvf_eval_options eval = {.data = valid};
    kvf_eval_result result;
    kvf_prefix *p = NULL;
    ck_assert_int_eq(kvf_prefix_open(ctx, path, KVF_CHECKPOINT_DEFAULT, &p), KVF_OK);
    ck_assert_msg(!kvf_eval(ctx, (kvf_base *)model, &p, 1, &eval, &result), "%s",
                  kvf_ctx_error(ctx));
    kvf_prefix_free(p);
    return result.loss;
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(equals_what_the_base_computes_there)
{
    scale_base(SCALINGS[_i]);
    kvf_base *model = open_base();
    kvf__prefix want = {0};
    make_prefix(model, P, KVF__F32);
    convert(prefix, moved, "16");
    kvf__artifact got = read_back(moved), was = read_back(prefix);
    size_t n = kvf__prefix_count(&got.prefix);
    ck_assert_int_eq(kvf__prefix_init(ctx, &want, got.id.L, got.id.G, P, got.id.D), KVF_OK);
    capture(model, 16 - P, &want); /* 7 and on */

    ck_assert_int_eq(got.id.position_start, 16);
    ck_close(got.prefix.kv, want.kv, n, 1e-5, 2e-6); /* the f32 sums of the base itself differ */
    ck_assert_double_gt(ck_rel_l2(got.prefix.kv, was.prefix.kv, n), 0.1);
    kvf__prefix_done(&want);
    kvf__artifact_done(&got);
    kvf__artifact_done(&was);
    kvf_base_free(model);
}
END_TEST

START_TEST(results_do_not_change)
{
    static const char *const STARTS[] = {"0", "40"};
    scale_base(SCALINGS[_i]);
    kvf_base *model = open_base();
    make_prefix(model, P, KVF__F32);
    double loss = loss_of(model, prefix);
    for (int i = 0; i < 2; i++) {
        convert(prefix, moved, STARTS[i]);
        ck_assert_double_eq_tol(loss_of(model, moved), loss, 1e-5);
    }
    kvf_base_free(model);
}
END_TEST

START_TEST(the_way_back_undoes_it)
{
    scale_base(SCALINGS[_i]);
    kvf_base *model = open_base();
    make_prefix(model, P, KVF__F32);
    convert(prefix, moved, "200");
    convert(moved, back, "P");
    kvf__artifact got = read_back(back), want = read_back(prefix);
    ck_assert_int_eq(got.id.position_start, P);
    ck_close(got.prefix.kv, want.prefix.kv, kvf__prefix_count(&got.prefix), 0, 1e-6);
    kvf__artifact_done(&got);
    kvf__artifact_done(&want);
    kvf_base_free(model);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

/* Conversion to the current position changes no value. Values in 16 bits stay in 16 bits. */
START_TEST(nothing_to_do)
{
    kvf_base *model = open_base();
    make_prefix(model, P, KVF__F16);
    convert(prefix, moved, "P");
    kvf__artifact got = read_back(moved), want = read_back(prefix);
    ck_assert_int_eq(got.dtype, KVF__F16);
    ck_assert_mem_eq(got.prefix.kv, want.prefix.kv, kvf__prefix_count(&got.prefix) * sizeof(float));
    kvf__artifact_done(&got);
    kvf__artifact_done(&want);
    kvf_base_free(model);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static void refused(const kvf_convert_position_options *options, kvf_status want, const char *part)
{
    int64_t from, to;
    kvf_status st = kvf_convert_position(ctx, options, &from, &to);
    ck_assert_msg(st == want && strstr(kvf_ctx_error(ctx), part), "%s: \"%s\"", kvf_status_name(st),
                  kvf_ctx_error(ctx));
    ck_assert(!kvf__exists(moved));
}

START_TEST(refuses_what_it_cannot_move)
{
    static const char *const BAD[] = {"", "-1", "7x", "p", "0x7", "99999999999999999999"};
    kvf_base *model = open_base();
    kvf_convert_position_options options = {
        .prefix = prefix, .out = moved, .base = base, .position_start = "0"};
    make_prefix(model, P, KVF__F32);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        options.position_start = BAD[i];
        refused(&options, KVF_EUSAGE, "want P or a whole number");
    }
    options.position_start = "300";
    refused(&options, KVF_ESHAPE, "--position-start 300 leaves no position for text");
    options.position_start = "0";
    char learned[512];
    options.base = golden_base(ctx, dir, "gpt2", learned);
    refused(&options, KVF_EUNSUPPORTED, "gpt2 has no rotary positions (rope)");
    options.base = base;
    options.prefix = base;
    refused(&options, KVF_EIO, base);
    kvf__artifact file = read_back(prefix);
    file.id.infix = file.id.pre_rope = true;
    ck_assert_int_eq(kvf__artifact_write(ctx, prefix, true, &file), KVF_OK);
    options.prefix = prefix;
    refused(&options, KVF_EUNSUPPORTED, "a prefix inside rows");
    kvf__artifact_done(&file);
    kvf_base_free(model);
}
END_TEST

START_TEST(refuses_another_base)
{
    char folder[512];
    kvf_base *model = open_base();
    kvf_convert_position_options options = {
        .prefix = prefix, .out = moved, .base = folder, .position_start = "0"};
    toy_path(folder, dir, "second");
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    toy_folder(folder, 6, 0);
    make_prefix(model, P, KVF__F32);
    refused(&options, KVF_EMISMATCH, "--allow-other-base overrides");
    kvf_base_free(model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("convert_position");
    TCase *core = ck_case(suite, "core", setup, toy_run_teardown, 60);
    TCase *limits = ck_case(suite, "limits", setup, toy_run_teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, toy_run_teardown, 60);

    tcase_add_loop_test(core, equals_what_the_base_computes_there, 0, N_SCALINGS);
    tcase_add_loop_test(core, results_do_not_change, 0, N_SCALINGS);
    tcase_add_loop_test(core, the_way_back_undoes_it, 0, N_SCALINGS);
    tcase_add_test(limits, nothing_to_do);
    tcase_add_test(errors, refuses_what_it_cannot_move);
    tcase_add_test(errors, refuses_another_base);
    return ck_main(suite);
}
