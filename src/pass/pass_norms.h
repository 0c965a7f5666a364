/* Inside src/pass: the norms around a block's halves, forward and backward (pass_norms.c). */
#ifndef KVF_PASS_NORMS_H
#define KVF_PASS_NORMS_H

#include "pass_priv.h"

/* A norm with its weights, its place and what it keeps. */
typedef struct kvf__norm_at {
    int role, role_beta;
    int64_t layer;
    int64_t width;             /* 0: C */
    const float *gamma, *beta; /* gamma NULL: folded */
    void *xhat;                /* act [M, C] */
    float *rstd;               /* [M] */
    void *out;                 /* act [M, C] of a norm in front of products that is not folded */
    int64_t real, M;           /* rows that count, rows with padding */
} kvf__norm_at;
kvf__norm_at kvf__pass_final_norm(const kvf__pass *pass);
/* For the kernels; the arrays of a call are for the caller to fill in. */
kvf__whole_norm kvf__pass_whole_norm(const kvf__pass *pass, const kvf__norm_at *at);
/* A norm in front of something, which reads what is returned; x [M, C] stays. Back: dx [M, C] and
 * its copy += what is in dxhat, through the norm. */
const void *kvf__pass_pre_norm_fwd(kvf__pass *pass, const kvf__norm_at *at, const float *x);
void kvf__pass_pre_norm_bwd(kvf__pass *pass, const kvf__norm_at *at, float *dx, void *dx_act);
/* Back through a norm of the stream itself: dx + plus (NULL: nothing) to dx. */
void kvf__pass_post_norm_bwd(kvf__pass *pass, const kvf__norm_at *at, const void *plus, float *dx,
                             void *dx_act);

/* The norms around a block's halves; each does what its place has, if anything. before: returns
 * what the half's products read. */
const void *kvf__pass_before(kvf__pass *pass, int64_t l, kvf__half half, float *x);
/* In post-norm blocks the norm that a layer ends in, behind its last half. */
void kvf__pass_end_norm(kvf__pass *pass, int64_t l, float *x);
/* The norm of what a half gave, which is added to x [M, C] unless dropout does that. */
void kvf__pass_out_norm_fwd(kvf__pass *pass, int64_t l, kvf__half half, float *x, int64_t M);
/* From the gradient of what a half added to that of what its products gave: f32, and *dy. */
const float *kvf__pass_out_norm_bwd(kvf__pass *pass, int64_t l, kvf__half half, const float *dhalf,
                                    int64_t M, const void **dy);
/* Undo them: dx [M, C] and its copy go from the gradient of the output to that of the input. The
 * gradient of what the half's products read is in dxhat. That of qkv's input stays there for
 * end_norm_bwd of the layer below, where it meets dx, if post-norm. */
void kvf__pass_end_norm_bwd(kvf__pass *pass, int64_t l, float *dx, void *dx_act);
void kvf__pass_before_bwd(kvf__pass *pass, int64_t l, kvf__half half, float *dx, void *dx_act);
/* dx [M, C] and its copy += dxhat, where what a half read was the stream itself. */
void kvf__pass_bare_bwd(kvf__pass *pass, float *dx, void *dx_act, int64_t M);
/* Norms of queries and keys, on kept qkv and on dqkv. */
void kvf__pass_head_norms_fwd(kvf__pass *pass, int64_t l);
void kvf__pass_head_norms_bwd(kvf__pass *pass, int64_t l);

#endif
