/* Reference values for a run's validation, measured before its first step. They are the losses of
 * the bare base and of the initial prefix or, with classes, the score of the largest one. A loss
 * costs a forward pass over the held-out rows, so it is measured only if that is at most 2 % of the
 * run. */
#include "baselines.h"
#include "answers.h"
#include "pace.h"

#include <math.h>

static const double MOST = 0.02; /* share of the run's time */

/* Counts the whole schedule, so that a resumed run decides like an uninterrupted one. */
static bool is_cheap(const kvf__run *run, const kvf__train_rows *rows)
{
    const kvf__train_task *task = rows->task;
    const double epoch = (double)task->data.start[task->data.n],
                 steps = (double)run->options.schedule_steps / (double)rows->epoch_steps;
    return KVF__FORWARD_SHARE * (double)kvf__valid_tokens(rows) <= MOST * epoch * steps;
}

static kvf_status largest_class(const kvf__run *run, const kvf__train_task *task, double *score)
{
    const kvf__dataset *data = &task->data;
    const size_t n = data->names.n;
    int64_t *count = NULL;
    int32_t largest = 0;
    KVF_TRY(kvf__alloc_array(run->ctx, n, sizeof *count, &count));
    for (int64_t i = 0; i < data->start[data->n]; i++)
        if (data->labels[i] >= 0) count[data->labels[i]]++;
    for (size_t c = 1; c < n; c++)
        if (count[c] > count[largest]) largest = (int32_t)c;
    kvf__free(count);
    return kvf__measure_constant(run->ctx, &task->valid, largest, task->metric, score);
}

static kvf_status losses(const kvf__run *run, kvf__tuned *tuned, const kvf__train_task *task,
                         kvf__baselines *out)
{
    const kvf__subject bare = {0};
    if (run->method->port != KVF__PORT_EMBED) /* their rows contain virtual tokens */
        KVF_TRY(kvf__evaluator_run(run->ctx, task->evaluator, &bare, &out->bare_loss, NULL));
    KVF_TRY(kvf__tuned_emit(run, tuned));
    const kvf__subject start = kvf__tuned_subject(tuned, &run->id, task);
    return kvf__evaluator_run(run->ctx, task->evaluator, &start, &out->start_loss, NULL);
}

kvf_status kvf__baselines_measure(kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows)
{
    const kvf__train_task *task = rows->task;
    if (run->output.is_resumed || run->ranks || task->name || !task->evaluator ||
        !run->progress.steps)
        return KVF_OK;
    if (!task->head) /* the base's own head gives a loss */
        return is_cheap(run, rows) ? losses(run, tuned, task, &run->progress.baselines) : KVF_OK;
    const bool classes = task->kind == KVF__TASK_SEQ_CLS || task->kind == KVF__TASK_TOKEN_CLS;
    if (!classes || task->words || task->data.regression) return KVF_OK;
    return largest_class(run, task, &run->progress.baselines.largest_class);
}

void kvf__baselines_store(const kvf__baselines *baselines, kvf_json *lineage)
{
    if (!isnan(baselines->bare_loss))
        kvf_json_set(lineage, "bare_loss", kvf_json_new_real(baselines->bare_loss));
    if (!isnan(baselines->start_loss))
        kvf_json_set(lineage, "start_loss", kvf_json_new_real(baselines->start_loss));
    if (!isnan(baselines->largest_class))
        kvf_json_set(lineage, "largest_class", kvf_json_new_real(baselines->largest_class));
}

kvf__baselines kvf__baselines_stored(const kvf_json *lineage)
{
    return (kvf__baselines){kvf_json_real(kvf_json_get(lineage, "bare_loss"), NAN),
                            kvf_json_real(kvf_json_get(lineage, "start_loss"), NAN),
                            kvf_json_real(kvf_json_get(lineage, "largest_class"), NAN)};
}
