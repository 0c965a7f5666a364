/* The adapters of a base: one block of values and one of gradients, carved into bottlenecks in the
 * order of their parameters (adapter.h). */
#include "bottleneck.h"
#include "rng.h"

#include <math.h>
#include <string.h>

enum { PARTS = 4 }; /* parameters of a bottleneck */

struct kvf__adapters {
    kvf__adapter_shape shape;
    int64_t L, C, halves;
    kvf__bottleneck *items; /* [L, halves] */
    bool *dropped;          /* [L] */
    char (*names)[40];      /* [L, halves, PARTS] */
    float *values, *grads;  /* grads NULL: none */
};

/* ---- words ----------------------------------------------------------------------------------- */

typedef struct word {
    const char *name;
    int value;
} word;

static const word ACTS[] = {{"gelu", KVF__GELU_ERF}, {"relu", KVF__RELU}, {"tanh", KVF__TANH}};
static const word PLACES[] = {
    {"serial", KVF__PLACE_SERIAL}, {"parallel", KVF__PLACE_PARALLEL}, {"attn", KVF__PLACE_ATTN}};
enum { N_WORDS = 3 };

static bool find_word(const word *words, const char *name, int *out)
{
    for (int i = 0; i < N_WORDS; i++)
        if (!strcmp(words[i].name, name)) {
            *out = words[i].value;
            return true;
        }
    return false;
}

static const char *name_of(const word *words, int value)
{
    for (int i = 0; i < N_WORDS; i++)
        if (words[i].value == value) return words[i].name;
    return "?";
}

kvf_status kvf__adapter_act_parse(kvf_ctx *ctx, const char *name, kvf__act_fn *out)
{
    int value = 0;

    if (!find_word(ACTS, name, &value))
        return kvf__fail(ctx, KVF_EUSAGE, "adapter activation \"%s\", expected gelu, relu or tanh",
                         name);
    *out = (kvf__act_fn)value;
    return KVF_OK;
}

kvf_status kvf__adapter_place_parse(kvf_ctx *ctx, const char *name, kvf__placement *out)
{
    int value = 0;

    if (!find_word(PLACES, name, &value))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "adapter placement \"%s\", expected serial, parallel or attn", name);
    *out = (kvf__placement)value;
    return KVF_OK;
}

const char *kvf__adapter_act_name(kvf__act_fn act)
{
    return name_of(ACTS, (int)act);
}

const char *kvf__adapter_place_name(kvf__placement place)
{
    return name_of(PLACES, (int)place);
}

int64_t kvf__adapter_halves(const kvf__adapter_shape *shape)
{
    return shape->place == KVF__PLACE_ATTN ? 1 : KVF__HALVES;
}

/* ---- the set --------------------------------------------------------------------------------- */

static size_t one_count(const kvf__adapters *a)
{
    return (size_t)(2 * a->C * a->shape.size + a->C + a->shape.size);
}

/* Carves an adapter's parameters out of `from`; NULL stays NULL. */
static void carve(const kvf__adapters *a, float *from, float *part[PARTS])
{
    const int64_t counts[PARTS] = {a->shape.size * a->C, a->shape.size, a->C * a->shape.size, a->C};

    for (int i = 0; i < PARTS; i++) {
        part[i] = from;
        if (from) from += counts[i];
    }
}

static void place_all(kvf__adapters *a)
{
    static const char *const halves[] = {"attn", "ffn"};
    static const char *const parts[] = {"down.weight", "down.bias", "up.weight", "up.bias"};

    for (int64_t i = 0; i < a->L * a->halves; i++) {
        size_t at = (size_t)i * one_count(a);
        float *v[PARTS], *d[PARTS];
        carve(a, a->values + at, v);
        carve(a, a->grads ? a->grads + at : NULL, d);
        a->items[i] = (kvf__bottleneck){.C = a->C,
                                        .m = a->shape.size,
                                        .act = a->shape.act,
                                        .down = v[0],
                                        .down_bias = v[1],
                                        .up = v[2],
                                        .up_bias = v[3],
                                        .ddown = d[0],
                                        .ddown_bias = d[1],
                                        .dup = d[2],
                                        .dup_bias = d[3]};
        for (int p = 0; p < PARTS; p++)
            snprintf(a->names[i * PARTS + p], sizeof a->names[0], "%lld.%s.%s",
                     (long long)(i / a->halves), halves[i % a->halves], parts[p]);
    }
}

