/* The prefix file: /prefix/past_key_values [L, 2, 1, G, P, D], the prefix with an explicit batch
 * axis, so that a layer's slice fits a transformers cache (docs/format.md). int8 files also have
 * /prefix/scale [L, 2, 1, G], those with log-weights /prefix/log_weight [L, G, P]. If layers differ
 * in their heads, values, scales and log-weights of the layers are concatenated: [N], [N of heads],
 * [N of heads, P].
 *
 * There is one chunk per layer. prefix_store.c converts narrow types instead of HDF5: it rounds to
 * nearest even, and a value beyond the range of f16 is an error instead of an infinity. */
#include "artifact_priv.h"

#include <math.h>
#include <string.h>

enum { RANK = 6, SCALE_RANK = 4, WEIGHT_RANK = 3 };

static const char GROUP[] = "prefix", DATASET[] = "past_key_values", SCALE[] = "scale";
static const char *const LABELS[RANK] = {"layer", "key_value", "batch",
                                         "head",  "position",  "head_dim"};
static const char *const WEIGHT_LABELS[WEIGHT_RANK] = {"layer", "head", "position"};

/* The shape of a prefix's dataset: values or scales, of rank RANK or SCALE_RANK, or log-weights. */
typedef struct shape {
    int rank;
    int64_t dim[RANK];
} shape;

static shape shape_of(const kvf__prefix *prefix, int rank)
{
    if (!prefix->heads) return (shape){rank, {prefix->L, 2, 1, prefix->G, prefix->P, prefix->D}};
    return (shape){
        1, {(int64_t)(rank == RANK ? kvf__prefix_count(prefix) : kvf__prefix_scales(prefix))}};
}

static shape shape_of_weights(const kvf__prefix *prefix)
{
    if (!prefix->heads) return (shape){WEIGHT_RANK, {prefix->L, prefix->G, prefix->P}};
    return (shape){2, {prefix->heads[prefix->L].heads, prefix->P}};
}

/* Checks that values are finite, and zero in masked layers. */
static kvf_status check_values(kvf_ctx *ctx, const char *path, const kvf__prefix *prefix)
{
    for (int64_t l = 0; l < prefix->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(prefix, l);
        const float *layer = at.k;
        for (int64_t i = 0; i < 2 * at.n; i++) {
            if (!isfinite(layer[i]))
                return kvf__fail(ctx, KVF_ENUMERIC,
                                 "%s: /prefix/%s: layer %lld holds %g, want finite values", path,
                                 DATASET, (long long)l, (double)layer[i]);
            if (!prefix->layer_mask[l] && layer[i] != 0.0f)
                return kvf__fail(ctx, KVF_EFORMAT,
                                 "%s: /prefix/%s: layer %lld is masked and holds %g, want zeros",
                                 path, DATASET, (long long)l, (double)layer[i]);
        }
    }
    return kvf__prefix_check_weights(ctx, path, prefix);
}

/* ---- writing --------------------------------------------------------------------------------- */

static kvf_status check_file(kvf_ctx *ctx, const char *path, const kvf__artifact *file)
{
    const kvf__prefix *prefix = &file->prefix;
    const kvf__identity *id = &file->id;

    if (!kvf__prefix_dtype_name(file->dtype))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: a prefix is stored as f32, f16, bf16 or int8, not as %s", path,
                         kvf__dtype_name(file->dtype));
    if (prefix->P == 0 && !prefix->neurons.shape.N)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: a prefix of length 0 cannot be stored: it is the bare base", path);
    const kvf__kv_shape have = kvf__prefix_shape(prefix), want = kvf__identity_kv(id);
    if (prefix->P != id->P || !kvf__kv_same(&have, &want))
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: the prefix has L %lld, G %lld, P %lld, D %lld, but its identity says "
                         "%lld, %lld, %lld, %lld",
                         path, (long long)prefix->L, (long long)prefix->G, (long long)prefix->P,
                         (long long)prefix->D, (long long)id->L, (long long)id->G, (long long)id->P,
                         (long long)id->D);
    if (!kvf__neuron_shape_same(&prefix->neurons.shape, &id->neurons))
        return kvf__fail(ctx, KVF_ESHAPE, "%s: %lld neurons in each layer, its identity has %lld",
                         path, (long long)prefix->neurons.shape.N, (long long)id->neurons.N);
    return check_values(ctx, path, prefix);
}

/* Writes scales or log-weights, with labels if all layers have the same heads. */
static void write_part(kvf__h5 *h5, kvf__h5_id group, const char *name, shape of,
                       const char *const *labels, const float *values)
{
    const kvf__h5_spec spec = {
        .name = name, .dtype = KVF__F32, .rank = of.rank, .dim = of.dim, .labels = labels};

    kvf__h5_data_write(h5, group, &spec, values, NULL);
}

