/* The prefix file: /prefix/past_key_values [L, 2, 1, G, P, D], the prefix's bytes with the batch
 * axis spelled out, so that one layer's slice is what a transformers cache takes (docs/format.md).
 * int8 files hold /prefix/scale [L, 2, 1, G] beside it.
 *
 * One chunk per layer. Narrow types are converted by us (prefix_store.c) and not by HDF5: rounding
 * to nearest even, and a value that f16 cannot hold is an error instead of an infinity. */
#include "h5_priv.h"

#include <math.h>
#include <string.h>

enum { RANK = 6, SCALE_RANK = 4 };

static const char DATASET[] = "past_key_values", SCALE[] = "scale";
static const char *const LABELS[RANK] = {"layer", "key_value", "batch",
                                         "head",  "position",  "head_dim"};

static void dims_of(const kvf__prefix *prefix, int64_t dim[RANK])
{
    const int64_t dims[RANK] = {prefix->L, 2, 1, prefix->G, prefix->P, prefix->D};
    memcpy(dim, dims, sizeof dims);
}

/* Values of one layer. */
static size_t layer_count(const kvf__prefix *prefix)
{
    return kvf__prefix_count(prefix) / (size_t)prefix->L;
}

/* Values must be finite, and zero in masked layers. */
static kvf_status check_values(kvf_ctx *ctx, const char *path, const kvf__prefix *prefix)
{
    size_t per_layer = layer_count(prefix);

    for (int64_t l = 0; l < prefix->L; l++) {
        const float *layer = prefix->kv + (size_t)l * per_layer;
        for (size_t i = 0; i < per_layer; i++) {
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
    return KVF_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static kvf_status check_file(kvf_ctx *ctx, const char *path, const kvf__prefix_file *file)
{
    const kvf__prefix *prefix = &file->prefix;
    const kvf__identity *id = &file->id;

    if (!kvf__prefix_dtype_name(file->dtype))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: a prefix is stored as f32, f16, bf16 or int8, not as %s", path,
                         kvf__dtype_name(file->dtype));
    if (prefix->P == 0)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: a prefix of length 0 cannot be stored: it is the bare base", path);
    if (prefix->L != id->L || prefix->G != id->G || prefix->P != id->P || prefix->D != id->D)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: the prefix has L %lld, G %lld, P %lld, D %lld, its identity %lld, "
                         "%lld, %lld, %lld",
                         path, (long long)prefix->L, (long long)prefix->G, (long long)prefix->P,
                         (long long)prefix->D, (long long)id->L, (long long)id->G, (long long)id->P,
                         (long long)id->D);
    return check_values(ctx, path, prefix);
}

static void write_scale(kvf__h5 *h5, kvf__h5_id group, const kvf__prefix *prefix,
                        const float *scale)
{
    const int64_t dim[SCALE_RANK] = {prefix->L, 2, 1, prefix->G};
    const kvf__h5_spec spec = {
        .name = SCALE, .dtype = KVF__F32, .rank = SCALE_RANK, .dim = dim, .labels = LABELS};

    kvf__h5_data_write(h5, group, &spec, scale, NULL);
}

/* Values in the file's type; returns the dataset, to be released. */
static kvf__h5_id write_values(kvf__h5 *h5, kvf__h5_id group, const kvf__prefix_file *file)
{
    const kvf__prefix *prefix = &file->prefix;
    const bool narrow = file->dtype != KVF__F32;
    void *values = NULL;
    float *scale = NULL;
    int64_t dim[RANK], chunk[RANK];
    const kvf__h5_spec spec = {.name = DATASET,
                               .dtype = file->dtype,
                               .rank = RANK,
                               .dim = dim,
                               .chunk = chunk,
                               .labels = LABELS};
    kvf__h5_id data = KVF__H5_NONE;

    dims_of(prefix, dim);
    dims_of(prefix, chunk);
    chunk[0] = 1;
    if (narrow) {
        KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, kvf__prefix_count(prefix),
                                         kvf__dtype_block_bytes(file->dtype), &values));
        KVF__H5_TRY(h5,
                    kvf__alloc_array(h5->ctx, kvf__prefix_scales(prefix), sizeof *scale, &scale));
        KVF__H5_TRY(h5, kvf__prefix_encode(h5->ctx, h5->path, file->dtype, prefix, values, scale));
    }
    kvf__h5_data_write(h5, group, &spec, narrow ? values : prefix->kv, &data);
    if (file->dtype == KVF__I8) write_scale(h5, group, prefix, scale);
    kvf__free(values);
    kvf__free(scale);
    return data;
}

