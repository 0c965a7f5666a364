/* Tests of kvf_inspect(): every supported kind of file, and its errors. */
#include "artifact_priv.h"
#include "h5_fixture.h"

#include <kvfold/io.h>
#include <math.h>

/* The text at a.b.0.c; numbers are array indices. */
static const kvf_json *at(const kvf_json *value, const char *path)
{
    while (*path && value) {
        size_t n = strcspn(path, "/");
        char key[128] = "";
        memcpy(key, path, n);
        value = kvf_json_typeof(value) == KVF_JSON_ARRAY ? kvf_json_at(value, (size_t)atoi(key))
                                                         : kvf_json_get(value, key);
        path += n + (path[n] == '/');
    }
    return value;
}

#define ck_text(tree, path, want) ck_assert_pstr_eq(kvf_json_str(at(tree, path), NULL), want)
#define ck_int(tree, path, want)  ck_assert_int_eq(kvf_json_int(at(tree, path), -12345), want)
#define ck_real(tree, path, want)                                                                  \
    ck_assert_double_eq_tol(kvf_json_real(at(tree, path), NAN), want, 1e-6 * (1 + fabs(want)))
#define ck_list(tree, path, want) ck_json_eq(at(tree, path), want)

/* ---- own files ------------------------------------------------------------------------------- */

/* Sum over half a layer, from the formula of the fixture. */
static void moments(const kvf__prefix *prefix, int64_t layer, int kv, double *mean, double *std,
                    double *norm)
{
    size_t n = (size_t)(prefix->G * prefix->P * prefix->D);
    const float *values = prefix->kv + (size_t)(2 * layer + kv) * n;
    double sum = 0, squares = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    *mean = sum / (double)n;
    *std = sqrt(squares / (double)n - *mean * *mean);
    *norm = sqrt(squares);
}

START_TEST(prefix_file)
{
    kvf__artifact file;
    kvf_json *tree = NULL;
    double mean, std, norm;

    make_prefix_file(&file, KVF__BF16);
    ck_ok(kvf__artifact_write(ctx, in_dir("p.h5"), false, &file));
    ck_ok(kvf_inspect(ctx, in_dir("p.h5"), &tree));
    ck_text(tree, "kind", "prefix");
    ck_json_eq(kvf_json_get(tree, "features"), "[\"layer-mask\"]");
    ck_text(tree, "attributes/base_name", IDENTITY.base_name);
    ck_text(tree, "attributes/method", "mlp");
    ck_text(tree, "attributes/kvfold_version", KVF_VERSION);
    ck_text(tree, "attributes/dtype", "bf16");
    ck_int(tree, "attributes/position_start", 5);
    ck_list(tree, "attributes/layer_mask", "[1,0,1]");
    ck_assert_uint_eq(kvf_json_size(at(tree, "tensors")), 1);
    ck_text(tree, "tensors/0/name", "prefix/past_key_values");
    ck_list(tree, "tensors/0/shape", "[3,2,1,2,5,4]");
    ck_text(tree, "tensors/0/dtype", "bf16");
    ck_int(tree, "tensors/0/bytes", 3 * 2 * 2 * 5 * 4 * 2);
    ck_list(tree, "tensors/0/labels",
            "[\"layer\",\"key_value\",\"batch\",\"head\",\"position\",\"head_dim\"]");
    ck_text(tree, "tensors/0/storage/layout", "chunked");
    ck_list(tree, "tensors/0/storage/chunk", "[1,2,1,2,5,4]");
    ck_list(tree, "tensors/0/storage/filters", "[\"shuffle\",\"fletcher32\"]");
    ck_assert_uint_eq(kvf_json_size(at(tree, "layers")), 3);
    moments(&file.prefix, 2, 1, &mean, &std, &norm);
    ck_int(tree, "layers/2/layer", 2);
    ck_real(tree, "layers/2/value/mean", mean);
    ck_real(tree, "layers/2/value/std", std);
    ck_real(tree, "layers/2/value/norm", norm);
    ck_real(tree, "layers/0/key/min", -1.0);
    ck_real(tree, "layers/0/key/max", 39.0 / 32.0 - 1.0);
    ck_real(tree, "layers/1/key/norm", 0.0);
    ck_real(tree, "options/lr", 0.01);
    ck_text(tree, "lineage/data_hash", "00ff");
    kvf_json_free(tree);
    kvf__artifact_done(&file);
}
END_TEST

static kvf__artifact run; /* large: not for the stack */

