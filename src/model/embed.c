/* The input of layer 0: rows of the token embedding, read from the mapped file, and learned
 * positions.
 *
 * The embedding is not packed and not copied: a batch touches few of its rows, and a tied head has
 * its own packed form. A row's first token stands at position_start plus the lengths of its leads
 * and of its cache (INTEROP.md 3.1). */
#include "pass_priv.h"

#include <omp.h>
#include <string.h>

static kvf_status check_row(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input, int64_t r)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__batch *b = input->batch;
    int64_t len = b->start[r + 1] - b->start[r];
    int64_t P = input->prefix ? input->prefix->P : 0;
    int64_t cached = input->cache ? kvf__cache_length(input->cache, kvf__row_slot(input->slot, r))
                                  : 0;
    int64_t before = cached + pass->offset[r], last = input->position_start + before + len - 1;

    if (last >= d->max_positions)
        return kvf__fail(
            ctx, KVF_ESHAPE,
            "batch row %lld: last token at position %lld (starting at %lld), the model has %lld",
            (long long)r, (long long)last, (long long)input->position_start,
            (long long)d->max_positions);
    if (d->sliding_window && P + before + len > d->sliding_window)
        return kvf__fail(
            ctx, KVF_ESHAPE,
            "batch row %lld: prefix of %lld and %lld tokens exceed the sliding window of %lld",
            (long long)r, (long long)P, (long long)(before + len), (long long)d->sliding_window);
    for (int64_t i = b->start[r]; i < b->start[r + 1]; i++)
        if (b->ids[i] < 0 || b->ids[i] >= d->V)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch row %lld: token %lld has id %ld, the vocabulary ends at %lld",
                             (long long)r, (long long)(i - b->start[r]), (long)b->ids[i],
                             (long long)d->V - 1);
    return KVF_OK;
}

kvf_status kvf__embed_check(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input)
{
    if (input->position_start < 0)
        return kvf__fail(ctx, KVF_ESHAPE, "position_start is %lld, expected 0 or more",
                         (long long)input->position_start);
    for (int64_t r = 0; r < input->batch->n_rows; r++)
        KVF_TRY(check_row(ctx, pass, input, r));
    return KVF_OK;
}

static void embed_token(const kvf__pass *pass, int64_t i, float *position_row)
{
    const kvf__model *model = pass->model;
    int64_t C = model->desc.C;
    float *x = pass->x + i * C;

    kvf__slot_row(&model->embedding, pass->batch->ids[i], x);
    if (model->desc.positions != KVF__POS_LEARNED) return;
    kvf__slot_row(&model->positions, pass->position[i], position_row);
    for (int64_t c = 0; c < C; c++)
        x[c] += position_row[c];
}

void kvf__embed_fwd(kvf__pass *pass, int64_t position_start)
{
    const kvf__batch *b = pass->batch;
    int64_t C = pass->model->desc.C, N = b->n_tokens;

    for (int64_t r = 0; r < b->n_rows; r++) {
        int64_t first = position_start + pass->offset[r];
        if (pass->cache) first += kvf__cache_length(pass->cache, kvf__row_slot(pass->slot, r));
        for (int64_t i = b->start[r]; i < b->start[r + 1]; i++)
            pass->position[i] = (int32_t)(first + i - b->start[r]);
    }
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < N; i++)
        embed_token(pass, i, pass->scratch + omp_get_thread_num() * C);
    memset(pass->x + N * C, 0, (size_t)((pass->M - N) * C) * sizeof(float));
}
