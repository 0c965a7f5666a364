/* What a base file says where its weights were trained for a task with a head: /head, /options and
 * /lineage as in a prefix file, and on /weights what every file says of its training. base_hash is
 * that of its own weights, so that the head goes with them alone. */
#include "h5_priv.h"

static const char GROUP[] = "weights", MARK[] = "task";

void kvf__base_task_write(kvf__h5 *h5, kvf__h5_id weights, const kvf__base_task *task)
{
    kvf__identity_write(h5, weights, true, &task->id);
    kvf__file_end_write(h5, task->id.task, &task->head, task->options, task->lineage);
}

kvf_status kvf__base_task_read(kvf_ctx *ctx, const char *path, bool *found, kvf__base_task *out)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, "base");
    kvf__h5_id group = kvf__h5_group_open(&h5, h5.file, GROUP);
    kvf__base_task task = {0};
    bool there = kvf__h5_has_attr(&h5, group, MARK);
    kvf_status st;

    if (there) {
        kvf__identity_read(&h5, group, true, &task.id);
        kvf__file_end_read(&h5, task.id.task, &task.head, &task.options, &task.lineage);
    }
    kvf__h5_release(&group);
    st = kvf__h5_close(&h5);
    if (st) {
        kvf__base_task_done(&task);
        return st;
    }
    *found = there;
    *out = task;
    return KVF_OK;
}

void kvf__base_task_done(kvf__base_task *task)
{
    kvf__identity_done(&task->id);
    kvf__head_values_done(&task->head);
    kvf_json_free(task->options);
    kvf_json_free(task->lineage);
    *task = (kvf__base_task){0};
}
