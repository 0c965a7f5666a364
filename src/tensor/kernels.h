/* The hand-written inner loops, one table per instruction set, chosen once: ref (portable C, double
 * accumulation: the readable truth), avx2, avx512, avx512_bf16 (amx uses the last where it has no
 * own form). KVF_CPU=ref|avx2|avx512|avx512_bf16|amx caps the choice, and oneDNN with it.
 *
 * act is the type of stored activations, F32 or BF16; the residual stream, its gradient and all
 * statistics are f32. Kernels run their rows in parallel (OpenMP) with a static split; a row's
 * result does not depend on the thread count. Where norm weights are folded into the next matmul,
 * norm_fwd and norm_bwd produce and consume xhat only; whole norms apply them. */
#ifndef KVF_KERNELS_H
#define KVF_KERNELS_H

#include "view.h"

struct kvf__attn; /* attention.h */
struct kvf__attn_row;

typedef enum kvf__act_fn {
    KVF__GELU_TANH,
    KVF__GELU_ERF,
    KVF__SILU,
    KVF__RELU,
    KVF__QUICK_GELU,
    KVF__TANH
} kvf__act_fn;

/* One chunk of a cross-entropy over a vocabulary cut into chunks ("flash" CE). Per
 * row the caller starts with max = -inf, sum = 0 and calls chunk after chunk. */
typedef struct kvf__ce_chunk {
    int64_t rows, width; /* logits [rows, width] */
    const float *logits;
    int64_t valid;         /* columns >= valid are padding: probability 0 */
    const int32_t *target; /* [rows], column within this chunk, or any value outside [0, width) */
    float *max, *sum;      /* [rows] running maximum and sum of exp(logit - max) */
    float *target_logit;   /* [rows], set where the target is in this chunk */
    void *e; /* act [rows, width] = exp(logit - max), 0 for padding; not the logits' memory; NULL:
                loss only */
    float *acc; /* [rows, C] rescaled by exp(old max - new max), zeroed by the first chunk; NULL:
                   none */
    int64_t C;
} kvf__ce_chunk;

/* A norm whose output is used itself: after the residual sum of post-norm blocks, on embeddings,
 * as final hidden state. The stream is f32 and may be normed in place; y = gamma * xhat + beta. */
typedef struct kvf__whole_norm {
    int64_t M, C;
    bool rms;
    float eps;          /* inside the root */
    const float *gamma; /* [C] */
    const float *beta;  /* [C]; NULL: none */
    const float *x;     /* f32 [M, C] */
    float *y;           /* f32 [M, C]; may be x */
    void *y_act;        /* act [M, C], the same again; NULL: not wanted */
    void *xhat;         /* act [M, C]; forward: NULL if no backward pass needs it */
    float *rstd;        /* [M] */
    float *dx;          /* backward, f32 [M, C]: gradient of y, becomes that of x */
    const void *plus;   /* backward, act [M, C]: the rest of the gradient of y; NULL: none */
    void *dx_act;       /* backward, act [M, C]: the same again; NULL: not wanted */
} kvf__whole_norm;

/* RMSNorm of every head by itself: queries and keys of Qwen3, in place. */
typedef struct kvf__head_norm {
    int64_t M, ld, heads, D; /* heads of size D at the start of every row of x act [M, ld] */
    float eps;
    const float *gamma; /* [heads, D] */
    void *x;            /* forward: becomes gamma * xhat; backward: gradient of that, becomes the
                           gradient of what it was */
    void *xhat;         /* act [M, heads, D]; forward: NULL if no backward pass needs it */
    float *rstd;        /* [M, heads] */
} kvf__head_norm;

/* Sums of eight-bit products that become the rows of a product (dnnl_int8.c):
 *   y[m, n] (= or +=) (sums[m, n] - zero[n]) * row[m] * column[n] + bias[n]. */
typedef struct kvf__scaled_sums {
    int64_t M, N;
    const int32_t *sums; /* [M, N] */
    const int32_t *zero; /* [N] of what the zero of unsigned bytes adds to a sum */
    const float *row;    /* [M] */
    const float *column; /* [N] */
    const float *bias;   /* [N]; NULL: none */
    void *y;             /* [M, N] of the type that the kernel is given */
    bool add;
} kvf__scaled_sums;

