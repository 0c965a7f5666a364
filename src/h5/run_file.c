/* The run file: encoder, optimizer and everything else needed to resume a training run
 * (docs/format.md).
 *
 *   /encoder/<parameter>          attributes method, task, position_start, L, G, P, D, layer_mask;
 *                                 no parameter with method head
 *   /head/<parameter>, labels     if the task has a head
 *   /heads/<name>/...             several tasks; also in best and optimizer, by their names
 *   /best/{encoder,head}/...      after a validation; attributes step, metric, value on /best
 *   /optimizer/{m,v}/<parameter>  the encoder's, then the head's; absent in an imported run
 *   /state /options /lineage      one attribute per item
 *   /history/{step,tokens,...}    one value per finished step
 *
 * Equal content gives equal bytes: no clock, no file name, and order of creation fixed by the order
 * below. */
#include "artifact_priv.h"
#include "method.h"

#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

/* Name in kvf__encoder_steps that replaces the last layer's two parameters. */
#define STEPPED_PREFIX  "prefix"
#define STEPPED_NEURONS "neurons"

static kvf__h5_id write_encoder(kvf__h5 *h5, const kvf__artifact *file)
{
    return kvf__param_group_write(h5, h5->file, "encoder", &file->values.params);
}

/* Writes a group of parameters without attributes. */
static void write_params(kvf__h5 *h5, kvf__h5_id parent, const char *name,
                         const kvf__params *params)
{
    kvf__h5_id group = kvf__param_group_write(h5, parent, name, params);
    kvf__h5_release(&group);
}

static const char *head_group(const kvf__artifact *file)
{
    return file->head.n_tasks ? "heads" : "head";
}

static void write_best(kvf__h5 *h5, const kvf__artifact *file)
{
    if (!kvf__run_has_best(file)) return;
    kvf__h5_id group = kvf__h5_group_create(h5, h5->file, "best");
    kvf__h5_put_i64(h5, group, "step", file->best_step);
    kvf__h5_put_text(h5, group, "metric", file->best_metric ? file->best_metric : "");
    kvf__h5_put_f64(h5, group, "value", file->best_value);
    write_params(h5, group, "encoder", &file->best.params);
    if (file->best_head.params.n)
        write_params(h5, group, head_group(file), &file->best_head.params);
    kvf__h5_release(&group);
}

static void write_optimizer(kvf__h5 *h5, const kvf__artifact *file)
{
    if (file->m.params.n == 0) return;
    kvf__h5_id group = kvf__h5_group_create(h5, h5->file, "optimizer");
    write_params(h5, group, "m", &file->m.params);
    write_params(h5, group, "v", &file->v.params);
    kvf__h5_release(&group);
}

/* Method head trains only the head of its task. */
static bool has_encoder(const kvf__artifact *file)
{
    const kvf__method *method = kvf__method_find(file->id.method);
    return !method || method->port != KVF__PORT_NONE;
}

/* Refuses content that could not be read back. */
static kvf_status check_file(kvf_ctx *ctx, const char *path, const kvf__artifact *file)
{
    const kvf__identity *id = &file->id;
    size_t n = file->values.params.n + file->head.params.params.n;

    const bool no_heads = !id->heads && (id->G < 1 || id->D < 1);
    if (id->L < 1 || no_heads || id->P < (kvf__method_has_length(id->method) && !id->neurons.N))
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: a run has L %lld, G %lld, P %lld, D %lld, want none below 1", path,
                         (long long)id->L, (long long)id->G, (long long)id->P, (long long)id->D);
    if (has_encoder(file) ? file->values.params.n == 0 : n == 0)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: a run without %s parameters cannot be stored", path,
                         has_encoder(file) ? "encoder" : "head");
    if (!has_encoder(file) && file->values.params.n)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: a run of method %s has no encoder", path,
                         id->method);
    for (size_t i = 0; i < file->values.params.n; i++) /* only heads have groups of their own */
        if (strchr(file->values.params.item[i].name, '/'))
            return kvf__fail(ctx, KVF_EUSAGE, "%s: \"%s\" cannot name a dataset", path,
                             file->values.params.item[i].name);
    if (n > KVF__MOST_PARAMS)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: %zu parameters, want at most %d", path, n,
                         KVF__MOST_PARAMS);
    if (file->m.params.n != file->v.params.n)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: %zu first and %zu second moments, want equal numbers", path,
                         file->m.params.n, file->v.params.n);
    n -= kvf__params_find(&file->m.params, STEPPED_PREFIX) != NULL; /* one replaces two */
    n -= kvf__params_find(&file->m.params, STEPPED_NEURONS) != NULL;
    n -= kvf__params_find(&file->values.params, KVF__LOG_WEIGHT) &&
         !kvf__params_find(&file->m.params, KVF__LOG_WEIGHT); /* fixed */
    if (file->m.params.n && file->m.params.n != n)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: moments of %zu parameters, but there are %zu", path,
                         file->m.params.n, n);
    if (kvf__run_has_best(file) && file->best_head.params.n != file->head.params.params.n)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: the best head has %zu parameters, but the last has %zu", path,
                         file->best_head.params.n, file->head.params.params.n);
    return KVF_OK;
}

