/* Products of few rows with a matrix as its file holds it: a step of generation.
 *
 * Such a product is bound by reading the matrix, so it reads the quantised blocks (or bf16, f16,
 * f32) themselves and turns them into numbers in registers: 5 bits a weight instead of 16 or 32.
 * Values are those of kvf__to_f32 bit for bit, sums are f32. With one row a weight is
 * multiplied at once; with more, four rows of the matrix are unpacked into the first cache and
 * used for all rows. Sums have one order, so that a row's result has the same bits for any M, but
 * where bf16 is allowed.
 *
 * A call runs on the thread that makes it: whoever calls splits the rows of the matrix, and no
 * result depends on how. For many rows see matmul.h. */
#ifndef KVF_MATVEC_H
#define KVF_MATVEC_H

#include "view.h"

/* y [M, n] = or += x [M, K] W^T. */
typedef struct kvf__matvec_call {
    const void *w; /* row i at w + i * bytes of a row; any alignment */
    kvf__dtype dtype;
    int64_t n, K;   /* rows of W; elements in a row, whole blocks of the type */
    const float *x; /* row m at x + m * ldx */
    int64_t M, ldx;
    float *y; /* row m at y + m * ldy */
    int64_t ldy;
    bool add;
    bool bf16;     /* with more than one row both sides may be rounded to bf16, where that is
                      faster; sums stay f32 */
    void *scratch; /* kvf__matvec_scratch(M, K) bytes, at a cache line */
} kvf__matvec_call;

typedef struct kvf__matvec {
    const char *name;
    void (*run)(const kvf__matvec_call *call);
} kvf__matvec;

/* The table for this machine and cap. Never NULL. */
const kvf__matvec *kvf__matvec_get(void);
/* A certain level ("ref", "avx2", "avx512", "avx512_bf16"), NULL if this machine lacks it or the
 * cap forbids it. */
const kvf__matvec *kvf__matvec_level(const char *name);

/* Has every level a form for rows of this type? Others must not be asked for. */
bool kvf__matvec_takes(kvf__dtype dtype);
size_t kvf__matvec_scratch(int64_t M, int64_t K);
/* Bytes of a row of K elements. */
size_t kvf__matvec_row_bytes(kvf__dtype dtype, int64_t K);

#endif
