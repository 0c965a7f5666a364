/* Shared fixture of the tests of kvfold's own files: small prefix and run files, and files as
 * bytes. */
#ifndef H5_FIXTURE_H
#define H5_FIXTURE_H

#include "artifact.h"
#include "ck.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* HDF5 1.10 leaks memory on damaged files and full disks. Read by the leak checker only. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

static kvf_ctx *ctx;
static const char *dir; /* a fresh folder for each test */

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    dir = ck_tmpdir();
}

/* Removes the folder and remaining files of tests, one level of folders deep. */
static void remove_tree(const char *path, int depth)
{
    DIR *stream = opendir(path);
    struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        char *inner = NULL;
        ck_assert_int_gt(asprintf(&inner, "%s/%s", path, entry->d_name), 0);
        if (unlink(inner) != 0 && depth > 0) remove_tree(inner, depth - 1);
        free(inner);
    }
    if (stream) closedir(stream);
    rmdir(path);
}

static void teardown(void)
{
    remove_tree(dir, 2);
    kvf_ctx_free(ctx);
}

/* A path in the test's folder; the last 64 paths stay valid. */
static inline const char *in_dir(const char *name)
{
    static char paths[64][512];
    static size_t next;
    char *path = paths[next++ % 64];

    ck_assert_int_lt(snprintf(path, sizeof paths[0], "%s/%s", dir, name), (int)sizeof paths[0]);
    return path;
}

static inline int files_in_dir(void)
{
    DIR *stream = opendir(dir);
    int n = 0;
    while (readdir(stream))
        n++;
    closedir(stream);
    return n - 2; /* . and .. */
}

/* ck_assert with the error line of the context. */
#define ck_ok(call)                                                                                \
    do {                                                                                           \
        kvf_status ok_status_ = (call);                                                            \
        ck_assert_msg(ok_status_ == KVF_OK, "%s: %s", kvf_status_name(ok_status_),                 \
                      kvf_ctx_error(ctx));                                                         \
    } while (0)

/* Expects this status, and `text` in the error line. */
#define ck_fails(call, status, text)                                                               \
    do {                                                                                           \
        kvf_status fails_status_ = (call);                                                         \
        ck_assert_msg(fails_status_ == (status), "got %s: %s", kvf_status_name(fails_status_),     \
                      kvf_ctx_error(ctx));                                                         \
        ck_assert_msg(strstr(kvf_ctx_error(ctx), text) != NULL, "\"%s\" is not in: %s", text,      \
                      kvf_ctx_error(ctx));                                                         \
    } while (0)

/* ---- files as bytes -------------------------------------------------------------------------- */

static inline uint8_t *read_bytes(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    fseek(file, 0, SEEK_END);
    *n = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*n + 1);
    ck_assert_uint_eq(fread(bytes, 1, *n, file), *n);
    fclose(file);
    return bytes;
}

static inline void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "cannot write %s", path);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

static inline void ck_same_bytes(const char *a, const char *b)
{
    size_t n_a, n_b;
    uint8_t *x = read_bytes(a, &n_a), *y = read_bytes(b, &n_b);
    ck_assert_uint_eq(n_a, n_b);
    ck_assert_int_eq(memcmp(x, y, n_a), 0);
    free(x);
    free(y);
}

enum { SEAL_BYTES = 50 };

/* ---- contents -------------------------------------------------------------------------------- */

static inline kvf_json *json(const char *text)
{
    kvf_json *value = NULL;
    ck_ok(kvf_json_parse(ctx, "test", text, strlen(text), &value));
    return value;
}

#define ck_json_eq(got, want)                                                                      \
    do {                                                                                           \
        char *got_ = kvf_json_text(got, KVF_JSON_COMPACT);                                         \
        ck_assert_pstr_eq(got_, want);                                                             \
        kvf_json_text_free(got_);                                                                  \
    } while (0)

static const kvf__identity IDENTITY = {.base_name = (char *)"Sm\xc3\xb6lLM2",
                                       .base_architecture = (char *)"llama",
                                       .base_hash = (char *)"0123456789abcdef0123456789abcdef",
                                       .method = (char *)"mlp",
                                       .task = (char *)"lm",
                                       .chat_template = (char *)"none",
                                       .position_start = 5,
                                       .L = 3,
                                       .G = 2,
                                       .P = 5,
                                       .D = 4};

#define OPTIONS                                                                                    \
    "{\"zeta\":1,\"lr\":0.01,\"steps\":-100,\"method\":\"mlp\",\"shuffle\":true,"                  \
    "\"clip\":null,\"empty\":\"\",\"big\":9007199254740993,\"text\":\"a \\u00e9 b\"}"

