/* Weights in torch's own files: tensors against the same ones in safetensors, and everything else
 * refused, above all what would run (golden/make_pickle_golden.py). */
#include "ck.h"
#include "file_int.h"
#include "outfile.h"

#include <stdlib.h>
#include <string.h>

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static const char *golden(const char *name, char path[512])
{
    char below[128];
    snprintf(below, sizeof below, "tests/golden/pickle/%s", name);
    snprintf(path, 512, "%s", ck_source(below));
    return path;
}

static void same_tensors(const kvf__table *got, const kvf__table *want)
{
    ck_assert_uint_eq(got->n, want->n);
    for (size_t i = 0; i < want->n; i++) {
        const kvf__view *a = &want->items[i].view;
        const kvf__view *b = kvf__table_find(got, want->items[i].name);
        ck_assert_msg(b != NULL, "no tensor %s", want->items[i].name);
        ck_assert_msg(a->dtype == b->dtype && a->rank == b->rank &&
                          !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim),
                      "%s has another type or shape", want->items[i].name);
        ck_assert_msg(!memcmp(a->data, b->data, kvf__view_bytes(a)), "%s has other values",
                      want->items[i].name);
    }
}

static const char *const STATES[] = {"state.bin", "protocol4.bin"};

START_TEST(tensors_are_those_of_torch)
{
    char path[512];
    kvf__weights got = {0}, want = {0};
    ck_assert_int_eq(kvf__safetensors_open(ctx, golden("state.safetensors", path), &want), KVF_OK);
    ck_assert_msg(!kvf__torch_open(ctx, golden(STATES[_i], path), &got), "%s", kvf_ctx_error(ctx));
    same_tensors(&got.table, &want.table);
    ck_assert_ptr_eq(kvf__table_find(&got.table, "layer.weight")->data,
                     kvf__table_find(&got.table, "tied.weight")->data);
    kvf__weights_close(&got);
    kvf__weights_close(&want);
}
END_TEST

static void copy(const char *name, const char *dir, const char *as)
{
    char path[512], to[640];
    kvf__mapfile file = {0};
    snprintf(to, sizeof to, "%s/%s", dir, as);
    ck_assert_int_eq(kvf__mapfile_open(ctx, golden(name, path), &file), KVF_OK);
    ck_assert_int_eq(kvf__write_file(ctx, to, true, file.data, file.n), KVF_OK);
    kvf__mapfile_close(&file);
}

/* A folder's pytorch_model.bin, or its shards; model.safetensors comes before either. */
START_TEST(folders_of_torch_files)
{
    static const char INDEX[] =
        "{\"metadata\":{},\"weight_map\":{\"weight\":\"pytorch_model-00001-of-00001.bin\"}}";
    char path[640];
    const char *dir = ck_tmpdir();
    kvf__weights w = {0};
    snprintf(path, sizeof path, "%s/pytorch_model.bin.index.json", dir);
    ck_assert_int_eq(kvf__write_file(ctx, path, true, INDEX, sizeof INDEX - 1), KVF_OK);
    copy("state.bin", dir, "pytorch_model-00001-of-00001.bin");
    ck_assert_int_eq(kvf__safetensors_open_dir(ctx, dir, &w), KVF_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "is not in the index"));
    copy("state.bin", dir, "pytorch_model.bin");
    ck_assert_msg(!kvf__safetensors_open_dir(ctx, dir, &w), "%s", kvf_ctx_error(ctx));
    ck_assert_uint_eq(w.table.n, 15);
    kvf__weights_close(&w);
    copy("code.bin", dir, "pytorch_model.bin");
    copy("state.safetensors", dir, "model.safetensors");
    ck_assert_int_eq(kvf__safetensors_open_dir(ctx, dir, &w), KVF_OK);
    kvf__weights_close(&w);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    kvf_status status;
    const char *want;
} REFUSED[] = {
    {"code.bin", KVF_EUNSUPPORTED, "system\", which a state dict has no use for"},
    {"transposed.bin", KVF_EUNSUPPORTED, "transposed or strided"},
    {"checkpoint.bin", KVF_EUNSUPPORTED, "\"epoch\" is no tensor"},
    {"legacy.bin", KVF_EUNSUPPORTED, "no zip archive"},
};
enum { N_REFUSED = sizeof REFUSED / sizeof REFUSED[0] };

