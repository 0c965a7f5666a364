/* The input of layer 0: the sum of token embedding, learned position and token type, with a norm
 * over it if the family has one.
 *
 * The embedding stays in the mapped file: a batch uses few of its rows, and a tied head has its own
 * packed form. Virtual tokens (ids below 0) use their vectors and are otherwise ordinary tokens, as
 * with transformers' inputs_embeds. A row's first token is at position_start plus the lengths of
 * its common prefixes and cache, plus P if the prefix is before it inside the row. RoBERTa numbers
 * only tokens other than padding (by id), starting after the padding's row of the table. The source
 * of an encoder-decoder starts at 0, whatever its encoder's prefix. Embeddings with a width of
 * their own are followed by a dense layer. */
#include "pass_grads.h"
#include "pass_priv.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static kvf_status check_row(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input, int64_t r)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__batch *b = input->batch;
    const kvf__pass_section *s = kvf__pass_section_of(pass, r);
    int64_t len = b->start[r + 1] - b->start[r];
    int64_t P = s->condition.prefix ? s->condition.prefix->P : 0;
    int64_t cached = input->cache ? kvf__cache_length(input->cache, kvf__row_slot(input->slot, r))
                                  : 0;
    int64_t before = cached + pass->keys.offset[r],
            shift = kvf__infix_shift(b, s->condition.prefix, r);
    int64_t last = s->condition.position_start + before + shift + len - 1;

    if (last >= d->position.max)
        return kvf__fail(
            ctx, KVF_ESHAPE,
            "batch row %lld: last token at position %lld (starting at %lld), the model has %lld",
            (long long)r, (long long)last, (long long)s->condition.position_start,
            (long long)d->position.max);
    if (d->position.window && b->infix_at && P + before + len > d->position.window)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "batch row %lld: a prefix of %lld inside %lld tokens exceeds the sliding "
                         "window of %lld",
                         (long long)r, (long long)P, (long long)(before + len),
                         (long long)d->position.window);
    for (int64_t i = b->start[r]; i < b->start[r + 1]; i++) {
        if (b->ids[i] < 0 && d->by_layer.inputs)
            return kvf__fail(
                ctx, KVF_EUNSUPPORTED,
                "batch row %lld: virtual tokens have no embeddings for each layer, which %s needs",
                (long long)r, d->arch_name);
        if (b->ids[i] < 0 && s->condition.vectors &&
            kvf__virtual_token(b->ids[i]) < s->condition.vectors->P)
            continue;
        if (b->ids[i] < 0 || b->ids[i] >= d->V)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch row %lld: token %lld has id %ld, the vocabulary ends at %lld",
                             (long long)r, (long long)(i - b->start[r]), (long)b->ids[i],
                             (long long)d->V - 1);
        if (d->types && b->types && (b->types[i] < 0 || b->types[i] >= d->types))
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch row %lld: token %lld has type %ld, the model has types up to "
                             "%lld",
                             (long long)r, (long long)(i - b->start[r]), (long)b->types[i],
                             (long long)d->types - 1);
    }
    return KVF_OK;
}

kvf_status kvf__embed_check(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input)
{
    for (int64_t r = 0; r < input->batch->n_rows; r++)
        KVF_TRY(check_row(ctx, pass, input, r));
    return KVF_OK;
}

/* Adds row of a table, if there is one, to x [E]. */
static void add_row(const kvf__slot *table, int64_t row, float *x, int64_t E, float *scratch)
{
    if (!table->view.data) return;
    kvf__slot_row(table, row, scratch);
    for (int64_t c = 0; c < E; c++)
        x[c] += scratch[c];
}

void kvf__embed_sum(const kvf__model *model, const kvf__embed_stack *stack, int64_t id,
                    int64_t type, int64_t position, float *x, float *scratch)
{
    if (id >= 0) kvf__embed_row(model, id, x);
    add_row(&model->embed.types, type, x, model->desc.E, scratch);
    add_row(&stack->positions, position, x, model->desc.E, scratch);
}

/* Computes the sum [E] for token i before the norm: embedding or vector, type and position. */
static void embed_token(const kvf__pass *pass, int64_t i, float *x, float *scratch)
{
    const kvf__model *model = pass->model;
    const kvf__batch *b = pass->batch;
    int64_t E = model->desc.E;

    if (b->ids[i] < 0)
        memcpy(x, kvf__pass_vectors_at(pass, i)->x + kvf__virtual_token(b->ids[i]) * E,
               (size_t)E * sizeof *x);
    kvf__embed_sum(model, kvf__pass_embed(pass), b->ids[i], b->types ? b->types[i] : 0,
                   pass->fwd.position[i], x, scratch);
}

/* Sets the positions of a row's tokens, the first at `first`, or table rows where padding has its
 * own. */