/* Layer 1 is masked. Values are exact in f32, f16 and bf16. */
static inline void make_prefix_file(kvf__artifact *file, kvf__dtype dtype)
{
    *file = (kvf__artifact){.kind = KVF__KIND_PREFIX, .dtype = dtype};
    ck_ok(kvf__identity_copy(ctx, &IDENTITY, &file->id));
    ck_ok(kvf__prefix_init(ctx, &file->prefix, 3, 2, 5, 4));
    size_t per_layer = kvf__prefix_count(&file->prefix) / 3;
    for (size_t i = 0; i < 3 * per_layer; i++)
        file->prefix.kv[i] = i / per_layer == 1 ? 0.0f : (float)i / 32.0f - 1.0f;
    file->prefix.layer_mask[1] = 0;
    file->options = json(OPTIONS);
    file->lineage = json("{\"data_hash\":\"00ff\",\"fold_max_abs_diff\":0.0}");
}

static inline void add_param(kvf__params_owned *params, const char *name, int64_t rows,
                             int64_t columns, float start)
{
    const int64_t dim[2] = {rows, columns};
    kvf__param *p = NULL;

    ck_ok(kvf__params_owned_add(ctx, params, name, columns ? 2 : 1, dim, &p));
    for (int64_t i = 0; i < p->n; i++)
        p->value[i] = start + (float)(i % 1000) / 64.0f;
}

/* One parameter is large enough to be chunked; names are not in order. */
static inline void make_params(kvf__params_owned *params, float start)
{
    *params = (kvf__params_owned){0};
    add_param(params, "transform.0.weight", 90, 200, start);
    add_param(params, "transform.0.bias", 90, 0, start + 1);
    add_param(params, "embedding.weight", 5, 8, start + 2);
}

static inline void make_history(kvf__history *history, int64_t n)
{
    double **const reals[] = {&history->train_loss, &history->valid_loss,  &history->lr,
                              &history->grad_norm,  &history->prefix_norm, &history->valid_metric};

    *history = (kvf__history){.n = n};
    ck_ok(kvf__alloc_array(ctx, (size_t)n, 8, &history->step));
    ck_ok(kvf__alloc_array(ctx, (size_t)n, 8, &history->tokens));
    for (int r = 0; r < 6; r++)
        ck_ok(kvf__alloc_array(ctx, (size_t)n, 8, reals[r]));
    for (int64_t i = 0; i < n; i++) {
        history->step[i] = i + 1;
        history->tokens[i] = 100 * (i + 1);
        for (int r = 0; r < 6; r++)
            (*reals[r])[i] = 4.0 - 0.25 * (double)i + r;
        history->valid_loss[i] = i == 1 ? 2.5 : NAN;
        history->valid_metric[i] = i == 1 ? 0.5 : NAN;
    }
}

/* trained: with best, moments and history; otherwise as an import makes it. */
static inline void make_run_file(kvf__artifact *file, bool trained)
{
    *file = (kvf__artifact){.kind = KVF__KIND_RUN};
    ck_ok(kvf__identity_copy(ctx, &IDENTITY, &file->id));
    ck_ok(kvf__alloc(ctx, 3, &file->layer_mask));
    memset(file->layer_mask, 1, 3);
    make_params(&file->values, 0.5f);
    make_history(&file->history, trained ? 4 : 0);
    file->state = json("{\"step\":4,\"rng_counter\":-1,\"loss_sum\":0.1}");
    file->options = json(OPTIONS);
    file->lineage = json("{}");
    if (!trained) return;
    make_params(&file->best, 1.5f);
    make_params(&file->m, 2.5f);
    make_params(&file->v, 3.5f);
    file->best_step = 2;
    file->best_value = 2.5;
    ck_ok(kvf__strdup(ctx, "valid_loss", &file->best_metric));
}

static inline void ck_same_params(const kvf__params *got, const kvf__params *want)
{
    ck_assert_uint_eq(got->n, want->n);
    for (size_t i = 0; i < got->n; i++) {
        const kvf__param *g = &got->item[i], *w = &want->item[i];
        ck_assert_str_eq(g->name, w->name);
        ck_assert_int_eq(g->rank, w->rank);
        ck_assert_int_eq(memcmp(g->dim, w->dim, sizeof g->dim), 0);
        ck_assert_int_eq(g->n, w->n);
        ck_assert_int_eq(memcmp(g->value, w->value, (size_t)w->n * sizeof(float)), 0);
    }
}

#endif
