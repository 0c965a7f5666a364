/* The prefix tensor and its flat form, see prefix.h: two layouts of the same numbers.
 *
 * Like kv, the flat form keeps the D values of a (layer, key or value, head, token) together, so
 * both conversions copy runs of D. */
#include "prefix.h"

#include <math.h>
#include <string.h>

/* ---- heads by layer -------------------------------------------------------------------------- */

kvf__kv_heads kvf__kv_at(const kvf__kv_shape *shape, int64_t l)
{
    if (shape->heads) return shape->heads[l];
    return (kvf__kv_heads){shape->G, shape->D, l * shape->G, l * shape->G * shape->D};
}

bool kvf__kv_same(const kvf__kv_shape *a, const kvf__kv_shape *b)
{
    bool same = a->L == b->L;

    for (int64_t l = 0; same && l < a->L; l++) {
        const kvf__kv_heads x = kvf__kv_at(a, l), y = kvf__kv_at(b, l);
        same = x.G == y.G && x.D == y.D;
    }
    return same;
}

kvf_status kvf__kv_copy_heads(kvf_ctx *ctx, const kvf__kv_shape *shape, kvf__kv_heads **out)
{
    const size_t n = (size_t)shape->L + 1;

    *out = NULL;
    if (!shape->heads) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof **out, out));
    memcpy(*out, shape->heads, n * sizeof **out);
    return KVF_OK;
}

const char *kvf__kv_text(char buf[KVF__KV_TEXT], const kvf__kv_shape *shape, int64_t P)
{
    const size_t room = KVF__KV_TEXT - 24; /* room for the last head and the dots */
    char length[24] = "P";

    if (P >= 0) snprintf(length, sizeof length, "%lld", (long long)P);
    if (!shape->heads) {
        snprintf(buf, KVF__KV_TEXT, "[%lld, 2, %lld, %s, %lld]", (long long)shape->L,
                 (long long)shape->G, length, (long long)shape->D);
        return buf;
    }
    size_t at = (size_t)snprintf(buf, KVF__KV_TEXT, "%lld layers [2, G, %s, D] with G x D of",
                                 (long long)shape->L, length);
    for (int64_t l = 0; l < shape->L && at < KVF__KV_TEXT; l++)
        at += (size_t)snprintf(buf + at, KVF__KV_TEXT - at, at < room ? "%s %lldx%lld" : "%s ...",
                               l ? "," : "", (long long)shape->heads[l].G,
                               (long long)shape->heads[l].D) +
              (at < room ? 0 : KVF__KV_TEXT);
    return buf;
}

const char *kvf__heads_text(char buf[KVF__KV_TEXT], const kvf__kv_shape *shape)
{
    if (shape->heads) return kvf__kv_text(buf, shape, -1);
    snprintf(buf, KVF__KV_TEXT, "L=%lld G=%lld D=%lld", (long long)shape->L, (long long)shape->G,
             (long long)shape->D);
    return buf;
}

/* ---- the tensor ------------------------------------------------------------------------------ */

/* Counts the values of all layers; false: invalid shape. */
static bool count_values(const kvf__kv_shape *shape, int64_t P, size_t *out)
{
    const int64_t dims[] = {shape->L, 2, shape->G, P, shape->D};

    *out = 1;
    if (shape->heads)
        return P >= 0 && kvf__mul((size_t)shape->heads[shape->L].width, 2 * (size_t)P, out);
    for (int i = 0; i < 5; i++)
        if (dims[i] < 0 || !kvf__mul(*out, (size_t)dims[i], out)) return false;
    return true;
}

kvf_status kvf__prefix_create(kvf_ctx *ctx, kvf__prefix *out, const kvf__kv_shape *shape, int64_t P)
{
    kvf__prefix made = {.L = shape->L, .G = shape->G, .P = P, .D = shape->D};
    char text[KVF__KV_TEXT];
    size_t count = 1;

    if (shape->heads) made.G = made.D = KVF__BY_LAYER;
    if (!count_values(shape, P, &count))
        return kvf__fail(ctx, KVF_ESHAPE, "prefix: %s is not a valid shape",
                         kvf__kv_text(text, shape, P));
    kvf_status st = kvf__alloc_array(ctx, count, sizeof *made.kv, &made.kv);
    if (!st) st = kvf__alloc_array(ctx, (size_t)made.L, sizeof *made.layer_mask, &made.layer_mask);
    if (!st) st = kvf__kv_copy_heads(ctx, shape, &made.heads);
    if (st) {
        kvf__prefix_done(&made);
        return st;
    }
    memset(made.layer_mask, 1, (size_t)made.L);
    *out = made;
    return KVF_OK;
}

