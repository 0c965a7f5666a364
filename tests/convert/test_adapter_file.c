/* Tests of the adapter file: round trips, equal bytes, output of inspect, and refusals. */
#include "artifact_priv.h"
#include "h5_fixture.h"

#include <kvfold/io.h>

static const char ADAPTER[] = "adapter";

/* Two layers, one placement, then a norm. */
static void make_adapter_file(kvf__artifact *file)
{
    *file = (kvf__artifact){.kind = KVF__KIND_ADAPTER, .size = 3};
    ck_ok(kvf__identity_copy(ctx, &IDENTITY, &file->id));
    file->id.P = file->id.position_start = 0;
    kvf__free(file->id.method);
    ck_ok(kvf__strdup(ctx, ADAPTER, &file->id.method));
    ck_ok(kvf__strdup(ctx, "gelu", &file->activation));
    ck_ok(kvf__strdup(ctx, "serial", &file->placement));
    add_param(&file->values, "0.attn.down.weight", 3, 8, 0.5f);
    add_param(&file->values, "0.attn.down.bias", 3, 0, 1.5f);
    add_param(&file->values, "0.attn.up.weight", 8, 3, 2.5f);
    add_param(&file->values, "0.attn.up.bias", 8, 0, 3.5f);
    add_param(&file->values, "model.layers.0.input_layernorm.weight", 8, 0, 4.5f);
    file->options = json(OPTIONS);
    file->lineage = json("{\"data_hash\":\"00ff\"}");
}

START_TEST(round_trip)
{
    kvf__artifact file, back = {0};
    const char *path = in_dir("a.h5");
    kvf__kind kind = KVF__KIND_ANY;

    make_adapter_file(&file);
    ck_ok(kvf__artifact_write(ctx, path, false, &file));
    ck_ok(kvf__kind_of(ctx, path, &kind));
    ck_assert_str_eq(kvf__kind_name(kind), ADAPTER);
    ck_ok(kvf__artifact_read(ctx, path, KVF__KIND_ADAPTER, &back));
    ck_assert_int_eq(back.size, 3);
    ck_assert_str_eq(back.activation, "gelu");
    ck_assert_str_eq(back.placement, "serial");
    ck_assert_str_eq(back.id.method, ADAPTER);
    ck_assert(back.id.L == 3 && back.id.G == 2 && back.id.P == 0 && back.id.D == 4);
    ck_same_params(&back.values.params, &file.values.params);
    ck_json_eq(back.lineage, "{\"data_hash\":\"00ff\"}");
    ck_ok(kvf__artifact_write(ctx, in_dir("again.h5"), false, &back));
    ck_same_bytes(path, in_dir("again.h5"));
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(described)
{
    kvf__artifact file;
    kvf_json *root = NULL;
    const char *path = in_dir("a.h5");

    make_adapter_file(&file);
    ck_ok(kvf__artifact_write(ctx, path, false, &file));
    ck_ok(kvf_inspect(ctx, path, &root));
    const kvf_json *attributes = kvf_json_get(root, "attributes");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(root, "kind"), NULL), ADAPTER);
    ck_assert_int_eq(kvf_json_int(kvf_json_get(attributes, "size"), 0), 3);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(attributes, "placement"), NULL), "serial");
    ck_assert_ptr_null(kvf_json_get(attributes, "layer_mask"));
    const kvf_json *tensors = kvf_json_get(root, "tensors");
    ck_assert_uint_eq(kvf_json_size(tensors), 5);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(kvf_json_at(tensors, 2), "name"), NULL),
                     "adapter/0.attn.up.weight");
    ck_assert_ptr_nonnull(kvf_json_get(root, "options"));
    kvf_json_free(root);
    kvf__artifact_done(&file);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(refused)
{
    kvf__artifact file, back = {0};
    kvf__artifact prefix = {0};
    const char *path = in_dir("a.h5");

    make_adapter_file(&file);
    file.values.params.item[2].value[5] = NAN;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ENUMERIC,
             "/adapter/0.attn.up.weight: element 5 is nan");
    file.values.params.item[2].value[5] = 1;
    file.size = 0;
    ck_ok(kvf__artifact_write(ctx, path, false, &file));
    ck_fails(kvf__artifact_read(ctx, path, KVF__KIND_ADAPTER, &back), KVF_EFORMAT,
             "size is 0, want 1");
    ck_fails(kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &prefix), KVF_EFORMAT, "prefix");
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EEXIST, "exists");
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(truncated_anywhere)
{
    kvf__artifact file, back = {0};
    const char *path = in_dir("a.h5"), *cut = in_dir("cut.h5");
    size_t n;

    make_adapter_file(&file);
    ck_ok(kvf__artifact_write(ctx, path, false, &file));
    uint8_t *bytes = read_bytes(path, &n);
    for (size_t k = 0; k < n - SEAL_BYTES; k += 131) {
        write_bytes(cut, bytes, k);
        ck_fails(kvf__artifact_read(ctx, cut, KVF__KIND_ADAPTER, &back), KVF_EFORMAT, cut);
    }
    free(bytes);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(allocation_failures)
{
    kvf__artifact file, back = {0};
    const char *path = in_dir("a.h5");
    kvf_status st = KVF_ENOMEM;

    make_adapter_file(&file);
    for (int n = 0; st; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__artifact_write(ctx, path, false, &file);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert_int_eq(files_in_dir(), st == KVF_OK);
    }
    st = KVF_ENOMEM;
    for (int n = 0; st; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__artifact_read(ctx, path, KVF__KIND_ADAPTER, &back);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
    }
    kvf__ctx_fail_allocation(ctx, -1);
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter_file");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");

    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_set_timeout(errors, 60);
    tcase_add_test(core, round_trip);
    tcase_add_test(core, described);
    tcase_add_test(errors, refused);
    tcase_add_test(errors, truncated_anywhere);
    tcase_add_test(errors, allocation_failures);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