static void place_row(kvf__pass *pass, int64_t r, int64_t first)
{
    const kvf__batch *b = pass->batch;
    const int32_t pad = pass->model->desc.position.pad, row0 = pass->model->desc.position.first;

    for (int64_t i = b->start[r]; i < b->start[r + 1]; i++)
        pass->fwd.position[i] = pad >= 0 && b->ids[i] == pad ? pad : (int32_t)(row0 + first++);
}

/* The stack's first layer overwrites this rstd later; kvf__embed_bwd computes it again. */
static void norm_embeddings(kvf__pass *pass, const kvf__embed_stack *stack)
{
    const kvf__model *m = pass->model;
    const kvf__desc *d = &m->desc;
    const int64_t first = stack == m->embed.stack ? 0 : d->encoder;
    const kvf__whole_norm norm = {.M = pass->M,
                                  .C = d->E,
                                  .rms = d->block.norm == KVF__RMSNORM,
                                  .eps = d->norm_eps,
                                  .gamma = stack->gamma,
                                  .beta = stack->beta,
                                  .x = pass->fwd.embedded,
                                  .y = pass->fwd.embedded,
                                  .y_act = m->embed.out ? NULL : pass->fwd.x_act,
                                  .xhat = pass->weights.embed_xhat,
                                  .rstd = pass->weights.embed_rstd ? pass->weights.embed_rstd
                                                                   : pass->kept[first].rstd1};

    m->kernels->whole_norm_fwd(m->act, &norm);
}

/* Computes x = embedded W^T + b in f32. */
static kvf_status widen_fwd(kvf_ctx *ctx, kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C, E = m->desc.E, N = pass->batch->n_tokens;

    for (int64_t i = 0; i < N; i++)
        memcpy(pass->fwd.x + i * C, m->embed.out_bias, (size_t)C * sizeof(float));
    memset(pass->fwd.x + N * C, 0, (size_t)((pass->M - N) * C) * sizeof(float));
    return kvf__sgemm(ctx, false, true, N, C, E, pass->fwd.embedded, E, m->embed.out, E, 1,
                      pass->fwd.x, C);
}

void kvf__embed_place(kvf__pass *pass)
{
    const kvf__batch *b = pass->batch;

    for (int64_t r = 0; r < b->n_rows; r++) {
        if (kvf__pass_in_encoder(pass)) {
            place_row(pass, r, 0);
            continue;
        }
        int64_t first = kvf__pass_section_of(pass, r)->condition.position_start +
                        pass->keys.offset[r] + kvf__infix_shift(b, pass->prefix, r);
        if (pass->cache) first += kvf__cache_length(pass->cache, kvf__row_slot(pass->slot, r));
        place_row(pass, r, first);
    }
}

kvf_status kvf__embed_fwd(kvf_ctx *ctx, kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    const kvf__embed_stack *stack = kvf__pass_embed(pass);
    const int64_t E = m->desc.E, N = pass->batch->n_tokens;

    kvf__embed_place(pass);
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < N; i++)
        embed_token(pass, i, pass->fwd.embedded + i * E,
                    pass->fwd.scratch + omp_get_thread_num() * E);
    memset(pass->fwd.embedded + N * E, 0, (size_t)((pass->M - N) * E) * sizeof(float));
    if (stack->gamma) norm_embeddings(pass, stack);
    kvf__pass_drop_embedding(pass);
    if (m->embed.out) KVF_TRY(widen_fwd(ctx, pass));
    if (pass->fwd.x_act && (pass->drop.active || !stack->gamma || m->embed.out))
        m->kernels->from_f32(m->act, pass->fwd.x_act, pass->fwd.x, pass->M * m->desc.C);
    return kvf__pass_make_inputs(ctx, pass);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The gradient of virtual tokens, and of embeddings if trained. The gradient of layer 0's input
 * goes back through the norm on embeddings, if any. It is then summed over the tokens with the same
 * vector or row. Sums run in batch order, every thread over its own columns, so equal batches give
 * equal bits for any number of threads. The norm's input was overwritten and is computed again, in
 * f64. */

enum { STRIP = 64 }; /* columns that a thread sums at a time */

static double mean_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum / (double)n;
}

/* Backward of y = gamma (x - mean) rstd + beta: d = dy becomes dx, in place. */
static void norm_row_bwd(const kvf__desc *desc, const float *gamma, const float *x, float *d)
{
    const int64_t C = desc->E;
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

/* Adds the pending part in dxhat to dx of token i: in a post-norm block qkv read the stream
 * itself. */
static void join_row(const kvf__pass *pass, int64_t i, float *scratch)
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C;

    if (!m->desc.block.post_norm) return;
    kvf__to_f32(m->act, kvf__act_row(m->act, pass->bwd.dxhat, i, C), scratch, C);
    for (int64_t c = 0; c < C; c++)
        pass->bwd.dx[i * C + c] += scratch[c];
}

