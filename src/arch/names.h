/* The names and shapes of weights in files, and which weights a description has. */
#ifndef KVF_NAMES_H
#define KVF_NAMES_H

#include "arch.h"

#define KVF__NAME_BYTES 96
/* Replaces '#' by the layer and prepends prefix; false if it does not fit. */
bool kvf__name_format(char out[KVF__NAME_BYTES], const char *prefix, const char *pattern,
                      int64_t layer);
/* Returns whether name is pattern with any number for '#'. */
bool kvf__name_matches(const char *name, const char *pattern);
bool kvf__role_is_norm(kvf__role role);
bool kvf__weight_in_layer(const kvf__weight *weight); /* whether its pattern has a '#' */
/* Visits every weight of a description, layer by layer for adjacent per-layer rows of the table;
 * stops at the first status other than KVF_OK. */
typedef kvf_status (*kvf__each_weight_fn)(void *user, const kvf__weight *weight, int64_t layer);
kvf_status kvf__each_weight(const kvf__desc *desc, kvf__each_weight_fn each, void *user);
/* Evaluate a word of a shape in a layer (ignored if all are equal); for the largest layer. */
int64_t kvf__shape_size(const kvf__desc *desc, int64_t layer, const char *word);
int64_t kvf__shape_most(const kvf__desc *desc, const char *word);
/* Computes the dimensions required in the file; returns the rank. A GGUF stores Conv1D weights
 * transposed back. */
int kvf__weight_shape(const kvf__desc *desc, const kvf__weight *weight, int64_t layer,
                      int64_t dim[KVF__MAX_RANK]);
const kvf__weight *kvf__weight_by_role(const kvf__desc *desc,
                                       kvf__role role); /* NULL: the family has none */
/* Returns whether a layer has a weight of this role. */
bool kvf__desc_has(const kvf__desc *desc, kvf__role role, int64_t layer);
/* Returns the slot of a role in a layer, NULL: none. The layer is ignored for weights outside
 * layers; for weights of a stack any layer of it will do. */
const kvf__slot *kvf__slot_of(const kvf__desc *desc, const kvf__slots *slots, kvf__role role,
                              int64_t layer);

#endif
