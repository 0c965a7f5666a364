/* The run file: encoder, optimizer and everything else a training run needs to go on
 * (docs/format.md).
 *
 *   /encoder/<parameter>          attributes method, task, position_start, L, G, P, D, layer_mask
 *   /head/<parameter>, labels     where the task has a head
 *   /heads/<name>/...             of several tasks; in best and optimizer too, by their names
 *   /best/{encoder,head}/...      once a validation ran; attributes step, metric, value on /best
 *   /optimizer/{m,v}/<parameter>  the encoder's, then the head's; absent in an imported run
 *   /state /options /lineage      one attribute per item
 *   /history/{step,tokens,...}    one value per finished step
 *
 * Equal content gives equal bytes: no clock, no file name, and order of creation fixed by the order
 * below. */
#include "h5_priv.h"
#include "method.h"

#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

static kvf_status write_encoder(kvf__h5 *h5, const kvf__run_file *file)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf_status st;

    st = kvf__run_params_write(h5, h5->file, "encoder", &file->encoder.params, &group);
    if (st) goto out;
    st = kvf__identity_write(h5, group, true, &file->id);
    if (st) goto out;
    st = kvf__h5_put_u8s(h5, group, "layer_mask", file->layer_mask, file->id.L);
out:
    kvf__h5_release(&group);
    return st;
}

static const char *head_group(const kvf__run_file *file)
{
    return file->head.n_tasks ? "heads" : "head";
}

static kvf_status write_best(kvf__h5 *h5, const kvf__run_file *file)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf_status st;

    if (file->best.params.n == 0) return KVF_OK;
    st = kvf__h5_group_create(h5, h5->file, "best", &group);
    if (st) goto out;
    st = kvf__h5_put_i64(h5, group, "step", file->best_step);
    if (st) goto out;
    st = kvf__h5_put_text(h5, group, "metric", file->best_metric ? file->best_metric : "");
    if (st) goto out;
    st = kvf__h5_put_f64(h5, group, "value", file->best_value);
    if (st) goto out;
    st = kvf__run_params_write(h5, group, "encoder", &file->best.params, NULL);
    if (st || file->best_head.params.n == 0) goto out;
    st = kvf__run_params_write(h5, group, head_group(file), &file->best_head.params, NULL);
out:
    kvf__h5_release(&group);
    return st;
}

static kvf_status write_optimizer(kvf__h5 *h5, const kvf__run_file *file)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf_status st;

    if (file->m.params.n == 0) return KVF_OK;
    st = kvf__h5_group_create(h5, h5->file, "optimizer", &group);
    if (st) goto out;
    st = kvf__run_params_write(h5, group, "m", &file->m.params, NULL);
    if (st) goto out;
    st = kvf__run_params_write(h5, group, "v", &file->v.params, NULL);
out:
    kvf__h5_release(&group);
    return st;
}

static kvf_status write_file(kvf__h5 *h5, const kvf__run_file *file)
{
    KVF_TRY(write_encoder(h5, file));
    KVF_TRY(kvf__head_write(h5, file->id.task, &file->head));
    KVF_TRY(write_best(h5, file));
    KVF_TRY(write_optimizer(h5, file));
    KVF_TRY(kvf__history_write(h5, &file->history));
    KVF_TRY(kvf__attrs_write(h5, h5->file, "state", file->state));
    KVF_TRY(kvf__attrs_write(h5, h5->file, "options", file->options));
    return kvf__attrs_write(h5, h5->file, "lineage", file->lineage);
}