/* Computes dembedded from dx, and the gradient of the dense layer if trained. */
static kvf_status widen_bwd(kvf_ctx *ctx, kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C, E = m->desc.E, N = pass->batch->n_tokens;
    float *dw = kvf__masters_grad(m->train.masters, KVF__W_EMBED_OUT, 0);
    float *db = kvf__masters_grad(m->train.masters, KVF__W_EMBED_OUT_BIAS, 0);

#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < N; i++)
        join_row(pass, i, pass->fwd.scratch + omp_get_thread_num() * C);
    if (dw)
        KVF_TRY(kvf__sgemm(ctx, true, false, C, E, N, pass->bwd.dx, C, pass->fwd.embedded, E, 1, dw,
                           E));
    for (int64_t i = 0; db && i < N; i++)
        for (int64_t c = 0; c < C; c++)
            db[c] += pass->bwd.dx[i * C + c];
    return kvf__sgemm(ctx, false, false, N, E, C, pass->bwd.dx, C, m->embed.out, E, 0,
                      pass->bwd.dembedded, E);
}

/* Turns dx of token i from the gradient of layer 0's input into that of the sum before the norm. */
static void token_bwd(const kvf__pass *pass, int64_t i, float *scratch)
{
    const kvf__model *m = pass->model;
    const int64_t E = m->desc.E;
    float *dx = pass->bwd.dembedded + i * E, *x = pass->fwd.embedded + i * E;

    if (!m->embed.out) join_row(pass, i, scratch);
    if (!m->embed.stack[0].gamma) return;
    embed_token(pass, i, x, scratch);
    norm_row_bwd(&m->desc, m->embed.stack[0].gamma, x, dx);
}

static void add_strip(const kvf__pass *pass, const kvf__pass_section *s, int64_t from, int64_t end)
{
    const kvf__batch *b = pass->batch;
    const int64_t E = pass->model->desc.E;

    for (int64_t i = b->start[s->first]; i < b->start[s->end]; i++) {
        const int32_t id = b->ids[i];
        if (id >= 0) continue;
        float *x = s->dvectors->x + kvf__virtual_token(id) * E;
        for (int64_t c = from; c < end; c++)
            x[c] += pass->bwd.dembedded[i * E + c];
    }
}

/* Gradients of the tables in a token's sum; NULL: not trained. */
typedef struct tables {
    float *tokens, *positions, *types;
} tables;

static void add_to_row(float *table, int64_t row, float factor, const float *dx, int64_t n)
{
    for (int64_t c = 0; table && c < n; c++)
        table[row + c] += factor * dx[c];
}

static void add_tables(const kvf__pass *pass, const tables *to, int64_t from, int64_t n)
{
    const kvf__batch *b = pass->batch;
    const int64_t E = pass->model->desc.E;

    const float embed = pass->model->desc.factors.embed;

    for (int64_t i = 0; i < b->n_tokens; i++) {
        const float *dx = pass->bwd.dembedded + i * E + from;
        if (b->ids[i] >= 0) add_to_row(to->tokens, b->ids[i] * E + from, embed, dx, n);
        add_to_row(to->positions, pass->fwd.position[i] * E + from, 1, dx, n);
        add_to_row(to->types, (b->types ? b->types[i] : 0) * E + from, 1, dx, n);
    }
}

kvf_status kvf__embed_bwd(kvf_ctx *ctx, kvf__pass *pass, bool block)
{
    const kvf__model *m = pass->model;
    const int64_t E = m->desc.E, N = pass->batch->n_tokens;
    const tables to = {kvf__masters_grad(m->train.masters, KVF__W_TOKENS, 0),
                       kvf__masters_grad(m->train.masters, KVF__W_POSITIONS, 0),
                       kvf__masters_grad(m->train.masters, KVF__W_TYPES, 0)};
    bool rows = block && to.tokens;

    if (m->embed.out) KVF_TRY(widen_bwd(ctx, pass));
    kvf__pass_drop_embedding_bwd(pass);
    if (block && m->embed.stack[0].gamma) {
        const kvf__norm_at norm = {.role = KVF__W_EMBED_NORM,
                                   .role_beta = KVF__W_EMBED_NORM_BETA,
                                   .width = E,
                                   .xhat = pass->weights.embed_xhat,
                                   .real = N};
        const bool parts = m->desc.block.post_norm && !m->embed.out;
        kvf__norm_grad(pass, &norm, pass->bwd.dembedded, parts ? pass->bwd.dxhat : NULL);
    }
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < N; i++)
        if (rows || pass->batch->ids[i] < 0)
            token_bwd(pass, i, pass->fwd.scratch + omp_get_thread_num() * E);
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t c = 0; c < E; c += STRIP) {
        int64_t end = c + STRIP < E ? c + STRIP : E;
        for (int64_t i = 0; i < pass->sections.n; i++)
            if (pass->sections.at[i].dvectors) add_strip(pass, &pass->sections.at[i], c, end);
        if (rows) add_tables(pass, &to, c, end - c);
    }
    return KVF_OK;
}
