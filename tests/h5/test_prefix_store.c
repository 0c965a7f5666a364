/* Tests of int8 prefix files: rounding of values, and invalid scales. Round trips and equal bytes
 * are in test_prefix_file.c, as for the other types. */
#include "artifact_priv.h"
#include "h5_fixture.h"

/* int8: one scale per head of a layer's keys or values, largest value at 127, ties to even. */
START_TEST(int8_rounds_by_head)
{
    static const float HEAD[4] = {-2.5f, 127, 0.5f, 1.5f}, WANT[4] = {-2, 127, 0, 2};
    kvf__prefix from = {0}, back = {0};

    ck_ok(kvf__prefix_init(ctx, &from, 2, 2, 1, 4));
    for (size_t h = 0; h < 8; h++)
        for (size_t i = 0; i < 4; i++)
            from.kv[4 * h + i] = h == 3 ? 0 : ldexpf(HEAD[i], 4 * (int)h - 20);
    from.kv[4] = 1e-44f; /* even the scale is subnormal */
    from.kv[5] = from.kv[6] = from.kv[7] = 0;
    ck_ok(kvf__prefix_rounded(ctx, "p", KVF__I8, &from, &back));
    for (size_t h = 0; h < 8; h++)
        for (size_t i = 0; i < 4; i++)
            ck_assert(back.kv[4 * h + i] ==
                      (h == 3 || h == 1 ? 0 : ldexpf(WANT[i], 4 * (int)h - 20)));
    kvf__prefix_done(&from);
    kvf__prefix_done(&back);
}
END_TEST

static void write_scales(const char *path, int rank, const int64_t *dim, kvf__dtype dtype,
                         float value)
{
    const int64_t shape[6] = {1, 2, 1, 1, 2, 2};
    const int8_t values[8] = {127, -3};
    const float scales[4] = {value, 1, 1, 1};
    const kvf__h5_spec spec = {
        .name = "past_key_values", .dtype = KVF__I8, .rank = 6, .dim = shape};
    const kvf__h5_spec scale = {.name = "scale", .dtype = dtype, .rank = rank, .dim = dim};
    kvf__identity id = IDENTITY;
    kvf__h5 h5;
    kvf__h5_id group, data;

    h5 = kvf__h5_create(ctx, path, true, "prefix", 0);
    group = kvf__h5_group_create(&h5, h5.file, "prefix");
    kvf__h5_data_write(&h5, group, &spec, values, &data);
    kvf__identity_write(&h5, data, false, &id);
    kvf__h5_put_u8s(&h5, data, "layer_mask", (const uint8_t *)"\1", 1);
    kvf__h5_put_text(&h5, data, "dtype", "int8");
    if (rank) kvf__h5_data_write(&h5, group, &scale, scales, NULL);
    kvf__h5_release(&data);
    kvf__h5_release(&group);
    ck_ok(kvf__h5_close(&h5));
}

START_TEST(int8_scales_are_checked)
{
    const int64_t dim[4] = {1, 2, 1, 1}, flat[1] = {2};
    kvf__artifact file = {0};
    const char *path = in_dir("p.h5");

    write_scales(path, 4, dim, KVF__F32, 0.5f);
    ck_ok(kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &file));
    ck_assert(file.dtype == KVF__I8 && file.prefix.kv[0] == 63.5f && file.prefix.kv[1] == -1.5f);
    kvf__artifact_done(&file);
    write_scales(path, 0, NULL, KVF__F32, 1);
    ck_fails(kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &file), KVF_EFORMAT,
             "\"scale\" is missing");
    write_scales(path, 1, flat, KVF__F32, 1);
    ck_fails(kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &file), KVF_ESHAPE,
             "/prefix/scale: [2] of f32, want [1, 2, 1, 1] of f32");
    write_scales(path, 4, dim, KVF__F64, 1);
    ck_fails(kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &file), KVF_ESHAPE,
             "[1, 2, 1, 1] of f64");
    write_scales(path, 4, dim, KVF__F32, -1);
    ck_fails(kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &file), KVF_ENUMERIC, "scale 0 is -1");
    write_scales(path, 4, dim, KVF__F32, NAN);
    ck_fails(kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &file), KVF_ENUMERIC,
             "scale 0 is nan");
}
END_TEST

START_TEST(words_of_types)
{
    static const kvf__dtype TYPES[] = {KVF__F32, KVF__F16, KVF__BF16, KVF__I8};

    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(kvf__prefix_dtype((kvf_dtype)i), TYPES[i]);
        ck_assert_str_eq(kvf__prefix_dtype_name(TYPES[i]), kvf_dtype_name((kvf_dtype)i));
    }
    ck_assert_ptr_null(kvf__prefix_dtype_name(KVF__F64));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix_store");
    TCase *core = ck_case(suite, "core", setup, teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 60);

    tcase_add_test(core, int8_rounds_by_head);
    tcase_add_test(core, words_of_types);
    tcase_add_test(errors, int8_scales_are_checked);
    return ck_main(suite);
}
