/* A base of random numbers in the exact shape of a known model, for benchmarks: time and memory of
 * a step depend on shapes alone. It follows the path of a base from a file: config, description,
 * table of weights, bind, pack.
 *
 * All weights view the same pool at different offsets. A pool as large as the largest tensor
 * replaces half a gigabyte for GPT-2, and packing copies every layer's weights anyway. Numbers are
 * uniform with the variance of N(0, 0.02); norms have weight 1. */
#include "open_base.h"
#include "rng.h"

#include <stdlib.h>
#include <string.h>

#define BOUND   0.034641016f /* 0.02 * sqrt(3) */
#define OFFSET  4099 /* elements between the views of two weights: odd, and longer than a row */
#define OFFSETS 64   /* number of different offsets */
#define CHUNK   65536

static const struct {
    const char *name, *config;
} SHAPES[] = {
    {"gpt2", "{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_positions\":1024,\"n_embd\":768,"
             "\"n_layer\":12,\"n_head\":12,\"activation_function\":\"gelu_new\","
             "\"layer_norm_epsilon\":1e-5}"},
    {"smollm2-135m",
     "{\"model_type\":\"llama\",\"vocab_size\":49152,\"hidden_size\":576,"
     "\"intermediate_size\":1536,\"num_hidden_layers\":30,\"num_attention_heads\":9,"
     "\"num_key_value_heads\":3,\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,"
     "\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,\"rope_theta\":100000.0}"},
    {"tiny", "{\"model_type\":\"llama\",\"vocab_size\":1009,\"hidden_size\":64,"
             "\"intermediate_size\":160,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
             "\"num_key_value_heads\":2,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5,"
             "\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,\"rope_theta\":10000.0}"},
};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0] };

const char *kvf__base_shape(size_t index)
{
    return index < N_SHAPES ? SHAPES[index].name : NULL;
}

static kvf_status load_config(kvf_ctx *ctx, const char *name, kvf_json **out)
{
    for (size_t i = 0; i < N_SHAPES; i++)
        if (!strcmp(SHAPES[i].name, name))
            return kvf_json_parse(ctx, name, SHAPES[i].config, strlen(SHAPES[i].config), out);
    if (kvf__exists(name)) return kvf_json_load(ctx, name, out);
    return kvf__fail(ctx, KVF_EUSAGE,
                     "shape \"%s\" is neither known nor a file; known: gpt2, smollm2-135m, tiny",
                     name);
}

kvf_status kvf__base_shape_desc(kvf_ctx *ctx, const char *name, kvf__desc *out)
{
    kvf_json *config = NULL;
    KVF_TRY(load_config(ctx, name, &config));
    kvf_status st = kvf__desc_from_hf(ctx, name, config, out);
    kvf_json_free(config);
    return st;
}

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct filling {
    kvf_ctx *ctx;
    kvf_base *base;
    size_t largest; /* elements */
    size_t ones;    /* number of ones at the start of the pool */
    size_t n;       /* number of weights so far */
} filling;

static size_t count(int rank, const int64_t *dim)
{
    size_t n = 1; /* bounded by the checks of a description */
    for (int i = 0; i < rank; i++)
        n *= (size_t)dim[i];
    return n;
}

static bool is_norm(const char *name, int rank)
{
    return rank == 1 && strlen(name) > 7 && !strcmp(name + strlen(name) - 7, ".weight");
}

static kvf_status measure(void *user, const char *name, int rank, const int64_t *dim)
{
    filling *f = user;
    size_t n = count(rank, dim);
    if (n > f->largest) f->largest = n;
    if (is_norm(name, rank) && n > f->ones) f->ones = n;
    return KVF_OK;
}

static kvf_status add(void *user, const char *name, int rank, const int64_t *dim)
{
    filling *f = user;
    size_t offset = f->ones + f->n++ % OFFSETS * OFFSET;
    kvf__view view = {.dtype = KVF__F32, .rank = rank};
    view.data = (const float *)(const void *)f->base->weights.maps[0].data +
                (is_norm(name, rank) ? 0 : offset);
    memcpy(view.dim, dim, (size_t)rank * sizeof *dim);
    return kvf__table_add(f->ctx, &f->base->weights.table, name, view);
}

/* Fills the pool with the same numbers for any number of threads: a stream for each chunk. */
static void fill_pool(float *pool, size_t n, uint64_t seed)
{
    int64_t chunks = (int64_t)((n + CHUNK - 1) / CHUNK);
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < chunks; c++) {
        kvf__rng rng = kvf__rng_make(seed, (uint64_t)c);
        size_t from = (size_t)c * CHUNK, to = from + CHUNK < n ? from + CHUNK : n;
        for (size_t i = from; i < to; i++)
            pool[i] = BOUND * (float)(2 * kvf__rng_uniform(&rng) - 1);
    }
}

/* Maps the pool like the file of a base, so unread parts take no memory. */
static kvf_status map_pool(kvf_ctx *ctx, size_t ones, size_t n, uint64_t seed,
                           kvf__weights *weights)
{
    float *pool = NULL;

    KVF_TRY(kvf__alloc(ctx, sizeof *weights->maps, &weights->maps));
    KVF_TRY(kvf__alloc_array(ctx, ones + n, sizeof *pool, &pool));
    for (size_t i = 0; i < ones; i++)
        pool[i] = 1;
    fill_pool(pool + ones, n, seed);
    kvf_status st = kvf__mapfile_make(ctx, pool, (ones + n) * sizeof *pool, weights->maps);
    if (!st) weights->n_maps = 1;
    kvf__free(pool);
    return st;
}

static kvf_status fill_table(kvf_ctx *ctx, kvf_base *base, const kvf__desc *desc, uint64_t seed)
{
    filling f = {.ctx = ctx, .base = base};
    KVF_TRY(kvf__desc_weights(desc, measure, &f));
    KVF_TRY(map_pool(ctx, f.ones, f.largest + OFFSETS * OFFSET, seed, &base->weights));
    base->random = true;
    return kvf__desc_weights(desc, add, &f);
}

static kvf_status make_base(kvf_ctx *ctx, const char *name, const kvf_base_options *options,
                            uint64_t seed, kvf__desc *desc, kvf_base *base)
{
    KVF_TRY(kvf__strdup(ctx, name, &base->path));
    KVF_TRY(kvf__strdup(ctx, name, &base->name));
    KVF_TRY(fill_table(ctx, base, desc, seed));
    return kvf__base_pack(ctx, base, name, desc, options, NULL);
}

kvf_status kvf__base_random(kvf_ctx *ctx, const char *name, const kvf_base_options *options,
                            uint64_t seed, kvf_base **out)
{
    kvf_base *base = NULL;
    kvf__desc desc = {0};

    KVF_TRY(kvf__base_shape_desc(ctx, name, &desc));
    kvf_status st = kvf__alloc(ctx, sizeof *base, &base);
    if (!st) base->ctx = ctx;
    if (!st) st = make_base(ctx, name, options, seed, &desc, base);
    kvf__desc_done(&desc);
    KVF__GIVE(st, out, base, kvf_base_free(base));
    return st;
}