kvf_status kvf__prefix_file_write(kvf_ctx *ctx, const char *path, bool force,
                                  const kvf__prefix_file *file)
{
    kvf__h5 h5;
    kvf__h5_id group, data;

    KVF_TRY(check_file(ctx, path, file));
    h5 = kvf__h5_create(ctx, path, force, "prefix");
    group = kvf__h5_group_create(&h5, h5.file, "prefix");
    data = write_values(&h5, group, file);
    kvf__identity_write(&h5, data, false, &file->id);
    kvf__h5_put_u8s(&h5, data, "layer_mask", file->prefix.layer_mask, file->prefix.L);
    kvf__h5_put_text(&h5, data, "dtype", kvf__prefix_dtype_name(file->dtype));
    kvf__file_end_write(&h5, file->id.task, &file->head, file->options, file->lineage);
    kvf__h5_release(&data); /* not before: the order decides where HDF5 puts what */
    kvf__h5_release(&group);
    return kvf__h5_close(&h5);
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
    if (data->rank != RANK || dim[1] != 2 || dim[2] != 1 || data->count == 0)
        kvf__h5_fail(h5, data->id, KVF_ESHAPE, "shape %s, want [L, 2, 1, G, P, D], none of them 0",
                     kvf__shape_text(text, data->rank, dim));
    dtype = kvf__h5_get_text(h5, data->id, "dtype");
    if (dtype && strcmp(dtype, want) != 0)
        kvf__h5_fail(h5, data->id, KVF_EFORMAT, "attribute dtype is \"%s\", but the values are %s",
                     dtype, want);
    kvf__free(dtype);
}

/* Scales of int8 values, [L, 2, 1, G]. */
static void read_scale(kvf__h5 *h5, kvf__h5_id group, const kvf__prefix *prefix, float *scale)
{
    const int64_t want[SCALE_RANK] = {prefix->L, 2, 1, prefix->G};
    kvf__h5_data data = kvf__h5_data_open(h5, group, SCALE);
    char got[128], wanted[128];

    if (data.dtype != KVF__F32 || data.rank != SCALE_RANK || memcmp(data.dim, want, sizeof want))
        kvf__h5_fail(h5, data.id, KVF_ESHAPE, "%s of %s, want %s of f32",
                     kvf__shape_text(got, data.rank, data.dim), kvf__dtype_name(data.dtype),
                     kvf__shape_text(wanted, SCALE_RANK, want));
    kvf__h5_data_read(h5, &data, scale);
    for (size_t h = 0; h < kvf__prefix_scales(prefix) && !h5->status; h++)
        if (!(scale[h] >= 0) || !isfinite(scale[h]))
            kvf__h5_fail(h5, data.id, KVF_ENUMERIC,
                         "scale %zu is %g, want a finite number from 0 on", h, (double)scale[h]);
    kvf__h5_release(&data.id);
}

static void read_narrow(kvf__h5 *h5, kvf__h5_id group, const kvf__h5_data *data,
                        kvf__prefix *prefix)
{
    void *narrow = NULL;
    float *scale = NULL;

    KVF__H5_TRY(h5, kvf__alloc(h5->ctx, data->bytes, &narrow));
    KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, kvf__prefix_scales(prefix), sizeof *scale, &scale));
    kvf__h5_data_read(h5, data, narrow);
    if (data->dtype == KVF__I8) read_scale(h5, group, prefix, scale);
    if (!h5->status) kvf__prefix_decode(data->dtype, narrow, scale, prefix);
    kvf__free(narrow);
    kvf__free(scale);
}

static void read_values(kvf__h5 *h5, kvf__h5_id group, const kvf__h5_data *data,
                        kvf__prefix_file *file)
{
    const int64_t *dim = data->dim;
    kvf__prefix *prefix = &file->prefix;
    uint8_t *mask = kvf__mask_read(h5, data->id, dim[0]);

    file->id.L = dim[0];
    file->id.G = dim[3];
    file->id.P = dim[4];
    file->id.D = dim[5];
    file->dtype = data->dtype;
    KVF__H5_TRY(h5, kvf__prefix_init(h5->ctx, prefix, dim[0], dim[3], dim[4], dim[5]));
    if (!h5->status) {
        memcpy(prefix->layer_mask, mask, (size_t)dim[0]);
        if (data->dtype == KVF__F32)
            kvf__h5_data_read(h5, data, prefix->kv);
        else
            read_narrow(h5, group, data, prefix);
    }
    kvf__free(mask);
    KVF__H5_TRY(h5, check_values(h5->ctx, h5->path, prefix));
}

void kvf__prefix_read_from(kvf__h5 *h5, kvf__h5_data *data, kvf__prefix_file *file)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "prefix");

    *data = kvf__h5_data_open(h5, group, DATASET);
    if (!h5->status) check_data(h5, data);
    kvf__identity_read(h5, data->id, false, &file->id);
    if (!h5->status) read_values(h5, group, data, file);
    kvf__file_end_read(h5, file->id.task, &file->head, &file->options, &file->lineage);
    kvf__h5_release(&group);
}

kvf_status kvf__prefix_file_read(kvf_ctx *ctx, const char *path, kvf__prefix_file *out)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, "prefix");
    kvf__h5_data data;
    kvf__prefix_file file = {0};
    kvf_status st;

    kvf__prefix_read_from(&h5, &data, &file);
    kvf__h5_release(&data.id);
    st = kvf__h5_close(&h5);
    if (st)
        kvf__prefix_file_done(&file);
    else
        *out = file;
    return st;
}

void kvf__prefix_file_done(kvf__prefix_file *file)
{
    kvf__identity_done(&file->id);
    kvf__prefix_done(&file->prefix);
    kvf__head_values_done(&file->head);
    kvf_json_free(file->options);
    kvf_json_free(file->lineage);
    *file = (kvf__prefix_file){0};
}
