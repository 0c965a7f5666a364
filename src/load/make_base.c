/* Base files made: from a Hugging Face folder (import), from random numbers (new-base), and from
 * the weights that a run trained (merge). Config and tokenizer go along as texts. */
#include "load_int.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 28, CHUNK = 65536 };

/* ---- texts ----------------------------------------------------------------------------------- */

static kvf_status add_file(kvf_ctx *ctx, const char *path, const char *name, kvf__base_file *file)
{
    kvf__buf text = {0};
    kvf_status st = kvf__read_file(ctx, path, MAX_TEXT_BYTES, &text);

    if (!st) st = kvf__base_text_add(ctx, file, name, text.data, text.n);
    if (st) st = kvf__fail_prefix(ctx, st, "%s", path);
    kvf__buf_done(&text);
    return st;
}

static kvf_status read_config(kvf_ctx *ctx, const char *path, kvf__base_file *file)
{
    kvf__buf text = {0};
    kvf_status st = kvf__read_file(ctx, path, MAX_TEXT_BYTES, &text);

    if (!st && memchr(text.data, 0, text.n))
        st = kvf__fail(ctx, KVF_EFORMAT, "%s: holds a zero byte, want JSON", path);
    if (!st) st = kvf__strndup(ctx, text.data, text.n, &file->config);
    kvf__buf_done(&text);
    return st;
}

/* Those of a tokenizer's files that a folder has. */
static kvf_status add_tokenizer_dir(kvf_ctx *ctx, const char *dir, kvf__base_file *file)
{
    for (size_t i = 0; kvf__tokenizer_file(i); i++) {
        char *path = NULL;
        KVF_TRY(kvf__path_join(ctx, dir, kvf__tokenizer_file(i), &path));
        kvf_status st = kvf__exists(path) ? add_file(ctx, path, kvf__tokenizer_file(i), file)
                                          : KVF_OK;
        kvf__free(path);
        if (st) return st;
    }
    return KVF_OK;
}

static kvf_status read_dir(kvf_ctx *ctx, const char *dir, kvf__base_file *file)
{
    char *path = NULL;

    KVF_TRY(kvf__path_join(ctx, dir, "config.json", &path));
    kvf_status st = read_config(ctx, path, file);
    kvf__free(path);
    return st ? st : add_tokenizer_dir(ctx, dir, file);
}

kvf_status kvf__base_texts(kvf_ctx *ctx, const char *path, kvf__base_file *out)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    kvf__base_file file = {0};

    KVF_TRY(kvf__file_kind_of(ctx, path, &kind));
    if (kind == KVF__FILE_HDF5) return kvf__base_file_open(ctx, path, NULL, out);
    if (kind != KVF__FILE_HF_DIR)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: has no config.json to go along: want a Hugging Face folder or a "
                         "kvfold base file",
                         path);
    kvf_status st = read_dir(ctx, path, &file);
    if (st) {
        kvf__base_file_done(&file);
        return st;
    }
    *out = file;
    return KVF_OK;
}

/* ---- import ---------------------------------------------------------------------------------- */

/* All tensors of types that HDF5 takes: also those that no base of ours reads, such as a masked
 * model's head. */
static kvf_status choose_tensors(kvf_ctx *ctx, const kvf__table *table, kvf__tensor **out,
                                 size_t *n)
{
    kvf__tensor *tensors = NULL;

    KVF_TRY(kvf__alloc_array(ctx, table->n, sizeof *tensors, &tensors));
    *n = 0;
    for (size_t i = 0; i < table->n; i++)
        if (kvf__base_file_takes(&table->items[i].view)) tensors[(*n)++] = table->items[i];
    *out = tensors;
    return KVF_OK;
}