kvf_status kvf__prefix_like(kvf_ctx *ctx, kvf__prefix *out, const kvf__prefix *other)
{
    const kvf__kv_shape shape = kvf__prefix_shape(other);

    KVF_TRY(kvf__prefix_create(ctx, out, &shape, other->P));
    out->near = other->near;
    kvf_status st = kvf__prefix_set_state(ctx, out, other->state, other->states);
    if (!st && other->neurons.shape.N)
        st = kvf__neurons_create(ctx, &out->neurons, &other->neurons.shape);
    if (st) kvf__prefix_done(out);
    return st;
}

kvf_status kvf__prefix_init(kvf_ctx *ctx, kvf__prefix *out, int64_t L, int64_t G, int64_t P,
                            int64_t D)
{
    const kvf__kv_shape shape = {.L = L, .G = G, .D = D};

    if (G == KVF__BY_LAYER && D == KVF__BY_LAYER)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "a prefix whose heads differ by layer is not supported here");
    return kvf__prefix_create(ctx, out, &shape, P);
}

void kvf__prefix_done(kvf__prefix *prefix)
{
    kvf__free(prefix->kv);
    kvf__free(prefix->heads);
    kvf__free(prefix->layer_mask);
    kvf__free(prefix->log_weight);
    kvf__neurons_done(&prefix->neurons);
    kvf__free(prefix->state);
    *prefix = (kvf__prefix){0};
}

kvf_status kvf__prefix_zero_state(kvf_ctx *ctx, kvf__prefix *prefix, int64_t n)
{
    float *state = NULL;

    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof *state, &state));
    kvf__free(prefix->state);
    prefix->state = state;
    prefix->states = n;
    return KVF_OK;
}

kvf_status kvf__prefix_set_state(kvf_ctx *ctx, kvf__prefix *prefix, const float *from, int64_t n)
{
    if (!from) {
        kvf__free(prefix->state);
        prefix->state = NULL;
        prefix->states = 0;
        return KVF_OK;
    }
    if (prefix->states != n) KVF_TRY(kvf__prefix_zero_state(ctx, prefix, n));
    memcpy(prefix->state, from, (size_t)n * sizeof *from);
    return KVF_OK;
}

kvf__kv_shape kvf__prefix_shape(const kvf__prefix *prefix)
{
    return (kvf__kv_shape){prefix->L, prefix->G, prefix->D, prefix->heads};
}

kvf__prefix_layer kvf__prefix_at(const kvf__prefix *prefix, int64_t l)
{
    const kvf__kv_shape shape = kvf__prefix_shape(prefix);
    const kvf__kv_heads at = kvf__kv_at(&shape, l);
    const int64_t n = at.G * prefix->P * at.D;
    float *k = prefix->kv + 2 * at.width * prefix->P, *w = prefix->log_weight;

    return (kvf__prefix_layer){at.G, at.D, n, k, k + n, w ? w + at.heads * prefix->P : NULL};
}

size_t kvf__prefix_count(const kvf__prefix *prefix)
{
    const kvf__kv_shape shape = kvf__prefix_shape(prefix);
    return (size_t)(2 * kvf__kv_at(&shape, prefix->L).width * prefix->P);
}

/* ---- log-weights ----------------------------------------------------------------------------- */

size_t kvf__prefix_weights(const kvf__prefix *prefix)
{
    const kvf__kv_shape shape = kvf__prefix_shape(prefix);
    return (size_t)(kvf__kv_at(&shape, prefix->L).heads * prefix->P);
}

kvf_status kvf__prefix_weigh(kvf_ctx *ctx, kvf__prefix *prefix)
{
    if (prefix->log_weight) return KVF_OK;
    return kvf__alloc_array(ctx, kvf__prefix_weights(prefix), sizeof *prefix->log_weight,
                            &prefix->log_weight);
}

kvf_status kvf__prefix_take_weights(kvf_ctx *ctx, kvf__prefix *to, const kvf__prefix *from)
{
    if (!from->log_weight) {
        kvf__free(to->log_weight);
        to->log_weight = NULL;
        return KVF_OK;
    }
    KVF_TRY(kvf__prefix_weigh(ctx, to));
    memcpy(to->log_weight, from->log_weight, kvf__prefix_weights(from) * sizeof *to->log_weight);
    return KVF_OK;
}

