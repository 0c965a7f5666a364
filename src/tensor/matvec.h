/* Products of few rows with a matrix in its file format, for a step of generation.
 *
 * Such a product is bound by reading the matrix. So it reads the quantised blocks (or bf16, f16,
 * f32) directly and converts them in registers: 5 bits a weight instead of 16 or 32. Values equal
 * those of kvf__to_f32 bit for bit; sums are f32. With one row of x, weights are multiplied at
 * once. With more, four rows of the matrix are unpacked into the first-level cache and used for all
 * rows. Sums have a fixed order, so a row's result has the same bits for any M, unless bf16 is
 * allowed.
 *
 * A call runs on the calling thread. The caller splits the rows of the matrix, and no result
 * depends on the split. For many rows see matmul.h. */
#ifndef KVF_MATVEC_H
#define KVF_MATVEC_H

#include "view.h"

/* Computes y [M, n] = or += x [M, K] W^T. */
typedef struct kvf__matvec_call {
    const void *w; /* row i at w + i * row bytes, at any alignment */
    kvf__dtype dtype;
    int64_t n, K;   /* rows of W; elements in a row, whole blocks of the type */
    const float *x; /* row m at x + m * ldx */
    int64_t M, ldx;
    float *y; /* row m at y + m * ldy */
    int64_t ldy;
    bool add;
    bool bf16; /* allows rounding both sides to bf16 for more than one row, if faster; sums stay f32
                */
    void *scratch; /* kvf__matvec_scratch(M, K) bytes, cache-line aligned */
} kvf__matvec_call;

typedef struct kvf__matvec {
    const char *name;
    void (*run)(const kvf__matvec_call *call);
} kvf__matvec;

/* Returns the table for this machine and cap, never NULL. */
const kvf__matvec *kvf__matvec_get(void);
/* Returns the table of a level ("ref", "avx2", "avx512", "avx512_bf16"), NULL if this machine lacks
 * it or the cap forbids it. */
const kvf__matvec *kvf__matvec_level(const char *name);

/* Returns whether every level supports rows of this type, as a call requires. */
bool kvf__matvec_takes(kvf__dtype dtype);
size_t kvf__matvec_scratch(int64_t M, int64_t K);
/* Returns the bytes of a row of K elements. */
size_t kvf__matvec_row_bytes(kvf__dtype dtype, int64_t K);

#endif