static kvf_status alloc_memory(kvf_ctx *ctx, kvf__adapters *a, bool gradients)
{
    size_t n = (size_t)(a->L * a->halves), all;

    if (!kvf__mul(n, one_count(a), &all))
        return kvf__fail(ctx, KVF_ENOMEM, "adapters of size %lld on %lld layers",
                         (long long)a->shape.size, (long long)a->L);
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *a->items, &a->items));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)a->L, sizeof *a->dropped, &a->dropped));
    KVF_TRY(kvf__alloc_array(ctx, n * PARTS, sizeof *a->names, &a->names));
    KVF_TRY(kvf__alloc_array(ctx, all, sizeof *a->values, &a->values));
    return gradients ? kvf__alloc_array(ctx, all, sizeof *a->grads, &a->grads) : KVF_OK;
}

kvf_status kvf__adapters_create(kvf_ctx *ctx, const kvf__adapter_shape *shape, int64_t L, int64_t C,
                                bool gradients, kvf__adapters **out)
{
    enum { LARGEST = 1 << 20 };
    kvf__adapters *a = NULL;
    kvf_status st;

    if (shape->size < 1 || shape->size > LARGEST)
        return kvf__fail(ctx, KVF_EUSAGE, "adapter size %lld, expected 1 to %d",
                         (long long)shape->size, (int)LARGEST);
    KVF_TRY(kvf__alloc(ctx, sizeof *a, &a));
    a->shape = *shape;
    a->L = L;
    a->C = C;
    a->halves = kvf__adapter_halves(shape);
    st = alloc_memory(ctx, a, gradients);
    if (st) goto out;
    place_all(a);

    *out = a;
    a = NULL;
out:
    kvf__adapters_free(a);
    return st;
}

void kvf__adapters_free(kvf__adapters *a)
{
    if (!a) return;
    kvf__free(a->items);
    kvf__free(a->dropped);
    kvf__free(a->names);
    kvf__free(a->values);
    kvf__free(a->grads);
    kvf__free(a);
}

const kvf__adapter_shape *kvf__adapters_shape(const kvf__adapters *adapters)
{
    return &adapters->shape;
}

void kvf__adapters_init(kvf__adapters *a, uint64_t seed)
{
    double bound = sqrt(6.0 / (double)(a->C + a->shape.size));

    memset(a->values, 0, (size_t)(a->L * a->halves) * one_count(a) * sizeof *a->values);
    for (int64_t i = 0; i < a->L * a->halves; i++) {
        kvf__rng rng = kvf__rng_make(seed, (uint64_t)i);
        for (int64_t j = 0; j < a->C * a->shape.size; j++)
            a->items[i].down[j] = (float)((2 * kvf__rng_uniform(&rng) - 1) * bound);
    }
}

size_t kvf__adapters_count(const kvf__adapters *a)
{
    return (size_t)(a->L * a->halves) * PARTS;
}

kvf__param kvf__adapters_param(const kvf__adapters *a, size_t i)
{
    const kvf__bottleneck *b = &a->items[i / PARTS];
    float *const values[PARTS] = {b->down, b->down_bias, b->up, b->up_bias};
    float *const grads[PARTS] = {b->ddown, b->ddown_bias, b->dup, b->dup_bias};
    const int64_t dims[PARTS][2] = {{b->m, b->C}, {b->m, 1}, {b->C, b->m}, {b->C, 1}};
    size_t p = i % PARTS;

    return (kvf__param){.name = a->names[i],
                        .value = values[p],
                        .grad = grads[p],
                        .rank = p % 2 ? 1 : 2,
                        .dim = {dims[p][0], dims[p][1]},
                        .n = dims[p][0] * dims[p][1],
                        .lr_scale = 1};
}

kvf_status kvf__adapters_drop(kvf_ctx *ctx, kvf__adapters *a, int64_t from, int64_t to)
{
    if (from < 0 || to < from || to >= a->L)
        return kvf__fail(ctx, KVF_ESHAPE, "layers %lld-%lld, the base has 0-%lld", (long long)from,
                         (long long)to, (long long)a->L - 1);
    for (int64_t l = from; l <= to; l++)
        a->dropped[l] = true;
    return KVF_OK;
}

const kvf__bottleneck *kvf__adapters_at(const kvf__adapters *a, int64_t l, kvf__half half)
{
    if (!a || a->dropped[l] || (int64_t)half >= a->halves) return NULL;
    return &a->items[l * a->halves + (int64_t)half];
}