START_TEST(run_file)
{
    kvf_json *tree = NULL;
    double squares = 0;

    make_run_file(&run, true);
    ck_ok(kvf__artifact_write(ctx, in_dir("r.h5"), false, &run));
    ck_ok(kvf_inspect(ctx, in_dir("r.h5"), &tree));
    ck_text(tree, "kind", "run");
    ck_int(tree, "attributes/L", 3);
    ck_int(tree, "attributes/D", 4);
    ck_assert_uint_eq(kvf_json_size(at(tree, "tensors")), 12);
    ck_text(tree, "tensors/0/name", "encoder/transform.0.weight");
    ck_list(tree, "tensors/0/shape", "[90,200]");
    ck_text(tree, "tensors/4/name", "best/encoder/transform.0.bias");
    ck_text(tree, "tensors/8/name", "optimizer/m/embedding.weight");
    ck_text(tree, "tensors/11/name", "optimizer/v/embedding.weight");
    ck_text(tree, "tensors/1/storage/layout", "contiguous");
    for (int i = 0; i < 90; i++)
        squares += (double)run.values.params.item[1].value[i] *
                   (double)run.values.params.item[1].value[i];
    ck_real(tree, "tensors/1/norm", sqrt(squares));
    ck_assert_ptr_null(at(tree, "tensors/8/norm"));
    ck_int(tree, "history/steps", 4);
    ck_int(tree, "history/tokens", 400);
    ck_real(tree, "history/first_train_loss", 4.0);
    ck_real(tree, "history/last_train_loss", 3.25);
    ck_real(tree, "history/last_valid_loss", 2.5);
    ck_int(tree, "history/best_step", 2);
    ck_text(tree, "history/best_metric", "valid_loss");
    ck_real(tree, "history/best_value", 2.5);
    ck_int(tree, "state/step", 4);
    ck_text(tree, "options/method", "mlp");
    kvf_json_free(tree);
    kvf__artifact_done(&run);
}
END_TEST

START_TEST(imported_run)
{
    kvf_json *tree = NULL;

    make_run_file(&run, false);
    ck_ok(kvf__artifact_write(ctx, in_dir("r.h5"), false, &run));
    ck_ok(kvf_inspect(ctx, in_dir("r.h5"), &tree));
    ck_assert_uint_eq(kvf_json_size(at(tree, "tensors")), 3);
    ck_list(tree, "history", "{\"steps\":0}");
    kvf_json_free(tree);
    kvf__artifact_done(&run);
}
END_TEST

START_TEST(made_by_h5py)
{
    kvf_json *tree = NULL;

    ck_ok(kvf_inspect(ctx, ck_source("tests/golden/h5_gzip.h5"), &tree));
    ck_list(tree, "tensors/0/storage/filters", "[\"shuffle\",\"deflate\",\"fletcher32\"]");
    ck_list(tree, "tensors/0/storage/chunk", "[1,2,1,1,4,8]");
    ck_text(tree, "tensors/0/labels/3", "head");
    kvf_json_free(tree);
}
END_TEST

/* ---- foreign files --------------------------------------------------------------------------- */

START_TEST(safetensors_file)
{
    kvf_json *tree = NULL;

    ck_ok(kvf_inspect(ctx, ck_source("tests/golden/peft_tiny/adapter_model.safetensors"), &tree));
    ck_text(tree, "kind", "safetensors");
    ck_text(tree, "tensors/0/name", "prompt_embeddings");
    ck_list(tree, "tensors/0/shape", "[5,96]");
    ck_text(tree, "tensors/0/dtype", "f32");
    ck_int(tree, "tensors/0/bytes", 5 * 96 * 4);
    ck_text(tree, "metadata/format", "pt");
    kvf_json_free(tree);
}
END_TEST

START_TEST(gguf_file)
{
    kvf_json *tree = NULL;

    ck_ok(kvf_inspect(ctx, ck_source("tests/golden/tiny.gguf"), &tree));
    ck_text(tree, "kind", "gguf");
    ck_assert_uint_gt(kvf_json_size(at(tree, "tensors")), 0);
    ck_assert_ptr_nonnull(kvf_json_str(at(tree, "tensors/0/name"), NULL));
    ck_assert_ptr_nonnull(kvf_json_str(at(tree, "metadata/general.architecture"), NULL));
    kvf_json_free(tree);
}
END_TEST