kvf_status kvf__log_weight_param(kvf_ctx *ctx, const kvf__prefix *prefix, const kvf__prefix *d,
                                 kvf__params *params)
{
    kvf__param param = {.name = KVF__LOG_WEIGHT,
                        .value = prefix->log_weight,
                        .grad = d ? d->log_weight : NULL,
                        .rank = 3,
                        .dim = {prefix->L, prefix->G, prefix->P},
                        .n = (int64_t)kvf__prefix_weights(prefix),
                        .lr_scale = 1};

    if (prefix->heads) { /* one for each head of all layers */
        param.rank = 2;
        param.dim[0] = prefix->heads[prefix->L].heads;
        param.dim[1] = prefix->P;
    }
    return prefix->log_weight ? kvf__params_add(ctx, params, &param) : KVF_OK;
}

kvf_status kvf__prefix_check_weights(kvf_ctx *ctx, const char *where, const kvf__prefix *prefix)
{
    for (int64_t l = 0; prefix->log_weight && l < prefix->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(prefix, l);
        for (int64_t i = 0; i < at.G * prefix->P; i++) {
            const float w = at.log_weight[i];
            if (!(fabsf(w) <= KVF__MOST_LOG_WEIGHT))
                return kvf__fail(ctx, KVF_ENUMERIC,
                                 "%s: a log-weight of layer %lld is %g, want %g to %g", where,
                                 (long long)l, (double)w, (double)-KVF__MOST_LOG_WEIGHT,
                                 (double)KVF__MOST_LOG_WEIGHT);
            if (!prefix->layer_mask[l] && w != 0)
                return kvf__fail(ctx, KVF_EFORMAT,
                                 "%s: layer %lld is masked and has a log-weight of %g, want 0",
                                 where, (long long)l, (double)w);
        }
    }
    return KVF_OK;
}

/* ---- the flat form --------------------------------------------------------------------------- */

/* Copies between a layer's [2 G][P][D] in kv and its [2 G][D] in each row of flat [P, width]. */
static void copy_layer(const kvf__prefix *prefix, int64_t l, float *to_flat, const float *flat)
{
    const kvf__kv_shape shape = kvf__prefix_shape(prefix);
    const kvf__prefix_layer at = kvf__prefix_at(prefix, l);
    const int64_t P = prefix->P, D = at.D, width = 2 * kvf__kv_at(&shape, prefix->L).width;
    const int64_t first = 2 * kvf__kv_at(&shape, l).width;

    for (int64_t block = 0; block < 2 * at.G; block++)
        for (int64_t p = 0; p < P; p++) {
            float *kv = at.k + (block * P + p) * D;
            const int64_t i = p * width + first + block * D;
            if (to_flat)
                memcpy(to_flat + i, kv, (size_t)D * sizeof *kv);
            else
                memcpy(kv, flat + i, (size_t)D * sizeof *kv);
        }
}

void kvf__prefix_from_flat(kvf__prefix *prefix, const float *flat)
{
    for (int64_t l = 0; l < prefix->L; l++)
        copy_layer(prefix, l, NULL, flat);
}

void kvf__prefix_to_flat(const kvf__prefix *prefix, float *flat)
{
    for (int64_t l = 0; l < prefix->L; l++)
        copy_layer(prefix, l, flat, NULL);
}

void kvf__prefix_copy_tokens(kvf__prefix *to, int64_t at, const kvf__prefix *from, int64_t first,
                             int64_t n)
{
    for (int64_t l = 0; l < to->L; l++) {
        const kvf__prefix_layer into = kvf__prefix_at(to, l), out_of = kvf__prefix_at(from, l);
        for (int64_t head = 0; head < 2 * into.G; head++)
            memcpy(into.k + (head * to->P + at) * into.D,
                   out_of.k + (head * from->P + first) * into.D,
                   (size_t)(n * into.D) * sizeof *into.k);
        for (int64_t head = 0; into.log_weight && out_of.log_weight && head < into.G; head++)
            memcpy(into.log_weight + head * to->P + at, out_of.log_weight + head * from->P + first,
                   (size_t)n * sizeof *into.log_weight);
    }
}

void kvf__prefix_clear_masked(kvf__prefix *prefix)
{
    kvf__neurons_clear_masked(&prefix->neurons);
    for (int64_t l = 0; l < prefix->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(prefix, l);
        if (prefix->layer_mask[l]) continue;
        memset(at.k, 0, (size_t)(2 * at.n) * sizeof *at.k);
        if (at.log_weight)
            memset(at.log_weight, 0, (size_t)(at.G * prefix->P) * sizeof *at.log_weight);
    }
}
