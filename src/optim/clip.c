/* The global gradient norm and clipping by it. Partial sums are taken over fixed chunks, then added
 * in order, so the result depends on neither threads nor timing. */
#include "optim_int.h"
#include "wide.h"

#include <math.h>

#define CHUNK 65536

static double sum_of_squares(const kvf__wide *wide, const float *g, int64_t n)
{
    double parts[64], total = 0;
    for (int64_t first = 0; first < n; first += 64 * (int64_t)CHUNK) {
        int64_t rest = n - first, chunks = (rest + CHUNK - 1) / CHUNK;
        if (chunks > 64) chunks = 64;
#pragma omp parallel for schedule(static)
        for (int64_t c = 0; c < chunks; c++) {
            int64_t left = rest - c * CHUNK;
            const float *chunk = g + first + c * CHUNK;
            parts[c] = wide->dot(chunk, chunk, left < CHUNK ? left : CHUNK);
        }
        for (int64_t c = 0; c < chunks; c++)
            total += parts[c];
    }
    return total;
}

/* Returns |left^T right|^2 = sum over p, q of (left left^T)[p][q] * (right right^T)[p][q] without
 * forming the gradient. Rows of the lower triangles are the parts, which are added in order. */
static double outer_squares(const kvf__wide *wide, const kvf__param *param)
{
    int64_t N = param->dim[0], M = param->dim[1];
    double total = 0;
    for (int64_t first = 0; first < param->outer; first += 64) {
        int64_t rows = param->outer - first < 64 ? param->outer - first : 64;
        double parts[64] = {0};
#pragma omp parallel for schedule(static, 1)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t p = first + r, q = 0; q <= p; q++)
                parts[r] += (p == q ? 1 : 2) *
                            wide->dot(param->left + p * N, param->left + q * N, N) *
                            wide->dot(param->right + p * M, param->right + q * M, M);
        for (int64_t r = 0; r < rows; r++)
            total += parts[r];
    }
    return total > 0 || isnan(total) ? total : 0; /* cancellation may leave a sum below zero */
}

double kvf__grad_norm(const kvf__params *params)
{
    const kvf__wide *wide = kvf__wide_get();
    double total = 0;
    for (size_t i = 0; i < params->n; i++) {
        const kvf__param *param = &params->item[i];
        total += param->outer ? outer_squares(wide, param)
                              : sum_of_squares(wide, param->grad, param->n);
    }
    return sqrt(total);
}

double kvf__clip_factor(double norm, double clip)
{
    if (!(clip > 0)) return 1;
    double factor = clip / (norm + 1e-6); /* 1e-6: as in torch.nn.utils.clip_grad_norm_ */
    return factor < 1 ? factor : 1;
}
