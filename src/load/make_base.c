/* What goes along with the weights of a base file, as texts: config and tokenizer of a folder, of a
 * base file, or made of a GGUF's metadata. And base files of random numbers (new-base). */
#include "load_int.h"
#include "rng.h"

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

/* The end ids of generation_config.json, if there is one that has some, in place of the config's.
 */
static kvf_status take_ends(kvf_ctx *ctx, const char *where, const char *path, kvf__base_file *file)
{
    kvf_json *generation = NULL, *config = NULL, *list = kvf_json_array();
    kvf__desc desc = {0};
    char *text = NULL;
    kvf_status st = kvf__exists(path) ? kvf_json_load(ctx, path, &generation) : KVF_OK;

    if (!st) st = kvf__desc_set_ends(ctx, path, generation, &desc);
    if (st || !desc.ends.n) goto out;
    st = kvf_json_parse(ctx, where, file->config, strlen(file->config), &config);
    if (st) goto out;
    for (int i = 0; i < desc.ends.n; i++)
        kvf_json_add(list, kvf_json_new_int(desc.ends.id[i]));
    kvf_json_set(config, "eos_token_id", list);
    list = NULL;
    text = kvf_json_text(config, KVF_JSON_INDENT);
    kvf__free(file->config);
    file->config = NULL;
    st = text ? kvf__strdup(ctx, text, &file->config) : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
out:
    kvf_json_text_free(text);
    kvf_json_free(list);
    kvf_json_free(generation);
    kvf_json_free(config);
    return st;
}

static kvf_status read_dir(kvf_ctx *ctx, const char *dir, kvf__base_file *file)
{
    char *path = NULL, *generation = NULL;
    kvf_status st = kvf__path_join(ctx, dir, "config.json", &path);

    if (!st) st = kvf__path_join(ctx, dir, "generation_config.json", &generation);
    if (!st) st = read_config(ctx, path, file);
    if (!st) st = take_ends(ctx, path, generation, file);
    kvf__free(path);
    kvf__free(generation);
    return st ? st : add_tokenizer_dir(ctx, dir, file);
}

static kvf_status read_gguf(kvf_ctx *ctx, const char *path, kvf__base_file *file)
{
    static const char NAME[] = "tokenizer.gguf.json";
    kvf__weights weights = {0};
    kvf__desc desc = {0};
    char *text = NULL;
    kvf_status st;

    st = kvf__gguf_open(ctx, path, &weights);
    if (st) goto out;
    st = kvf__desc_from_gguf(ctx, path, weights.meta, &weights.table, &desc);
    if (st) goto out;
    st = kvf__desc_to_hf(ctx, path, &desc, &file->config);
    if (st) goto out;
    st = kvf__gguf_vocab_text(ctx, path, &weights, &text);
    if (st) goto out;
    st = kvf__base_text_add(ctx, file, NAME, text, strlen(text));
out:
    kvf__free(text);
    kvf__desc_done(&desc);
    kvf__weights_close(&weights);
    return st;
}

kvf_status kvf__base_texts(kvf_ctx *ctx, const char *path, kvf__base_file *out)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    kvf__base_file file = {0};

    KVF_TRY(kvf__file_kind_of(ctx, path, &kind));
    if (kind == KVF__FILE_HDF5) return kvf__base_file_open(ctx, path, NULL, out);
    if (kind != KVF__FILE_HF_DIR && kind != KVF__FILE_GGUF)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: not a base: want a Hugging Face folder, a GGUF or a kvfold base file",
                         path);
    kvf_status st = kind == KVF__FILE_GGUF ? read_gguf(ctx, path, &file)
                                           : read_dir(ctx, path, &file);
    if (st) {
        kvf__base_file_done(&file);
        return st;
    }
    *out = file;
    return KVF_OK;
}

/* ---- random weights -------------------------------------------------------------------------- */

typedef struct growing {
    kvf_ctx *ctx;
    double deviation;
    uint64_t seed;
    kvf__tensor *tensors;
    size_t n, capacity;
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

    st = kvf_check_not_input(ctx, options->out, options->config);
    if (st) goto out;
    st = kvf_check_not_input(ctx, options->out, options->tokenizer);
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
