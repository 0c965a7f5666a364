/* TensorBoard's event files: bytes against the format's own vectors, and records parsed and checked
 * by a reader written here. peers/tensorboard_reader.py tests the real reader. */
#include "ck.h"
#include "event_file.h"
#include "infile.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static kvf_ctx *ctx;
static char dir[300];

static void setup(void)
{
    snprintf(dir, sizeof dir, "%s/events", ck_tmpdir());
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

/* ---- a reader -------------------------------------------------------------------------------- */

/* CRC-32C by a table of nibbles: a method other than the writer's. */
static uint32_t masked_crc(const uint8_t *bytes, size_t n)
{
    uint32_t table[16], crc = ~0u;
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int bit = 0; bit < 4; bit++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82F63B78 : table[i] >> 1;
    }
    for (size_t i = 0; i < n; i++) {
        crc = crc >> 4 ^ table[(crc ^ bytes[i]) & 15];
        crc = crc >> 4 ^ table[(crc ^ bytes[i] >> 4) & 15];
    }
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

/* The next message of a file; NULL at its end. */
static const uint8_t *next_message(kvf__reader *r, size_t *n)
{
    if (r->at == r->n) return NULL;
    const uint8_t *head = r->data + r->at;
    uint64_t length = kvf__read_u64(r);
    ck_assert_uint_eq(kvf__read_u32(r), masked_crc(head, 8));
    const uint8_t *message = kvf__read_bytes(r, (size_t)length);
    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(kvf__read_u32(r), masked_crc(message, (size_t)length));
    ck_assert(!r->failed);
    *n = (size_t)length;
    return message;
}

static void open_only_file(kvf__mapfile *out)
{
    struct dirent *entry;
    char path[600] = "";
    DIR *folder = opendir(dir);
    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.') continue;
        ck_assert_msg(!*path, "two files");
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
    }
    closedir(folder);
    ck_assert_msg(strstr(path, "/events.out.tfevents.1700000000."), "%s", path);
    ck_assert_int_eq(kvf__mapfile_open(ctx, path, out), KVF_OK);
}

/* ---- cases ----------------------------------------------------------------------------------- */

START_TEST(golden_vectors)
{
    static const struct {
        const char *hex;
        size_t n;
    } WANT[] = {
        {"1800000000000000a37f4b22"
         "0900000040fc54d9411a0d627261696e2e4576656e743a32"
         "eced8f9d",
         40},
        {"1a00000000000000129bd82d"
         "0900004040fc54d94110072a0d0a0b0a046c6f7373150000003f"
         "368fc084",
         42},
    };
    kvf__event_file file = {0};
    kvf__mapfile map = {0};
    const kvf__event_scalar loss = {"loss", 0.5};
    ck_assert_int_eq(kvf__event_file_open(ctx, dir, 1700000000.0, 0, &file), KVF_OK);
    ck_assert_int_eq(kvf__event_file_scalars(ctx, &file, 1700000001.0, 7, &loss, 1), KVF_OK);
    kvf__event_file_close(&file);
    open_only_file(&map);
    const uint8_t *at[] = {map.data, map.data + map.n - WANT[1].n};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < WANT[i].n; k++) {
            char hex[3];
            snprintf(hex, sizeof hex, "%02x", at[i][k]);
            ck_assert_msg(!strncmp(hex, WANT[i].hex + 2 * k, 2), "record %zu, byte %zu: %s", i, k,
                          hex);
        }
    kvf__mapfile_close(&map);
}
END_TEST

START_TEST(core_records)
{
    kvf__event_file file = {0};
    kvf__mapfile map = {0};
    kvf__reader reader;
    const uint8_t *message;
    size_t n, records = 0, sizes[8] = {0};
    char text[1000];
    const kvf__event_scalar scalars[] = {{"a", NAN}, {"a/long/tag", 1e300}, {"c", -1}};

    memset(text, 'x', sizeof text - 1); /* longer than one byte of a varint can hold */
    text[sizeof text - 1] = 0;
    ck_assert_int_eq(kvf__event_file_open(ctx, dir, 1700000000.0, 301, &file), KVF_OK);
    ck_assert_int_eq(kvf__event_file_text(ctx, &file, 1700000000.0, 0, "options", text), KVF_OK);
    ck_assert_int_eq(
        kvf__event_file_scalars(ctx, &file, 1700000001.0, INT64_C(1) << 40, scalars, 3), KVF_OK);
    kvf__event_file_close(&file);
    kvf__event_file_close(&file); /* nothing is fine */
    open_only_file(&map);
    reader = (kvf__reader){.data = map.data, .n = map.n};
    for (; (message = next_message(&reader, &n)) != NULL; records++) {
        ck_assert_uint_eq(message[0], 0x09); /* wall time first */
        sizes[records] = n;
        if (records == 1) /* session log: START at step 301 */
            ck_assert(!memcmp(message + 9, "\x10\xAD\x02\x3A\x02\x08\x01", 7));
    }
    ck_assert_uint_eq(records, 4);
    ck_assert_uint_eq(sizes[1], 9 + 7);
    /* wall, step 2^40 in 6 bytes and its key, summary of 3 values: tag and f32 each */
    ck_assert_uint_eq(sizes[3], 9 + 7 + 2 + (2 + 8) + (2 + 17) + (2 + 8));
    kvf__mapfile_close(&map);
}
END_TEST

