/* The pieces of kvf_inspect(): each fills the object of one kind of file.
 *
 * JSON is built unchecked and checked once at the end, by kvf_inspect(). */
#ifndef KVF_INSPECT_INT_H
#define KVF_INSPECT_INT_H

#include "file_int.h"
#include "h5.h"

kvf_status kvf__inspect_own(kvf_ctx *ctx, const char *path, kvf_json *root);
/* EFORMAT: unknown. */
kvf_status kvf__inspect_foreign(kvf_ctx *ctx, const char *path, kvf__file_kind kind,
                                kvf_json *root);

/* The parameters of /PARENT/CHILD, or of /CHILD where parent is NULL; absent ones are skipped. */
void kvf__inspect_params(kvf__h5 *h5, const char *parent, const char *child, bool with_norm,
                         kvf_json *tensors);
/* /head, and what its outputs mean, among the attributes. */
void kvf__inspect_head(kvf__h5 *h5, kvf_json *root, kvf_json *tensors);
/* L2 norms of n vectors x [width] that are `stride` apart. */
kvf_json *kvf__norms_of(const float *x, int64_t n, int64_t stride, int64_t width);
/* {name, shape, dtype, bytes}. */
kvf_json *kvf__tensor_entry(const char *name, int rank, const int64_t *dim, const char *dtype,
                            size_t bytes);
/* The same for a dataset, with labels, where it has some, and storage {layout, bytes, chunk,
 * filters}. */
kvf_json *kvf__dataset_entry(kvf__h5 *h5, const char *name, const kvf__h5_data *data);
/* tensors []. */
void kvf__inspect_table(const kvf__table *table, kvf_json *root);
/* Sets key unless value is NULL; the object is owned by the parent then, *value is NULL. */
void kvf__set_taken(kvf_json *root, const char *key, kvf_json **value);

#endif
