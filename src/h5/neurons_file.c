/* The virtual neurons of a prefix file: the group /prefix/neurons with the datasets "key", or
 * "gate" and "up", "value" [L, N, C], and "bias" [L, N] (docs/format.md). */
#include "artifact_priv.h"

#include <math.h>
#include <string.h>

static const char GROUP[] = "neurons";
static const char *const LABELS[] = {"layer", "neuron", "channel"};

/* Returns the type of neurons in a file whose keys and values have that type. */
static kvf__dtype stored_type(kvf__dtype dtype)
{
    return dtype == KVF__I8 ? KVF__F16 : dtype;
}

/* ENUMERIC: the type cannot store a value. `where` names the file. */
static kvf_status check_range(kvf_ctx *ctx, const char *where, const kvf__neuron_array *array,
                              kvf__dtype dtype, int64_t n)
{
    const float limit = kvf__dtype_limit(dtype);

    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(array->at[i]) < limit))
            return kvf__fail(ctx, KVF_ENUMERIC,
                             "%s: the neurons' %s holds %g, which %s cannot store", where,
                             array->name, (double)array->at[i], kvf__dtype_name(dtype));
    return KVF_OK;
}

kvf_status kvf__neurons_round(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                              kvf__neurons *neurons)
{
    kvf__neuron_array array[KVF__NEURON_ARRAYS];
    const int arrays = kvf__neuron_arrays(neurons, array);
    uint8_t narrow[4];

    dtype = stored_type(dtype);
    for (int a = 0; a < arrays; a++) {
        const int64_t n = neurons->shape.L * neurons->shape.N * array[a].columns;
        KVF_TRY(check_range(ctx, where, &array[a], dtype, n));
        for (int64_t i = 0; i < n; i++) {
            kvf__from_f32(dtype, &array[a].at[i], narrow, 1);
            kvf__to_f32(dtype, narrow, &array[a].at[i], 1);
        }
    }
    return KVF_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_array(kvf__h5 *h5, kvf__h5_id group, kvf__dtype dtype,
                        const kvf__neuron_shape *shape, const kvf__neuron_array *array)
{
    const int64_t dim[] = {shape->L, shape->N, shape->C}, n = shape->L * shape->N * array->columns;
    const kvf__h5_spec spec = {.name = array->name,
                               .dtype = dtype,
                               .rank = array->columns == 1 ? 2 : 3,
                               .dim = dim,
                               .labels = LABELS};
    void *narrow = NULL;

    KVF__H5_TRY(h5, check_range(h5->ctx, h5->path, array, dtype, n));
    KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, (size_t)n, kvf__dtype_block_bytes(dtype), &narrow));
    if (h5->status) return;
    kvf__from_f32(dtype, array->at, narrow, n);
    kvf__h5_data_write(h5, group, &spec, narrow, NULL);
    kvf__free(narrow);
}

void kvf__neurons_write(kvf__h5 *h5, kvf__h5_id parent, kvf__dtype dtype,
                        const kvf__neurons *neurons)
{
    kvf__neuron_array array[KVF__NEURON_ARRAYS];

    if (!neurons->shape.N || h5->status) return;
    kvf__h5_id group = kvf__h5_group_create(h5, parent, GROUP);
    const int arrays = kvf__neuron_arrays(neurons, array);
    for (int i = 0; i < arrays; i++)
        write_array(h5, group, stored_type(dtype), &neurons->shape, &array[i]);
    kvf__h5_release(&group);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Opens an array of the wanted type and shape. */
static kvf__h5_data open_array(kvf__h5 *h5, kvf__h5_id group, kvf__dtype dtype,
                               const kvf__neuron_shape *shape, const kvf__neuron_array *array)
{
    const int64_t dim[] = {shape->L, shape->N, shape->C};
    const int rank = array->columns == 1 ? 2 : 3;
    kvf__h5_data data = kvf__h5_data_open(h5, group, array->name);
    char got[128], wanted[128];

    if (!h5->status && (data.dtype != dtype || data.rank != rank ||
                        memcmp(data.dim, dim, (size_t)rank * sizeof *dim)))
        kvf__h5_fail(h5, data.id, KVF_ESHAPE, "%s of %s, want %s of %s",
                     kvf__shape_text(got, data.rank, data.dim), kvf__dtype_name(data.dtype),
                     kvf__shape_text(wanted, rank, dim), kvf__dtype_name(dtype));
    return data;
}

static void check_array(kvf__h5 *h5, kvf__h5_id id, const kvf__neurons *neurons,
                        const kvf__neuron_array *array)
{
    const int64_t each = neurons->shape.N * array->columns;

    for (int64_t i = 0; i < neurons->shape.L * each && !h5->status; i++)
        if (!isfinite(array->at[i]) || (!neurons->layer_mask[i / each] && array->at[i] != 0))
            kvf__h5_fail(h5, id, KVF_ENUMERIC, "layer %lld holds %g, want %s",
                         (long long)(i / each), (double)array->at[i],
                         isfinite(array->at[i]) ? "zeros: it is masked" : "finite values");
}

static void read_array(kvf__h5 *h5, const kvf__h5_data *data, const kvf__neurons *neurons,
                       const kvf__neuron_array *array)
{
    void *narrow = NULL;

    KVF__H5_TRY(h5, kvf__alloc(h5->ctx, data->bytes, &narrow));
    if (h5->status) return;
    kvf__h5_data_read(h5, data, narrow, data->bytes);
    if (!h5->status) kvf__to_f32(data->dtype, narrow, array->at, data->count);
    kvf__free(narrow);
    check_array(h5, data->id, neurons, array);
}

void kvf__neurons_read(kvf__h5 *h5, kvf__h5_id parent, kvf__dtype dtype, kvf__neurons *out)
{
    kvf__neuron_array array[KVF__NEURON_ARRAYS];
    kvf__h5_data data[KVF__NEURON_ARRAYS];
    kvf__h5_id group = kvf__h5_group_open(h5, parent, GROUP);
    const int arrays = kvf__neuron_arrays(out, array);

    /* all shapes are checked before memory is allocated */
    for (int i = 0; i < arrays; i++)
        data[i] = open_array(h5, group, stored_type(dtype), &out->shape, &array[i]);
    if (!h5->status)
        KVF__H5_TRY(h5,
                    kvf__alloc_array(h5->ctx, kvf__neurons_count(out), sizeof *out->w, &out->w));
    if (!h5->status) kvf__neuron_arrays(out, array);
    for (int i = 0; i < arrays; i++) {
        if (!h5->status) read_array(h5, &data[i], out, &array[i]);
        kvf__h5_release(&data[i].id);
    }
    kvf__h5_release(&group);
}
