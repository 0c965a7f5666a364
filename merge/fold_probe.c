/* The probe: compares the logits of real rows under the encoder's output and under the stored
 * prefix. It uses the base's own head or that of the task, which was compared bit for bit
 * before. */
#include "merge_int.h"
#include "renderer.h"
#include "verbalizer.h"

#include <math.h>
#include <string.h>

#define PROBE_ROWS 16 /* number of rows, the first of the file; each is a batch of its own */

struct kvf__fold_probe {
    kvf_ctx *ctx;
    kvf_base *base;
    kvf__dataset set;
    kvf__batcher batcher;
    kvf__pass *pass;
    kvf__head *head; /* NULL: the base's own head */
    int64_t width;   /* width of a row of logits */
    float *logits[2];
    int64_t rows;
    int64_t position_start;
    bool infix;
};

static kvf_status alloc_memory(kvf__fold_probe *p, const kvf__prefix *prefix, int64_t rows)
{
    kvf__pass_limits limits = {.rows = p->infix ? 2 : 1,
                               .P = prefix->P,
                               .neurons = prefix->neurons.shape.N,
                               .infix = p->infix};
    const bool encoder = kvf__model_desc(p->base->model)->encoder > 0;
    const kvf__batch_rules rules = {.causal = kvf__model_desc(p->base->model)->block.causal,
                                    .source = encoder,
                                    .infix = p->infix};
    for (int64_t i = 0; i < rows; i++) {
        int64_t length = kvf__example_length(&p->set, i), labels = kvf__example_labels(&p->set, i);
        if (length > limits.tokens) limits.tokens = limits.row_len = length;
        if (labels > limits.labels) limits.labels = labels;
    }
    if (encoder) limits.source_tokens = limits.source_len = limits.tokens;
    if (p->infix) limits.common_len = limits.common_tokens = limits.tokens;
    p->width = p->head ? kvf__head_width(p->head) : kvf__model_desc(p->base->model)->V;
    size_t count = (size_t)(limits.labels * p->width);
    KVF_TRY(kvf__batcher_init(p->ctx, &p->batcher, rules, 1, limits.tokens, limits.labels));
    KVF_TRY(kvf__pass_create(p->ctx, p->base->model, &limits, &p->pass));
    KVF_TRY(kvf__alloc_array(p->ctx, count, sizeof(float), &p->logits[0]));
    return kvf__alloc_array(p->ctx, count, sizeof(float), &p->logits[1]);
}

static kvf_status logits_of(kvf__fold_probe *p, const kvf__prefix *prefix, float *logits)
{
    kvf__input input = {.batch = &p->batcher.batch,
                        .condition.prefix = prefix,
                        .condition.position_start = p->position_start};
    KVF_TRY(kvf__pass_fwd(p->ctx, p->pass, &input));
    return kvf__pass_outputs(p->ctx, p->pass, p->head, logits);
}

static kvf_status compare_row(kvf__fold_probe *p, int64_t row, const kvf__prefix *live,
                              const kvf__prefix *stored, double *worst)
{
    kvf__batcher_fill(&p->batcher, &p->set, &row, 1);
    if (!p->batcher.batch.n_labels) return KVF_OK;
    KVF_TRY(logits_of(p, live, p->logits[0]));
    KVF_TRY(logits_of(p, stored, p->logits[1]));
    int64_t count = p->batcher.batch.n_labels * p->width;
    for (int64_t i = 0; i < count; i++) {
        double diff = fabs((double)p->logits[0][i] - (double)p->logits[1][i]);
        if (!(diff <= *worst)) *worst = diff;
    }
    return KVF_OK;
}

static kvf_status load_rows(kvf__fold_probe *p, const kvf_merge_options *options,
                            const kvf_prefix *live, kvf__renderer *renderer)
{
    const kvf__label_set labels = {live->file.head.n_labels, live->file.head.labels};
    KVF_TRY(kvf__renderer_for(p->ctx, p->base, live, NULL, NULL, renderer));
    kvf__dataset_options load = {
        .render = renderer->render,
        .max_length = kvf__text_capacity(p->base, live),
        .overlong = KVF_OVERLONG_TRUNCATE_END,
        .vocab = (int32_t)kvf__model_desc(p->base->model)->V,
        .task = live->task,
        .causal = kvf__model_desc(p->base->model)->block.causal,
        .regression = live->file.head.regression,
        .label_set = labels.n ? &labels : NULL,
        .unlabeled = live->task != KVF__TASK_LM,
    };
    kvf__phrases tokens = {0};
    kvf_status st = kvf__verbalizer_rows(p->ctx, p->base, live, &tokens, &load);
    if (!st) st = kvf__dataset_load(p->ctx, options->probe, &load, &p->set);
    kvf__phrases_done(&tokens);
    kvf__renderer_done(renderer);
    return st;
}

kvf_status kvf__fold_probe_create(kvf_ctx *ctx, const kvf_merge_options *options,
                                  const kvf_prefix *live, kvf__fold_probe **out)
{
    kvf__fold_probe *p = NULL;
    kvf__renderer renderer;
    KVF_TRY(kvf__alloc(ctx, sizeof *p, &p));
    p->ctx = ctx;
    p->position_start = live->file.id.position_start;
    p->infix = live->file.id.infix;
    kvf_status st = kvf__base_open_exact(ctx, options->base, options->lora, &p->base);
    if (!st) st = kvf_prefix_check(ctx, live, p->base, options->allow_other_base);
    if (!st) st = kvf__prefix_head(ctx, p->base, live, &p->head);
    if (!st) st = load_rows(p, options, live, &renderer);
    p->rows = p->set.n < PROBE_ROWS ? p->set.n : PROBE_ROWS;
    if (!st) st = alloc_memory(p, &live->file.prefix, p->rows);
    KVF__GIVE(st, out, p, kvf__fold_probe_free(p));
    return st;
}

kvf_status kvf__fold_probe_compare(kvf__fold_probe *p, const kvf__prefix *live,
                                   const kvf__prefix *stored, double *max_abs_diff)
{
    double worst = 0;
    for (int64_t row = 0; row < p->rows; row++)
        KVF_TRY(compare_row(p, row, live, stored, &worst));
    *max_abs_diff = worst;
    return KVF_OK;
}

void kvf__fold_probe_free(kvf__fold_probe *p)
{
    if (!p) return;
    kvf__pass_free(p->pass);
    kvf__head_free(p->head);
    kvf__batcher_done(&p->batcher);
    kvf__free(p->logits[0]);
    kvf__free(p->logits[1]);
    kvf__dataset_done(&p->set);
    kvf_base_free(p->base);
    kvf__free(p);
}
