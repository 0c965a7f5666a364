/* What a base file says where its weights were trained for a task with a head: /head, /options and
 * /lineage as in a prefix file, and on /weights what every file says of its training. base_hash is
 * that of its own weights, so that the head goes with them alone. */
#include "h5_priv.h"

static const char GROUP[] = "weights", MARK[] = "task";

kvf_status kvf__base_task_write(kvf__h5 *h5, kvf__h5_id weights, const kvf__base_task *task)
{
    KVF_TRY(kvf__identity_write(h5, weights, true, &task->id));
    return kvf__file_end_write(h5, task->id.task, &task->head, task->options, task->lineage);
}

static kvf_status read_from(kvf__h5 *h5, kvf__h5_id group, kvf__base_task *out)
{
    KVF_TRY(kvf__identity_read(h5, group, true, &out->id));
    return kvf__file_end_read(h5, out->id.task, &out->head, &out->options, &out->lineage);
}

kvf_status kvf__base_task_read(kvf_ctx *ctx, const char *path, bool *found, kvf__base_task *out)
{
    kvf__h5 h5 = KVF__H5_NOTHING;
    kvf__h5_id group = KVF__H5_NONE;
    kvf__base_task task = {0};
    bool there = false;
    kvf_status st;

    st = kvf__h5_open(ctx, path, "base", &h5);
    if (st) goto out;
    st = kvf__h5_group_open(&h5, h5.file, GROUP, &group);
    if (st) goto out;
    st = kvf__h5_has_attr(&h5, group, MARK, &there);
    if (!st && there) st = read_from(&h5, group, &task);
    if (st) goto out;
    *found = there;
    *out = task;
    task = (kvf__base_task){0};
out:
    kvf__base_task_done(&task);
    kvf__h5_release(&group);
    kvf__h5_close(&h5);
    return st;
}

void kvf__base_task_done(kvf__base_task *task)
{
    kvf__identity_done(&task->id);
    kvf__head_values_done(&task->head);
    kvf_json_free(task->options);
    kvf_json_free(task->lineage);
    *task = (kvf__base_task){0};
}
