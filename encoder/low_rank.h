/* The low-rank form of multitask prompt tuning (MPT, Wang et al. 2023, arXiv 2303.02861, section
 * 3.1), on keys and values. The prefix of task t is the shared one times a matrix of rank 1,
 * element by element, per layer and for keys and values each,
 *
 *   K_t[l][kv][g][p][d] = K[l][kv][g][p][d] * u[l][kv][p] * v[l][kv][g][d]
 *
 * with u [2L, P] and v [2L, G*D], both 1 at the start. It folds to an ordinary prefix. */
#ifndef KVF_LOW_RANK_H
#define KVF_LOW_RANK_H

#include "prefix.h"

#define KVF__LOW_RANK_U "low_rank.u"
#define KVF__LOW_RANK_V "low_rank.v"

/* Sets `of` [L, 2, G, P, D] to shared times u v^T; both may be the same memory. */
void kvf__low_rank_fwd(kvf__prefix *of, const kvf__prefix *shared, const float *u, const float *v);
/* Turns dprefix from the gradient of the task's prefix into that of the shared one, in place. Adds
 * to du and dv. */
void kvf__low_rank_bwd(kvf__prefix *dprefix, float *du, float *dv, const kvf__prefix *shared,
                       const float *u, const float *v);
/* Applies the u and v in a head's parameter list to the prefix and removes them from the list; does
 * nothing without them. ESHAPE, EFORMAT. The list keeps ownership of values and names. */
kvf_status kvf__low_rank_alloc(kvf_ctx *ctx, const char *where, kvf__params *params,
                               kvf__prefix *prefix);

#endif