/* Writes values in the file's type; returns the dataset, released by the caller. */
static kvf__h5_id write_values(kvf__h5 *h5, const kvf__artifact *file)
{
    const kvf__prefix *prefix = &file->prefix;
    const bool narrow = file->dtype != KVF__F32;
    void *values = NULL;
    float *scale = NULL;
    const shape of = shape_of(prefix, RANK);
    shape chunk = of;
    const kvf__h5_spec spec = {.name = DATASET,
                               .dtype = file->dtype,
                               .rank = of.rank,
                               .dim = of.dim,
                               .chunk = prefix->heads || !prefix->P ? NULL : chunk.dim,
                               .labels = prefix->heads ? NULL : LABELS};
    kvf__h5_id group = kvf__h5_group_create(h5, h5->file, GROUP), data = KVF__H5_NONE;

    chunk.dim[0] = 1;
    if (narrow) {
        KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, kvf__prefix_count(prefix),
                                         kvf__dtype_block_bytes(file->dtype), &values));
        KVF__H5_TRY(h5,
                    kvf__alloc_array(h5->ctx, kvf__prefix_scales(prefix), sizeof *scale, &scale));
        KVF__H5_TRY(h5, kvf__prefix_encode(h5->ctx, h5->path, file->dtype, prefix, values, scale));
    }
    kvf__h5_data_write(h5, group, &spec, narrow ? values : prefix->kv, &data);
    if (file->dtype == KVF__I8)
        write_part(h5, group, SCALE, shape_of(prefix, SCALE_RANK), spec.labels, scale);
    if (prefix->log_weight)
        write_part(h5, group, KVF__LOG_WEIGHT, shape_of_weights(prefix),
                   prefix->heads ? NULL : WEIGHT_LABELS, prefix->log_weight);
    kvf__neurons_write(h5, group, file->dtype, &prefix->neurons);
    kvf__free(values);
    kvf__free(scale);
    kvf__h5_release(&group);
    return data;
}

static void write_dtype(kvf__h5 *h5, kvf__h5_id data, const kvf__artifact *a)
{
    kvf__h5_put_text(h5, data, "dtype", kvf__prefix_dtype_name(a->dtype));
}

/* ---- reading --------------------------------------------------------------------------------- */

static void check_data(kvf__h5 *h5, const kvf__h5_data *data)
{
    const int64_t *dim = data->dim;
    const char *want = kvf__prefix_dtype_name(data->dtype);
    char text[128], *dtype;

    if (!want)
        kvf__h5_fail(h5, data->id, KVF_EFORMAT, "element type %s, want f32, f16, bf16 or i8",
                     kvf__dtype_name(data->dtype));
    const bool empty = !data->count && data->rank != 1 &&
                       !(data->rank == RANK && !dim[4] && dim[0] && dim[3] && dim[5]);
    if (empty || (data->rank != 1 && (data->rank != RANK || dim[1] != 2 || dim[2] != 1)))
        kvf__h5_fail(h5, data->id, KVF_ESHAPE, "shape %s, want [L, 2, 1, G, P, D], none of them 0",
                     kvf__shape_text(text, data->rank, dim));
    dtype = kvf__h5_get_text(h5, data->id, "dtype");
    if (dtype && strcmp(dtype, want) != 0)
        kvf__h5_fail(h5, data->id, KVF_EFORMAT, "attribute dtype is \"%s\", but the values are %s",
                     dtype, want);
    kvf__free(dtype);
}

/* Opens a part written by write_part(). */
static kvf__h5_data open_part(kvf__h5 *h5, kvf__h5_id group, const char *name, shape want)
{
    kvf__h5_data data = kvf__h5_data_open(h5, group, name);
    char got[128], wanted[128];

    if (data.dtype != KVF__F32 || data.rank != want.rank ||
        memcmp(data.dim, want.dim, (size_t)want.rank * sizeof *want.dim))
        kvf__h5_fail(h5, data.id, KVF_ESHAPE, "%s of %s, want %s of f32",
                     kvf__shape_text(got, data.rank, data.dim), kvf__dtype_name(data.dtype),
                     kvf__shape_text(wanted, want.rank, want.dim));
    return data;
}

/* Scales of int8 values, [L, 2, 1, G]. */
static void read_scale(kvf__h5 *h5, const kvf__prefix *prefix, float *scale)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, GROUP);
    kvf__h5_data data = open_part(h5, group, SCALE, shape_of(prefix, SCALE_RANK));

    kvf__h5_data_read(h5, &data, scale, kvf__prefix_scales(prefix) * sizeof *scale);
    for (size_t h = 0; h < kvf__prefix_scales(prefix) && !h5->status; h++)
        if (!(scale[h] >= 0) || !isfinite(scale[h]))
            kvf__h5_fail(h5, data.id, KVF_ENUMERIC,
                         "scale %zu is %g, want a finite number of at least 0", h,
                         (double)scale[h]);
    kvf__h5_release(&data.id);
    kvf__h5_release(&group);
}

