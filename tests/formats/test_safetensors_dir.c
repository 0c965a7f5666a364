/* Tests of folders of shards, and of detecting the format of a file. */
#include "ck.h"
#include "file_int.h"
#include "outfile.h"

#include <stdio.h>
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

static void put_text(const char *dir, const char *name, const char *text)
{
    char *path = NULL;
    ck_assert_int_eq(kvf__path_join(ctx, dir, name, &path), KVF_OK);
    ck_assert_int_eq(kvf__write_file(ctx, path, true, text, strlen(text)), KVF_OK);
    kvf__free(path);
}

/* Tensors of one f32 each, named by the letters. */
static void put_shard(const char *dir, const char *name, const char *letters)
{
    float values[8];
    char names[8][2], *path = NULL;
    kvf__tensor tensors[8];
    size_t n = strlen(letters);

    for (size_t i = 0; i < n; i++) {
        values[i] = (float)letters[i];
        memcpy(names[i], (char[]){letters[i], 0}, 2);
        tensors[i] = (kvf__tensor){names[i],
                                   {.data = &values[i], .dtype = KVF__F32, .rank = 1, .dim = {1}}};
    }
    ck_assert_int_eq(kvf__path_join(ctx, dir, name, &path), KVF_OK);
    ck_assert_int_eq(kvf__safetensors_write(ctx, path, true, tensors, n), KVF_OK);
    kvf__free(path);
}

#define S1       "model-00001-of-00002.safetensors"
#define S2       "model-00002-of-00002.safetensors"
#define INDEX    "model.safetensors.index.json"
#define GOOD_MAP "{\"a\":\"" S1 "\",\"b\":\"" S1 "\",\"c\":\"" S2 "\"}"

static void put_index(const char *dir, const char *weight_map)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":12},\"weight_map\":%s}", weight_map);
    put_text(dir, INDEX, text);
}

static void fill_dir(const char *dir)
{
    put_shard(dir, S1, "ab");
    put_shard(dir, S2, "c");
    put_index(dir, GOOD_MAP);
}

START_TEST(reads_shards)
{
    const char *dir = ck_tmpdir();
    kvf__weights w = {0};
    float value;

    fill_dir(dir);
    ck_assert_int_eq(kvf__safetensors_open_dir(ctx, dir, &w), KVF_OK);
    ck_assert_uint_eq(w.table.n, 3);
    ck_assert_uint_eq(w.n_maps, 2);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(w.meta, "format"), NULL), "pt");
    memcpy(&value, kvf__table_find(&w.table, "c")->data, sizeof value);
    ck_assert(value == 'c');
    kvf__weights_close(&w);

    put_shard(dir, "model.safetensors", "xyz"); /* a single file overrides the index */
    ck_assert_int_eq(kvf__safetensors_open_dir(ctx, dir, &w), KVF_OK);
    ck_assert_ptr_nonnull(kvf__table_find(&w.table, "x"));
    kvf__weights_close(&w);
}
END_TEST

static const struct bad_index {
    const char *map, *shard1, *shard2, *message;
} BAD_INDEXES[] = {
    {"{\"a\":\"" S1 "\",\"b\":\"" S1 "\",\"c\":\"" S1 "\"}", "ab", "c", "is not in " S1},
    {"{\"a\":\"" S1 "\",\"b\":\"" S2 "\",\"c\":\"" S2 "\"}", "ab", "c",
     "is in " S2 " according to"},
    {"{\"a\":\"" S1 "\",\"c\":\"" S2 "\"}", "ab", "c", "\"b\" is not in the index"},
    {GOOD_MAP, "ab", "ca", "\"a\" occurs twice"},
    {GOOD_MAP, "a", "c", "\"b\" is not in " S1},
    {"{\"a\":\"../" S1 "\"}", "a", "c", "plain file name"},
    {"{\"a\":\"/etc/x.safetensors\"}", "a", "c", "plain file name"},
    {"{\"a\":\"a..b.safetensors\"}", "a", "c", "plain file name"},
    {"{\"a\":\"sub\\\\x.safetensors\"}", "a", "c", "plain file name"},
    {"{\"a\":\"x.safetensors\\u0000\"}", "a", "c", "plain file name"},
    {"{\"a\":\".safetensors\"}", "a", "c", "plain file name"},
    {"{\"a\":\"pytorch_model.bin\"}", "a", "c", "plain file name"},
    {"{\"a\":1}", "a", "c", "not a string"},
    {"{\"a\":\"" S1 "\",\"a\":\"" S1 "\"}", "a", "c", "duplicate"},
    {"{}", "a", "c", "empty"},
    {"[]", "a", "c", "weight_map"},
    {"{\"a\":\"missing.safetensors\"}", "a", "c", "missing.safetensors"},
};
enum { N_BAD_INDEXES = sizeof BAD_INDEXES / sizeof BAD_INDEXES[0] };

START_TEST(index_is_held_to_its_word)
{
    const struct bad_index *row = &BAD_INDEXES[_i];
    const char *dir = ck_tmpdir();
    kvf__weights w = {0};

    put_shard(dir, S1, row->shard1);
    put_shard(dir, S2, row->shard2);
    put_index(dir, row->map);
    kvf_status st = kvf__safetensors_open_dir(ctx, dir, &w);
    ck_assert_msg(st == (strstr(row->map, "missing") ? KVF_EIO : KVF_EFORMAT), "%s: %s", row->map,
                  kvf_status_name(st));
    ck_assert_msg(strstr(kvf_ctx_error(ctx), row->message), "%s", kvf_ctx_error(ctx));
    ck_assert_ptr_null(w.maps);
}
END_TEST

