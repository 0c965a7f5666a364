/* A prefix's keys and values as an array of the caller, in both directions. The array has an
 * additional axis of rows of length 1, so the memory is the same. */
#include "arch.h"
#include "open_prefix.h"

#include <math.h>
#include <string.h>

const float *kvf_prefix_kv(const kvf_prefix *prefix, int64_t shape[6])
{
    if (!prefix) return NULL;
    const kvf__prefix *p = &prefix->file.prefix;
    if (!p->P || p->heads) return NULL;
    if (shape) memcpy(shape, (const int64_t[6]){p->L, 2, 1, p->G, p->P, p->D}, 6 * sizeof *shape);
    return p->kv;
}

const float *kvf_prefix_layer(const kvf_prefix *prefix, int64_t layer, int64_t shape[5])
{
    if (!prefix) return NULL;
    const kvf__prefix *p = &prefix->file.prefix;
    if (!p->P || layer < 0 || layer >= p->L) return NULL;
    const kvf__prefix_layer at = kvf__prefix_at(p, layer);
    if (shape) memcpy(shape, (const int64_t[5]){2, 1, at.G, p->P, at.D}, 5 * sizeof *shape);
    return at.k;
}

const float *kvf_prefix_log_weights(const kvf_prefix *prefix, int64_t shape[3])
{
    if (!prefix) return NULL;
    const kvf__prefix *p = &prefix->file.prefix;
    if (!p->log_weight || p->heads) return NULL;
    if (shape) memcpy(shape, (const int64_t[3]){p->L, p->G, p->P}, 3 * sizeof *shape);
    return p->log_weight;
}

const float *kvf_prefix_neurons(const kvf_prefix *prefix, const char *name, int64_t shape[3])
{
    if (!prefix || !name || !prefix->file.prefix.neurons.w) return NULL;
    const kvf__neuron_shape *s = &prefix->file.prefix.neurons.shape;
    kvf__neuron_array array[KVF__NEURON_ARRAYS];
    const int n = kvf__neuron_arrays(&prefix->file.prefix.neurons, array);
    for (int i = 0; i < n; i++) {
        if (strcmp(array[i].name, name)) continue;
        if (shape)
            memcpy(shape, (const int64_t[3]){s->L, s->N, array[i].columns}, 3 * sizeof *shape);
        return array[i].at;
    }
    return NULL;
}

static kvf_status check_has_kv(kvf_ctx *ctx, const kvf_prefix *prefix, const char *what)
{
    if (prefix->file.prefix.P && !prefix->file.values.params.n) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: has no keys and values %s", prefix->path, what);
}

static kvf_status by_layer(kvf_ctx *ctx, const char *what)
{
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s: its heads differ by layer, so they do not fit into one array", what);
}

kvf_status kvf_prefix_set_log_weights(kvf_ctx *ctx, kvf_prefix *prefix, const float *values,
                                      const int64_t shape[3])
{
    KVF_TRY(KVF__NEED(ctx, prefix, values, shape));
    kvf__prefix *p = &prefix->file.prefix;
    const int64_t want[3] = {p->L, p->G, p->P};
    KVF_TRY(check_has_kv(ctx, prefix, "to weigh"));
    if (p->heads) return by_layer(ctx, prefix->path);
    if (memcmp(shape, want, sizeof want) != 0)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "log-weights are [%lld, %lld, %lld], want [%lld, %lld, %lld]",
                         (long long)shape[0], (long long)shape[1], (long long)shape[2],
                         (long long)p->L, (long long)p->G, (long long)p->P);
    kvf__prefix given = *p;
    given.log_weight = (float *)(uintptr_t)values; /* only read */
    KVF_TRY(kvf__prefix_check_weights(ctx, prefix->path, &given));
    return kvf__prefix_take_weights(ctx, p, &given);
}

const uint8_t *kvf_prefix_layer_mask(const kvf_prefix *prefix, int64_t *L)
{
    if (!prefix) return NULL;
    if (!prefix->file.prefix.P) return NULL;
    if (L) *L = prefix->file.prefix.L;
    return prefix->file.prefix.layer_mask;
}

static kvf_status check_mask(kvf_ctx *ctx, const kvf__prefix *p, const uint8_t *mask, int64_t L)
{
    bool some = false;
    if (L != p->L)
        return kvf__fail(ctx, KVF_ESHAPE, "the layer mask is [%lld], want [%lld]", (long long)L,
                         (long long)p->L);
    for (int64_t l = 0; l < L; l++) {
        if (mask[l] > 1)
            return kvf__fail(ctx, KVF_EUSAGE, "layer_mask[%lld] is %d, want 0 or 1", (long long)l,
                             mask[l]);
        some = some || mask[l];
    }
    return some ? KVF_OK : kvf__fail(ctx, KVF_EUSAGE, "the layer mask excludes all layers");
}

