/* Dense matrix products on oneDNN, which is otherwise used only for the LSTM of lstm.h.
 *
 * Frozen weights are packed once in oneDNN's preferred layout. A product is a cached primitive
 * keyed by (weights' shape, M, flags, destination type). See docs/architecture.md, Computing. */
#ifndef KVF_MATMUL_H
#define KVF_MATMUL_H

#include "view.h"

/* Engine, stream, primitive cache and one scratchpad, one per context, used by one thread at a
 * time. Must outlive the weights packed with it. Keeps the 512 products last used (about 75 KB and
 * 0.2 to 1 ms each). Creation caps oneDNN by KVF_CPU; EUSAGE if oneDNN was used uncapped before. */
typedef struct kvf__mm kvf__mm;
kvf_status kvf__mm_create(kvf_ctx *ctx, kvf__mm **out);
void kvf__mm_free(kvf__mm *mm);

/* A frozen weight [K, N] (and bias [N]) packed for y[M,N] = x[M,K] W + b. act is the type of x:
 * F32, BF16, or I8: x is BF16, and both factors are rounded to eight bits (dnnl_int8.c). `w` is
 * f32: [K, N], or [N, K] when transposed. Arguments are copied. EUNSUPPORTED: the CPU has no such
 * products. */
typedef struct kvf__packed kvf__packed;
kvf_status kvf__pack(kvf_ctx *ctx, kvf__mm *mm, kvf__dtype act, const float *w, bool transposed,
                     int64_t K, int64_t N, const float *bias, kvf__packed **out);
/* Replaces the values of a packed weight. Same shape; bias if and only if it has one. */
kvf_status kvf__repack(kvf_ctx *ctx, kvf__mm *mm, const float *w, bool transposed,
                       const float *bias, kvf__packed *packed);
/* Returns whether the weight has that shape. */
bool kvf__packed_is(const kvf__packed *packed, int64_t K, int64_t N);
void kvf__packed_free(kvf__packed *packed);
size_t kvf__packed_bytes(const kvf__packed *packed);

#define KVF__MM_ADD 1u /* dst += instead of dst = */

/* Builds the primitive for (packed, M, dst_type, flags), so that later runs do not allocate.
 * EUNSUPPORTED: the implementation is not a jit one (brgemm or gemm), unless KVF_CPU=ref. */
kvf_status kvf__mm_prepare(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                           kvf__dtype dst_type, unsigned flags);
/* Computes dst [M, N] of dst_type (F32, or the type of x) from src [M, K] of the type of x, both
 * dense. Calls prepare if necessary. M = 0 does nothing. */
kvf_status kvf__mm_run(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M, const void *src,
                       void *dst, kvf__dtype dst_type, unsigned flags);

/* Computes C [M, N] = A B + beta * C in f32, row-major. A is [M, K], or [K, M] if ta; B is [K, N],
 * or [N, K] if tb; ld* are row strides. */
kvf_status kvf__sgemm(kvf_ctx *ctx, bool ta, bool tb, int64_t M, int64_t N, int64_t K,
                      const float *A, int64_t lda, const float *B, int64_t ldb, float beta,
                      float *C, int64_t ldc);

/* Returns oneDNN's version as "2.6.3", for --version and logs. */
const char *kvf__mm_version(char buf[32]);

#endif
