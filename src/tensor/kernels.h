/* Hand-written inner loops, one table per instruction set: ref (portable C with double
 * accumulation, the reference), avx2, avx512, avx512_bf16 (also used by amx where it has no own
 * form). KVF_CPU=ref|avx2|avx512|avx512_bf16|amx caps the choice and that of oneDNN.
 *
 * act is the type of stored activations, F32 or BF16. The residual stream, its gradient and all
 * statistics are f32. Kernels run rows in parallel (OpenMP) with a static split, and a row's result
 * does not depend on the thread count. If norm weights are folded into the next matmul, norm_fwd
 * and norm_bwd produce and consume xhat only; whole norms apply the weights. */
#ifndef KVF_KERNELS_H
#define KVF_KERNELS_H

#include "view.h"

struct kvf__attn; /* attention.h */
struct kvf__attn_row;
struct kvf__delta; /* delta.h */

typedef enum kvf__act_fn {
    KVF__GELU_TANH,
    KVF__GELU_ERF,
    KVF__SILU,
    KVF__RELU,
    KVF__QUICK_GELU,
    KVF__TANH
} kvf__act_fn;

/* One chunk of a cross-entropy over a vocabulary cut into chunks ("flash" CE). The caller starts
 * each row with max = -inf, sum = 0 and calls chunk after chunk. */
typedef struct kvf__ce_chunk {
    int64_t rows, width; /* logits [rows, width] */
    const float *logits;
    int64_t valid;         /* columns >= valid are padding: probability 0 */
    const int32_t *target; /* [rows], column within this chunk, or any value outside [0, width) */
    float *max, *sum;      /* [rows] running maximum and sum of exp(logit - max) */
    float *target_logit;   /* [rows], set if the target is in this chunk */
    void *e;    /* act [rows, width] = exp(logit - max), 0 for padding; must not alias the logits;
                   NULL: loss only */
    float *acc; /* [rows, C], multiplied by exp(old max - new max), zeroed by the first chunk; NULL:
                   none */
    int64_t C;
} kvf__ce_chunk;

/* A norm whose output is used directly: after the residual sum of post-norm blocks, on embeddings,
 * or as final hidden state. The stream is f32 and may be normalised in place; y = gamma * xhat +
 * beta. */
typedef struct kvf__whole_norm {
    int64_t M, C;
    bool rms;
    float eps;          /* added inside the root */
    const float *gamma; /* [C] */
    const float *beta;  /* [C]; NULL: none */
    const float *x;     /* f32 [M, C] */
    float *y;           /* f32 [M, C]; may be x */
    void *y_act;        /* act [M, C], copy of y; NULL: not wanted */
    void *xhat;         /* act [M, C]; forward: NULL if there is no backward pass */
    float *rstd;        /* [M] */
    float *dx;          /* backward, f32 [M, C]: gradient of y on input, of x on output */
    const void *plus; /* backward, act [M, C]: a second summand of the gradient of y; NULL: none */
    void *dx_act;     /* backward, act [M, C]: copy of dx; NULL: not wanted */
} kvf__whole_norm;

/* RMSNorm of each head separately, in place: queries and keys of Qwen3. */
typedef struct kvf__head_norm {
    int64_t M, ld, heads, D; /* heads of size D at the start of every row of x act [M, ld] */
    float eps;
    const float *gamma; /* [heads, D] */
    void *x; /* forward: overwritten by gamma * xhat; backward: gradient of that, overwritten by the
                gradient of the input */
    void *xhat;  /* act [M, heads, D]; forward: NULL if there is no backward pass */
    float *rstd; /* [M, heads] */
} kvf__head_norm;

/* Conversion of eight-bit sums to the rows of a product (dnnl_int8.c): y[m, n] (= or +=) (sums[m,
 * n] - zero[n]) * row[m] * column[n] + bias[n]. */
typedef struct kvf__scaled_sums {
    int64_t M, N;
    const int32_t *sums; /* [M, N] */
    const int32_t *zero; /* [N] contribution of the offset of unsigned bytes to a sum */
    const float *row;    /* [M] */
    const float *column; /* [N] */
    const float *bias;   /* [N]; NULL: none */
    void *y;             /* [M, N] in the type given to the kernel */
    bool add;
} kvf__scaled_sums;

