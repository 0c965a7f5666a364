/* Plain f32 products by dnnl_sgemm, divided into pieces that one thread computes each.
 *
 * By itself oneDNN splits sums over K if a result is small and threads are many, and chooses
 * kernels by the number of threads and rows; bits would depend on both. With AVX-512 only small
 * results are affected. Larger ones had equal bits for 1 to 32 threads in tests, and products of
 * weights are packed (dnnl_matmul.c).
 *
 * With AVX2 every product is divided, and weights stay plain matrices. For pieces of up to 96 rows
 * oneDNN (2.6 to 3.12) uses kernels that read both factors in place. They divide K by its size
 * alone, rows into blocks of 48, and a block into strips of six rows. Only a last strip of one to
 * three rows sums K in another order. Pieces are cut to avoid such strips, so the bits of a row do
 * not depend on other rows.
 *
 * kvf__model_rows_alike tests this at run time. */
#include "dnnl_matmul_priv.h"

#include <omp.h>
#include <string.h>

enum {
    SMALL = 1 << 18, /* elements of a result that is divided at any level */
    PIECES = 8,
    LEAST_PIECE = 32,

    /* AVX2 */
    BLOCK = 48,       /* rows; a multiple of the strips' six */
    ROWS = 2 * BLOCK, /* maximum rows of a piece */
    HALF = 64,        /* rows that still form one block */
    COLUMNS = 512,    /* columns of a piece, exceeded by less than UNIT */
    UNIT = 16, /* columns of the kernels, on whose multiples bits do not depend on piece ends */
    QUAD = 4   /* rows that form a strip alone; the caller pads fewer */
};

typedef struct sgemm_call {
    bool ta, tb;
    int64_t M, N, K, lda, ldb, ldc;
    const float *A, *B;
    const float *bias; /* [N]; NULL: none */
    float beta, *C;
} sgemm_call;

/* ---- pieces ---------------------------------------------------------------------------------- */

typedef struct piece {
    int64_t m, M; /* first row, rows */
    int64_t n, N; /* columns likewise */
} piece;

/* Sets rows of C to beta C + bias, to which the product is added. */
static void add_bias(const sgemm_call *c, const piece *p, float *C, int64_t ldc)
{
    for (int64_t m = 0; m < p->M; m++) {
        float *row = C + m * ldc;
        if (c->beta == 0)
            memcpy(row, c->bias + p->n, (size_t)p->N * sizeof *row);
        else
            for (int64_t n = 0; n < p->N; n++)
                row[n] += c->bias[p->n + n];
    }
}

/* Computes a piece. C: address of its first element. */
static dnnl_status_t run_piece(const sgemm_call *c, const piece *p, float *C, int64_t ldc)
{
    if (c->bias) add_bias(c, p, C, ldc);
    return dnnl_sgemm(c->ta ? 'T' : 'N', c->tb ? 'T' : 'N', p->M, p->N, c->K, 1.0f,
                      c->A + p->m * (c->ta ? 1 : c->lda), c->lda,
                      c->B + p->n * (c->tb ? c->ldb : 1), c->ldb, c->bias ? 1.0f : c->beta, C, ldc);
}

static dnnl_status_t run_in_place(const sgemm_call *c, const piece *p)
{
    return run_piece(c, p, c->C + p->m * c->ldc + p->n, c->ldc);
}

/* Divides a small result along its longer side, by its shape alone. */
static dnnl_status_t run_small(const sgemm_call *c)
{
    const bool rows = c->M >= c->N;
    const int64_t all = rows ? c->M : c->N;
    int64_t each = (all + PIECES - 1) / PIECES;
    int failed = 0;
    if (each < LEAST_PIECE) each = LEAST_PIECE;
#pragma omp parallel for schedule(static) reduction(| : failed)
    for (int64_t from = 0; from < all; from += each) {
        const int64_t n = all - from < each ? all - from : each;
        const piece p = rows ? (piece){from, n, 0, c->N} : (piece){0, c->M, from, n};
        failed |= (int)run_in_place(c, &p);
    }
    return (dnnl_status_t)failed;
}

/* ---- AVX2 ------------------------------------------------------------------------------------ */

/* Returns the rows of the next piece, of `left` below ROWS or equal to 128. If left is a multiple
 * of four, no block ends in a strip of one to three rows. */
static int64_t next_rows(int64_t left)
{
    if (left == 2 * HALF) return HALF;
    if (left > HALF) return BLOCK;
    return left % 6 == 2 && left > QUAD ? left - QUAD : left;
}

/* Returns the number of pieces of ROWS in so many rows. The rows of a pass are multiples of 64,
 * most of which end in two halves. */
static int64_t full_pieces(int64_t rows)
{
    return rows % ROWS == 2 * HALF - ROWS && rows > ROWS ? rows / ROWS - 1 : rows / ROWS;
}

