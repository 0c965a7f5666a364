/* Internals of kvf_inspect(): each function fills the object of one kind of file. JSON is built
 * without checks, and checked once at the end. */
#ifndef KVF_INSPECT_INT_H
#define KVF_INSPECT_INT_H

#include "file_int.h"
#include "h5.h"

kvf_status kvf__inspect_own(kvf_ctx *ctx, const char *path, kvf_json *root);
/* EFORMAT: unknown kind. */
kvf_status kvf__inspect_foreign(kvf_ctx *ctx, const char *path, kvf__file_kind kind,
                                kvf_json *root);

/* Adds the parameters of /PARENT/CHILD, or of /CHILD if parent is NULL; absent ones are skipped. */
void kvf__inspect_params(kvf__h5 *h5, const char *parent, const char *child, bool with_norm,
                         kvf_json *tensors);
/* Adds /head, and the meaning of its outputs to the attributes. */
void kvf__inspect_head(kvf__h5 *h5, kvf_json *root, kvf_json *tensors);
/* Returns the L2 norms of n vectors x [width] with this stride. */
kvf_json *kvf__norms_of(const float *x, int64_t n, int64_t stride, int64_t width);
/* Returns {name, shape, dtype, bytes}. */
kvf_json *kvf__tensor_entry(const char *name, int rank, const int64_t *dim, const char *dtype,
                            size_t bytes);
/* Returns the same for a dataset, with labels, if any, and storage {layout, bytes, chunk, filters}.
 */
kvf_json *kvf__dataset_entry(kvf__h5 *h5, const char *name, const kvf__h5_data *data);
/* Adds tensors []. */
void kvf__inspect_table(const kvf__table *table, kvf_json *root);
/* Sets key unless value is NULL; the parent then owns the object, and *value is NULL. */
void kvf__set_taken(kvf_json *root, const char *key, kvf_json **value);

#endif