/* A folder that could not be opened as a base must not become one. */
static kvf_status check_dir(kvf_ctx *ctx, const char *dir, const kvf__base_file *file,
                            const kvf__table *table)
{
    kvf_json *config = NULL;
    kvf__desc desc = {0};
    kvf__slots slots = {0};
    kvf_status st;

    st = kvf_json_parse(ctx, dir, file->config, strlen(file->config), &config);
    if (st) goto out;
    st = kvf__desc_from_hf(ctx, dir, config, &desc);
    if (st) goto out;
    st = kvf__bind(ctx, dir, &desc, table, &slots);
out:
    kvf__slots_done(&slots);
    kvf__desc_done(&desc);
    kvf_json_free(config);
    return st;
}

kvf_status kvf__base_import(kvf_ctx *ctx, const char *dir, const char *out, bool force)
{
    kvf__base_file file = {0};
    kvf__weights weights = {0};
    kvf__tokenizer *tokenizer = NULL;
    kvf__tensor *tensors = NULL;
    kvf_status st;

    st = kvf__base_texts(ctx, dir, &file);
    if (st) goto out;
    st = kvf__tokenizer_from_dir(ctx, dir, &tokenizer);
    if (st) goto out;
    st = kvf__safetensors_open_dir(ctx, dir, &weights);
    if (st) goto out;
    st = check_dir(ctx, dir, &file, &weights.table);
    if (st) goto out;
    st = choose_tensors(ctx, &weights.table, &tensors, &file.n);
    if (st) goto out;
    file.tensors = tensors;
    st = kvf__base_file_write(ctx, out, force, &file);
out:
    kvf__free(tensors);
    kvf__tokenizer_free(tokenizer);
    kvf__weights_close(&weights);
    kvf__base_file_done(&file);
    return st;
}

/* ---- trained weights ------------------------------------------------------------------------- */

static kvf__view value_view(const kvf__param *param)
{
    kvf__view view = {.data = param->value, .dtype = KVF__F32, .rank = param->rank};
    memcpy(view.dim, param->dim, (size_t)param->rank * sizeof *param->dim);
    return view;
}

/* Weights that the model has, by the names of their slots: copies of tied ones would be stale. */
kvf_status kvf__base_from_values(kvf_ctx *ctx, const kvf_base *base, const kvf__params *values,
                                 const char *out, bool force)
{
    kvf__base_file file = {0};
    kvf__tensor *tensors = NULL;
    size_t used = 0;
    kvf_status st;

    st = kvf__base_texts(ctx, base->path, &file);
    if (st) goto out;
    st = kvf__alloc_array(ctx, base->slots.n, sizeof *tensors, &tensors);
    if (st) goto out;
    for (size_t i = 0; i < base->slots.n; i++) {
        kvf__slot *slot = &base->slots.items[i];
        tensors[i] = (kvf__tensor){.name = slot->name, .view = slot->view};
        for (size_t j = 0; j < values->n; j++)
            if (!strcmp(values->item[j].name, slot->name)) {
                tensors[i].view = value_view(&values->item[j]);
                used++;
            }
    }
    if (used != values->n) {
        st = kvf__fail(ctx, KVF_EMISMATCH, "%s: has %zu of the %zu weights that were trained",
                       base->path, used, values->n);
        goto out;
    }
    file.tensors = tensors;
    file.n = base->slots.n;
    st = kvf__base_file_write(ctx, out, force, &file);
out:
    kvf__free(tensors);
    kvf__base_file_done(&file);
    return st;
}

/* ---- random weights -------------------------------------------------------------------------- */

typedef struct growing {
    kvf_ctx *ctx;
    double deviation;
    uint64_t seed;
    kvf__tensor *tensors;
    size_t n, room;
} growing;

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), t = strlen(tail);
    return n >= t && !strcmp(text + n - t, tail);
}

/* The same numbers for any number of threads: a stream for each chunk of each tensor. */
static void fill_normal(float *values, int64_t n, double deviation, uint64_t seed, uint64_t tensor)
{
    int64_t chunks = (n + CHUNK - 1) / CHUNK;

#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < chunks; c++) {
        kvf__rng rng = kvf__rng_make(seed, tensor << 32 | (uint64_t)c);
        int64_t end = (c + 1) * CHUNK < n ? (c + 1) * CHUNK : n;
        for (int64_t i = c * CHUNK; i < end; i++)
            values[i] = (float)(deviation * kvf__rng_normal(&rng));
    }
}