/* Computes the last 1 to 3 rows together with those before them, and copies them to their place. */
static dnnl_status_t run_last_rows(const sgemm_call *c, const piece *p)
{
    const size_t bytes = (size_t)p->N * sizeof(float);
    const piece quad = {p->m + p->M - QUAD, QUAD, p->n, p->N};
    float *to = c->C + p->m * c->ldc + p->n, work[QUAD * (COLUMNS + UNIT)] = {0},
          *from = work + (QUAD - p->M) * p->N;

    for (int64_t m = 0; m < p->M && c->beta != 0; m++)
        memcpy(from + m * p->N, to + m * c->ldc, bytes);
    const dnnl_status_t st = run_piece(c, &quad, work, p->N);
    for (int64_t m = 0; m < p->M && !st; m++)
        memcpy(to + m * c->ldc, from + m * p->N, bytes);
    return st;
}

/* Returns the number of column parts that balances the work of all threads. */
static int64_t column_parts(int64_t row_pieces, int64_t N)
{
    const int64_t threads = omp_get_max_threads(), most = N / UNIT;
    int64_t parts = (N + COLUMNS - 1) / COLUMNS;

    while (parts < most && row_pieces * parts % threads && row_pieces * parts < 4 * threads)
        parts++;
    return parts;
}

/* Sets the columns of part i: multiples of UNIT, the last part with the remainder. */
static void take_columns(piece *p, int64_t i, int64_t parts, int64_t N)
{
    const int64_t units = N / UNIT;

    p->n = i * units / parts * UNIT;
    p->N = (i + 1 == parts ? N : (i + 1) * units / parts * UNIT) - p->n;
}

/* With a transposed A, rows of C belong to columns of a weight and need not be independent of each
 * other. */
static dnnl_status_t run_avx2(const sgemm_call *c)
{
    const int64_t last = c->ta || c->M < QUAD ? 0 : c->M % QUAD, whole = c->M - last;
    const int64_t full = full_pieces(whole);
    piece rest[5] = {{0}};
    int n_rest = 0, failed = 0;

    for (int64_t m = full * ROWS; m < whole; m += rest[n_rest++].M)
        rest[n_rest] = (piece){.m = m, .M = next_rows(whole - m)};
    if (last) rest[n_rest++] = (piece){.m = whole, .M = last};

    const int64_t row_pieces = full + n_rest, parts = column_parts(row_pieces, c->N);
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
    for (int64_t i = 0; i < row_pieces * parts; i++) {
        const int64_t row = i % row_pieces;
        piece p = row < full ? (piece){.m = row * ROWS, .M = ROWS} : rest[row - full];
        take_columns(&p, i / row_pieces, parts, c->N);
        failed |= (int)(p.m == whole ? run_last_rows(c, &p) : run_in_place(c, &p));
    }
    return (dnnl_status_t)failed;
}

/* ---- interface ------------------------------------------------------------------------------- */

static kvf_status run(kvf_ctx *ctx, const sgemm_call *c)
{
    const piece all = {0, c->M, 0, c->N};
    dnnl_status_t failed;

    if (c->M == 0 || c->N == 0) return KVF_OK;
    KVF_TRY(kvf__dnnl_cap(ctx));
    if (kvf__ctx_first(ctx, KVF__ONCE_SGEMM)) KVF_TRY(kvf__dnnl_memory_allows(ctx));
    if (kvf__cpu_best() == KVF__CPU_AVX2)
        failed = run_avx2(c);
    else
        failed = c->M * c->N <= SMALL ? run_small(c) : run_in_place(c, &all);
    return failed ? kvf__mm_fail(ctx, failed, "f32 product", c->M, c->K, c->N) : KVF_OK;
}

kvf_status kvf__sgemm(kvf_ctx *ctx, bool ta, bool tb, int64_t M, int64_t N, int64_t K,
                      const float *A, int64_t lda, const float *B, int64_t ldb, float beta,
                      float *C, int64_t ldc)
{
    return run(ctx, &(sgemm_call){.ta = ta,
                                  .tb = tb,
                                  .M = M,
                                  .N = N,
                                  .K = K,
                                  .lda = lda,
                                  .ldb = ldb,
                                  .ldc = ldc,
                                  .A = A,
                                  .B = B,
                                  .beta = beta,
                                  .C = C});
}

/* Returns a row stride that avoids powers of two, which would use few cache sets. */
int64_t kvf__sgemm_stride(int64_t N)
{
    return N % 128 ? N : N + 16;
}

kvf_status kvf__sgemm_run(kvf_ctx *ctx, const kvf__mm *mm, const kvf__packed *w, int64_t M,
                          const float *src, float *dst, unsigned flags)
{
    return run(ctx, &(sgemm_call){.M = M,
                                  .N = w->N,
                                  .K = w->K,
                                  .lda = w->K,
                                  .ldb = mm->shapes[w->shape].ld,
                                  .ldc = w->N,
                                  .A = src,
                                  .B = w->data,
                                  .bias = w->bias_data,
                                  .beta = flags & KVF__MM_ADD ? 1 : 0,
                                  .C = dst});
}