typedef struct kvf__kernels {
    const char *name; /* "ref", "avx2", ... */

    /* xhat act [M, C] = (x - mean) * rstd (rms: x * rstd), rstd [M]; x f32 [M, C]. eps inside the
     * root. */
    void (*norm_fwd)(kvf__dtype act, void *xhat, float *rstd, const float *x, int64_t M, int64_t C,
                     bool rms, float eps);
    /* dx f32 [M, C] += gradient through the norm of dxhat act [M, C]; dx_act, if given, gets the
     * sum in the act type. */
    void (*norm_bwd)(kvf__dtype act, float *dx, void *dx_act, const void *dxhat, const void *xhat,
                     const float *rstd, int64_t M, int64_t C, bool rms);
    void (*whole_norm_fwd)(kvf__dtype act, const kvf__whole_norm *norm);
    void (*whole_norm_bwd)(kvf__dtype act, const kvf__whole_norm *norm);
    void (*head_norm_fwd)(kvf__dtype act, const kvf__head_norm *norm);
    void (*head_norm_bwd)(kvf__dtype act, const kvf__head_norm *norm);
    /* g act [n] = fn(h); h becomes fn'(h). g and h are different arrays. */
    void (*act_fwd)(kvf__dtype act, kvf__act_fn fn, void *h, void *g, int64_t n);
    /* d act [n] *= by. */
    void (*mul)(kvf__dtype act, void *d, const void *by, int64_t n);
    /* a = fn(g) * u; then g becomes u * fn'(g), u becomes fn(g): the two factors the backward pass
     * needs. */
    void (*glu_fwd)(kvf__dtype act, kvf__act_fn fn, void *g, void *u, void *a, int64_t n);
    /* dg = da * g, du = da * u with the factors left by glu_fwd. dg, du may alias g, u or be
     * others. */
    void (*glu_bwd)(kvf__dtype act, void *dg, void *du, const void *da, const void *g,
                    const void *u, int64_t n);
    /* Rotates `heads` heads of size D at the start of every row of x act [M, ld] (half-split pairs
     * (i, i + R/2) of the first R dims), by position[row] rows of the tables cos, sin f32
     * [positions, R/2]; inverse turns back. */
    void (*rope)(kvf__dtype act, void *x, int64_t M, int64_t ld, int64_t heads, int64_t D,
                 int64_t R, const int32_t *position, const float *cos, const float *sin,
                 bool inverse);
    void (*ce)(kvf__dtype act, const kvf__ce_chunk *chunk);
    /* act <- f32 and back, n elements. */
    void (*from_f32)(kvf__dtype act, void *dst, const float *src, int64_t n);
    void (*to_f32)(kvf__dtype act, float *dst, const void *src, int64_t n);
    /* On the calling thread. q [M, K] = zero + x / scale[m] to nearest even, of act [M, K], where
     * scale[m] = max |x[m]| / 127: signed bytes with zero = 0, others with 128. A row below 2^-100
     * is zero; so is one with an infinity or NaN, whose scale is that. */
    void (*quantize)(kvf__dtype act, uint8_t *q, uint8_t zero, float *scale, const void *x,
                     int64_t M, int64_t K);
    void (*scale_sums)(kvf__dtype type, const kvf__scaled_sums *s);
    /* Attention over key segments; see attention.h. */
    void (*attn_fwd)(const struct kvf__attn *attn);
    void (*attn_bwd)(const struct kvf__attn *attn);
    /* The forward pass of one query head of one row, on the calling thread; attn needs no plan.
     * scratch: kvf__attn_head_scratch() bytes. For rows of few tokens after many: generation. */
    void (*attn_head)(const struct kvf__attn *attn, const struct kvf__attn_row *row, int64_t head,
                      void *scratch);
} kvf__kernels;

/* The table for this machine and cap. Never NULL. */
const kvf__kernels *kvf__kernels_get(void);
/* A certain level ("ref", "avx2", ...), NULL if this machine lacks it or the cap forbids it: tests
 * compare each with ref. */
const kvf__kernels *kvf__kernels_level(const char *name);
/* What the CPU offers under the cap: "avx512_bf16". */
const char *kvf__cpu_level(void);
/* True if bf16 matmuls run on this machine at all (AVX512_BF16 or AMX, or AVX512 emulation; not on
 * AVX2). */
bool kvf__cpu_has_bf16(void);
/* True if it has dot products of eight-bit integers (AVX512-VNNI; every CPU with AMX has them too),
 * which are allowed. */
bool kvf__cpu_has_int8(void);
/* True if bf16 products are so much faster than f32 that a training step pays for the rounding: by
 * flags alone, no timing enters. */
bool kvf__cpu_bf16_is_faster(void);

#endif