START_TEST(refuses_by_name)
{
    char path[512];
    kvf__weights w = {0};
    ck_assert_int_eq(kvf__torch_open(ctx, golden(REFUSED[_i].name, path), &w), REFUSED[_i].status);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), REFUSED[_i].want) != NULL, "%s", kvf_ctx_error(ctx));
    ck_assert(!kvf__exists("pickle_was_run"));
}
END_TEST

static kvf_status parse(const uint8_t *bytes, size_t n)
{
    kvf__weights w = {0};
    uint8_t *own = malloc(n ? n : 1); /* so that a sanitizer sees what is behind it */
    memcpy(own, bytes, n);
    const kvf_status st = kvf__torch_parse(ctx, "file", own, n, &w);
    for (size_t i = 0; !st && i < w.table.n; i++) {
        const kvf__view *view = &w.table.items[i].view;
        const uint8_t *data = view->data;
        ck_assert(data >= own && data + kvf__view_bytes(view) <= own + n);
    }
    kvf__weights_close(&w);
    free(own);
    return st;
}

START_TEST(refuses_a_file_cut_short)
{
    char path[512];
    kvf__mapfile file = {0};
    ck_assert_int_eq(kvf__mapfile_open(ctx, golden("state.bin", path), &file), KVF_OK);
    ck_assert_int_eq(parse(file.data, file.n), KVF_OK);
    for (size_t n = 0; n < file.n; n++)
        ck_assert_msg(parse(file.data, n) != KVF_OK, "accepted with %zu bytes", n);
    kvf__mapfile_close(&file);
}
END_TEST

/* One bit in each byte: refused with a line, or read, never beyond the bytes. */
START_TEST(survives_flipped_bits)
{
    char path[512];
    kvf__buf bytes = {0};
    ck_assert_int_eq(kvf__read_file(ctx, golden(STATES[_i % 2], path), 1 << 20, &bytes), KVF_OK);
    for (size_t at = 0; at < bytes.n; at++) {
        const char bit = (char)(1 << (at + (size_t)_i) % 8);
        bytes.data[at] ^= bit;
        const kvf_status st = parse((const uint8_t *)bytes.data, bytes.n);
        ck_assert(st == KVF_OK || st == KVF_EFORMAT || st == KVF_EUNSUPPORTED);
        bytes.data[at] ^= bit;
    }
    kvf__buf_done(&bytes);
}
END_TEST

START_TEST(lack_of_memory)
{
    char path[512];
    kvf__mapfile file = {0};
    ck_assert_int_eq(kvf__mapfile_open(ctx, golden("state.bin", path), &file), KVF_OK);
    for (int64_t fail = 0;; fail++) {
        kvf__ctx_fail_allocation(ctx, fail);
        kvf_status st = parse(file.data, file.n);
        kvf__ctx_fail_allocation(ctx, -1);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        if (st == KVF_OK) break;
    }
    kvf__mapfile_close(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pickle");
    TCase *good = ck_case(suite, "golden", setup, teardown, 30);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 60);

    tcase_add_loop_test(good, tensors_are_those_of_torch, 0, 2);
    tcase_add_test(good, folders_of_torch_files);
    tcase_add_loop_test(errors, refuses_by_name, 0, N_REFUSED);
    tcase_add_test(errors, refuses_a_file_cut_short);
    tcase_add_loop_test(errors, survives_flipped_bits, 0, 8);
    tcase_add_test(errors, lack_of_memory);
    return ck_main(suite);
}
