/* The names and shapes of weights in files, and which weights a description has. */
#ifndef KVF_NAMES_H
#define KVF_NAMES_H

#include "arch.h"

#define KVF__NAME_BYTES 96
/* Replaces '#' by the layer and puts prefix in front; false if it does not fit. */
bool kvf__name_format(char out[KVF__NAME_BYTES], const char *prefix, const char *pattern,
                      int64_t layer);
/* True if name is pattern with any number for '#'. */
bool kvf__name_matches(const char *name, const char *pattern);
bool kvf__role_is_norm(kvf__role role);
bool kvf__weight_in_layer(const kvf__weight *weight); /* its pattern has a "#" */
/* Every weight that a description wants, layer by layer where rows of the table that belong to
 * layers follow each other; stops at the first status that is not KVF_OK. */
typedef kvf_status (*kvf__each_weight_fn)(void *user, const kvf__weight *weight, int64_t layer);
kvf_status kvf__each_weight(const kvf__desc *desc, kvf__each_weight_fn each, void *user);
/* A word of a shape in numbers, in a layer (ignored where all are alike); the largest of all
 * layers. */
int64_t kvf__shape_size(const kvf__desc *desc, int64_t layer, const char *word);
int64_t kvf__shape_most(const kvf__desc *desc, const char *word);
/* Dimensions as the file must have them; returns the rank. A GGUF stores Conv1D weights transposed
 * back. */
int kvf__weight_shape(const kvf__desc *desc, const kvf__weight *weight, int64_t layer,
                      int64_t dim[KVF__MAX_RANK]);
const kvf__weight *kvf__weight_by_role(const kvf__desc *desc,
                                       kvf__role role); /* NULL if the family has none */
/* Whether a layer has a weight of this role. */
bool kvf__desc_has(const kvf__desc *desc, kvf__role role, int64_t layer);
/* The slot of a role in a layer (ignored for weights outside layers; of those that exist once for
 * each stack: any layer of it), NULL if there is none. */
const kvf__slot *kvf__slot_of(const kvf__desc *desc, const kvf__slots *slots, kvf__role role,
                              int64_t layer);

#endif
