/* Scores of a row's tokens: one pass over the row, then for each label
 *
 *   log p(id) = logit[id] - log(sum over v of exp(logit[v]))      (kvf__log_sum) */
#include "score.h"

#include <math.h>
#include <string.h>

struct kvf__scorer {
    kvf_base *base;
    kvf__scorer_limits most;
    kvf__pass *pass;
    kvf__batcher batcher;
    float *logits; /* [KVF__OUTPUT_LABELS, V] */
};

/* ---- one label ------------------------------------------------------------------------------- */

/* Inserts an item into the n_top likeliest, after equal ones. */
static void keep(kvf__candidate *top, int64_t n_top, int32_t id, float logit)
{
    int64_t at = n_top - 1;
    for (; at > 0 && top[at - 1].logit < logit; at--)
        top[at] = top[at - 1];
    top[at] = (kvf__candidate){logit, id};
}

static void find_top(const float *logits, int64_t V, double all, kvf__candidate *top, int64_t n_top)
{
    for (int64_t i = 0; i < n_top; i++)
        top[i] = (kvf__candidate){-INFINITY, -1};
    for (int64_t v = 0; v < V; v++)
        if (logits[v] > top[n_top - 1].logit) keep(top, n_top, (int32_t)v, logits[v]);
    for (int64_t i = 0; i < n_top; i++)
        top[i].logit = (float)((double)top[i].logit - all);
}

bool kvf__score_logits(const float *logits, int64_t V, int32_t id, kvf_token_score *score,
                       kvf__candidate *top, int64_t n_top)
{
    const kvf__logit_sum all = kvf__log_sum(logits, V);
    if (all.numbers < V || !isfinite(all.value)) return false;
    *score = (kvf_token_score){
        .id = id, .greedy = all.best == id, .logprob = (float)((double)logits[id] - all.value)};
    if (n_top) find_top(logits, V, all.value, top, n_top);
    return true;
}

/* ---- one row --------------------------------------------------------------------------------- */

typedef struct row_scores {
    kvf_ctx *ctx;
    const kvf__batch *batch;
    int64_t V, n_top;
    kvf_token_score *scores;
    kvf__candidate *top;
} row_scores;

static kvf_status score_labels(void *user, int64_t first, int64_t n, const float *logits)
{
    const row_scores *r = user;
    bool finite = true;
#pragma omp parallel for schedule(static) reduction(&& : finite)
    for (int64_t j = 0; j < n; j++) {
        kvf__candidate *top = r->n_top ? r->top + (first + j) * r->n_top : NULL;
        finite = finite && kvf__score_logits(logits + j * r->V, r->V, r->batch->label_id[first + j],
                                             &r->scores[first + j], top, r->n_top);
    }
    if (finite) return KVF_OK;
    return kvf__fail(r->ctx, KVF_ENUMERIC, "the logits of a row are not finite");
}

static kvf_status check_row(kvf_ctx *ctx, const kvf__scorer *s, const kvf__score_row *row)
{
    const int64_t V = kvf__model_desc(s->base->model)->V;
    const int64_t P = row->prefix ? row->prefix->file.prefix.P : 0;
    if (row->n > s->most.tokens || P > s->most.P || row->n_top > V)
        return kvf__fail(
            ctx, KVF_ESHAPE,
            "a row of %lld tokens after a prefix of %lld exceeds the limits, %lld after %lld",
            (long long)row->n, (long long)P, (long long)s->most.tokens, (long long)s->most.P);
    for (int64_t i = 1; i < row->n; i++)
        if (row->labels[i] != KVF__NO_LABEL && (row->labels[i] < 0 || row->labels[i] >= V))
            return kvf__fail(ctx, KVF_ESHAPE, "label %ld is outside the vocabulary of %lld",
                             (long)row->labels[i], (long long)V - 1);
    return KVF_OK;
}

/* Makes the row the only one of a batch; its ids and labels are only read. */
static void fill_batcher(kvf__batcher *batcher, const kvf__score_row *row, bool infix)
{
    const int64_t only = 0;
    int64_t start[2] = {0, row->n};
    const kvf__dataset set = {.n = 1,
                              .task = KVF__TASK_LM,
                              .start = start,
                              .ids = (int32_t *)row->ids,
                              .labels = (int32_t *)row->labels};
    batcher->rules.infix = infix;
    kvf__batcher_fill(batcher, &set, &only, 1);
}