static void write_rest(kvf__h5 *h5, const kvf__artifact *file)
{
    write_best(h5, file);
    write_optimizer(h5, file);
    kvf__history_write(h5, &file->history);
    kvf__attrs_write(h5, h5->file, "state", file->state);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Checks that the group exists without parameters. */
static void read_none(kvf__h5 *h5, kvf__h5_id group, const kvf__artifact *file)
{
    size_t n = kvf__h5_child_count(h5, group);
    if (n)
        kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu parameters, want none of method %s", n,
                     file->id.method);
}

static void read_encoder(kvf__h5 *h5, const kvf__h5_data *group, kvf__artifact *file)
{
    if (has_encoder(file))
        kvf__param_group_read(h5, group->id, NULL, &file->values);
    else
        read_none(h5, group->id, file);
}

/* Reads a second set of parameters: the best step's, or moments. */
static void read_like(kvf__h5 *h5, kvf__h5_id parent, const char *name, const kvf__params *like,
                      const char *whose, const kvf__head_values *heads, kvf__params_owned *out)
{
    kvf__h5_id group = kvf__h5_group_open(h5, parent, name);

    kvf__param_group_read_tasks(h5, group, heads, out);
    kvf__param_group_same(h5, group, &out->params, like, whose);
    kvf__h5_release(&group);
}

static void read_best_encoder(kvf__h5 *h5, kvf__h5_id best, kvf__artifact *file)
{
    if (has_encoder(file)) {
        read_like(h5, best, "encoder", &file->values.params, "encoder", &file->head, &file->best);
        return;
    }
    kvf__h5_id group = kvf__h5_group_open(h5, best, "encoder");
    read_none(h5, group, file);
    kvf__h5_release(&group);
}

static void read_best(kvf__h5 *h5, kvf__artifact *file)
{
    const kvf__params *head = &file->head.params.params;

    if (!kvf__h5_has(h5, h5->file, "best")) return;
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "best");
    file->best_step = kvf__h5_get_i64(h5, group, "step");
    file->best_metric = kvf__h5_get_text(h5, group, "metric");
    file->best_value = kvf__h5_get_f64(h5, group, "value");
    read_best_encoder(h5, group, file);
    if (head->n)
        read_like(h5, group, head_group(file), head, "head", &file->head, &file->best_head);
    kvf__h5_release(&group);
}

/* Appends a part of the encoder's parameters [first, end). With a natural step, `stepped` [rows,
 * outputs of the last layer] replaces the last layer's weight and bias. */
static void list_part(kvf__h5 *h5, kvf__h5_id m, const kvf__params *values, size_t first,
                      size_t end, const char *stepped, int64_t rows, kvf__params *out)
{
    const bool natural = end > first + 2 && kvf__h5_has(h5, m, stepped);
    const int64_t width = end ? values->item[end - 1].n : 0;
    const kvf__param whole = {
        .name = stepped, .rank = 2, .dim = {rows, width}, .n = rows * width, .lr_scale = 1};
    const kvf__params own = {.n = end - first - (natural ? 2 : 0), .item = values->item + first};

    KVF__H5_TRY(h5, kvf__params_append(h5->ctx, out, &own));
    if (natural) KVF__H5_TRY(h5, kvf__params_add(h5->ctx, out, &whole));
}

/* Lists the encoder's part of the optimizer's parameters. Log-weights come first; fixed ones have
 * no moments. Those of neurons come last. */
static void list_steps(kvf__h5 *h5, kvf__h5_id group, const kvf__artifact *file, kvf__params *out)
{
    static const char NEURONS[] = STEPPED_NEURONS ".";
    const kvf__params *values = &file->values.params;
    kvf__h5_id m = kvf__h5_group_open(h5, group, "m");
    size_t first = 0, end = 0;

    if (kvf__params_find(values, KVF__LOG_WEIGHT) && !kvf__h5_has(h5, m, KVF__LOG_WEIGHT))
        first = 1;
    while (end < values->n && strncmp(values->item[end].name, NEURONS, sizeof NEURONS - 1))
        end++;
    if (first < end) list_part(h5, m, values, first, end, STEPPED_PREFIX, file->id.P, out);
    if (end < values->n)
        list_part(h5, m, values, end, values->n, STEPPED_NEURONS, file->id.neurons.N, out);
    kvf__h5_release(&m);
}

/* Reads the moments: those of the encoder's parameters, then the head's, in the order of the
 * optimizer. */
static void read_optimizer(kvf__h5 *h5, kvf__artifact *file)
{
    kvf__params all = {0};
    const kvf__params *head = &file->head.params.params;
    const char *whose = head->n ? "run" : "encoder";

    if (!kvf__h5_has(h5, h5->file, "optimizer")) return;
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "optimizer");
    list_steps(h5, group, file, &all);
    KVF__H5_TRY(h5, kvf__params_append(h5->ctx, &all, head));
    read_like(h5, group, "m", &all, whose, &file->head, &file->m);
    read_like(h5, group, "v", &all, whose, &file->head, &file->v);
    kvf__params_done(&all);
    kvf__h5_release(&group);
}

static void read_rest(kvf__h5 *h5, bool all, kvf__artifact *file)
{
    read_best(h5, file);
    if (all) {
        read_optimizer(h5, file);
        kvf__history_read(h5, &file->history);
    }
    file->state = kvf__attrs_read(h5, h5->file, "state");
}

const kvf__kind_row kvf__run_row = {
    .name = "run",
    .object = "encoder",
    .masked = true,
    .check = check_file,
    .write = write_encoder,
    .write_rest = write_rest,
    .read = read_encoder,
    .read_rest = read_rest,
};
