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

static void write_encoder(kvf__h5 *h5, const kvf__run_file *file)
{
    kvf__h5_id group = kvf__param_group_write(h5, h5->file, "encoder", &file->encoder.params);

    kvf__identity_write(h5, group, true, &file->id);
    kvf__h5_put_u8s(h5, group, "layer_mask", file->layer_mask, file->id.L);
    kvf__h5_release(&group);
}

/* A group of parameters that nothing more is said of. */
static void write_params(kvf__h5 *h5, kvf__h5_id parent, const char *name,
                         const kvf__params *params)
{
    kvf__h5_id group = kvf__param_group_write(h5, parent, name, params);
    kvf__h5_release(&group);
}

static const char *head_group(const kvf__run_file *file)
{
    return file->head.n_tasks ? "heads" : "head";
}

static void write_best(kvf__h5 *h5, const kvf__run_file *file)
{
    kvf__h5_id group;

    if (file->best.params.n == 0) return;
    group = kvf__h5_group_create(h5, h5->file, "best");
    kvf__h5_put_i64(h5, group, "step", file->best_step);
    kvf__h5_put_text(h5, group, "metric", file->best_metric ? file->best_metric : "");
    kvf__h5_put_f64(h5, group, "value", file->best_value);
    write_params(h5, group, "encoder", &file->best.params);
    if (file->best_head.params.n)
        write_params(h5, group, head_group(file), &file->best_head.params);
    kvf__h5_release(&group);
}

static void write_optimizer(kvf__h5 *h5, const kvf__run_file *file)
{
    kvf__h5_id group;

    if (file->m.params.n == 0) return;
    group = kvf__h5_group_create(h5, h5->file, "optimizer");
    write_params(h5, group, "m", &file->m.params);
    write_params(h5, group, "v", &file->v.params);
    kvf__h5_release(&group);
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
    kvf__h5 h5;

    KVF_TRY(check_file(ctx, path, file));
    h5 = kvf__h5_create(ctx, path, force, "run");
    write_encoder(&h5, file);
    kvf__head_write(&h5, file->id.task, &file->head);
    write_best(&h5, file);
    write_optimizer(&h5, file);
    kvf__history_write(&h5, &file->history);
    kvf__attrs_write(&h5, h5.file, "state", file->state);
    kvf__attrs_write(&h5, h5.file, "options", file->options);
    kvf__attrs_write(&h5, h5.file, "lineage", file->lineage);
    return kvf__h5_close(&h5);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void read_encoder(kvf__h5 *h5, kvf__run_file *file)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "encoder");

    kvf__identity_read(h5, group, true, &file->id);
    file->layer_mask = kvf__mask_read(h5, group, file->id.L);
    kvf__param_group_read(h5, group, NULL, &file->encoder);
    kvf__h5_release(&group);
}

/* A second set of parameters: the best step's, or moments. */
static void read_like(kvf__h5 *h5, kvf__h5_id parent, const char *name, const kvf__params *like,
                      const char *whose, const kvf__head_values *heads, kvf__params_owned *out)
{
    kvf__h5_id group = kvf__h5_group_open(h5, parent, name);

    kvf__param_group_read_tasks(h5, group, heads, out);
    kvf__param_group_same(h5, group, &out->params, like, whose);
    kvf__h5_release(&group);
}

static void read_best(kvf__h5 *h5, kvf__run_file *file)
{
    const kvf__params *head = &file->head.params.params;
    kvf__h5_id group;

    if (!kvf__h5_has(h5, h5->file, "best")) return;
    group = kvf__h5_group_open(h5, h5->file, "best");
    file->best_step = kvf__h5_get_i64(h5, group, "step");
    file->best_metric = kvf__h5_get_text(h5, group, "metric");
    file->best_value = kvf__h5_get_f64(h5, group, "value");
    read_like(h5, group, "encoder", &file->encoder.params, "encoder", &file->head, &file->best);
    if (head->n)
        read_like(h5, group, head_group(file), head, "head", &file->head, &file->best_head);
    kvf__h5_release(&group);
}

/* Moments are those of the encoder's parameters and, after them, the head's: the list that the
 * optimizer steps. */
static void read_optimizer(kvf__h5 *h5, kvf__run_file *file)
{
    kvf__h5_id group;
    kvf__params all = {0};
    const kvf__params *head = &file->head.params.params;
    const char *whose = head->n ? "run" : "encoder";

    if (!kvf__h5_has(h5, h5->file, "optimizer")) return;
    KVF__H5_TRY(h5, kvf__params_append(h5->ctx, &all, &file->encoder.params));
    KVF__H5_TRY(h5, kvf__params_append(h5->ctx, &all, head));
    group = kvf__h5_group_open(h5, h5->file, "optimizer");
    read_like(h5, group, "m", &all, whose, &file->head, &file->m);
    read_like(h5, group, "v", &all, whose, &file->head, &file->v);
    kvf__params_done(&all);
    kvf__h5_release(&group);
}

kvf_status kvf__run_file_read(kvf_ctx *ctx, const char *path, bool with_optimizer,
                              kvf__run_file *out)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, "run");
    kvf__run_file file = {0};
    kvf_status st;

    read_encoder(&h5, &file);
    kvf__head_read(&h5, file.id.task, &file.head);
    read_best(&h5, &file);
    if (with_optimizer) {
        read_optimizer(&h5, &file);
        kvf__history_read(&h5, &file.history);
    }
    file.state = kvf__attrs_read(&h5, h5.file, "state");
    file.options = kvf__attrs_read(&h5, h5.file, "options");
    file.lineage = kvf__attrs_read(&h5, h5.file, "lineage");
    st = kvf__h5_close(&h5);
    if (st)
        kvf__run_file_done(&file);
    else
        *out = file;
    return st;
}

kvf_status kvf__run_file_identity(kvf_ctx *ctx, const char *path, kvf__identity *out)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, "run");
    kvf__h5_id group = kvf__h5_group_open(&h5, h5.file, "encoder");
    kvf__identity id = {0};
    kvf_status st;

    kvf__identity_read(&h5, group, true, &id);
    kvf__h5_release(&group);
    st = kvf__h5_close(&h5);
    if (st)
        kvf__identity_done(&id);
    else
        *out = id;
    return st;
}

kvf_status kvf__run_file_history(kvf_ctx *ctx, const char *path, kvf__history *out)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, "run");
    kvf__history history = {0};
    kvf_status st;

    kvf__history_read(&h5, &history);
    st = kvf__h5_close(&h5);
    if (st)
        kvf__history_done(&history);
    else
        *out = history;
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