START_TEST(folders)
{
    kvf_json *tree = NULL;

    ck_ok(kvf_inspect(ctx, ck_source("tests/golden/model_llama_tied"), &tree));
    ck_text(tree, "kind", "hf");
    ck_text(tree, "attributes/model_type", "llama");
    ck_assert_uint_gt(kvf_json_size(at(tree, "tensors")), 2);
    kvf_json_free(tree);
    tree = NULL;
    ck_ok(kvf_inspect(ctx, ck_source("tests/golden/peft_tiny"), &tree));
    ck_text(tree, "kind", "peft");
    ck_text(tree, "attributes/peft_type", "PREFIX_TUNING");
    ck_text(tree, "tensors/0/name", "prompt_embeddings");
    kvf_json_free(tree);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(embeddings)
{
    static float x[] = {3, 4, 0, 0, 5, 12};
    kvf__artifact file = {.kind = KVF__KIND_EMBEDDINGS,
                          .id = {.base_architecture = (char *)"bert",
                                 .method = (char *)"prompt",
                                 .task = (char *)"lm",
                                 .L = 2,
                                 .G = 1,
                                 .P = 3,
                                 .D = 2},
                          .vectors = {.P = 3, .C = 2, .x = x},
                          .pattern = (char *)"{p} {text} {p:2}"},
                  back = {0};
    kvf_json *tree = NULL;

    ck_ok(kvf__artifact_write(ctx, in_dir("e.h5"), false, &file));
    ck_ok(kvf__artifact_read(ctx, in_dir("e.h5"), KVF__KIND_EMBEDDINGS, &back));
    ck_assert_mem_eq(back.vectors.x, x, sizeof x);
    ck_assert_str_eq(back.pattern, file.pattern);
    ck_assert(back.id.P == 3 && back.vectors.C == 2);
    kvf__artifact_done(&back);
    ck_ok(kvf_inspect(ctx, in_dir("e.h5"), &tree));
    ck_assert_str_eq(kvf_json_str(kvf_json_get(tree, "kind"), NULL), "embeddings");
    const kvf_json *attributes = kvf_json_get(tree, "attributes");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(attributes, "p_template"), NULL), file.pattern);
    ck_assert_double_eq(kvf_json_real(kvf_json_at(kvf_json_get(attributes, "norms"), 2), 0), 13);
    kvf_json_free(tree);
    x[3] = NAN;
    ck_fails(kvf__artifact_write(ctx, in_dir("bad.h5"), false, &file), KVF_ENUMERIC,
             "/embeddings/virtual: [1, 1] is nan");
}
END_TEST

START_TEST(refuses)
{
    kvf_json *tree = NULL;
    kvf__h5 h5;

    ck_fails(kvf_inspect(ctx, in_dir("none"), &tree), KVF_EIO, "none");
    write_bytes(in_dir("text"), "just text, long enough to look at", 33);
    ck_fails(kvf_inspect(ctx, in_dir("text"), &tree), KVF_EFORMAT, "text: unknown kind of file");
    ck_fails(kvf_inspect(ctx, ck_source("tests/golden/h5_plain.h5"), &tree), KVF_EFORMAT,
             "not a kvfold file");
    ck_fails(kvf_inspect(ctx, ck_source("tests/golden/h5_v0.h5"), &tree), KVF_EUNSUPPORTED,
             "superblock version 0");
    ck_fails(kvf_inspect(ctx, ck_source("tests/golden/h5_external.h5"), &tree), KVF_EFORMAT,
             "external storage");
    ck_fails(kvf_inspect(ctx, ck_source("tests/golden/h5_loop.h5"), &tree), KVF_EFORMAT,
             "\"loop\" is no dataset");
    h5 = kvf__h5_create(ctx, in_dir("cake.h5"), false, "cake", 0);
    ck_ok(kvf__h5_close(&h5));
    ck_fails(kvf_inspect(ctx, in_dir("cake.h5"), &tree), KVF_EUNSUPPORTED,
             "kvfold_kind is \"cake\"");
    h5 = kvf__h5_create(ctx, in_dir("words.h5"), false, "embeddings", 0);
    ck_ok(kvf__h5_close(&h5));
    ck_fails(kvf_inspect(ctx, in_dir("words.h5"), &tree), KVF_EFORMAT,
             "group \"embeddings\" is missing");
    ck_assert_ptr_null(tree);
}
END_TEST

static void fail_every_allocation(const char *path)
{
    kvf_status st = KVF_ENOMEM;
    kvf_json *tree = NULL;

    for (int n = 0; st; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf_inspect(ctx, path, &tree);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert(st == KVF_OK || !tree);
    }
    kvf__ctx_fail_allocation(ctx, -1);
    kvf_json_free(tree);
}

START_TEST(allocation_failures)
{
    kvf__artifact file;

    make_prefix_file(&file, KVF__F16);
    make_run_file(&run, true);
    ck_ok(kvf__artifact_write(ctx, in_dir("p.h5"), false, &file));
    ck_ok(kvf__artifact_write(ctx, in_dir("r.h5"), false, &run));
    fail_every_allocation(in_dir("p.h5"));
    fail_every_allocation(in_dir("r.h5"));
    fail_every_allocation(ck_source("tests/golden/peft_tiny"));
    kvf__artifact_done(&file);
    kvf__artifact_done(&run);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("inspect");
    TCase *core = ck_case(suite, "core", setup, teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 60);
    TCase *golden = ck_case(suite, "golden", setup, teardown, 60);

    tcase_add_test(core, embeddings);
    tcase_add_test(core, prefix_file);
    tcase_add_test(core, run_file);
    tcase_add_test(core, imported_run);
    tcase_add_test(golden, made_by_h5py);
    tcase_add_test(golden, safetensors_file);
    tcase_add_test(golden, gguf_file);
    tcase_add_test(golden, folders);
    tcase_add_test(errors, refuses);
    tcase_add_test(errors, allocation_failures);
    return ck_main(suite);
}
