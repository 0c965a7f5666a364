/* Makes base files with random weights (new-base): every weight of a config, drawn as in
 * transformers, with the texts of a tokenizer. */
#include "open_base.h"
#include "rng.h"

#include <string.h>

enum { CHUNK = 65536 };

typedef struct growing {
    kvf_ctx *ctx;
    double deviation;
    uint64_t seed;
    kvf__tensor *tensors;
    size_t n;
} growing;

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), t = strlen(tail);
    return n >= t && !strcmp(text + n - t, tail);
}

/* Fills a tensor with one random stream per chunk, so that the numbers do not depend on the number
 * of threads. */
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

/* Vectors that are not biases belong to norms, or are scales. */
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
    for (int64_t i = 0; rank == 1 && !ends_with(name, "bias") && i < n; i++)
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
static kvf_status read_tokenizer(kvf_ctx *ctx, const char *path, int64_t V, kvf__base_file *file)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    kvf__tokenizer *tokenizer = NULL;
    bool is_dir = kvf__is_dir(path);

    if (!is_dir) KVF_TRY(kvf__file_kind_of(ctx, path, &kind)); /* also reports an unreadable file */
    KVF_TRY(is_dir ? kvf__base_tokenizer_dir(ctx, path, file)
                   : kvf__base_text_read(ctx, path, "tokenizer.json", file));
    KVF_TRY(kvf__base_tokenizer(ctx, path, file, &tokenizer));
    int64_t size = kvf__vocab_size(tokenizer);
    kvf__tokenizer_free(tokenizer);
    if (size <= V) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE, "%s: the tokenizer has %lld tokens, but vocab_size is %lld",
                     path, (long long)size, (long long)V);
}

static kvf_status make(kvf_ctx *ctx, const kvf_new_base_options *options, growing *g,
                       kvf__base_file *file, kvf__desc *desc)
{
    KVF_TRY(KVF__NOT_INPUTS(ctx, options->out, options->config, options->tokenizer));
    KVF_TRY(kvf__base_config_read(ctx, options->config, file));
    KVF_TRY(kvf__base_desc(ctx, options->config, file, desc));
    KVF_TRY(read_tokenizer(ctx, options->tokenizer, desc->V, file));
    g->deviation = desc->initializer_range > 0 ? desc->initializer_range : 0.02;
    KVF_TRY(kvf__desc_weights(desc, grow, g));
    file->tensors = g->tensors;
    file->n = g->n;
    return kvf__base_file_write(ctx, options->out, options->force, file);
}

static kvf_status new_base(kvf_ctx *ctx, const kvf_new_base_options *options,
                           kvf_new_base_result *result)
{
    growing g = {.ctx = ctx, .seed = options->seed};
    kvf__base_file file = {0};
    kvf__desc desc = {0};

    kvf_status st = make(ctx, options, &g, &file, &desc);
    if (!st) *result = (kvf_new_base_result){.architecture = desc.arch_name};
    for (size_t i = 0; i < g.n && !st; i++)
        result->parameters += kvf__view_count(&g.tensors[i].view);
    growing_done(&g);
    kvf__desc_done(&desc);
    kvf__base_file_done(&file);
    return st;
}

kvf_status kvf_new_base(kvf_ctx *ctx, const kvf_new_base_options *options,
                        kvf_new_base_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options, result));
    KVF_TRY(KVF__NEED(ctx, options->config, options->tokenizer, options->out));
    KVF__RETURN(ctx, new_base(ctx, options, result));
}
