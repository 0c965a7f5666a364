/* Element types, views of tensors in memory, and the table of named tensors that every file format
 * becomes before the model reads it. */
#ifndef KVF_VIEW_H
#define KVF_VIEW_H

#include "base_int.h"
#include "map.h"

/* name, bytes per block, elements per block. The types from Q4_0 on are those of GGUF
 * (ggml-common.h). */
#define KVF__DTYPE_LIST(X)                                                                         \
    X(F32, "f32", 4, 1)                                                                            \
    X(F16, "f16", 2, 1)                                                                            \
    X(BF16, "bf16", 2, 1)                                                                          \
    X(F64, "f64", 8, 1)                                                                            \
    X(I8, "i8", 1, 1)                                                                              \
    X(U8, "u8", 1, 1)                                                                              \
    X(I16, "i16", 2, 1)                                                                            \
    X(U16, "u16", 2, 1)                                                                            \
    X(I32, "i32", 4, 1)                                                                            \
    X(U32, "u32", 4, 1)                                                                            \
    X(I64, "i64", 8, 1)                                                                            \
    X(U64, "u64", 8, 1)                                                                            \
    X(BOOL, "bool", 1, 1)                                                                          \
    X(Q4_0, "q4_0", 18, 32)                                                                        \
    X(Q4_1, "q4_1", 20, 32)                                                                        \
    X(Q5_0, "q5_0", 22, 32)                                                                        \
    X(Q5_1, "q5_1", 24, 32)                                                                        \
    X(Q8_0, "q8_0", 34, 32)                                                                        \
    X(Q4_K, "q4_k", 144, 256)                                                                      \
    X(Q5_K, "q5_k", 176, 256)                                                                      \
    X(Q6_K, "q6_k", 210, 256)                                                                      \
    X(Q2_K, "q2_k", 84, 256)                                                                       \
    X(Q3_K, "q3_k", 110, 256)                                                                      \
    X(IQ4_NL, "iq4_nl", 18, 32)                                                                    \
    X(IQ4_XS, "iq4_xs", 136, 256)                                                                  \
    X(MXFP4, "mxfp4", 17, 32)                                                                      \
    X(OTHER, "other", 1, 1) /* listed by inspect, never used in computations */

typedef enum kvf__dtype {
#define KVF__DTYPE_ENUM(name, text, bytes, elements) KVF__##name,
    KVF__DTYPE_LIST(KVF__DTYPE_ENUM)
#undef KVF__DTYPE_ENUM
} kvf__dtype;

const char *kvf__dtype_name(kvf__dtype dtype);
int64_t kvf__dtype_block(kvf__dtype dtype);      /* elements per block, 1 for plain types */
size_t kvf__dtype_block_bytes(kvf__dtype dtype); /* bytes per block */
/* Returns the magnitude from which on f32 values, or scales of blocks, round to infinity in the
 * type; INFINITY: none does. */
float kvf__dtype_limit(kvf__dtype dtype);
bool kvf__dtype_is_float(kvf__dtype dtype); /* F32, F16, BF16, F64 or a quantised type */

bool kvf__dtype_is_written(kvf__dtype dtype); /* the types of kvf__from_f32 */

/* Converts n elements (a multiple of the block) to f32. The source may be unaligned. Defined for
 * float and quantised types; exact for F32, F16, BF16; quantised types use ggml's formulas. */
void kvf__to_f32(kvf__dtype dtype, const void *src, float *dst, int64_t n);
/* Converts n elements from f32 to F32, F16 or BF16, rounding to nearest even, NaN stays NaN; or
 * whole blocks to Q8_0, as in llama.cpp, or to another type of kvf__dtype_is_written (quant.c). */
void kvf__from_f32(kvf__dtype dtype, const float *src, void *dst, int64_t n);

#define KVF__MAX_RANK 6

/* A read-only tensor in row-major order, slowest dimension first, possibly unaligned. */
typedef struct kvf__view {
    const void *data;
    kvf__dtype dtype;
    int rank;
    int64_t dim[KVF__MAX_RANK];
    /* OTHER only: size in bytes, which does not follow from the shape, and the file's name of the
     * type (static text). */
    size_t other_bytes;
    const char *other_name;
} kvf__view;

int64_t kvf__view_count(const kvf__view *view);
size_t kvf__view_bytes(const kvf__view *view);
/* Writes "[30, 2, 3]" to buf; returns buf. */
const char *kvf__shape_text(char buf[128], int rank, const int64_t *dim);

/* Named tensors. Names are copied, data is borrowed and must stay valid. */
typedef struct kvf__tensor {
    char *name;
    kvf__view view;
} kvf__tensor;

typedef struct kvf__table {
    kvf__tensor *items; /* in file order */
    size_t n, cap;
    kvf__map index;
} kvf__table;

kvf_status kvf__table_add(kvf_ctx *ctx, kvf__table *table, const char *name,
                          kvf__view view); /* EFORMAT if the name exists */
const kvf__view *kvf__table_find(const kvf__table *table, const char *name); /* NULL if absent */
void kvf__table_done(kvf__table *table);

#endif
