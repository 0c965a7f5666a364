/* Rows of a language model that come together one by one. */
#ifndef KVF_ROW_LIST_H
#define KVF_ROW_LIST_H

#include "dataset.h"

typedef struct kvf__row_list {
    kvf__ids ids, labels, ends; /* ends: of each row in ids */
    int64_t longest;            /* what is longer is cut */
} kvf__row_list;
/* Ends the row that was appended to ids and labels; drops it if nothing of it is predicted. */
kvf_status kvf__row_list_end(kvf_ctx *ctx, kvf__row_list *list);
kvf_status kvf__row_list_add(kvf_ctx *ctx, kvf__row_list *list, const kvf__row_list *from,
                             int64_t row);
kvf_status kvf__row_list_add_from(kvf_ctx *ctx, kvf__row_list *list, const kvf__dataset *set,
                                  int64_t row);
kvf_status kvf__row_list_add_set(kvf_ctx *ctx, kvf__row_list *list, const kvf__dataset *set);
void kvf__row_list_done(kvf__row_list *list);
/* The last row of every `stride` (held_out), or all others, as a data set of task lm; salt goes
 * into its hash. */
kvf_status kvf__row_list_pick(kvf_ctx *ctx, const kvf__row_list *list, int64_t stride,
                              bool held_out, const char *salt, kvf__dataset *out);

#endif