/* Vectors that are called weight belong to norms. */
static kvf_status grow(void *user, const char *name, int rank, const int64_t *dim)
{
    growing *g = user;
    kvf__tensor tensor = {.view = {.dtype = KVF__F32, .rank = rank}};
    float *values = NULL;

    memcpy(tensor.view.dim, dim, (size_t)rank * sizeof *dim);
    int64_t n = kvf__view_count(&tensor.view);
    KVF_TRY(kvf__grow(g->ctx, &g->tensors, g->n * sizeof tensor, (g->n + 1) * sizeof tensor));
    KVF_TRY(kvf__alloc_array(g->ctx, (size_t)n, sizeof *values, &values));
    tensor.view.data = values;
    g->tensors[g->n++] = tensor;
    KVF_TRY(kvf__strdup(g->ctx, name, &g->tensors[g->n - 1].name));
    for (int64_t i = 0; rank == 1 && ends_with(name, ".weight") && i < n; i++)
        values[i] = 1;
    if (rank > 1) fill_normal(values, n, g->deviation, g->seed, g->n);
    return KVF_OK;
}

static void growing_done(growing *g)
{
    for (size_t i = 0; i < g->n; i++) {
        kvf__free((void *)g->tensors[i].view.data);
        kvf__free(g->tensors[i].name);
    }
    kvf__free(g->tensors);
}

/* tokenizer: tokenizer.json, or a folder. */
static kvf_status take_tokenizer(kvf_ctx *ctx, const char *path, int64_t V, kvf__base_file *file)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    kvf__tokenizer *tokenizer = NULL;
    bool is_dir = kvf__is_dir(path);

    if (!is_dir) KVF_TRY(kvf__file_kind_of(ctx, path, &kind)); /* says what cannot be read */
    KVF_TRY(is_dir ? add_tokenizer_dir(ctx, path, file)
                   : add_file(ctx, path, "tokenizer.json", file));
    KVF_TRY(kvf__base_tokenizer(ctx, path, file, &tokenizer));
    int64_t size = kvf__vocab_size(tokenizer);
    kvf__tokenizer_free(tokenizer);
    if (size <= V) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE, "%s: the tokenizer has %lld tokens, vocab_size is %lld", path,
                     (long long)size, (long long)V);
}

kvf_status kvf_new_base(kvf_ctx *ctx, const kvf_new_base_options *options,
                        kvf_new_base_result *result)
{
    growing g = {.ctx = ctx, .seed = options->seed};
    kvf__base_file file = {0};
    kvf_json *config = NULL;
    kvf__desc desc = {0};
    int64_t parameters = 0;
    kvf_status st;

    st = kvf__check_not_input(ctx, options->out, options->config);
    if (st) goto out;
    st = kvf__check_not_input(ctx, options->out, options->tokenizer);
    if (st) goto out;
    st = read_config(ctx, options->config, &file);
    if (st) goto out;
    st = kvf_json_parse(ctx, options->config, file.config, strlen(file.config), &config);
    if (st) goto out;
    st = kvf__desc_from_hf(ctx, options->config, config, &desc);
    if (st) goto out;
    st = take_tokenizer(ctx, options->tokenizer, desc.V, &file);
    if (st) goto out;
    g.deviation = desc.initializer_range > 0 ? desc.initializer_range : 0.02;
    st = kvf__desc_weights(&desc, grow, &g);
    if (st) goto out;
    file.tensors = g.tensors;
    file.n = g.n;
    st = kvf__base_file_write(ctx, options->out, options->force, &file);
    if (st) goto out;
    for (size_t i = 0; i < g.n; i++)
        parameters += kvf__view_count(&g.tensors[i].view);
    *result = (kvf_new_base_result){.architecture = desc.arch_name, .parameters = parameters};
out:
    growing_done(&g);
    kvf__desc_done(&desc);
    kvf_json_free(config);
    kvf__base_file_done(&file);
    return st;
}