START_TEST(folders_without_weights)
{
    const char *dir = ck_tmpdir();
    kvf__weights w = {0};

    ck_assert_int_eq(kvf__safetensors_open_dir(ctx, dir, &w), KVF_EIO);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "neither model.safetensors nor its index"));
    ck_assert_int_eq(kvf__safetensors_open(ctx, "/nowhere", &w), KVF_EIO);
}
END_TEST

START_TEST(lack_of_memory)
{
    const char *dir = ck_tmpdir();
    int64_t failed = 0;

    fill_dir(dir);
    for (int64_t fail = 0;; fail++) {
        kvf__weights w = {0};
        kvf__ctx_fail_allocation(ctx, fail);
        kvf_status st = kvf__safetensors_open_dir(ctx, dir, &w);
        kvf__ctx_fail_allocation(ctx, -1);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        if (st) ck_assert_ptr_null(w.table.items);
        kvf__weights_close(&w);
        if (st == KVF_OK) break;
        failed++;
    }
    ck_assert_int_gt(failed, 10);
}
END_TEST

/* ---- file kinds ------------------------------------------------------------------------------ */

static kvf__file_kind kind_of(const char *path)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    ck_assert_int_eq(kvf__file_kind_of(ctx, path, &kind), KVF_OK);
    return kind;
}

static kvf__file_kind kind_of_text(const char *dir, const void *bytes, size_t n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/file", dir);
    ck_assert_int_eq(kvf__write_file(ctx, path, true, bytes, n), KVF_OK);
    return kind_of(path);
}

START_TEST(file_kinds)
{
    const char *dir = ck_tmpdir();
    kvf__file_kind kind;

    ck_assert_int_eq(kind_of(ck_source("tests/golden/foreign.safetensors")), KVF__FILE_SAFETENSORS);
    ck_assert_int_eq(kind_of_text(dir, "GGUF\3\0\0\0", 8), KVF__FILE_GGUF);
    ck_assert_int_eq(kind_of_text(dir, "\x89HDF\r\n\x1a\n", 8), KVF__FILE_HDF5);
    ck_assert_int_eq(kind_of_text(dir, "\4\0\0\0\0\0\0\0\n {}", 12), KVF__FILE_SAFETENSORS);
    ck_assert_int_eq(kind_of_text(dir, "\5\0\0\0\0\0\0\0\n {}", 12), KVF__FILE_UNKNOWN);
    ck_assert_int_eq(kind_of_text(dir, "{\"a\":1}", 7), KVF__FILE_UNKNOWN);
    ck_assert_int_eq(kind_of_text(dir, "", 0), KVF__FILE_UNKNOWN);

    ck_assert_int_eq(kind_of(dir), KVF__FILE_UNKNOWN);
    put_text(dir, INDEX, "{}");
    ck_assert_int_eq(kind_of(dir), KVF__FILE_HF_DIR);
    put_text(dir, "adapter_config.json", "{}");
    ck_assert_int_eq(kind_of(dir), KVF__FILE_PEFT_DIR);
    ck_assert_int_eq(kvf__file_kind_of(ctx, "/nowhere/at/all", &kind), KVF_EIO);
    ck_assert_int_eq(kvf__file_kind_of(ctx, "/dev/null", &kind), KVF_EIO);
}
END_TEST

/* Files written by torch, as a folder or a single file, and the file made by their conversion. */
static const struct pickle {
    const char *name, *bytes, *to;
} PICKLES[] = {
    {"pytorch_model.bin", "", "/model.safetensors'"},
    {"pytorch_model.bin.index.json", "", "/model.safetensors'"},
    {"pytorch_adapter.bin", "", "/adapter.safetensors'"},
    {"adapter_model.bin", "", "/adapter_model.safetensors'"},
    {"cache.pt", "PK\003\004\024 and so on", "/cache.safetensors'"},
    {"a.b.pt", "\x80\002]q\001.", "/a.b.safetensors'"},
    {"pickled", "\x80\004\x95.", "/pickled.safetensors'"},
    {".pt", "PK\003\004", "/.pt.safetensors'"},
};
enum { N_PICKLES = sizeof PICKLES / sizeof PICKLES[0] };

START_TEST(pickles_are_told_how_to_convert)
{
    const struct pickle *row = &PICKLES[_i];
    const char *dir = ck_tmpdir();
    char path[4096], want[9000];
    kvf__file_kind kind;

    put_text(dir, "config.json", "{}");
    put_text(dir, row->name, row->bytes);
    snprintf(path, sizeof path, "%s/%s", dir, row->name);
    snprintf(want, sizeof want,
             "%s: is a torch pickle, want safetensors; this converts it: "
             "python -m kvfold.from_pickle '%s' '%s%s",
             path, path, dir, row->to);
    ck_assert_int_eq(kvf__file_kind_of(ctx, *row->bytes ? path : dir, &kind), KVF_EUNSUPPORTED);
    ck_assert_str_eq(kvf_ctx_error(ctx), want);
    put_shard(dir, "adapter.safetensors", "a"); /* safetensors override other files */
    ck_assert_int_eq(kvf__file_kind_of(ctx, dir, &kind), KVF_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors_dir");

    TCase *core = ck_case(suite, "core", setup, teardown, 30);
    tcase_add_test(core, reads_shards);
    tcase_add_test(core, file_kinds);

    TCase *errors = ck_case(suite, "errors", setup, teardown, 30);
    tcase_add_loop_test(errors, index_is_held_to_its_word, 0, N_BAD_INDEXES);
    tcase_add_test(errors, folders_without_weights);
    tcase_add_loop_test(errors, pickles_are_told_how_to_convert, 0, N_PICKLES);

    TCase *limits = ck_case(suite, "limits", setup, teardown, 30);
    tcase_add_test(limits, lack_of_memory);
    return ck_main(suite);
}
