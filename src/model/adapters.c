/* The adapters of a base in one block: parameters in the order of the layers, and bottlenecks that
 * view them (adapter.h). */
#include "adapter.h"
#include "arena.h"
#include "rng.h"

#include <math.h>
#include <string.h>

enum { PARTS = 4 }; /* parameters of a bottleneck */

struct kvf__adapters {
    kvf__adapter_shape shape;
    int64_t L, C, halves;
    bool gradients;
    kvf__bottleneck *items; /* [L, halves] */
    kvf__param *params;     /* [L, halves, PARTS] */
    char (*names)[40];      /* names of the parameters */
    bool *dropped;          /* [L] */
    float *values, *grads;  /* values of all adapters; grads NULL: none */
};

/* ---- words ----------------------------------------------------------------------------------- */

typedef struct word {
    const char *name;
    int value;
} word;

static const word ACTS[] = {
    {"gelu", KVF__GELU_ERF}, {"relu", KVF__RELU}, {"tanh", KVF__TANH}, {NULL, 0}};
static const word PLACES[] = {{"serial", KVF__PLACE_SERIAL},
                              {"parallel", KVF__PLACE_PARALLEL},
                              {"attn", KVF__PLACE_ATTN},
                              {"ffn", KVF__PLACE_FFN},
                              {NULL, 0}};

static kvf_status parse(kvf_ctx *ctx, const word *words, const char *what, const char *name,
                        int *out)
{
    char known[64] = "";

    for (int i = 0; words[i].name; i++) {
        const char *before = !i ? "" : words[i + 1].name ? ", " : " or ";
        size_t n = strlen(known);
        if (!strcmp(words[i].name, name)) {
            *out = words[i].value;
            return KVF_OK;
        }
        snprintf(known + n, sizeof known - n, "%s%s", before, words[i].name);
    }
    return kvf__fail(ctx, KVF_EUSAGE, "adapter %s \"%s\", expected %s", what, name, known);
}

static const char *name_of(const word *words, int value)
{
    for (int i = 0; words[i].name; i++)
        if (words[i].value == value) return words[i].name;
    return "?";
}

kvf_status kvf__adapter_act_parse(kvf_ctx *ctx, const char *name, kvf__act_fn *out)
{
    int value = 0;

    KVF_TRY(parse(ctx, ACTS, "activation", name, &value));
    *out = (kvf__act_fn)value;
    return KVF_OK;
}

kvf_status kvf__adapter_place_parse(kvf_ctx *ctx, const char *name, kvf__placement *out)
{
    int value = 0;

    KVF_TRY(parse(ctx, PLACES, "placement", name, &value));
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
    return shape->place == KVF__PLACE_ATTN || shape->place == KVF__PLACE_FFN ? 1 : KVF__HALVES;
}

bool kvf__adapter_has(const kvf__adapter_shape *shape, kvf__half half)
{
    return shape->place != (half == KVF__HALF_FFN ? KVF__PLACE_ATTN : KVF__PLACE_FFN);
}

/* ---- the set --------------------------------------------------------------------------------- */

static int64_t one_count(const kvf__adapters *a)
{
    return 2 * a->C * a->shape.size + a->C + a->shape.size;
}

/* Sets up the parameters of adapter i, and the adapter as views of them. */
static void place(kvf__adapters *a, int64_t i)
{
    static const char *const halves[] = {"attn", "ffn"};
    static const char *const parts[] = {"down.weight", "down.bias", "up.weight", "up.bias"};
    const int64_t m = a->shape.size, dims[PARTS][2] = {{m, a->C}, {m, 1}, {a->C, m}, {a->C, 1}};
    kvf__param *p = &a->params[i * PARTS];
    int64_t at = i * one_count(a);

    for (int part = 0; part < PARTS; part++) {
        char *name = a->names[i * PARTS + part];
        snprintf(name, sizeof a->names[0], "%lld.%s.%s", (long long)(i / a->halves),
                 halves[a->shape.place == KVF__PLACE_FFN ? 1 : i % a->halves], parts[part]);
        p[part] = (kvf__param){.name = name,
                               .value = a->values + at,
                               .grad = a->grads ? a->grads + at : NULL,
                               .rank = part % 2 ? 1 : 2,
                               .dim = {dims[part][0], dims[part][1]},
                               .n = dims[part][0] * dims[part][1],
                               .lr_scale = 1};
        at += p[part].n;
    }
    a->items[i] = (kvf__bottleneck){.C = a->C,
                                    .m = m,
                                    .act = a->shape.act,
                                    .down = p[0].value,
                                    .down_bias = p[1].value,
                                    .up = p[2].value,
                                    .up_bias = p[3].value,
                                    .ddown = p[0].grad,
                                    .ddown_bias = p[1].grad,
                                    .dup = p[2].grad,
                                    .dup_bias = p[3].grad};
}

static void lay_out(void *object, kvf__carver *carve)
{
    kvf__adapters *a = object;
    const int64_t n = a->L * a->halves;

    a->items = kvf__carve(carve, n, 1, sizeof *a->items);
    a->params = kvf__carve(carve, n, PARTS, sizeof *a->params);
    a->names = kvf__carve(carve, n, PARTS, sizeof *a->names);
    a->dropped = kvf__carve(carve, a->L, 1, sizeof *a->dropped);
    a->values = kvf__carve(carve, n, one_count(a), sizeof(float));
    if (a->gradients) a->grads = kvf__carve(carve, n, one_count(a), sizeof(float));
    for (int64_t i = 0; a->items && i < n; i++)
        place(a, i);
}

kvf_status kvf__adapters_create(kvf_ctx *ctx, const kvf__adapter_shape *shape, int64_t L, int64_t C,
                                bool gradients, kvf__adapters **out)
{
    enum { LARGEST = 1 << 20 };
    kvf__adapters made = {.shape = *shape,
                          .L = L,
                          .C = C,
                          .halves = kvf__adapter_halves(shape),
                          .gradients = gradients};

    if (shape->size < 1 || shape->size > LARGEST)
        return kvf__fail(ctx, KVF_EUSAGE, "adapter size %lld, expected 1 to %d",
                         (long long)shape->size, (int)LARGEST);
    return kvf__carve_object(ctx, lay_out, &made, sizeof made, out);
}

void kvf__adapters_free(kvf__adapters *a)
{
    kvf__free(a);
}

const kvf__adapter_shape *kvf__adapters_shape(const kvf__adapters *adapters)
{
    return &adapters->shape;
}

void kvf__adapters_init(kvf__adapters *a, uint64_t seed)
{
    double bound = sqrt(6.0 / (double)(a->C + a->shape.size));

    memset(a->values, 0, (size_t)(a->L * a->halves * one_count(a)) * sizeof *a->values);
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
    return a->params[i];
}

kvf_status kvf__adapters_drop(kvf_ctx *ctx, kvf__adapters *a, int64_t from, int64_t to)
{
    if (from < 0 || to < from || to >= a->L)
        return kvf__fail(ctx, KVF_ESHAPE, "layers %lld-%lld: the base has layers 0-%lld",
                         (long long)from, (long long)to, (long long)a->L - 1);
    for (int64_t l = from; l <= to; l++)
        a->dropped[l] = true;
    return KVF_OK;
}

const kvf__bottleneck *kvf__adapters_at(const kvf__adapters *a, int64_t l, kvf__half half)
{
    if (!a || a->dropped[l] || !kvf__adapter_has(&a->shape, half)) return NULL;
    return &a->items[l * a->halves + (a->halves == 1 ? 0 : (int64_t)half)];
}
