/* A run file described: parameters with their norms, what the optimizer keeps, and how far training
 * came. Only the encoder's values are read; of the moments, a multiple of its size, shapes and
 * storage. */
#include "inspect_int.h"

#include <math.h>

/* ---- history --------------------------------------------------------------------------------- */

static void describe_best(kvf__h5 *h5, kvf_json *object)
{
    kvf__h5_id group;
    char *metric;

    if (!kvf__h5_has(h5, h5->file, "best")) return;
    group = kvf__h5_group_open(h5, h5->file, "best");
    kvf_json_set(object, "best_step", kvf_json_new_int(kvf__h5_get_i64(h5, group, "step")));
    metric = kvf__h5_get_text(h5, group, "metric");
    kvf_json_set(object, "best_metric", kvf_json_new_str(metric ? metric : ""));
    kvf_json_set(object, "best_value", kvf_json_new_real(kvf__h5_get_f64(h5, group, "value")));
    kvf__free(metric);
    kvf__h5_release(&group);
}

static void describe_history(kvf__h5 *h5, kvf_json *root)
{
    kvf_json *object = kvf_json_object();
    kvf__history history = {0};
    int64_t last;

    kvf_json_set(root, "history", object);
    kvf__history_read(h5, &history);
    last = h5->status ? -1 : history.n - 1;
    kvf_json_set(object, "steps", kvf_json_new_int(last >= 0 ? history.step[last] : 0));
    if (last >= 0) {
        kvf_json_set(object, "tokens", kvf_json_new_int(history.tokens[last]));
        kvf_json_set(object, "first_train_loss", kvf_json_new_real(history.train_loss[0]));
        kvf_json_set(object, "last_train_loss", kvf_json_new_real(history.train_loss[last]));
    }
    while (last >= 0 && isnan(history.valid_loss[last]))
        last--;
    if (last >= 0)
        kvf_json_set(object, "last_valid_loss", kvf_json_new_real(history.valid_loss[last]));
    kvf__history_done(&history);
    describe_best(h5, object);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void describe_identity(kvf__h5 *h5, kvf_json *root)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "encoder");
    kvf__identity id = {0};
    uint8_t *mask;

    kvf__identity_read(h5, group, true, &id);
    mask = kvf__mask_read(h5, group, id.L);
    kvf__inspect_identity(h5, &id, mask, root);
    kvf__free(mask);
    kvf__identity_done(&id);
    kvf__h5_release(&group);
}

static void describe_items(kvf__h5 *h5, const char *name, kvf_json *root)
{
    kvf_json *items = kvf__attrs_read(h5, h5->file, name);
    kvf__set_taken(root, name, &items);
}

kvf_status kvf__inspect_run(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, "run");
    kvf_json *tensors = kvf_json_array();

    kvf_json_set(root, "tensors", tensors);
    describe_identity(&h5, root);
    kvf__inspect_params(&h5, NULL, "encoder", true, tensors);
    kvf__inspect_head(&h5, root, tensors);
    kvf__inspect_params(&h5, "best", "encoder", true, tensors);
    kvf__inspect_params(&h5, "best", "head", true, tensors);
    kvf__inspect_params(&h5, "best", "heads", true, tensors);
    kvf__inspect_params(&h5, "optimizer", "m", false, tensors);
    kvf__inspect_params(&h5, "optimizer", "v", false, tensors);
    describe_history(&h5, root);
    describe_items(&h5, "state", root);
    describe_items(&h5, "options", root);
    describe_items(&h5, "lineage", root);
    return kvf__h5_close(&h5);
}
