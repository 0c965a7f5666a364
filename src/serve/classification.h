/* A request to classify: rows for the head of a prefix, answered with the bits that `kvfold
 * predict` gives a file of these rows (classification.c). Read in one thread, computed in another.
 */
#ifndef KVF_CLASSIFICATION_H
#define KVF_CLASSIFICATION_H

#include "prefix_cache.h"
#include "reply.h"

typedef struct kvf__classification kvf__classification;
/* Reads "input". limits: max_context is the most tokens of a row (0: the base's), max_body the most
 * tokens of all rows together (EDATA). EUSAGE: ref has no head. */
kvf_status kvf__classification_read(kvf_ctx *ctx, kvf_base *base, const kvf__prefix_ref *ref,
                                    const kvf_json *input, const kvf_serve_options *limits,
                                    kvf__classification **out);
void kvf__classification_free(kvf__classification *classification);
int64_t kvf__classification_tokens(const kvf__classification *classification);
size_t kvf__classification_bytes(const kvf__classification *classification);
/* The next batch; *more false: it was the last. */
kvf_status kvf__classification_step(kvf_ctx *ctx, kvf__classification *classification, bool *more);
/* After the last one: the reply. */
kvf_status kvf__classification_reply(kvf_ctx *ctx, kvf__classification *classification,
                                     const kvf__reply *reply, kvf__buf *out);

#endif