kvf_status kvf_prefix_set_layer_mask(kvf_ctx *ctx, kvf_prefix *prefix, const uint8_t *mask,
                                     int64_t L)
{
    KVF_TRY(KVF__NEED(ctx, prefix, mask));
    kvf__prefix *p = &prefix->file.prefix;
    KVF_TRY(check_has_kv(ctx, prefix, "to leave out of layers"));
    KVF_TRY(check_mask(ctx, p, mask, L));
    memcpy(p->layer_mask, mask, (size_t)L);
    kvf__prefix_clear_masked(p);
    return KVF_OK;
}

bool kvf_prefix_relative_bias(const kvf_prefix *prefix)
{
    return prefix && prefix->file.id.relative_bias;
}

kvf_status kvf_prefix_set_relative_bias(kvf_ctx *ctx, kvf_prefix *prefix, bool on)
{
    KVF_TRY(KVF__NEED(ctx, prefix));
    kvf__identity *id = &prefix->file.id;
    const kvf__arch *arch = kvf__arch_by_model_type(id->base_architecture);
    KVF_TRY(check_has_kv(ctx, prefix, "to take a relative bias"));
    if (!id->encoder_layers || !arch || arch->positions != KVF__POS_BIAS)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: its base is not an encoder-decoder with a relative bias such as t5",
                         prefix->path);
    id->relative_bias = on;
    prefix->file.prefix.near = kvf__identity_near(id);
    return KVF_OK;
}

static kvf_status check_array(kvf_ctx *ctx, const kvf_base *base, const float *kv,
                              const int64_t shape[6], int64_t position_start)
{
    const kvf__kv_shape d = kvf__desc_kv(kvf__model_desc(base->model));
    const int64_t P = shape[4], want[6] = {d.L, 2, 1, d.G, P, d.D};
    if (d.heads) return by_layer(ctx, base->path);
    if (P < 1 || memcmp(want, shape, sizeof want) != 0)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "the array is [%lld, %lld, %lld, %lld, %lld, %lld], want [%lld, 2, 1, "
                         "%lld, P, %lld]",
                         (long long)shape[0], (long long)shape[1], (long long)shape[2],
                         (long long)shape[3], (long long)shape[4], (long long)shape[5],
                         (long long)d.L, (long long)d.G, (long long)d.D);
    const int64_t start = position_start < 0 ? P : position_start;
    if (kvf__longest_row(base, start) < 2)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "a prefix of %lld tokens and position_start %lld leave no room for rows",
                         (long long)P, (long long)start);
    for (int64_t i = 0; i < d.L * 2 * d.G * P * d.D; i++)
        if (!isfinite(kv[i]))
            return kvf__fail(ctx, KVF_ENUMERIC,
                             "element %lld of the array is %g, want a finite value", (long long)i,
                             (double)kv[i]);
    return KVF_OK;
}

static kvf_status fill(kvf_ctx *ctx, const kvf_base *base, const float *kv, int64_t P,
                       int64_t position_start, kvf_prefix *to)
{
    kvf__prefix *p = &to->file.prefix;
    const kvf__kv_shape heads = kvf__desc_kv(kvf__model_desc(base->model));
    to->file.kind = KVF__KIND_PREFIX;
    to->file.id.P = P;
    to->task = KVF__TASK_LM;
    to->step = -1;
    KVF_TRY(kvf__import_stamp(ctx, base, base->name, "direct", "lm", &to->file.id));
    if (position_start >= 0) to->file.id.position_start = position_start;
    KVF_TRY(kvf__strdup(ctx, "array", &to->path));
    KVF_TRY(kvf__prefix_create(ctx, p, &heads, P));
    memcpy(p->kv, kv, kvf__prefix_count(p) * sizeof *kv);
    return KVF_OK;
}

kvf_status kvf_prefix_from_array(kvf_ctx *ctx, const kvf_base *base, const float *kv,
                                 const int64_t shape[6], int64_t position_start, kvf_prefix **out)
{
    KVF_TRY(KVF__NEED(ctx, base, kv, shape, out));
    kvf_prefix *prefix = NULL;
    KVF_TRY(check_array(ctx, base, kv, shape, position_start));
    KVF_TRY(kvf__alloc(ctx, sizeof *prefix, &prefix));
    kvf_status st = fill(ctx, base, kv, shape[4], position_start, prefix);
    KVF__GIVE(st, out, prefix, kvf_prefix_free(prefix));
    return st;
}

kvf_status kvf_prefix_save(kvf_ctx *ctx, const kvf_prefix *prefix, const char *path,
                           kvf_dtype dtype, bool force)
{
    KVF_TRY(KVF__NEED(ctx, prefix, path));
    KVF_TRY(KVF__CHECK_ENUM(ctx, dtype, KVF_DTYPE_INT8));
    kvf__artifact file = kvf__prefix_view(prefix, KVF__KIND_PREFIX);
    KVF_TRY(check_has_kv(ctx, prefix, "to save"));
    KVF_TRY(kvf__check_not_input(ctx, path, prefix->path));
    file.dtype = kvf__prefix_dtype(dtype);
    return kvf__artifact_write(ctx, path, force, &file);
}
