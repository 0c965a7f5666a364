/* --kl-to-base W adds W times KL(base || base with the prefix) to a step's loss. The mean is over
 * the labels of some rows of the --retain file and over the base's likeliest tokens (head_soft.c).
 * It rewards a prefix that leaves that text unchanged.
 *
 * The rows are drawn like those of a data file, in a separate order from the seed; they depend only
 * on seed and step. They run in a separate pass, with the prefix of the step (including
 * --prefix-dropout), whose gradient is added to that of the task. */
#include "retention.h"

#include <math.h>
#include <string.h>

enum {
    ITEMS = 20,
    ROWS = 8
}; /* likeliest tokens of the base at a label; rows of a step with
    * --batch-tokens */

#define ORDER_SEED 0x6d657465 /* "mete": separates this order from the task's */

static const int64_t *draw(kvf__retention *m, int64_t *n)
{
    bool last;
    return kvf__sampler_next(&m->sampler, n, &last);
}

/* Fills the batch with the rows of the next step. */
static const kvf__batch_sizes *next_batch(kvf__retention *m)
{
    int64_t n;
    const int64_t *rows = draw(m, &n);
    kvf__batcher_fill(&m->batcher, &m->set, rows, n);
    return &m->batcher.sizes;
}

/* Allocates memory for the longest rows that can meet in a batch. */
static kvf_status make_batcher(const kvf__run *run, kvf__retention *m, int64_t rows)
{
    const int64_t longest = kvf__longest_example(&m->set);
    const kvf__batch_rules rules = {.causal = true,
                                    .source = kvf__model_desc(run->base->model)->encoder > 0,
                                    .share = !run->options.share_off};
    return kvf__batcher_init(run->ctx, &m->batcher, rules, rows, rows * longest, rows * longest);
}

/* Allocates the pass for the batches of all remaining steps. */
static kvf_status make_pass(const kvf__run *run, kvf__retention *m)
{
    kvf__batch_sizes sizes = {.rows = 1, .tokens = 1, .row_len = 1};
    for (int64_t step = 0; step < run->progress.steps; step++)
        kvf__batch_sizes_raise(&sizes, next_batch(m));
    kvf__pass_limits limits = kvf__limits_for(&sizes, run->id.P, run->id.neurons.N, true);
    limits.recompute = run->options.recompute;
    limits.soft = m->base.k;
    KVF_TRY(kvf__teacher_reserve(run->ctx, &m->base, sizes.labels));
    KVF_TRY(kvf__pass_create(run->ctx, run->base->model, &limits, &m->pass));
    kvf__sampler_rewind(&m->sampler);
    for (int64_t step = 0; step < run->progress.steps; step++) {
        const kvf__batch_sizes *now = next_batch(m);
        if (now->labels) KVF_TRY(kvf__pass_prepare(run->ctx, m->pass, now->tokens, now->labels));
    }
    kvf__sampler_rewind(&m->sampler);
    return KVF_OK;
}

kvf_status kvf__base_kl_prepare(const kvf__run *run, kvf__retention *m)
{
    const kvf_train_options *o = &run->options;
    const kvf__subject bare = {0};
    int64_t rows = o->batch_tokens ? ROWS : o->batch_size;
    int64_t V = kvf__model_desc(run->base->model)->V, k = V > ITEMS ? ITEMS : V - 1;
    if (rows > m->set.n) rows = m->set.n;
    KVF_TRY(kvf__sampler_init(run->ctx, &m->sampler, &m->set, true, o->seed ^ ORDER_SEED, rows, 0));
    KVF_TRY(make_batcher(run, m, rows));
    KVF_TRY(kvf__teacher_make(run->ctx, run->base, &m->set, &bare, k, &m->base));
    return make_pass(run, m);
}

void kvf__base_kl_done(kvf__retention *m)
{
    kvf__teacher_done(&m->base);
    kvf__sampler_done(&m->sampler);
    kvf__batcher_done(&m->batcher);
    kvf__pass_free(m->pass);
}

void kvf__base_kl_seek_step(const kvf__run *run, kvf__retention *m)
{
    int64_t n;
    if (!m || !m->base.k) return;
    kvf__sampler_rewind(&m->sampler);
    for (int64_t step = 0; step < run->progress.step; step++)
        draw(m, &n);
}

/* Computes the KL of the rows in the batcher, and its gradient. */
static kvf_status run_rows(const kvf__run *run, kvf__retention *m, const kvf__tuned *tuned,
                           double *kl)
{
    double sum = 0;
    int64_t labels = m->batcher.batch.n_labels;
    if (!labels) {
        *kl = 0;
        return KVF_OK;
    }
    const kvf__input input = {.batch = &m->batcher.batch, .condition = tuned->condition};
    const kvf__soft_targets soft = kvf__teacher_targets(&m->base, input.batch);
    const kvf__grads grads = {.prefix = tuned->gradient.prefix};
    float scale = (float)(run->options.kl_to_base / (double)labels);
    KVF_TRY(kvf__pass_fwd(run->ctx, m->pass, &input));
    KVF_TRY(kvf__pass_loss(run->ctx, m->pass,
                           &(kvf__loss){.teacher = &soft, .gradient = true, .scale = scale}, &sum));
    KVF_TRY(kvf__pass_bwd(run->ctx, m->pass, &grads));
    *kl = sum / (double)labels;
    return KVF_OK;
}

kvf_status kvf__base_kl_step(const kvf__run *run, kvf__retention *m, const kvf__tuned *tuned,
                             kvf_status st, double *kl)
{
    int64_t n;
    if (!m || !m->base.k) return st;
    const int64_t *rows = draw(m, &n);
    *kl = NAN;
    if (st) return st;
    kvf__batcher_fill(&m->batcher, &m->set, rows, n);
    return run_rows(run, m, tuned, kl);
}