/* What could not be read back is not written. */
static kvf_status check_file(kvf_ctx *ctx, const char *path, const kvf__run_file *file)
{
    const kvf__identity *id = &file->id;
    size_t n = file->encoder.params.n + file->head.params.params.n;

    if (id->L < 1 || id->G < 1 || id->P < kvf__method_has_length(id->method) || id->D < 1)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: a run has L %lld, G %lld, P %lld, D %lld, want none below 1", path,
                         (long long)id->L, (long long)id->G, (long long)id->P, (long long)id->D);
    if (file->encoder.params.n == 0)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: a run without encoder parameters cannot be stored",
                         path);
    for (size_t i = 0; i < file->encoder.params.n; i++) /* only heads lie in groups of their own */
        if (strchr(file->encoder.params.item[i].name, '/'))
            return kvf__fail(ctx, KVF_EUSAGE, "%s: \"%s\" cannot name a dataset", path,
                             file->encoder.params.item[i].name);
    if (n > KVF__MOST_PARAMS)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: %zu parameters, want at most %d", path, n,
                         KVF__MOST_PARAMS);
    if (file->m.params.n != file->v.params.n)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: %zu first and %zu second moments, want as many of both", path,
                         file->m.params.n, file->v.params.n);
    if (file->m.params.n && file->m.params.n != n)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: moments of %zu parameters, but there are %zu", path,
                         file->m.params.n, n);
    if (file->best.params.n && file->best_head.params.n != file->head.params.params.n)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: the best head has %zu parameters, the last %zu",
                         path, file->best_head.params.n, file->head.params.params.n);
    return KVF_OK;
}

kvf_status kvf__run_file_write(kvf_ctx *ctx, const char *path, bool force,
                               const kvf__run_file *file)
{
    kvf__h5 h5 = KVF__H5_NOTHING;
    kvf_status st;

    st = check_file(ctx, path, file);
    if (st) goto out;
    st = kvf__h5_create(ctx, path, force, "run", &h5);
    if (st) goto out;
    st = write_file(&h5, file);
    if (st) goto out;
    st = kvf__h5_commit(&h5);
out:
    kvf__h5_close(&h5);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

static kvf_status read_encoder(kvf__h5 *h5, kvf__run_file *file)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf_status st;

    st = kvf__h5_group_open(h5, h5->file, "encoder", &group);
    if (st) goto out;
    st = kvf__identity_read(h5, group, true, &file->id);
    if (st) goto out;
    st = kvf__mask_read(h5, group, file->id.L, &file->layer_mask);
    if (st) goto out;
    st = kvf__run_params_read(h5, group, NULL, &file->encoder);
out:
    kvf__h5_release(&group);
    return st;
}

/* A second set of parameters: the best step's, or moments. */
static kvf_status read_like(kvf__h5 *h5, kvf__h5_id parent, const char *name,
                            const kvf__params *like, const char *whose,
                            const kvf__head_values *heads, kvf__params_owned *out)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf_status st;

    st = kvf__h5_group_open(h5, parent, name, &group);
    if (st) goto out;
    st = kvf__run_params_read_tasks(h5, group, heads, out);
    if (st) goto out;
    st = kvf__run_params_same(h5, group, &out->params, like, whose);
out:
    kvf__h5_release(&group);
    return st;
}

static kvf_status read_best(kvf__h5 *h5, kvf__run_file *file)
{
    kvf__h5_id group = KVF__H5_NONE;
    bool there = false;
    kvf_status st;

    KVF_TRY(kvf__h5_has(h5, h5->file, "best", &there));
    if (!there) return KVF_OK;
    st = kvf__h5_group_open(h5, h5->file, "best", &group);
    if (st) goto out;
    st = kvf__h5_get_i64(h5, group, "step", &file->best_step);
    if (st) goto out;
    st = kvf__h5_get_text(h5, group, "metric", &file->best_metric);
    if (st) goto out;
    st = kvf__h5_get_f64(h5, group, "value", &file->best_value);
    if (st) goto out;
    st = read_like(h5, group, "encoder", &file->encoder.params, "encoder", &file->head,
                   &file->best);
    if (st || file->head.params.params.n == 0) goto out;
    st = read_like(h5, group, head_group(file), &file->head.params.params, "head", &file->head,
                   &file->best_head);
out:
    kvf__h5_release(&group);
    return st;
}

/* Moments are those of the encoder's parameters and, behind them, the head's: the list that the
 * optimizer steps. */
