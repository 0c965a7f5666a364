/* Loss of a data set under a prefix. Batches are fixed by the data alone (rows in file order, up to
 * so many tokens), so that a run, its folded prefix and a later evaluation of either see the same
 * batches and give the same bits. */
#include "train_int.h"

#include <math.h>
#include <string.h>

struct kvf__evaluator {
    kvf_base *base;
    const kvf__dataset *dataset;
    kvf__batcher batcher;
    kvf__pass *pass;
    int64_t *order; /* 0, 1, 2, ... */
    int64_t batch_tokens;
};

/* Rows of the batch that begins at `first`: at least one. */
static int64_t batch_rows(const kvf__evaluator *e, int64_t first, int64_t *tokens, int64_t *labels)
{
    int64_t n = 0;
    *tokens = *labels = 0;
    for (int64_t i = first; i < e->dataset->n; i++, n++) {
        int64_t length = kvf__example_length(e->dataset, i);
        if (n && *tokens + length > e->batch_tokens) break;
        *tokens += length;
        *labels += kvf__example_labels(e->dataset, i);
    }
    return n;
}

kvf__pass_limits kvf__limits_for(const kvf__batch_sizes *sizes, int64_t P, bool backward)
{
    return (kvf__pass_limits){
        .rows = sizes->rows,
        .tokens = sizes->tokens,
        .row_len = sizes->row_len,
        .labels = sizes->labels,
        .P = P,
        .lead_len = sizes->lead_len,
        .lead_tokens = sizes->lead_tokens,
        .backward = backward,
    };
}

/* Upper bounds for the batcher, then the sizes its batches really have. */
static kvf_status take_batcher(kvf_ctx *ctx, kvf__evaluator *e, bool share, kvf__batch_sizes *sizes)
{
    kvf__batch_sizes bounds = {0};
    const kvf__batch_rules rules = {.causal = kvf__model_desc(e->base->model)->causal,
                                    .share = share};
    for (int64_t first = 0; first < e->dataset->n;) {
        kvf__batch_sizes batch = {0};
        batch.rows = batch_rows(e, first, &batch.tokens, &batch.labels);
        kvf__batch_sizes_raise(&bounds, &batch);
        first += batch.rows;
    }
    KVF_TRY(kvf__batcher_init(ctx, &e->batcher, rules, bounds.rows, bounds.tokens, bounds.labels));
    for (int64_t first = 0, tokens, labels; first < e->dataset->n;) {
        int64_t n = batch_rows(e, first, &tokens, &labels);
        kvf__batcher_fill(&e->batcher, e->dataset, e->order + first, n);
        kvf__batch_sizes_raise(sizes, &e->batcher.sizes);
        first += n;
    }
    return KVF_OK;
}

kvf_status kvf__evaluator_create(kvf_ctx *ctx, kvf_base *base, const kvf__dataset *dataset,
                                 int64_t P, int64_t batch_tokens, bool share_leads,
                                 kvf__evaluator **out)
{
    kvf__evaluator *e = NULL;
    kvf__batch_sizes sizes = {0};
    KVF_TRY(kvf__alloc(ctx, sizeof *e, &e));
    e->base = base;
    e->dataset = dataset;
    e->batch_tokens = batch_tokens > 0 ? batch_tokens : 2048;
    kvf_status st = kvf__alloc_array(ctx, (size_t)dataset->n, sizeof *e->order, &e->order);
    for (int64_t i = 0; !st && i < dataset->n; i++)
        e->order[i] = i;
    if (!st) st = take_batcher(ctx, e, share_leads, &sizes);
    const kvf__pass_limits limits = kvf__limits_for(&sizes, P, false);
    if (!st) st = kvf__pass_create(ctx, base->model, &limits, &e->pass);
    if (st)
        kvf__evaluator_free(e);
    else
        *out = e;
    return st;
}

void kvf__evaluator_free(kvf__evaluator *evaluator)
{
    if (!evaluator) return;
    kvf__pass_free(evaluator->pass);
    kvf__batcher_done(&evaluator->batcher);
    kvf__free(evaluator->order);
    kvf__free(evaluator);
}

