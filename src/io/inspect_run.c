/* A run file described: parameters with their norms, what the optimizer keeps, and how far training
 * came. Only the encoder's values are read; of the moments, a multiple of its size, shapes and
 * storage. */
#include "inspect_int.h"

#include <math.h>

/* ---- history --------------------------------------------------------------------------------- */

static kvf_status describe_best(kvf__h5 *h5, kvf_json *object)
{
    kvf__h5_id group = KVF__H5_NONE;
    char *metric = NULL;
    int64_t step = 0;
    double value = 0;
    bool there = false;
    kvf_status st;

    st = kvf__h5_has(h5, h5->file, "best", &there);
    if (st || !there) goto out;
    st = kvf__h5_group_open(h5, h5->file, "best", &group);
    if (st) goto out;
    st = kvf__h5_get_i64(h5, group, "step", &step);
    if (st) goto out;
    st = kvf__h5_get_text(h5, group, "metric", &metric);
    if (st) goto out;
    st = kvf__h5_get_f64(h5, group, "value", &value);
    if (st) goto out;
    kvf_json_set(object, "best_step", kvf_json_new_int(step));
    kvf_json_set(object, "best_metric", kvf_json_new_str(metric));
    kvf_json_set(object, "best_value", kvf_json_new_real(value));
out:
    kvf__free(metric);
    kvf__h5_release(&group);
    return st;
}

static kvf_status describe_history(kvf__h5 *h5, kvf_json *root)
{
    kvf_json *object = kvf_json_object();
    kvf__history history = {0};
    int64_t last;

    kvf_json_set(root, "history", object);
    KVF_TRY(kvf__history_read(h5, &history));
    last = history.n - 1;
    kvf_json_set(object, "steps", kvf_json_new_int(history.n ? history.step[last] : 0));
    if (history.n) {
        kvf_json_set(object, "tokens", kvf_json_new_int(history.tokens[last]));
        kvf_json_set(object, "first_train_loss", kvf_json_new_real(history.train_loss[0]));
        kvf_json_set(object, "last_train_loss", kvf_json_new_real(history.train_loss[last]));
    }
    while (last >= 0 && isnan(history.valid_loss[last]))
        last--;
    if (last >= 0)
        kvf_json_set(object, "last_valid_loss", kvf_json_new_real(history.valid_loss[last]));
    kvf__history_done(&history);
    return describe_best(h5, object);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static kvf_status describe_identity(kvf__h5 *h5, kvf_json *root)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf__identity id = {0};
    uint8_t *mask = NULL;
    kvf_status st;

    st = kvf__h5_group_open(h5, h5->file, "encoder", &group);
    if (st) goto out;
    st = kvf__identity_read(h5, group, true, &id);
    if (st) goto out;
    st = kvf__mask_read(h5, group, id.L, &mask);
    if (st) goto out;
    st = kvf__inspect_identity(h5, &id, mask, root);
out:
    kvf__free(mask);
    kvf__identity_done(&id);
    kvf__h5_release(&group);
    return st;
}

static kvf_status describe_items(kvf__h5 *h5, const char *name, kvf_json *root)
{
    kvf_json *items = NULL;

    KVF_TRY(kvf__attrs_read(h5, h5->file, name, &items));
    kvf__set_taken(root, name, &items);
    return KVF_OK;
}

static kvf_status describe(kvf__h5 *h5, kvf_json *root)
{
    kvf_json *tensors = kvf_json_array();

    kvf_json_set(root, "tensors", tensors);
    KVF_TRY(describe_identity(h5, root));
    KVF_TRY(kvf__inspect_params(h5, NULL, "encoder", true, tensors));
    KVF_TRY(kvf__inspect_head(h5, root, tensors));
    KVF_TRY(kvf__inspect_params(h5, "best", "encoder", true, tensors));
    KVF_TRY(kvf__inspect_params(h5, "best", "head", true, tensors));
    KVF_TRY(kvf__inspect_params(h5, "best", "heads", true, tensors));
    KVF_TRY(kvf__inspect_params(h5, "optimizer", "m", false, tensors));
    KVF_TRY(kvf__inspect_params(h5, "optimizer", "v", false, tensors));
    KVF_TRY(describe_history(h5, root));
    KVF_TRY(describe_items(h5, "state", root));
    KVF_TRY(describe_items(h5, "options", root));
    return describe_items(h5, "lineage", root);
}

kvf_status kvf__inspect_run(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    kvf__h5 h5 = KVF__H5_NOTHING;
    kvf_status st;

    st = kvf__h5_open(ctx, path, "run", &h5);
    if (st) goto out;
    st = describe(&h5, root);
out:
    kvf__h5_close(&h5);
    return st;
}
