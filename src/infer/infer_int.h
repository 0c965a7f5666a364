/* Generation, inside the library: choosing the next token, and the session that runs many rows on
 * one base. */
#ifndef KVF_INFER_INT_H
#define KVF_INFER_INT_H

#include <kvfold/infer.h>

#include "load_int.h"

/* ---- sampling -------------------------------------------------------------------------------- */

typedef struct kvf__sampling {
    double temperature, top_p; /* temperature 0: the largest logit, the lowest id on a tie */
    int64_t top_k;             /* 0: all */
} kvf__sampling;

typedef struct kvf__candidate {
    float logit;
    int32_t id;
} kvf__candidate;

/* The next token from logits [V]. scratch [V] is memory to work in. NaN logits are never chosen.
 * Order of the cuts as in transformers: temperature, top-k, then top-p over what is left. */
int32_t kvf__sample(const kvf__sampling *sampling, const float *logits, int64_t V, kvf__rng *rng,
                    kvf__candidate *scratch);

/* ---- prompts that are ids already ------------------------------------------------------------ */

/* Completions of the rows of a data set; texts [set->n], each to be freed (kvf_texts_free). stats
 * may be NULL. */
kvf_status kvf__generate_set(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const kvf__dataset *set, const kvf__chat *chat,
                             const kvf_generate_options *options, char **texts,
                             kvf_generate_stats *stats);

/* ---- session --------------------------------------------------------------------------------- */

/* Room for `rows` rows of at most `capacity` tokens each, conditioned on one prefix (NULL: none).
 */
typedef struct kvf__session kvf__session;
kvf_status kvf__session_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, int64_t rows,
                               int64_t capacity, int64_t prompt_tokens, kvf__session **out);
void kvf__session_free(kvf__session *session);
/* Appends tokens to the listed slots (row r: ids[start[r]] .. ids[start[r+1]-1]) and returns the
 * logits [n, V] after each row's last token: a view, valid until the next call. */
kvf_status kvf__session_feed(kvf_ctx *ctx, kvf__session *session, const int32_t *slots,
                             const int64_t *start, const int32_t *ids, int64_t n,
                             const float **logits);
/* Slot `to` begins with the first n tokens of slot `from`. */
void kvf__session_copy(kvf__session *session, int64_t from, int64_t to, int64_t n);
void kvf__session_reset(kvf__session *session); /* forgets all rows */

#endif
