/* Packing of frozen weights: read a piece out of the file as f32, fold the norm in front of it,
 * hand it to oneDNN.
 *
 * y = (gamma * xhat + beta) W + b = xhat (gamma W) + (beta W + b), so gamma scales the rows of W
 * that belong to inputs and beta adds to the bias. The folded matrix serves both
 * directions: the backward pass wants the gradient of xhat. Sums over inputs are taken in double,
 * in index order, so they do not depend on the thread count. */
#include "pack.h"
#include "slot.h"

#include <assert.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

static int thread_index(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

kvf_status kvf__packer_init(kvf_ctx *ctx, kvf__packer *packer, size_t matrix, size_t out, size_t in)
{
    size_t row = out > in ? out : in;

    packer->ctx = ctx;
    packer->threads = 1;
#ifdef _OPENMP
    packer->threads = omp_get_max_threads();
#endif
    packer->scratch_row = row + KVF__SLOT_SLACK;
    KVF_TRY(kvf__alloc_array(ctx, matrix, sizeof(float), &packer->matrix));
    KVF_TRY(kvf__alloc_array(ctx, out, sizeof(float), &packer->bias));
    return kvf__alloc_array(ctx, packer->scratch_row * (size_t)packer->threads, sizeof(float),
                            &packer->scratch);
}

void kvf__packer_done(kvf__packer *packer)
{
    kvf__free(packer->matrix);
    kvf__free(packer->bias);
    kvf__free(packer->scratch);
    packer->matrix = packer->bias = packer->scratch = NULL;
}

/* Rows row0 .. and columns col0 .. of a slot to dst [rows, ld]. */
static void load_block(const kvf__packer *packer, const kvf__slot *slot, int64_t row0, int64_t rows,
                       int64_t col0, int64_t cols, float *dst, int64_t ld)
{
#pragma omp parallel for schedule(static) num_threads(packer->threads)
    for (int64_t r = 0; r < rows; r++) {
        float *scratch = packer->scratch + (size_t)thread_index() * packer->scratch_row;
        kvf__slot_row_part(slot, row0 + r, col0, cols, dst + r * ld, scratch);
    }
}

/* [n_padded, k]: one row per output. */
static void load_rows_of_outputs(const kvf__packer *packer, const kvf__dense *linear,
                                 const kvf__tile *piece)
{
    float *dst = packer->matrix;

    if (linear->n_parts == 1) {
        load_block(packer, linear->weight[0], piece->n0, piece->n, piece->k0, piece->k, dst,
                   piece->k);
        dst += piece->n * piece->k;
    }
    for (int i = 0; linear->n_parts > 1 && i < linear->n_parts; i++) {
        int64_t n = kvf__slot_rows(linear->weight[i]);
        load_block(packer, linear->weight[i], 0, n, piece->k0, piece->k, dst, piece->k);
        dst += n * piece->k;
    }
    memset(dst, 0, (size_t)((piece->n_padded - piece->n) * piece->k) * sizeof *dst);
}

static void load_bias(const kvf__packer *packer, const kvf__dense *linear, const kvf__tile *piece)
{
    float *dst = packer->bias;

    memset(dst, 0, (size_t)piece->n_padded * sizeof *dst);
    if (!piece->with_bias) return;
    if (linear->n_parts == 1) {
        if (linear->bias[0])
            kvf__slot_row_part(linear->bias[0], 0, piece->n0, piece->n, dst, packer->scratch);
        return;
    }
    for (int i = 0; i < linear->n_parts; i++) {
        if (linear->bias[i]) kvf__slot_row(linear->bias[i], 0, dst);
        dst += kvf__slot_rows(linear->weight[i]);
    }
}

/* matrix [n, k], in place. */
static void fold_rows_of_outputs(const kvf__packer *packer, const kvf__dense *linear, int64_t n,
                                 int64_t k)
{
    const float *gamma = linear->gamma, *beta = linear->beta;

#pragma omp parallel for schedule(static) num_threads(packer->threads)
    for (int64_t o = 0; o < n; o++) {
        float *row = packer->matrix + o * k;
        double sum = 0;
        for (int64_t i = 0; beta && i < k; i++)
            sum += (double)row[i] * (double)beta[i];
        packer->bias[o] = (float)((double)packer->bias[o] + sum);
        for (int64_t i = 0; gamma && i < k; i++)
            row[i] *= gamma[i];
    }
}

/* matrix [k, n], in place. Each thread adds up its own columns, going down the rows. */
static void fold_rows_of_inputs(const kvf__packer *packer, const kvf__dense *linear, int64_t k,
                                int64_t n)
{
    enum { STRIP = 256 };

    if (linear->beta) {
#pragma omp parallel for schedule(static) num_threads(packer->threads)
        for (int64_t from = 0; from < n; from += STRIP) {
            int64_t width = n - from < STRIP ? n - from : STRIP;
            double sum[STRIP] = {0};
            for (int64_t i = 0; i < k; i++)
                for (int64_t o = 0; o < width; o++)
                    sum[o] += (double)packer->matrix[i * n + from + o] * (double)linear->beta[i];
            for (int64_t o = 0; o < width; o++)
                packer->bias[from + o] = (float)((double)packer->bias[from + o] + sum[o]);
        }
    }
#pragma omp parallel for schedule(static) num_threads(packer->threads)
    for (int64_t i = 0; i < k; i++)
        for (int64_t o = 0; linear->gamma && o < n; o++)
            packer->matrix[i * n + o] *= linear->gamma[i];
}

static bool has_bias(const kvf__dense *linear, const kvf__tile *piece)
{
    if (linear->beta) return true;
    for (int i = 0; i < linear->n_parts; i++)
        if (linear->bias[i] && piece->with_bias) return true;
    return false;
}

/* The matrix as weights [K, N]. */
static kvf_status put(kvf__packer *packer, bool transposed, int64_t K, int64_t N, const float *bias,
                      kvf__packed **to)
{
    if (*to) return kvf__repack(packer->ctx, packer->mm, packer->matrix, transposed, bias, *to);
    KVF_TRY(kvf__pack(packer->ctx, packer->mm, packer->act, packer->matrix, transposed, K, N, bias,
                      to));
    packer->packed_bytes += kvf__packed_bytes(*to);
    return KVF_OK;
}

kvf_status kvf__pack_tile(kvf__packer *packer, const kvf__dense *linear, const kvf__tile *piece,
                          kvf__packed **fwd, kvf__packed **bwd)
{
    bool by_input = linear->weight[0]->conv1d;
    int64_t n = piece->n_padded, k = piece->k;
    const float *bias = has_bias(linear, piece) ? packer->bias : NULL;

    /* A norm spans all inputs; Conv1D weights are neither stacked nor padded. */
    assert(!linear->gamma || piece->k0 == 0);
    assert(!by_input || (linear->n_parts == 1 && piece->n == n));

    load_bias(packer, linear, piece);
    if (by_input) {
        load_block(packer, linear->weight[0], piece->k0, k, piece->n0, n, packer->matrix, n);
        fold_rows_of_inputs(packer, linear, k, n);
    } else {
        load_rows_of_outputs(packer, linear, piece);
        fold_rows_of_outputs(packer, linear, n, k);
    }
    if (packer->forward) KVF_TRY(put(packer, !by_input, k, n, bias, fwd));
    return packer->backward ? put(packer, by_input, n, k, NULL, bwd) : KVF_OK;
}
