/* The global gradient norm and clipping by it. Partial sums are taken over fixed chunks, then added
 * in order, so the result depends on neither threads nor timing. */
#include "optim_int.h"

#include <math.h>

#define CHUNK 65536

static double chunk_sum(const float *g, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)g[i] * (double)g[i];
    return sum;
}

static double sum_of_squares(const float *g, int64_t n)
{
    double parts[64], total = 0;
    for (int64_t first = 0; first < n; first += 64 * (int64_t)CHUNK) {
        int64_t rest = n - first, chunks = (rest + CHUNK - 1) / CHUNK;
        if (chunks > 64) chunks = 64;
#pragma omp parallel for schedule(static)
        for (int64_t c = 0; c < chunks; c++) {
            int64_t left = rest - c * CHUNK;
            parts[c] = chunk_sum(g + first + c * CHUNK, left < CHUNK ? left : CHUNK);
        }
        for (int64_t c = 0; c < chunks; c++)
            total += parts[c];
    }
    return total;
}

double kvf__grad_norm(const kvf__params *params)
{
    double total = 0;
    for (size_t i = 0; i < params->n; i++)
        total += sum_of_squares(params->item[i].grad, params->item[i].n);
    return sqrt(total);
}

double kvf__clip_factor(double norm, double clip)
{
    if (!(clip > 0)) return 1;
    double factor = clip / (norm + 1e-6); /* 1e-6: torch.nn.utils.clip_grad_norm_ */
    return factor < 1 ? factor : 1;
}
