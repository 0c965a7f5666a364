/* What the losses of the language-model head share (head_lm.c, head_soft.c): labelled rows in
 * chunks, the vocabulary in planes, the check of a batch and the way back through the final norm.
 */
#ifndef KVF_HEAD_LM_H
#define KVF_HEAD_LM_H

#include "model_priv.h"

#define KVF__HEAD_ROWS 256 /* labelled rows per pass over the vocabulary */

struct kvf__pass;

/* Carved from the pass's arena; head rows: at most KVF__HEAD_ROWS labelled rows at a time. */
typedef struct kvf__pass_head {
    void *xhat;    /* [Lx, C] output of the final norm, without its weights */
    void *in;      /* [Lx, C] what the head reads; xhat where the norm is folded into it */
    float *rstd;   /* [Lx] of the final norm */
    float *logits; /* [head rows, KVF__VOCAB_PLANE] */
    float *max, *sum, *target_logit; /* [head rows] running */
    int32_t *target;                 /* [head rows] */
    float *soft_logit;               /* [head rows, limits.soft] of a teacher's items */
    unsigned reach; /* KVF__REACH_...: how the labels at hand use planes of the head */
    /* backward only */
    void *e;                 /* [head rows, KVF__VOCAB_PLANE] */
    float *acc, *target_row; /* [head rows, C] */
    float *soft_row;         /* [head rows, C] of the head; NULL: no teacher */
} kvf__pass_head;

/* Labelled rows [first, first + rows) of which `real` carry a label; the others are padding. */
typedef struct kvf__head_chunk {
    int64_t first, rows, real;
} kvf__head_chunk;

kvf__head_chunk kvf__head_chunk_at(const struct kvf__pass *pass, int64_t first);
/* Starts the running maxima and sums, and acc where a gradient is wanted. */
void kvf__head_chunk_begin(struct kvf__pass *pass, const kvf__head_chunk *c, bool gradient);
/* pass->head.logits [rows, KVF__VOCAB_PLANE] of plane p. */
kvf_status kvf__head_plane_logits(kvf_ctx *ctx, struct kvf__pass *pass, const kvf__head_chunk *c,
                                  int64_t p);
/* Those logits into the running maxima and sums, and with a gradient acc [rows, C] += exp(logit -
 * max) head. pass->head.target is set: the labels' columns in this plane, or -1. */
kvf_status kvf__head_plane_sum(kvf_ctx *ctx, struct kvf__pass *pass, const kvf__head_chunk *c,
                               int64_t p, bool gradient);
/* Where the gradient of what the head reads is to be written, [rows, C] of the chunk in f32; and
 * its end: rows of padding become zero, the act type gets its copy. */
float *kvf__head_gradient_rows(const struct kvf__pass *pass, const kvf__head_chunk *c);
void kvf__head_gradient_end(struct kvf__pass *pass, const kvf__head_chunk *c);
/* Is there a head, and a forward pass before it? what: "loss", "logits", for the error. */
kvf_status kvf__head_check(kvf_ctx *ctx, const struct kvf__pass *pass, const char *what);
/* May a gradient be taken? */
kvf_status kvf__head_check_gradient(kvf_ctx *ctx, const struct kvf__pass *pass);
/* Through the final norm: dx_lab, and its copy in the act type. */
void kvf__head_norm_bwd(struct kvf__pass *pass);

#endif
