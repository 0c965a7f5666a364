/* Dense matrix products on oneDNN, which computes nothing else but the LSTM of lstm.h.
 *
 * Frozen weights are packed once into the layout oneDNN likes; a product is then a cached primitive
 * keyed by (weights' shape, M, flags, destination type). The rules: docs/architecture.md,
 * Computing. */
#ifndef KVF_MATMUL_H
#define KVF_MATMUL_H

#include "view.h"

/* Engine, stream, primitive cache, one user scratchpad. One per context, one thread drives it.
 * Outlives what was packed with it. Keeps the 512 products last used (about 75 KB and 0.2 to 1 ms
 * each); creation caps oneDNN by KVF_CPU, EUSAGE if oneDNN was used uncapped before. */
typedef struct kvf__mm kvf__mm;
kvf_status kvf__mm_create(kvf_ctx *ctx, kvf__mm **out);
void kvf__mm_free(kvf__mm *mm);

/* A frozen weight [K, N] (and bias [N]) packed for y[M,N] = x[M,K] W + b. act, the type of x: F32
 * or BF16; or I8: x is BF16, and both factors are rounded to eight bits (dnnl_int8.c). `w` is f32:
 * [K, N], or [N, K] when transposed. Nothing of the arguments is kept. EUNSUPPORTED: a CPU without
 * such products. */
typedef struct kvf__packed kvf__packed;
kvf_status kvf__pack(kvf_ctx *ctx, kvf__mm *mm, kvf__dtype act, const float *w, bool transposed,
                     int64_t K, int64_t N, const float *bias, kvf__packed **out);
/* Other values for a packed weight of the same shape, with a bias exactly if it has one. */
kvf_status kvf__repack(kvf_ctx *ctx, kvf__mm *mm, const float *w, bool transposed,
                       const float *bias, kvf__packed *packed);
bool kvf__packed_is(const kvf__packed *packed, int64_t K, int64_t N); /* of that shape */
void kvf__packed_free(kvf__packed *packed);
size_t kvf__packed_bytes(const kvf__packed *packed);

#define KVF__MM_ADD 1u /* dst += instead of dst = */

/* Builds the primitive for (packed, M, dst_type, flags), so that no later run allocates. Refuses
 * (EUNSUPPORTED) an implementation that is not a jit one (brgemm or gemm) unless KVF_CPU=ref. */
kvf_status kvf__mm_prepare(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                           kvf__dtype dst_type, unsigned flags);
/* dst [M, N] of dst_type (F32, or the type of x), src [M, K] of the type of x, both dense. Prepares
 * by itself if needed. M = 0 does nothing. */
kvf_status kvf__mm_run(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M, const void *src,
                       void *dst, kvf__dtype dst_type, unsigned flags);

/* C [M, N] = A B + beta * C in f32, row-major, A [M, K] or [K, M] if ta, B [K, N] or [N, K] if tb;
 * ld* are row strides. */
kvf_status kvf__sgemm(kvf_ctx *ctx, bool ta, bool tb, int64_t M, int64_t N, int64_t K,
                      const float *A, int64_t lda, const float *B, int64_t ldb, float beta,
                      float *C, int64_t ldc);

/* oneDNN's version as "2.6.3", for --version and logs. */
const char *kvf__mm_version(char buf[32]);

#endif
