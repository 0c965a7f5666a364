/* Collects generated rows of a language model one by one. */
#ifndef KVF_ROW_LIST_H
#define KVF_ROW_LIST_H

#include "dataset.h"

typedef struct kvf__row_list {
    kvf__ids ids, labels, ends; /* ends: end of each row in ids */
    int64_t longest;            /* longest row; longer ones are truncated */
} kvf__row_list;
/* Ends the row appended to ids and labels. Drops it if it has no label. */
kvf_status kvf__row_list_end(kvf_ctx *ctx, kvf__row_list *list);
kvf_status kvf__row_list_add(kvf_ctx *ctx, kvf__row_list *list, const kvf__row_list *from,
                             int64_t row);
kvf_status kvf__row_list_add_from(kvf_ctx *ctx, kvf__row_list *list, const kvf__dataset *set,
                                  int64_t row);
kvf_status kvf__row_list_add_set(kvf_ctx *ctx, kvf__row_list *list, const kvf__dataset *set);
void kvf__row_list_done(kvf__row_list *list);
/* Makes a data set of task lm from the last row of every `stride` (held_out), or from all others.
 * `salt` goes into its hash. */
kvf_status kvf__row_list_pick(kvf_ctx *ctx, const kvf__row_list *list, int64_t stride,
                              bool held_out, const char *salt, kvf__dataset *out);

#endif