kvf_status kvf__evaluator_run(kvf_ctx *ctx, kvf__evaluator *e, const kvf__prefix *prefix,
                              int64_t position_start, double *loss, float *token_loss)
{
    double sum = 0;
    int64_t labels_before = 0, tokens, labels;
    for (int64_t first = 0, n; first < e->dataset->n; first += n) {
        n = batch_rows(e, first, &tokens, &labels);
        if (labels) {
            double part = 0;
            kvf__batcher_fill(&e->batcher, e->dataset, e->order + first, n);
            kvf__input input = {
                .batch = &e->batcher.batch, .prefix = prefix, .position_start = position_start};
            KVF_TRY(kvf__pass_fwd(ctx, e->pass, &input));
            KVF_TRY(kvf__pass_lm_loss(ctx, e->pass, false, 1, &part,
                                      token_loss ? token_loss + labels_before : NULL));
            sum += part;
        }
        labels_before += labels;
    }
    *loss = sum / (double)e->dataset->n_labels;
    return KVF_OK;
}

/* ---- public ---------------------------------------------------------------------------------- */

static kvf_status load_rows(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                            const kvf_eval_options *options, kvf__renderer *renderer,
                            kvf__dataset *out)
{
    const char *template_name = options->chat_template;
    if (!template_name && prefix) template_name = prefix->id.chat_template;
    KVF_TRY(kvf__renderer_init(ctx, base, template_name, options->map, renderer));
    int64_t longest = kvf__longest_row(base, prefix ? prefix->id.P : 0,
                                       prefix ? prefix->id.position_start : 0);
    kvf__dataset_options load = {
        .render = renderer->render,
        .max_length = options->max_length && options->max_length < longest ? options->max_length
                                                                           : longest,
        .vocab = (int32_t)kvf__model_desc(base->model)->V,
    };
    kvf_status st = kvf__overlong_parse(ctx, options->overlong ? options->overlong : "stop",
                                        &load.overlong);
    if (!st) st = kvf__dataset_load(ctx, options->data, &load, out);
    if (st) kvf__renderer_done(renderer);
    return st;
}

/* Mean loss of the averaged probabilities: per token, -log of the mean over prefixes of exp(-loss).
 */
static kvf_status run_ensemble(kvf_ctx *ctx, kvf__evaluator *e, kvf_prefix *const *prefixes,
                               size_t n, double *loss)
{
    size_t labels = (size_t)e->dataset->n_labels;
    float *token_loss = NULL;
    double *probability = NULL, each = 0;
    kvf_status st = kvf__alloc_array(ctx, labels, sizeof *token_loss, &token_loss);
    if (!st) st = kvf__alloc_array(ctx, labels, sizeof *probability, &probability);
    for (size_t i = 0; !st && i < n; i++) {
        st = kvf__evaluator_run(ctx, e, &prefixes[i]->prefix, prefixes[i]->id.position_start, &each,
                                token_loss);
        for (size_t t = 0; !st && t < labels; t++)
            probability[t] += exp(-(double)token_loss[t]) / (double)n;
    }
    double sum = 0;
    for (size_t t = 0; !st && t < labels; t++)
        sum -= log(probability[t]);
    if (!st) *loss = sum / (double)labels;
    kvf__free(token_loss);
    kvf__free(probability);
    return st;
}

static int64_t longest_prefix(kvf_prefix *const *prefixes, size_t n)
{
    int64_t P = 0;
    for (size_t i = 0; i < n; i++)
        if (prefixes[i]->id.P > P) P = prefixes[i]->id.P;
    return P;
}

kvf_status kvf_eval(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                    const kvf_eval_options *options, kvf_eval_result *result)
{
    kvf__renderer renderer;
    kvf__dataset set = {0};
    kvf__evaluator *evaluator = NULL;
    double loss = 0, begin = kvf__clock();
    KVF_TRY(load_rows(ctx, base, n ? prefixes[0] : NULL, options, &renderer, &set));
    kvf_status st = kvf__evaluator_create(
        ctx, base, &set, longest_prefix(prefixes, n), options->batch_tokens,
        !options->share_leads || strcmp(options->share_leads, "off"), &evaluator);
    if (!st && n > 1)
        st = run_ensemble(ctx, evaluator, prefixes, n, &loss);
    else if (!st)
        st = kvf__evaluator_run(ctx, evaluator, n ? &prefixes[0]->prefix : NULL,
                                n ? prefixes[0]->id.position_start : 0, &loss, NULL);
    if (!st)
        *result = (kvf_eval_result){
            .loss = loss,
            .perplexity = exp(loss),
            .label_tokens = set.n_labels,
            .examples = set.n,
            .skipped = set.skipped,
            .seconds = kvf__clock() - begin,
        };
    kvf__evaluator_free(evaluator);
    kvf__dataset_done(&set);
    kvf__renderer_done(&renderer);
    return st;
}