typedef struct kvf__kernels {
    const char *name; /* "ref", "avx2", ... */

    /* Computes xhat act [M, C] = (x - mean) * rstd (rms: x * rstd) and rstd [M]; x f32 [M, C]. eps
     * is inside the root. */
    void (*norm_fwd)(kvf__dtype act, void *xhat, float *rstd, const float *x, int64_t M, int64_t C,
                     bool rms, float eps);
    /* Adds the gradient through the norm of dxhat act [M, C] to dx f32 [M, C]; dx_act, if given,
     * receives the sum in the activation type. */
    void (*norm_bwd)(kvf__dtype act, float *dx, void *dx_act, const void *dxhat, const void *xhat,
                     const float *rstd, int64_t M, int64_t C, bool rms);
    void (*whole_norm_fwd)(kvf__dtype act, const kvf__whole_norm *norm);
    void (*whole_norm_bwd)(kvf__dtype act, const kvf__whole_norm *norm);
    void (*head_norm_fwd)(kvf__dtype act, const kvf__head_norm *norm);
    void (*head_norm_bwd)(kvf__dtype act, const kvf__head_norm *norm);
    /* Computes g act [n] = fn(h), and h becomes fn'(h). g and h are different arrays. */
    void (*act_fwd)(kvf__dtype act, kvf__act_fn fn, void *h, void *g, int64_t n);
    /* Multiplies d act [n] by `by`. */
    void (*mul)(kvf__dtype act, void *d, const void *by, int64_t n);
    /* Computes a = fn(g) * u; then g becomes u * fn'(g) and u becomes fn(g), the two factors of the
     * backward pass. */
    void (*glu_fwd)(kvf__dtype act, kvf__act_fn fn, void *g, void *u, void *a, int64_t n);
    /* Computes dg = da * g and du = da * u with the factors of glu_fwd. dg and du may alias g and
     * u. */
    void (*glu_bwd)(kvf__dtype act, void *dg, void *du, const void *da, const void *g,
                    const void *u, int64_t n);
    /* Rotates `heads` heads of size D at the start of every row of x act [M, ld]. Pairs (i, i +
     * R/2) of the first R dims are rotated by row position[row] of the tables cos, sin f32
     * [positions, R/2]. inverse: rotates back. */
    void (*rope)(kvf__dtype act, void *x, int64_t M, int64_t ld, int64_t heads, int64_t D,
                 int64_t R, const int32_t *position, const float *cos, const float *sin,
                 bool inverse);
    void (*ce)(kvf__dtype act, const kvf__ce_chunk *chunk);
    /* Convert n elements from f32 to act and back. */
    void (*from_f32)(kvf__dtype act, void *dst, const float *src, int64_t n);
    void (*to_f32)(kvf__dtype act, float *dst, const void *src, int64_t n);
    /* Quantizes on the calling thread: q [M, K] = zero + x / scale[m] to nearest even, x of act [M,
     * K], scale[m] = max |x[m]| / 127. zero = 0 gives signed bytes, 128 unsigned. A row below
     * 2^-100 becomes zero; so does one with an infinity or NaN, which becomes its scale. */
    void (*quantize)(kvf__dtype act, uint8_t *q, uint8_t zero, float *scale, const void *x,
                     int64_t M, int64_t K);
    void (*scale_sums)(kvf__dtype type, const kvf__scaled_sums *s);
    /* Attention over key segments; see attention.h. */
    void (*attn_fwd)(const struct kvf__attn *attn);
    void (*attn_bwd)(const struct kvf__attn *attn);
    /* Runs the forward pass of one query head of one row on the calling thread; attn needs no plan.
     * scratch: kvf__attn_head_scratch() bytes. For few tokens after many, as in generation. */
    void (*attn_head)(const struct kvf__attn *attn, const struct kvf__attn_row *row, int64_t head,
                      void *scratch);
    /* The gated delta rule of a head in a row; see delta.h. */
    void (*delta_fwd)(const struct kvf__delta *d);
    void (*delta_bwd)(const struct kvf__delta *d);
} kvf__kernels;

/* Returns the table for this machine and cap, never NULL. */
const kvf__kernels *kvf__kernels_get(void);
/* Returns the table of a level ("ref", "avx2", ...), NULL if this machine lacks it or the cap
 * forbids it. Tests compare each with ref. */
const kvf__kernels *kvf__kernels_level(const char *name);
/* Returns the CPU's level under the cap, such as "avx512_bf16". */
const char *kvf__cpu_level(void);
/* Returns whether bf16 products run on this machine (AVX512_BF16, AMX, or AVX512 emulation; not
 * AVX2). */
bool kvf__cpu_has_bf16(void);
/* Returns whether dot products of eight-bit integers are available and allowed (AVX512-VNNI; every
 * CPU with AMX has them). */
bool kvf__cpu_has_int8(void);
/* Returns whether bf16 products are fast enough, compared with f32, to justify their rounding in
 * training. Decided by CPU flags, not by timing. */
bool kvf__cpu_bf16_is_faster(void);

#endif
