/* --task-prefix low-rank: each of several tasks has the shared prefix times a matrix of rank 1 per
 * layer (low_rank.h). u and v join the list of parameters beside the task's head, so files and
 * moments hold them as they hold heads. */
#include "low_rank.h"
#include "train_int.h"

#include <string.h>

static kvf_status take_vector(kvf__trainer *t, const kvf__job *job, const char *name,
                              int64_t columns, kvf__param *out)
{
    int64_t rows = 2 * t->id.L;
    char *full = NULL;
    KVF_TRY(kvf__asprintf(t->ctx, &full, "%s/%s", job->name, name));
    *out = (kvf__param){
        .name = full, .rank = 2, .dim = {rows, columns}, .n = rows * columns, .lr_scale = 1};
    KVF_TRY(kvf__alloc_array(t->ctx, (size_t)out->n, sizeof(float), &out->value));
    KVF_TRY(kvf__alloc_array(t->ctx, (size_t)out->n, sizeof(float), &out->grad));
    for (int64_t i = 0; i < out->n; i++)
        out->value[i] = 1;
    return KVF_OK;
}

kvf_status kvf__task_prefix_alloc(kvf__trainer *t)
{
    const kvf__identity *id = &t->id;
    if (strcmp(t->options.task_prefix, "low-rank")) return KVF_OK;
    KVF_TRY(kvf__prefix_init(t->ctx, &t->task_prefix, id->L, id->G, id->P, id->D));
    for (size_t i = 0; i < t->n_jobs; i++) {
        kvf__job *job = &t->jobs[i];
        KVF_TRY(take_vector(t, job, KVF__LOW_RANK_U, id->P, &job->low[0]));
        KVF_TRY(take_vector(t, job, KVF__LOW_RANK_V, id->G * id->D, &job->low[1]));
    }
    return KVF_OK;
}

void kvf__task_prefix_fwd(kvf__trainer *t, const kvf__job *job)
{
    if (!t->task_prefix.P) return;
    kvf__low_rank_fwd(&t->task_prefix, &t->prefix, job->low[0].value, job->low[1].value);
    t->shown = &t->task_prefix;
}

void kvf__task_prefix_bwd(kvf__trainer *t, const kvf__job *job)
{
    if (!t->task_prefix.P) return;
    kvf__low_rank_bwd(&t->dprefix, job->low[0].grad, job->low[1].grad, &t->prefix,
                      job->low[0].value, job->low[1].value);
}

void kvf__task_prefix_done(kvf__trainer *t)
{
    for (size_t i = 0; i < t->n_jobs; i++)
        for (int k = 0; k < 2; k++) {
            kvf__free((char *)t->jobs[i].low[k].name);
            kvf__free(t->jobs[i].low[k].value);
            kvf__free(t->jobs[i].low[k].grad);
        }
    kvf__prefix_done(&t->task_prefix);
}
