/* Packing of frozen weights: reads a piece of the file as f32, folds the preceding norm, and passes
 * it to oneDNN.
 *
 * y = (gamma * xhat + beta) W + b = xhat (gamma W) + (beta W + b), so gamma scales the rows of W
 * that belong to inputs and beta adds to the bias. The folded matrix serves both directions, since
 * the backward pass needs the gradient of xhat. Sums over inputs are computed in double, in index
 * order, so they do not depend on the thread count. */
#include "pack.h"
#include "slot.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

kvf_status kvf__packer_init(kvf_ctx *ctx, kvf__packer *packer, size_t matrix, size_t out, size_t in)
{
    size_t row = out > in ? out : in;

    packer->ctx = ctx;
    packer->threads = omp_get_max_threads();
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

/* Reads rows row0 .. and columns col0 .. of a slot into dst [rows, ld]. */
static void load_block(const kvf__packer *packer, const kvf__slot *slot, int64_t row0, int64_t rows,
                       int64_t col0, int64_t cols, float *dst, int64_t ld)
{
#pragma omp parallel for schedule(static) num_threads(packer->threads)
    for (int64_t r = 0; r < rows; r++) {
        float *scratch = packer->scratch + (size_t)omp_get_thread_num() * packer->scratch_row;
        kvf__slot_row_part(slot, row0 + r, col0, cols, dst + r * ld, scratch);
    }
}

/* Reads [n_padded, k]: one row per output. */
static void load_rows_of_outputs(const kvf__packer *packer, const kvf__dense *dense,
                                 const kvf__product *p)
{
    float *dst = packer->matrix;

    if (dense->n_parts == 1) {
        load_block(packer, dense->weight[0], p->n0, p->n, p->k0, p->k, dst, p->k);
        dst += p->n * p->k;
    }
    for (int i = 0; dense->n_parts > 1 && i < dense->n_parts; i++) {
        load_block(packer, dense->weight[i], dense->first[i], dense->rows[i], p->k0, p->k, dst,
                   p->k);
        dst += dense->rows[i] * p->k;
    }
    memset(dst, 0, (size_t)((p->n_padded - p->n) * p->k) * sizeof *dst);
}

static void load_bias(const kvf__packer *packer, const kvf__dense *dense, const kvf__product *p)
{
    float *dst = packer->bias;

    memset(dst, 0, (size_t)p->n_padded * sizeof *dst);
    if (p->k0) return; /* added by the first plane */
    if (dense->n_parts == 1) {
        if (dense->bias[0] && p->n == p->all_n)
            kvf__slot_row(dense->bias[0], 0, dst);
        else if (dense->bias[0])
            kvf__slot_row_part(dense->bias[0], 0, p->n0, p->n, dst, packer->scratch);
        return;
    }
    for (int i = 0; i < dense->n_parts; i++) {
        if (dense->bias[i]) kvf__slot_row(dense->bias[i], 0, dst);
        dst += dense->rows[i];
    }
}

/* Folds the norm into matrix [n, k], in place. */
static void fold_rows_of_outputs(const kvf__packer *packer, const kvf__dense *dense, int64_t n,
                                 int64_t k)
{
    const float *gamma = dense->gamma, *beta = dense->beta;

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

/* Folds the norm into matrix [k, n], in place. Each thread adds up its own columns, row by row. */
static void fold_rows_of_inputs(const kvf__packer *packer, const kvf__dense *dense, int64_t k,
                                int64_t n)
{
    enum { STRIP = 256 };

    if (dense->beta) {
#pragma omp parallel for schedule(static) num_threads(packer->threads)
        for (int64_t from = 0; from < n; from += STRIP) {
            int64_t width = n - from < STRIP ? n - from : STRIP;
            double sum[STRIP] = {0};
            for (int64_t i = 0; i < k; i++)
                for (int64_t o = 0; o < width; o++)
                    sum[o] += (double)packer->matrix[i * n + from + o] * (double)dense->beta[i];
            for (int64_t o = 0; o < width; o++)
                packer->bias[from + o] = (float)((double)packer->bias[from + o] + sum[o]);
        }
    }
#pragma omp parallel for schedule(static) num_threads(packer->threads)
    for (int64_t i = 0; i < k; i++)
        for (int64_t o = 0; dense->gamma && o < n; o++)
            packer->matrix[i * n + o] *= dense->gamma[i];
}

static bool has_bias(const kvf__dense *dense, const kvf__product *p)
{
    if (dense->beta) return true;
    for (int i = 0; i < dense->n_parts; i++)
        if (dense->bias[i] && !p->k0) return true;
    return false;
}

/* Packs the matrix as weights [K, N]. */
static kvf_status put(kvf__packer *packer, bool transposed, int64_t K, int64_t N, const float *bias,
                      kvf__packed **to)
{
    if (*to && !kvf__packed_is(*to, K, N)) { /* packed for a layer with other heads */
        kvf__packed_free(*to);
        *to = NULL;
    }
    if (*to) return kvf__repack(packer->ctx, packer->mm, packer->matrix, transposed, bias, *to);
    KVF_TRY(kvf__pack(packer->ctx, packer->mm, packer->type, packer->matrix, transposed, K, N, bias,
                      to));
    packer->packed_bytes += kvf__packed_bytes(*to);
    return KVF_OK;
}

kvf_status kvf__pack_product(kvf__packer *packer, const kvf__dense *dense, const kvf__product *p,
                             kvf__packed_pair *to)
{
    bool by_input = dense->weight[0]->conv1d;
    int64_t n = p->n_padded, k = p->k;
    const float *bias = has_bias(dense, p) ? packer->bias : NULL;

    /* A norm spans all inputs; Conv1D weights are neither stacked nor padded. */
    assert(!dense->gamma || p->k0 == 0);
    assert(!by_input || (dense->n_parts == 1 && p->n == n));

    load_bias(packer, dense, p);
    if (by_input) {
        load_block(packer, dense->weight[0], p->k0, k, p->n0, n, packer->matrix, n);
        fold_rows_of_inputs(packer, dense, k, n);
    } else {
        load_rows_of_outputs(packer, dense, p);
        fold_rows_of_outputs(packer, dense, n, k);
    }
    if (packer->forward) KVF_TRY(put(packer, !by_input, k, n, bias, &to->fwd));
    return packer->backward ? put(packer, by_input, n, k, NULL, &to->bwd) : KVF_OK;
}
