/* An embeddings file described: where it comes from, where its virtual tokens stand, and the length
 * of each vector. */
#include "inspect_int.h"

#include <math.h>

static kvf_json *norms_of(const kvf__vectors *vectors)
{
    kvf_json *norms = kvf_json_array();
    for (int64_t p = 0; p < vectors->P; p++) {
        double square = 0;
        for (int64_t c = p * vectors->C; c < (p + 1) * vectors->C; c++)
            square += (double)vectors->x[c] * (double)vectors->x[c];
        kvf_json_add(norms, kvf_json_new_real(sqrt(square)));
    }
    return norms;
}

kvf_status kvf__inspect_embeddings(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, "embeddings");
    kvf__h5_data data;
    kvf__embeddings_file file = {0};
    kvf_json *tensors = kvf_json_array(), *attributes;

    kvf_json_set(root, "tensors", tensors);
    kvf__embeddings_read_from(&h5, &data, &file);
    if (!h5.status) {
        kvf__inspect_identity(&h5, &file.id, NULL, root);
        attributes = kvf_json_get(root, "attributes");
        kvf_json_set(attributes, "template", kvf_json_new_str(file.pattern));
        kvf_json_set(attributes, "norms", norms_of(&file.vectors));
        kvf_json_add(tensors, kvf__dataset_entry(&h5, "embeddings/virtual", &data));
        kvf__inspect_head(&h5, root, tensors);
        kvf__set_taken(root, "options", &file.options);
        kvf__set_taken(root, "lineage", &file.lineage);
    }
    kvf__embeddings_file_done(&file);
    kvf__h5_release(&data.id);
    return kvf__h5_close(&h5);
}
