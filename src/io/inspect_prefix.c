/* A prefix file described: where it comes from, how it is stored, and how keys and values of each
 * layer are distributed, which shows at a glance a layer that was not trained, or one that
 * exploded. */
#include "inspect_int.h"

#include <math.h>

/* Mean, deviation (of the population), extremes and L2 norm, summed in f64. */
static kvf_json *statistics(const float *values, size_t n)
{
    kvf_json *object = kvf_json_object();
    double sum = 0, squares = 0, around = 0, mean;
    float low = values[0], high = values[0];

    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
        if (values[i] < low) low = values[i];
        if (values[i] > high) high = values[i];
    }
    mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        around += ((double)values[i] - mean) * ((double)values[i] - mean);
    kvf_json_set(object, "mean", kvf_json_new_real(mean));
    kvf_json_set(object, "std", kvf_json_new_real(sqrt(around / (double)n)));
    kvf_json_set(object, "min", kvf_json_new_real((double)low));
    kvf_json_set(object, "max", kvf_json_new_real((double)high));
    kvf_json_set(object, "norm", kvf_json_new_real(sqrt(squares)));
    return object;
}

static kvf_json *describe_layers(const kvf__prefix *prefix)
{
    kvf_json *layers = kvf_json_array();
    size_t half = (size_t)prefix->G * (size_t)prefix->P * (size_t)prefix->D;

    for (int64_t l = 0; l < prefix->L; l++) {
        kvf_json *layer = kvf_json_object();
        const float *key = prefix->kv + (size_t)l * 2 * half;
        kvf_json_set(layer, "layer", kvf_json_new_int(l));
        kvf_json_set(layer, "key", statistics(key, half));
        kvf_json_set(layer, "value", statistics(key + half, half));
        kvf_json_add(layers, layer);
    }
    return layers;
}

/* The scales of int8 values, and how far they reach. */
static void describe_scale(kvf__h5 *h5, kvf_json *tensors)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "prefix");
    kvf__h5_data data = kvf__h5_data_open(h5, group, "scale");
    float *scale = NULL;

    KVF__H5_TRY(h5, kvf__alloc(h5->ctx, data.bytes, &scale));
    kvf__h5_data_read(h5, &data, scale);
    if (scale) {
        kvf_json *entry = kvf__dataset_entry(h5, "prefix/scale", &data);
        kvf_json_set(entry, "values", statistics(scale, (size_t)data.count));
        kvf_json_add(tensors, entry);
    }
    kvf__free(scale);
    kvf__h5_release(&data.id);
    kvf__h5_release(&group);
}

static void describe(kvf__h5 *h5, const kvf__h5_data *data, kvf__prefix_file *file, kvf_json *root)
{
    kvf_json *tensors = kvf_json_array();

    kvf_json_set(root, "tensors", tensors);
    kvf__inspect_identity(h5, &file->id, file->prefix.layer_mask, root);
    kvf_json_set(kvf_json_get(root, "attributes"), "dtype",
                 kvf_json_new_str(kvf__prefix_dtype_name(file->dtype)));
    kvf_json_add(tensors, kvf__dataset_entry(h5, "prefix/past_key_values", data));
    if (file->dtype == KVF__I8) describe_scale(h5, tensors);
    kvf__inspect_head(h5, root, tensors);
    kvf_json_set(root, "layers", describe_layers(&file->prefix));
    kvf__set_taken(root, "options", &file->options);
    kvf__set_taken(root, "lineage", &file->lineage);
}

kvf_status kvf__inspect_prefix(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, "prefix");
    kvf__h5_data data;
    kvf__prefix_file file = {0};

    kvf__prefix_read_from(&h5, &data, &file);
    if (!h5.status) describe(&h5, &data, &file, root);
    kvf__prefix_file_done(&file);
    kvf__h5_release(&data.id);
    return kvf__h5_close(&h5);
}
