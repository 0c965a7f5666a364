/* Entries of tensors, shared by the descriptions of all kinds of files. */
#include "inspect_int.h"
#include "json_pack.h"

void kvf__set_taken(kvf_json *root, const char *key, kvf_json **value)
{
    if (*value) kvf_json_set(root, key, *value);
    *value = NULL;
}

kvf_json *kvf__tensor_entry(const char *name, int rank, const int64_t *dim, const char *dtype,
                            size_t bytes)
{
    return kvf__json_of("name:s shape:o dtype:s bytes:I", name, kvf__json_ints(dim, rank), dtype,
                        (int64_t)bytes);
}

static kvf_json *storage_of(const kvf__h5_data *data)
{
    kvf_json *filters = kvf_json_array();
    kvf_json *storage = kvf__json_of("layout:s bytes:I", data->chunked ? "chunked" : "contiguous",
                                     (int64_t)data->stored);

    if (data->chunked) kvf_json_set(storage, "chunk", kvf__json_ints(data->chunk, data->rank));
    if (data->shuffle) kvf_json_add(filters, kvf_json_new_str("shuffle"));
    if (data->deflate) kvf_json_add(filters, kvf_json_new_str("deflate"));
    if (data->fletcher32) kvf_json_add(filters, kvf_json_new_str("fletcher32"));
    kvf_json_set(storage, "filters", filters);
    return storage;
}

kvf_json *kvf__dataset_entry(kvf__h5 *h5, const char *name, const kvf__h5_data *data)
{
    kvf_json *entry = kvf__tensor_entry(name, data->rank, data->dim, kvf__dtype_name(data->dtype),
                                        data->bytes);
    kvf_json *labels = kvf_json_array();
    bool labelled = false;

    for (int i = 0; i < data->rank; i++) {
        char *label = kvf__h5_data_label(h5, data, i);
        kvf_json_add(labels, kvf_json_new_str(label ? label : ""));
        labelled = labelled || label;
        kvf__free(label);
    }
    if (labelled) kvf__set_taken(entry, "labels", &labels);
    kvf_json_free(labels);
    kvf_json_set(entry, "storage", storage_of(data));
    return entry;
}
