/* Private to src/pass: the norms around a block's halves, forward and backward (pass_norms.c). */
#ifndef KVF_PASS_NORMS_H
#define KVF_PASS_NORMS_H

#include "pass_priv.h"

/* A norm with its weights, its place and its kept values. */
typedef struct kvf__norm_at {
    int role, role_beta;
    int64_t layer;
    int64_t width;             /* 0: C */
    const float *gamma, *beta; /* gamma NULL: folded */
    void *xhat;                /* act [M, C] */
    float *rstd;               /* [M] */
    void *out;                 /* act [M, C] output of an unfolded norm before products */
    int64_t real, M;           /* rows without padding, rows with padding */
} kvf__norm_at;
kvf__norm_at kvf__pass_final_norm(const kvf__pass *pass);
/* Returns the kernel arguments; the caller fills in the arrays of a call. */
kvf__whole_norm kvf__pass_whole_norm(const kvf__pass *pass, const kvf__norm_at *at);
/* Applies a norm and returns its output; x [M, C] is unchanged. Backward: adds the gradient in
 * dxhat, through the norm, to dx [M, C] and its copy. */
const void *kvf__pass_pre_norm_fwd(kvf__pass *pass, const kvf__norm_at *at, const float *x);
void kvf__pass_pre_norm_bwd(kvf__pass *pass, const kvf__norm_at *at, float *dx, void *dx_act);
/* Backward through a norm of the stream itself: dx + plus (NULL: zero) becomes the new dx. */
void kvf__pass_post_norm_bwd(kvf__pass *pass, const kvf__norm_at *at, const void *plus, float *dx,
                             void *dx_act);

/* The norms around a block's halves; no effect if a place has none. before: returns the input of
 * the half's products. */
const void *kvf__pass_before(kvf__pass *pass, int64_t l, kvf__half half, float *x);
/* Applies the norm at the end of a post-norm layer, after its last half. */
void kvf__pass_end_norm(kvf__pass *pass, int64_t l, float *x);
/* Applies the norm of a half's output, which is added to x [M, C] unless dropout does that. */
void kvf__pass_out_norm_fwd(kvf__pass *pass, int64_t l, kvf__half half, float *x, int64_t M);
/* Computes the gradient of the products' output from that of the half's output: returns f32, and
 * *dy. */
const float *kvf__pass_out_norm_bwd(kvf__pass *pass, int64_t l, kvf__half half, const float *dhalf,
                                    int64_t M, const void **dy);
/* Backward: turn dx [M, C] and its copy from the gradient of the output into that of the input. The
 * gradient of the products' input is in dxhat. That of qkv's input stays there for end_norm_bwd of
 * the layer below, which adds it to dx in post-norm blocks. */
void kvf__pass_end_norm_bwd(kvf__pass *pass, int64_t l, float *dx, void *dx_act);
void kvf__pass_before_bwd(kvf__pass *pass, int64_t l, kvf__half half, float *dx, void *dx_act);
/* Adds dxhat to dx [M, C] and its copy, if a half read the stream itself. */
void kvf__pass_bare_bwd(kvf__pass *pass, float *dx, void *dx_act, int64_t M);
/* Norms of queries and keys, on kept qkv and on dqkv. */
void kvf__pass_head_norms_fwd(kvf__pass *pass, int64_t l);
void kvf__pass_head_norms_bwd(kvf__pass *pass, int64_t l);

#endif