kvf_status kvf__score_row_run(kvf_ctx *ctx, kvf__scorer *scorer, const kvf__score_row *row,
                              kvf_token_score *scores, kvf__candidate *top)
{
    const kvf__condition condition = kvf__prefix_condition(row->prefix);
    KVF_TRY(check_row(ctx, scorer, row));
    fill_batcher(&scorer->batcher, row, condition.prefix && row->prefix->file.id.infix);
    const kvf__input input = {.batch = &scorer->batcher.batch, .condition = condition};
    row_scores r = {.ctx = ctx,
                    .batch = input.batch,
                    .V = kvf__model_desc(scorer->base->model)->V,
                    .n_top = row->n_top,
                    .scores = scores,
                    .top = top};
    if (!r.batch->n_labels) return KVF_OK;
    KVF_TRY(kvf__pass_fwd(ctx, scorer->pass, &input));
    return kvf__pass_outputs_each(ctx, scorer->pass, row->head, scorer->logits, score_labels, &r);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static kvf_status fill(kvf_ctx *ctx, kvf__scorer *s)
{
    const int64_t tokens = s->most.tokens, V = kvf__model_desc(s->base->model)->V;
    const int64_t labels = tokens < KVF__OUTPUT_LABELS ? tokens : KVF__OUTPUT_LABELS;
    const bool encoder = kvf__model_desc(s->base->model)->encoder > 0;
    const kvf__batch_rules rules = {.causal = true, .source = encoder, .infix = s->most.infix};
    const kvf__pass_limits limits = {
        .rows = 2, /* the tokens before an infix are a separate row */
        .tokens = tokens,
        .row_len = tokens,
        .labels = tokens,
        .P = s->most.P,
        .neurons = s->most.neurons,
        .common_len = s->most.infix ? tokens : 0,
        .common_tokens = s->most.infix ? tokens : 0,
        .source_tokens = encoder ? tokens : 0,
        .source_len = encoder ? tokens : 0,
        .infix = s->most.infix,
    };
    KVF_TRY(kvf__batcher_init(ctx, &s->batcher, rules, 1, tokens, tokens));
    KVF_TRY(kvf__pass_create(ctx, s->base->model, &limits, &s->pass));
    return kvf__alloc_array(ctx, (size_t)(labels * V), sizeof *s->logits, &s->logits);
}

kvf_status kvf__scorer_create(kvf_ctx *ctx, kvf_base *base, const kvf__scorer_limits *limits,
                              kvf__scorer **out)
{
    kvf__scorer *scorer = NULL;
    if (!kvf__model_desc(base->model)->block.causal)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: a %s does not predict the next token", base->path,
                         kvf_base_architecture(base));
    KVF_TRY(kvf__alloc(ctx, sizeof *scorer, &scorer));
    scorer->base = base;
    scorer->most = *limits;
    kvf_status st = fill(ctx, scorer);
    KVF__GIVE(st, out, scorer, kvf__scorer_free(scorer));
    return st;
}

void kvf__scorer_free(kvf__scorer *scorer)
{
    if (!scorer) return;
    kvf__pass_free(scorer->pass);
    kvf__batcher_done(&scorer->batcher);
    kvf__free(scorer->logits);
    kvf__free(scorer);
}

/* ---- lists ----------------------------------------------------------------------------------- */

kvf_status kvf__token_scores_reserve(kvf_ctx *ctx, kvf__token_scores *s, int64_t n)
{
    const int64_t cap = n > 2 * s->cap ? n : 2 * s->cap, tops = s->n * s->n_top;
    if (n <= s->cap) return KVF_OK;
    KVF_TRY(
        kvf__grow(ctx, &s->token, (size_t)s->n * sizeof *s->token, (size_t)cap * sizeof *s->token));
    KVF_TRY(kvf__grow(ctx, &s->top, (size_t)tops * sizeof *s->top,
                      (size_t)(cap * s->n_top + 1) * sizeof *s->top));
    s->cap = cap;
    return KVF_OK;
}

kvf_status kvf__token_scores_add(kvf_ctx *ctx, kvf__token_scores *s, const float *logits, int64_t V,
                                 int32_t id)
{
    KVF_TRY(kvf__token_scores_reserve(ctx, s, s->n + 1));
    kvf_token_score *token = &s->token[s->n];
    kvf__candidate *top = s->top + s->n * s->n_top;
    if (!kvf__score_logits(logits, V, id, token, top, s->n_top)) {
        *token = (kvf_token_score){.id = id, .logprob = NAN};
        for (int64_t i = 0; i < s->n_top; i++)
            top[i] = (kvf__candidate){NAN, -1};
    }
    s->n++;
    return KVF_OK;
}

void kvf__token_scores_done(kvf__token_scores *scores)
{
    kvf__free(scores->token);
    kvf__free(scores->top);
    *scores = (kvf__token_scores){.n_top = scores->n_top};
}
