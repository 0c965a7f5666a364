/* Shared by the files of matmul.h: the table of primitives, and packed weights. */
#ifndef KVF_DNNL_MATMUL_PRIV_H
#define KVF_DNNL_MATMUL_PRIV_H

#include "dnnl_engine.h"
#include "kernels_int.h"
#include "matmul.h"

enum {
    KVF__MM_SHAPES = 256, /* maximum distinct [K, N] and types of a model's weights */
    KVF__MM_PRIMS = 512,  /* each holds generated code; the least recently used is dropped */
    KVF__MM_NONE = -1     /* no primitive */
};

/* A layout of packed weights. */
typedef struct kvf__mm_shape {
    kvf__dtype act; /* activation type; I8: eight-bit products */
    int64_t K, N;
    int64_t ld; /* row stride of weights that are a plain matrix (dnnl_sgemm.c); 0: packed */
    dnnl_memory_desc_t weights, bias;
    bool reordered[2]; /* whether oneDNN's code exists for reordering from [K, N], from [N, K] */
    int32_t prims;     /* first of its primitives; KVF__MM_NONE: none */
} kvf__mm_shape;

typedef struct kvf__mm_key {
    int64_t M;
    int32_t shape;
    uint16_t dst_type, flags;
} kvf__mm_key;

typedef struct kvf__mm_prim {
    kvf__mm_key key;
    int32_t next;  /* next of the same shape */
    uint64_t used; /* time of the last run, in ticks */
    dnnl_primitive_t primitive;
    dnnl_memory_t src, dst, scratch; /* scratch NULL: not needed */
    size_t scratch_bytes;
} kvf__mm_prim;

/* Memory that grows and is kept. */
typedef struct kvf__mm_space {
    void *data;
    size_t bytes;
} kvf__mm_space;

struct kvf__mm {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    kvf__mm_shape shapes[KVF__MM_SHAPES];
    int n_shapes;
    kvf__mm_prim prims[KVF__MM_PRIMS];
    int n_prims;
    uint64_t tick;
    const kvf__kernels *kernels;
    kvf__mm_space scratch; /* scratchpad of the running primitive */
    kvf__mm_space own;     /* products in chunks: a part for each thread; few rows: padded */
    kvf__mm_space packing; /* packing of eight-bit weights */
};

struct kvf__packed {
    int shape;
    int64_t K, N;
    kvf__dtype act; /* activation type of its shape */
    size_t bytes;
    void *data;
    float *bias_data;
    float *scale;  /* [N] scales of eight-bit columns; NULL: weights are of the activation type */
    int32_t *zero; /* [N] with scale: kvf__scaled_sums */
    dnnl_memory_t weights, bias; /* bias NULL: none, or not added by oneDNN */
};

/* ---- dnnl_prims.c ---------------------------------------------------------------------------- */

kvf_status kvf__mm_fail(kvf_ctx *ctx, dnnl_status_t status, const char *what, int64_t M, int64_t K,
                        int64_t N);
kvf_status kvf__mm_reserve(kvf_ctx *ctx, kvf__mm_space *space, size_t bytes);
dnnl_data_type_t kvf__dnnl_type(kvf__dtype dtype);
dnnl_status_t kvf__md_matrix(dnnl_memory_desc_t *md, int64_t rows, int64_t columns,
                             dnnl_data_type_t type, dnnl_format_tag_t tag);
/* Makes the descriptor of a product src [M, K] (act) x weights + bias -> dst [M, N]. */
dnnl_status_t kvf__mm_product_pd(const kvf__mm *mm, dnnl_primitive_desc_t *pd,
                                 const kvf__mm_shape *s, const dnnl_memory_desc_t *weights,
                                 int64_t M, kvf__dtype dst_type, unsigned flags);
void kvf__mm_prim_done(kvf__mm_prim *prim);
/* Whether the products of a shape are computed in chunks of rows (dnnl_rows.c). */
bool kvf__mm_by_rows(const kvf__mm_shape *s);
/* Finds or makes the primitive of a product. */
kvf_status kvf__mm_prim_get(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                            kvf__dtype dst_type, unsigned flags, kvf__mm_prim **out);

/* Runs a primitive on these memory objects; scratch NULL: none. */
dnnl_status_t kvf__mm_execute(const kvf__mm *mm, const kvf__mm_prim *p, const kvf__packed *w,
                              dnnl_memory_t src, dnnl_memory_t dst, dnnl_memory_t scratch);

/* dnnl_rows.c: kvf__mm_prepare and kvf__mm_run in chunks of rows. */
kvf_status kvf__rows_prepare(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                             kvf__dtype dst_type, unsigned flags);
kvf_status kvf__rows_run(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                         const void *src, void *dst, kvf__dtype dst_type, unsigned flags);
/* Runs a primitive on the calling thread alone, with memory objects of its own, since those of the
 * primitive can serve only one thread. */
dnnl_status_t kvf__mm_run_over(const kvf__mm *mm, const kvf__mm_prim *p, const kvf__packed *w,
                               const void *src, void *dst, void *scratch);

/* dnnl_int8.c: kvf__repack, kvf__mm_prepare and kvf__mm_run for eight-bit weights. */
kvf_status kvf__int8_weights(kvf_ctx *ctx, kvf__mm *mm, const float *w, bool transposed,
                             const kvf__packed *packed);
kvf_status kvf__int8_prepare(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M);
kvf_status kvf__int8_run(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                         const void *src, void *dst, kvf__dtype dst_type, unsigned flags);

/* dnnl_sgemm.c: kvf__mm_run for weights that are a plain matrix [K, N] with this row stride, and at
 * least four rows. */
int64_t kvf__sgemm_stride(int64_t N);
kvf_status kvf__sgemm_run(kvf_ctx *ctx, const kvf__mm *mm, const kvf__packed *w, int64_t M,
                          const float *src, float *dst, unsigned flags);

#endif
