/* Rows of a batch: logits -> next token -> text -> callback. Each row has its own random stream, so
 * its tokens depend neither on other rows nor on their order. */
#include "row.h"

#include <omp.h>

kvf__live_row kvf__row_begin(const kvf__row_request *request, int64_t longest)
{
    const int64_t left = longest - request->n;
    return (kvf__live_row){
        .request = *request,
        .rng = kvf__rng_make(request->seed, request->stream),
        .completion = {.limit = left < request->max_tokens ? left : request->max_tokens,
                       .stop = request->stop,
                       .n_stop = request->n_stop,
                       .ends = request->ends}};
}

/* Passes new text to the callback; nothing for a failed row. */
static void show(kvf__live_row *row)
{
    kvf__completion *c = &row->completion;
    const size_t ready = c->finish == KVF__FINISH_FAILED ? c->shown : kvf__completion_ready(c);
    const size_t n = ready > c->shown ? ready - c->shown : 0;
    const char *text = n ? c->text.data + c->shown : "";
    c->shown += n;
    if (row->request.text)
        row->request.text(row->request.user, text, n, (int64_t)c->out.n, c->finish);
}

void kvf__row_fail(kvf__live_row *row)
{
    row->completion.finish = KVF__FINISH_FAILED;
    show(row);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void lay_out(void *object, kvf__carver *carve)
{
    kvf__row_batch *batch = object;
    const int64_t V = kvf__model_desc(batch->base->model)->V;
    batch->tokens = kvf__tokens_carve(carve, batch->most_rows, batch->most_ids);
    batch->rows = kvf__carve(carve, batch->most_rows, 1, sizeof *batch->rows);
    batch->scratch = kvf__carve(carve, batch->threads, V, sizeof *batch->scratch);
    batch->counts = kvf__carve(carve, batch->threads, V, sizeof *batch->counts);
    batch->penalized = kvf__carve(carve, batch->threads, V, sizeof *batch->penalized);
}

kvf_status kvf__row_batch_init(kvf_ctx *ctx, const kvf_base *base, int64_t rows, int64_t ids,
                               kvf__row_batch *out)
{
    *out = (kvf__row_batch){.base = base,
                            .threads = kvf_ctx_threads(ctx),
                            .most_rows = rows,
                            .most_ids = ids > rows ? ids : rows};
    return kvf__carve_block(ctx, lay_out, out, &out->memory);
}

void kvf__row_batch_done(kvf__row_batch *batch)
{
    kvf__free(batch->memory);
}

void kvf__row_batch_add(kvf__row_batch *batch, kvf__live_row *row, int64_t slot, const int32_t *ids,
                        int64_t n)
{
    batch->rows[batch->tokens.n] = row;
    kvf__tokens_add(&batch->tokens, slot, ids, n);
}

kvf_status kvf__fail_logits(kvf_ctx *ctx, int64_t tokens)
{
    return kvf__fail(ctx, KVF_ENUMERIC,
                     "the logits of token %lld are not finite: a weight of the base or a value of "
                     "the prefix is not finite or too large",
                     (long long)tokens + 1);
}

/* Samples the next token of a row from its logits [V]; -1: they are not finite. */
static int32_t draw(const kvf__row_batch *batch, kvf__live_row *row, const float *logits, int64_t V)
{
    const kvf__row_request *request = &row->request;
    const kvf__penalties *penalties = &request->sampling.penalties;
    const int64_t own = omp_get_thread_num() * V;
    const int32_t forced = kvf__completion_forced(batch->base, (int64_t)row->completion.out.n);
    if (forced >= 0) return forced;
    if (kvf__penalties_any(penalties)) {
        const kvf__ids *out = &row->completion.out;
        const bool apart = kvf__model_desc(batch->base->model)->encoder > 0; /* separate from the
                                                                              * prompt */
        const kvf__said said = {request->prompt, out->data, apart ? 0 : request->n,
                                (int64_t)out->n};
        float *penalized = batch->penalized + own;
        kvf__penalize(penalties, &said, logits, V, batch->counts + own, penalized);
        logits = penalized;
    }
    return kvf__sample(&request->sampling, logits, V, &row->rng, batch->scratch + own);
}

/* Appends the row's token to its text. */
static kvf_status take(kvf_ctx *ctx, const kvf__row_batch *batch, kvf__live_row *row)
{
    kvf_status st = row->scored ? kvf__fail(ctx, row->scored, "out of memory") : KVF_OK;
    if (row->token < 0) st = kvf__fail_logits(ctx, (int64_t)row->completion.out.n);
    if (!st) st = kvf__completion_add(ctx, batch->base, &row->completion, row->token);
    if (st)
        kvf__row_fail(row);
    else
        show(row);
    return st;
}

kvf_status kvf__row_batch_advance(kvf_ctx *ctx, const kvf__row_batch *batch, const float *logits)
{
    const int64_t n = batch->tokens.n, V = kvf__model_desc(batch->base->model)->V;
    kvf_status st = KVF_OK;
#pragma omp parallel for schedule(dynamic) num_threads(batch->threads) if (n > 1)
    for (int64_t i = 0; i < n; i++) {
        kvf__live_row *row = batch->rows[i];
        row->token = draw(batch, row, logits + i * V, V);
        if (row->request.scores && row->token >= 0)
            row->scored = kvf__token_scores_add(NULL, row->request.scores, logits + i * V, V,
                                                row->token);
    }
    for (int64_t i = 0; i < n; i++) {
        const kvf_status own = take(ctx, batch, batch->rows[i]);
        if (own) st = own;
    }
    return st;
}

kvf_status kvf__row_batch_follow(kvf_ctx *ctx, const kvf__row_batch *batch, const float *logits,
                                 int64_t *kept)
{
    const kvf__tokens *in = &batch->tokens;
    const int64_t V = kvf__model_desc(batch->base->model)->V;
    kvf_status st = KVF_OK;
    for (int64_t i = 0; i < in->n; i++) {
        kvf__live_row *row = batch->rows[i];
        int64_t at = in->start[i];
        bool goes_on = true;
        for (; goes_on; at++) {
            row->token = draw(batch, row, logits + at * V, V);
            const kvf_status own = take(ctx, batch, row);
            if (own) st = own;
            goes_on = !row->completion.finish && at + 1 < in->start[i + 1] &&
                      in->ids[at + 1] == row->token;
        }
        kept[i] = at - in->start[i];
    }
    return st;
}