/* Readers sort files by name: a clock that stops or goes back must not change their order. */
START_TEST(core_names_sort)
{
    static const double WALL[] = {1700000000, 1700000000, 1600000000, 1700000009};
    char last[300] = "";
    for (size_t i = 0; i < 4; i++) {
        kvf__event_file file = {0};
        ck_assert_int_eq(kvf__event_file_open(ctx, dir, WALL[i], 0, &file), KVF_OK);
        const char *name = strrchr(file.file.path, '/') + 1;
        ck_assert_msg(strcmp(name, last) > 0, "%s after %s", name, last);
        snprintf(last, sizeof last, "%s", name);
        kvf__event_file_close(&file);
    }
    ck_assert_ptr_nonnull(strstr(last, ".1700000009."));
}
END_TEST

START_TEST(errors)
{
    kvf__event_file file = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/no/folder", dir);
    ck_assert_int_eq(kvf__event_file_open(ctx, path, 1, 0, &file), KVF_EIO);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "no/folder: cannot create the folder"));
    ck_assert_ptr_null(file.file.path);
    FILE *plain = fopen(dir, "w");
    ck_assert_ptr_nonnull(plain);
    fclose(plain);
    ck_assert_int_eq(kvf__event_file_open(ctx, dir, 1, 0, &file), KVF_EIO);
    for (int64_t fail = 0;; fail++) { /* each allocation fails in turn */
        char fresh[400];
        snprintf(fresh, sizeof fresh, "%s_%d", dir, (int)fail);
        kvf__ctx_fail_allocation(ctx, fail);
        kvf_status st = kvf__event_file_open(ctx, fresh, 1, 0, &file);
        if (!st) st = kvf__event_file_text(ctx, &file, 1, 0, "tag", "text");
        kvf__ctx_fail_allocation(ctx, -1);
        kvf__event_file_close(&file);
        if (!st) break;
        ck_assert_int_eq(st, KVF_ENOMEM);
        ck_assert_int_lt(fail, 100);
    }
}
END_TEST

/* ---- append-only files ----------------------------------------------------------------------- */

static void expect_text(const char *path, const char *want)
{
    kvf__buf text = {0};
    ck_assert_int_eq(kvf__read_file(ctx, path, 1000, &text), KVF_OK);
    ck_assert_str_eq(text.data ? text.data : "", want);
    kvf__buf_done(&text);
}

static void append(const char *path, kvf__append how, const char *text)
{
    kvf__appendfile file = {0};
    ck_assert_msg(!kvf__appendfile_open(ctx, path, how, &file), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf__appendfile_add(ctx, &file, text, strlen(text)), KVF_OK);
    kvf__appendfile_close(&file);
}

START_TEST(core_append)
{
    char path[400];
    kvf__appendfile file = {0};
    snprintf(path, sizeof path, "%s/log", ck_tmpdir());
    append(path, KVF__APPEND_NEW, "one\ntwo\n");
    append(path, KVF__APPEND_LINES, "thr"); /* torn */
    append(path, KVF__APPEND_LINES, "four\n");
    expect_text(path, "one\ntwo\nfour\n");
    ck_assert_int_eq(kvf__appendfile_open(ctx, path, KVF__APPEND_NEW, &file), KVF_EEXIST);
    append(path, KVF__APPEND_REPLACE, "torn from the start");
    append(path, KVF__APPEND_LINES, "new\n");
    expect_text(path, "new\n");
    ck_assert_int_eq(kvf__appendfile_open(ctx, "/dev/full", KVF__APPEND_LINES, &file), KVF_OK);
    ck_assert_int_eq(kvf__appendfile_add(ctx, &file, "x", 1), KVF_EIO);
    kvf__appendfile_close(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("event_file");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, golden_vectors);
    tcase_add_test(core, core_records);
    tcase_add_test(core, core_names_sort);
    tcase_add_test(core, core_append);
    tcase_add_test(core, errors);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