static kvf_status read_optimizer(kvf__h5 *h5, kvf__run_file *file)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf__params all = {0};
    const kvf__params *head = &file->head.params.params;
    bool there = false;
    kvf_status st;

    KVF_TRY(kvf__h5_has(h5, h5->file, "optimizer", &there));
    if (!there) return KVF_OK;
    st = kvf__params_append(h5->ctx, &all, &file->encoder.params);
    if (st) goto out;
    st = kvf__params_append(h5->ctx, &all, head);
    if (st) goto out;
    st = kvf__h5_group_open(h5, h5->file, "optimizer", &group);
    if (st) goto out;
    st = read_like(h5, group, "m", &all, head->n ? "run" : "encoder", &file->head, &file->m);
    if (st) goto out;
    st = read_like(h5, group, "v", &all, head->n ? "run" : "encoder", &file->head, &file->v);
out:
    kvf__params_done(&all);
    kvf__h5_release(&group);
    return st;
}

static kvf_status read_file(kvf__h5 *h5, bool with_optimizer, kvf__run_file *file)
{
    KVF_TRY(read_encoder(h5, file));
    KVF_TRY(kvf__head_read(h5, file->id.task, &file->head));
    KVF_TRY(read_best(h5, file));
    if (with_optimizer) {
        KVF_TRY(read_optimizer(h5, file));
        KVF_TRY(kvf__history_read(h5, &file->history));
    }
    KVF_TRY(kvf__attrs_read(h5, h5->file, "state", &file->state));
    KVF_TRY(kvf__attrs_read(h5, h5->file, "options", &file->options));
    return kvf__attrs_read(h5, h5->file, "lineage", &file->lineage);
}

kvf_status kvf__run_file_read(kvf_ctx *ctx, const char *path, bool with_optimizer,
                              kvf__run_file *out)
{
    kvf__h5 h5 = KVF__H5_NOTHING;
    kvf__run_file file = {0};
    kvf_status st;

    st = kvf__h5_open(ctx, path, "run", &h5);
    if (st) goto out;
    st = read_file(&h5, with_optimizer, &file);
    if (st) goto out;
    *out = file;
    file = (kvf__run_file){0};
out:
    kvf__run_file_done(&file);
    kvf__h5_close(&h5);
    return st;
}

kvf_status kvf__run_file_identity(kvf_ctx *ctx, const char *path, kvf__identity *out)
{
    kvf__h5 h5 = KVF__H5_NOTHING;
    kvf__h5_id group = KVF__H5_NONE;
    kvf__identity id = {0};
    kvf_status st;

    st = kvf__h5_open(ctx, path, "run", &h5);
    if (st) goto out;
    st = kvf__h5_group_open(&h5, h5.file, "encoder", &group);
    if (st) goto out;
    st = kvf__identity_read(&h5, group, true, &id);
    if (st) goto out;
    *out = id;
    id = (kvf__identity){0};
out:
    kvf__identity_done(&id);
    kvf__h5_release(&group);
    kvf__h5_close(&h5);
    return st;
}

kvf_status kvf__run_file_history(kvf_ctx *ctx, const char *path, kvf__history *out)
{
    kvf__h5 h5 = KVF__H5_NOTHING;
    kvf_status st = kvf__h5_open(ctx, path, "run", &h5);

    if (!st) st = kvf__history_read(&h5, out);
    kvf__h5_close(&h5);
    return st;
}

void kvf__run_file_done(kvf__run_file *file)
{
    kvf__identity_done(&file->id);
    kvf__free(file->layer_mask);
    kvf__params_owned_done(&file->encoder);
    kvf__head_values_done(&file->head);
    kvf__params_owned_done(&file->best);
    kvf__params_owned_done(&file->best_head);
    kvf__free(file->best_metric);
    kvf__params_owned_done(&file->m);
    kvf__params_owned_done(&file->v);
    kvf_json_free(file->state);
    kvf__history_done(&file->history);
    kvf_json_free(file->options);
    kvf_json_free(file->lineage);
    memset(file, 0, sizeof *file);
}
