/* A request to classify: rows for the head of a prefix, answered with the same bits as `kvfold
 * predict` (classification.c). One thread reads it, another computes it. */
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
/* Computes the next batch; *more false: it was the last. */
kvf_status kvf__classification_step(kvf_ctx *ctx, kvf__classification *classification, bool *more);
/* Writes the reply after the last batch. */
kvf_status kvf__classification_reply(kvf_ctx *ctx, kvf__classification *classification,
                                     const kvf__reply *reply, kvf__buf *out);

#endif
