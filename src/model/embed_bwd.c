/* The gradient of virtual tokens, and of embeddings where they are trained: what layer 0's input
 * says of each token, undone through the norm on embeddings where the family has one, summed over
 * the tokens that show the same vector or row.
 *
 * The sum goes token by token in the order of the batch, every thread over columns of its own, so
 * that equal batches give equal bits whatever the number of threads. The norm's input was
 * overwritten long ago; it is computed again, in f64. */
#include "arch.h"
#include "pass_grads.h"
#include "pass_priv.h"

#include <math.h>
#include <omp.h>

enum { STRIP = 64 }; /* columns that a thread adds up at a time */

static double mean_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum / (double)n;
}

/* y = gamma (x - mean) rstd + beta: from d = dy to d = dx, in place. */
static void norm_row_bwd(const kvf__desc *desc, const float *gamma, const float *x, float *d)
{
    const int64_t C = desc->C;
    const bool rms = desc->block.norm == KVF__RMSNORM;
    double mean = rms ? 0 : mean_of(x, C), square = 0, sum = 0, along = 0;

    for (int64_t c = 0; c < C; c++) {
        double centred = (double)x[c] - mean;
        square += centred * centred;
    }
    const double rstd = 1 / sqrt(square / (double)C + (double)desc->norm_eps);
    for (int64_t c = 0; c < C; c++) {
        double g = (double)d[c] * (double)gamma[c];
        sum += rms ? 0 : g;
        along += g * ((double)x[c] - mean) * rstd;
    }
    for (int64_t c = 0; c < C; c++) {
        double g = (double)d[c] * (double)gamma[c], xhat = ((double)x[c] - mean) * rstd;
        d[c] = (float)(rstd * (g - sum / (double)C - xhat * along / (double)C));
    }
}

/* dx of token i, from the gradient of layer 0's input to that of the sum before the norm. */
static void token_bwd(const kvf__pass *pass, int64_t i, float *scratch)
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C;
    float *dx = pass->bwd.dx + i * C, *x = pass->fwd.x + i * C;

    if (m->desc.block.post_norm) { /* what qkv read is the stream itself: its part waits in dxhat */
        kvf__to_f32(m->act, kvf__act_row(m->act, pass->bwd.dxhat, i, C), scratch, C);
        for (int64_t c = 0; c < C; c++)
            dx[c] += scratch[c];
    }
    if (!m->embed.gamma) return;
    kvf__embed_token(pass, i, x, scratch);
    norm_row_bwd(&m->desc, m->embed.gamma, x, dx);
}

static void add_strip(const kvf__pass *pass, const kvf__pass_section *s, int64_t from, int64_t end)
{
    const kvf__batch *b = pass->batch;
    const int64_t C = pass->model->desc.C;

    for (int64_t i = b->start[s->first]; i < b->start[s->end]; i++) {
        const int32_t id = b->ids[i];
        if (id >= 0) continue;
        float *x = s->dvectors->x + kvf__virtual_token(id) * C;
        for (int64_t c = from; c < end; c++)
            x[c] += pass->bwd.dx[i * C + c];
    }
}

/* The tables that a token's sum is made of; NULL: not trained. */
typedef struct tables {
    float *tokens, *positions, *types;
} tables;

static void add_row(float *table, int64_t row, const float *dx, int64_t n)
{
    for (int64_t c = 0; table && c < n; c++)
        table[row + c] += dx[c];
}

static void add_tables(const kvf__pass *pass, const tables *to, int64_t from, int64_t n)
{
    const kvf__batch *b = pass->batch;
    const int64_t C = pass->model->desc.C;

    for (int64_t i = 0; i < b->n_tokens; i++) {
        const float *dx = pass->bwd.dx + i * C + from;
        if (b->ids[i] >= 0) add_row(to->tokens, b->ids[i] * C + from, dx, n);
        add_row(to->positions, pass->fwd.position[i] * C + from, dx, n);
        add_row(to->types, (b->types ? b->types[i] : 0) * C + from, dx, n);
    }
}

void kvf__embed_bwd(kvf__pass *pass, bool block)
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C, N = pass->batch->n_tokens;
    const tables to = {kvf__masters_grad(m->train.masters, KVF__W_TOKENS, 0),
                       kvf__masters_grad(m->train.masters, KVF__W_POSITIONS, 0),
                       kvf__masters_grad(m->train.masters, KVF__W_TYPES, 0)};
    bool rows = block && to.tokens;

    if (block && m->embed.gamma) {
        const kvf__norm_at norm = {.role = KVF__W_EMBED_NORM,
                                   .role_beta = KVF__W_EMBED_NORM_BETA,
                                   .xhat = pass->weights.embed_xhat,
                                   .real = N};
        kvf__norm_grad(pass, &norm, pass->bwd.dx, m->desc.block.post_norm ? pass->bwd.dxhat : NULL);
    }
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < N; i++)
        if (rows || pass->batch->ids[i] < 0)
            token_bwd(pass, i, pass->fwd.scratch + omp_get_thread_num() * C);
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t c = 0; c < C; c += STRIP) {
        int64_t end = c + STRIP < C ? c + STRIP : C;
        for (int64_t i = 0; i < pass->sections.n; i++)
            if (pass->sections.at[i].dvectors) add_strip(pass, &pass->sections.at[i], c, end);
        if (rows) add_tables(pass, &to, c, end - c);
    }
}
