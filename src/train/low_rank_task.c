/* --task-prefix low-rank: the prefix of each task is the shared prefix times a matrix of rank 1 per
 * layer (low_rank.h). u and v follow the task's head in the list of parameters, so files and
 * moments store them like heads. */
#include "low_rank.h"
#include "tuned.h"

#include <string.h>

static kvf_status make_vector(const kvf__run *run, const kvf__train_task *task, const char *name,
                              int64_t columns, kvf__param *out)
{
    int64_t rows = 2 * run->id.L;
    char *full = NULL;
    KVF_TRY(kvf__asprintf(run->ctx, &full, "%s/%s", task->name, name));
    *out = (kvf__param){
        .name = full, .rank = 2, .dim = {rows, columns}, .n = rows * columns, .lr_scale = 1};
    KVF_TRY(kvf__alloc_array(run->ctx, (size_t)out->n, sizeof(float), &out->value));
    KVF_TRY(kvf__alloc_array(run->ctx, (size_t)out->n, sizeof(float), &out->grad));
    for (int64_t i = 0; i < out->n; i++)
        out->value[i] = 1;
    return KVF_OK;
}

kvf_status kvf__low_rank_task_alloc(const kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows)
{
    const kvf__identity *id = &run->id;
    if (!run->options.low_rank_tasks) return KVF_OK;
    if (id->heads)
        return kvf__fail(run->ctx, KVF_EUNSUPPORTED,
                         "--task-prefix low-rank: not supported on this base, whose layers have "
                         "different head sizes");
    KVF_TRY(kvf__prefix_like(run->ctx, &tuned->task_prefix, &tuned->prefix));
    KVF_TRY(kvf__prefix_take_weights(run->ctx, &tuned->task_prefix, &tuned->prefix));
    for (size_t i = 0; i < rows->n; i++) {
        kvf__train_task *task = &rows->task[i];
        KVF_TRY(make_vector(run, task, KVF__LOW_RANK_U, id->P, &task->low[0]));
        KVF_TRY(make_vector(run, task, KVF__LOW_RANK_V, id->G * id->D, &task->low[1]));
    }
    return KVF_OK;
}

void kvf__low_rank_task_fwd(kvf__tuned *tuned, const kvf__train_task *task)
{
    if (!tuned->task_prefix.P) return;
    kvf__low_rank_fwd(&tuned->task_prefix, &tuned->prefix, task->low[0].value, task->low[1].value);
    tuned->condition.prefix = &tuned->task_prefix;
}

void kvf__low_rank_task_bwd(kvf__tuned *tuned, const kvf__train_task *task)
{
    if (!tuned->task_prefix.P) return;
    kvf__low_rank_bwd(&tuned->dprefix, task->low[0].grad, task->low[1].grad, &tuned->prefix,
                      task->low[0].value, task->low[1].value);
}
