/* An ensemble of prefixes (ensemble.c), used like a session. Its logits are those of the mean of
 * the probabilities with each prefix. */
#ifndef KVF_ENSEMBLE_H
#define KVF_ENSEMBLE_H

#include "session.h"

typedef struct kvf__ensemble kvf__ensemble;
/* prefixes [n], n 0: the bare base. EUSAGE if their rows have different ids. */
kvf_status kvf__ensemble_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *const *prefixes,
                                int64_t n, const kvf__session_limits *limits, kvf__ensemble **out);
void kvf__ensemble_free(kvf__ensemble *ensemble);
kvf_status kvf__ensemble_feed(kvf_ctx *ctx, kvf__ensemble *ensemble, const kvf__tokens *tokens,
                              const float **logits);
/* kvf__session_feed_runs, kvf__session_drop: only for at most one prefix. */
kvf_status kvf__ensemble_feed_runs(kvf_ctx *ctx, kvf__ensemble *ensemble, const kvf__tokens *tokens,
                                   const float **logits);
void kvf__ensemble_drop(kvf__ensemble *ensemble, int64_t slot, int64_t n);
void kvf__ensemble_copy(kvf__ensemble *ensemble, int64_t from, int64_t to, int64_t n);
void kvf__ensemble_reset(kvf__ensemble *ensemble);

#endif
