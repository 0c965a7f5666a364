/* Inside src/model: the norms around a block's halves, forward and backward (pass_norms.c). */
#ifndef KVF_PASS_NORMS_H
#define KVF_PASS_NORMS_H

#include "pass_priv.h"

/* The norms around a block's halves (pass_norms.c); each does what its place has, if anything.
 * before_*: returns what the half's products read. */
const void *kvf__pass_before_qkv(kvf__pass *pass, int64_t l);
const void *kvf__pass_before_ffn(kvf__pass *pass, int64_t l, float *x, int64_t M);
void kvf__pass_behind_ffn(kvf__pass *pass, int64_t l, float *x, int64_t M);
void kvf__pass_final_norm(kvf__pass *pass); /* x_lab to in_f */
/* Undo them: dx [M, C] and its copy go from the gradient of the output to that of the input. The
 * gradient of what the half's products read is in dxhat. That of qkv's input stays there for
 * behind_ffn_bwd of the layer below, where it meets dx, if post-norm. */
typedef struct kvf__ahead {
    const float *gamma; /* NULL: folded */
    int role, role_beta;
    int64_t layer;
    const void *xhat;
    const float *rstd;
    int64_t real, M; /* rows that count, rows with padding */
} kvf__ahead;
/* A norm in front of what left its gradient in dxhat: dx [M, C] += that through the norm. */
void kvf__pass_ahead_bwd(kvf__pass *pass, const kvf__ahead *norm, float *dx, void *dx_act);
void kvf__pass_behind_ffn_bwd(kvf__pass *pass, int64_t l, float *dx, void *dx_act, int64_t M);
void kvf__pass_before_ffn_bwd(kvf__pass *pass, int64_t l, float *dx, void *dx_act, int64_t M);
void kvf__pass_before_qkv_bwd(kvf__pass *pass, int64_t l);
/* Norms of queries and keys, on kept qkv and on dqkv. */
void kvf__pass_head_norms_fwd(kvf__pass *pass, int64_t l);
void kvf__pass_head_norms_bwd(kvf__pass *pass, int64_t l);
/* A norm with weights over M rows; the arrays are for the caller to fill in. */
kvf__whole_norm kvf__pass_whole_norm(const kvf__pass *pass, const float *gamma, const float *beta,
                                     int64_t M);

#endif