static void read_narrow(kvf__h5 *h5, const kvf__h5_data *data, kvf__prefix *prefix)
{
    void *narrow = NULL;
    float *scale = NULL;

    KVF__H5_TRY(h5, kvf__alloc(h5->ctx, data->bytes, &narrow));
    KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, kvf__prefix_scales(prefix), sizeof *scale, &scale));
    kvf__h5_data_read(h5, data, narrow,
                      kvf__prefix_count(prefix) * kvf__dtype_block_bytes(data->dtype));
    if (data->dtype == KVF__I8) read_scale(h5, prefix, scale);
    if (!h5->status) kvf__prefix_decode(data->dtype, narrow, scale, prefix);
    kvf__free(narrow);
    kvf__free(scale);
}

static void read_weights(kvf__h5 *h5, kvf__prefix *prefix)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, GROUP);

    if (kvf__h5_has(h5, group, KVF__LOG_WEIGHT)) {
        kvf__h5_data data = open_part(h5, group, KVF__LOG_WEIGHT, shape_of_weights(prefix));
        KVF__H5_TRY(h5, kvf__prefix_weigh(h5->ctx, prefix));
        kvf__h5_data_read(h5, &data, prefix->log_weight,
                          kvf__prefix_weights(prefix) * sizeof *prefix->log_weight);
        kvf__h5_release(&data.id);
    }
    kvf__h5_release(&group);
}

static kvf__h5_data open_values(kvf__h5 *h5)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, GROUP);
    kvf__h5_data data = kvf__h5_data_open(h5, group, DATASET);

    if (!h5->status) check_data(h5, &data);
    kvf__h5_release(&group);
    return data;
}

/* Checks the shape before memory is allocated. */
static void check_count(kvf__h5 *h5, const kvf__h5_data *data, const kvf__kv_shape *kv, int64_t P,
                        bool neurons)
{
    if ((data->rank == RANK) == (kv->heads != NULL)) {
        kvf__h5_fail(h5, data->id, KVF_ESHAPE, "rank %d, want %d%s", data->rank,
                     kv->heads ? 1 : RANK, kv->heads ? " beside /heads_by_layer" : "");
        return;
    }
    const int64_t of_token = 2 * kvf__kv_at(kv, kv->L).width;
    if (P < !neurons || (P ? data->count % P || data->count / P != of_token : data->count != 0))
        kvf__h5_fail(h5, data->id, KVF_ESHAPE, "%lld values, want %lld for each of %lld tokens",
                     (long long)data->count, (long long)of_token, (long long)P);
}

static void read_neurons(kvf__h5 *h5, kvf__artifact *a)
{
    kvf__neurons *neurons = &a->prefix.neurons;
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, GROUP);

    neurons->shape = a->id.neurons;
    neurons->layer_mask = a->neuron_mask;
    a->neuron_mask = NULL;
    kvf__neurons_read(h5, group, a->dtype, neurons);
    kvf__h5_release(&group);
}

static void read_values(kvf__h5 *h5, const kvf__h5_data *data, kvf__artifact *a)
{
    const kvf__identity *id = &a->id;
    kvf__prefix *prefix = &a->prefix;

    a->dtype = data->dtype;
    const kvf__kv_shape kv = kvf__identity_kv(id);
    check_count(h5, data, &kv, id->P, id->neurons.N > 0);
    KVF__H5_TRY(h5, kvf__prefix_create(h5->ctx, prefix, &kv, id->P));
    if (h5->status) return;
    prefix->near = kvf__identity_near(id);
    memcpy(prefix->layer_mask, a->layer_mask, (size_t)id->L);
    kvf__free(a->layer_mask); /* the prefix has its own */
    a->layer_mask = NULL;
    if (id->neurons.N) read_neurons(h5, a);
    if (!id->P)
        ; /* neurons alone */
    else if (data->dtype == KVF__F32)
        kvf__h5_data_read(h5, data, prefix->kv, kvf__prefix_count(prefix) * sizeof *prefix->kv);
    else
        read_narrow(h5, data, prefix);
    read_weights(h5, prefix);
    KVF__H5_TRY(h5, check_values(h5->ctx, h5->path, prefix));
}

const kvf__kind_row kvf__prefix_row = {
    .name = "prefix",
    .object = GROUP,
    .masked = true,
    .check = check_file,
    .write = write_values,
    .write_attrs = write_dtype,
    .open = open_values,
    .read = read_values,
};
