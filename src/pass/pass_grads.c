/* Gradients of trained weights, from values kept by the pass and gradients of its backward pass.
 *
 * They are added to the masters' gradients (masters.c). Sums over tokens run in batch order, every
 * thread over its own columns, so equal batches give equal bits for any number of threads. Padding
 * rows are excluded. */
#include "pass_grads.h"
#include "arch.h"
#include "pass_priv.h"

#include <string.h>

enum { STRIP = 64 }; /* columns that a thread sums at a time */

static int64_t strip_width(int64_t from, int64_t n)
{
    return n - from < STRIP ? n - from : STRIP;
}

/* Reads n elements from `at` on of an array of the activation type. */
static void read_act(const kvf__pass *pass, const void *from, int64_t at, int64_t n, float *out)
{
    kvf__dtype act = pass->model->act;
    kvf__to_f32(act, (const char *)from + (size_t)at * kvf__act_size(act), out, n);
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* Gradients of y = gamma xhat + beta, for columns c .. . */
typedef struct norm_sums {
    double gamma[STRIP], beta[STRIP];
} norm_sums;

static void norm_row(const kvf__pass *pass, norm_sums *sums, const float *dx, const void *plus,
                     const void *xhat, int64_t at, int64_t n)
{
    float dy[STRIP] = {0}, more[STRIP], x[STRIP];

    if (dx) memcpy(dy, dx + at, (size_t)n * sizeof *dy);
    if (plus) {
        read_act(pass, plus, at, n, more);
        for (int64_t c = 0; c < n; c++)
            dy[c] += more[c];
    }
    read_act(pass, xhat, at, n, x);
    for (int64_t c = 0; c < n; c++) {
        sums->gamma[c] += (double)dy[c] * (double)x[c];
        sums->beta[c] += (double)dy[c];
    }
}

void kvf__norm_grad(const kvf__pass *pass, const kvf__norm_at *at, const float *dx,
                    const void *plus)
{
    float *dgamma = kvf__masters_grad(pass->model->train.masters, at->role, at->layer);
    float *dbeta = kvf__masters_grad(pass->model->train.masters, at->role_beta, at->layer);
    int64_t C = at->width ? at->width : pass->model->desc.C;
    /* the final norm's gamma has this factor in it (create.c) */
    const double by = at->role == KVF__W_FINAL ? (double)pass->model->desc.factors.head : 1;

    if (!dgamma) return;
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t from = 0; from < C; from += STRIP) {
        int64_t n = strip_width(from, C);
        norm_sums sums = {0};
        for (int64_t i = 0; i < at->real; i++)
            norm_row(pass, &sums, dx, plus, at->xhat, i * C + from, n);
        for (int64_t c = 0; c < n; c++)
            dgamma[from + c] += (float)(by * sums.gamma[c]);
        for (int64_t c = 0; dbeta && c < n; c++)
            dbeta[from + c] += (float)sums.beta[c];
    }
}

/* Returns the first element of token i's head in qk_xhat. The heads of a token are adjacent, or
 * with one norm over all heads first those of queries, then those of keys. */
static int64_t head_xhat(const kvf__pass *pass, int64_t i, int64_t head)
{
    const kvf__desc *d = &pass->model->desc;

    if (d->block.qk_norm != KVF__QK_WHOLE) return (i * (d->H + d->G) + head) * d->D;
    if (head < d->H) return (i * d->H + head) * d->D;
    return (pass->batch->n_tokens * d->H + i * d->G + head - d->H) * d->D;
}

/* Adds the sum over rows of dqkv * xhat to out [D], for one head. */
static void head_sums(const kvf__pass *pass, int64_t l, int64_t head, double *out)
{
    const kvf__desc *d = &pass->model->desc;
    int64_t width = (d->H + 2 * d->G) * d->D;
    float dy[STRIP], x[STRIP];

    for (int64_t i = 0; i < pass->batch->n_tokens; i++)
        for (int64_t from = 0; from < d->D; from += STRIP) {
            int64_t n = strip_width(from, d->D);
            read_act(pass, pass->bwd.dqkv, i * width + head * d->D + from, n, dy);
            read_act(pass, pass->kept[l].qk_xhat, head_xhat(pass, i, head) + from, n, x);
            for (int64_t c = 0; c < n; c++)
                out[from + c] += (double)dy[c] * (double)x[c];
        }
}

/* All query heads share one gamma [D] and all key heads another, or each head has its own [D]. */
void kvf__head_norm_grad(const kvf__pass *pass, int64_t l)
{
    enum { MOST_D = 1024 }; /* limit of desc_check */
    const kvf__desc *d = &pass->model->desc;
    float *const grads[] = {kvf__masters_grad(pass->model->train.masters, KVF__W_Q_NORM, l),
                            kvf__masters_grad(pass->model->train.masters, KVF__W_K_NORM, l)};
    const int64_t first[] = {0, d->H, d->H + d->G};

    for (int i = 0; i < 2; i++) {
        const int64_t each = d->block.qk_norm == KVF__QK_WHOLE ? 1 : first[i + 1] - first[i];
        for (int64_t from = first[i]; grads[i] && from < first[i + 1]; from += each) {
            double sums[MOST_D] = {0};
            for (int64_t head = from; head < from + each; head++)
                head_sums(pass, l, head, sums);
            for (int64_t c = 0; c < d->D; c++)
                grads[i][(from - first[i]) / each * d->D + c] += (float)sums[c];
        }
    }
}
