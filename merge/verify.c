/* Verification: the written file is read back and compared with the folded values before merge
 * reports success. Values are equal bit for bit in f32, and equal up to rounding in other types. */
#include "merge_int.h"

#include <math.h>
#include <string.h>

/* ---- comparing ------------------------------------------------------------------------------- */

/* Returns the larger of `worst` and the largest |a - b|; NaN if a value is NaN. */
static double max_diff(const float *a, const float *b, size_t n, double worst)
{
    for (size_t i = 0; i < n; i++) {
        double diff = fabs((double)a[i] - (double)b[i]);
        if (!(diff <= worst)) worst = diff;
    }
    return worst;
}

double kvf__prefix_max_diff(const kvf__prefix *a, const kvf__prefix *b)
{
    const double worst = max_diff(a->kv, b->kv, kvf__prefix_count(a), 0);
    return max_diff(a->neurons.w, b->neurons.w, kvf__neurons_count(&a->neurons), worst);
}

/* Returns the largest difference of two lists; infinite if their names or order differ. */
static double list_max_diff(const kvf__params *a, const kvf__params *b)
{
    double worst = 0;

    if (a->n != b->n) return INFINITY;
    for (size_t i = 0; i < a->n; i++) {
        const kvf__param *x = &a->item[i], *y = &b->item[i];
        if (strcmp(x->name, y->name) || x->n != y->n) return INFINITY;
        worst = max_diff(x->value, y->value, (size_t)x->n, worst);
    }
    return worst;
}

/* Heads are stored in f32 and must be equal bit for bit. */
bool kvf__same_head(const kvf__head_values *a, const kvf__head_values *b)
{
    const kvf__params *x = &a->params.params, *y = &b->params.params;
    if (x->n != y->n || a->n_labels != b->n_labels || a->regression != b->regression) return false;
    for (size_t i = 0; i < x->n; i++)
        if (strcmp(x->item[i].name, y->item[i].name) || x->item[i].n != y->item[i].n ||
            memcmp(x->item[i].value, y->item[i].value, (size_t)x->item[i].n * sizeof(float)))
            return false;
    for (size_t i = 0; i < a->n_labels; i++)
        if (strcmp(a->labels[i], b->labels[i])) return false;
    if (!a->words != !b->words) return false;
    for (size_t i = 0; a->words && i < a->n_labels; i++)
        if (strcmp(a->words[i], b->words[i])) return false;
    return true;
}

static kvf_status check_head(kvf_ctx *ctx, const char *path, const kvf__head_values *want,
                             const kvf__head_values *got)
{
    if (kvf__same_head(want, got)) return KVF_OK;
    return kvf__fail(ctx, KVF_EINTERNAL,
                     "%s: the head reads back with other values than were written", path);
}

/* Checks the log-weights, which are stored in f32. */
static kvf_status check_weights(kvf_ctx *ctx, const char *path, const kvf__prefix *want,
                                const kvf__prefix *got)
{
    const size_t bytes = kvf__prefix_weights(want) * sizeof *want->log_weight;

    if (!want->log_weight && !got->log_weight) return KVF_OK;
    if (want->log_weight && got->log_weight && !memcmp(want->log_weight, got->log_weight, bytes))
        return KVF_OK;
    return kvf__fail(ctx, KVF_EINTERNAL,
                     "%s: the log-weights read back with other values than were written", path);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* expected: allowed rounding error of the file's type relative to `source`. */
static kvf_status check_values(kvf_ctx *ctx, const char *path, const char *source, double diff,
                               double expected)
{
    if (diff == expected) return KVF_OK;
    return kvf__fail(ctx, KVF_EINTERNAL, "%s: values read back differ by %g from %s, expected %g",
                     path, diff, source, expected);
}

kvf_status kvf__verify_prefix(kvf_ctx *ctx, const char *path, const kvf_prefix *live,
                              double expected, kvf__fold_probe *probe, kvf_merge_result *result)
{
    kvf__artifact back = {0};

    KVF_TRY(kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &back));
    result->max_abs_diff = kvf__prefix_max_diff(&live->file.prefix, &back.prefix);
    kvf_status st = check_values(ctx, path, "the encoder's output", result->max_abs_diff, expected);
    if (!st) st = check_weights(ctx, path, &live->file.prefix, &back.prefix);
    if (!st) st = check_head(ctx, path, &live->file.head, &back.head);
    if (!st && probe)
        st = kvf__fold_probe_compare(probe, &live->file.prefix, &back.prefix,
                                     &result->probe_max_abs_diff);
    result->bytes = kvf__file_bytes(path);
    kvf__artifact_done(&back);
    return st;
}

kvf_status kvf__verify_adapter(kvf_ctx *ctx, const char *path, const kvf_prefix *live)
{
    kvf__artifact back = {0};

    KVF_TRY(kvf__artifact_read(ctx, path, KVF__KIND_ADAPTER, &back));
    double diff = list_max_diff(&live->file.values.params, &back.values.params);
    kvf_status st = check_values(ctx, path, "the run", diff, 0);
    if (!st) st = check_head(ctx, path, &live->file.head, &back.head);
    kvf__artifact_done(&back);
    return st;
}

kvf_status kvf__verify_embeddings(kvf_ctx *ctx, const char *path, const kvf_prefix *live)
{
    kvf__artifact back = {0};
    size_t bytes = (size_t)(live->file.vectors.P * live->file.vectors.C) * sizeof(float);

    KVF_TRY(kvf__artifact_read(ctx, path, KVF__KIND_EMBEDDINGS, &back));
    bool same = back.vectors.P == live->file.vectors.P && back.vectors.C == live->file.vectors.C &&
                !memcmp(back.vectors.x, live->file.vectors.x, bytes) &&
                kvf__same_head(&live->file.head, &back.head);
    kvf__artifact_done(&back);
    return same ? KVF_OK
                : kvf__fail(ctx, KVF_EINTERNAL,
                            "%s: reads back with other values than were written", path);
}

/* Checks that every trained weight reads back bit for bit. */
static kvf_status verify_weights(kvf_ctx *ctx, const char *path, const kvf_prefix *live)
{
    const kvf__params *params = &live->file.values.params;
    kvf__base_file file = {0};

    KVF_TRY(kvf__base_file_open(ctx, path, true, &file));
    kvf_status st = KVF_OK;
    for (size_t i = 0; i < params->n && !st; i++) {
        const kvf__param *p = &params->item[i];
        const kvf__view *view = kvf__table_find(&file.table, p->name);
        if (!view || view->dtype != KVF__F32 || kvf__view_count(view) != p->n ||
            memcmp(view->data, p->value, (size_t)p->n * sizeof(float)))
            st = kvf__fail(ctx, KVF_EINTERNAL,
                           "%s: %s reads back with other values than were written", path, p->name);
    }
    kvf__base_file_done(&file);
    return st;
}

static kvf_status verify_head(kvf_ctx *ctx, const char *path, const kvf__artifact *task)
{
    kvf__artifact back = {0};

    KVF_TRY(kvf__artifact_read(ctx, path, KVF__KIND_BASE, &back));
    kvf_status st = check_head(ctx, path, &task->head, &back.head);
    kvf__artifact_done(&back);
    return st;
}

kvf_status kvf__verify_base(kvf_ctx *ctx, const char *path, const kvf_prefix *live,
                            const kvf__artifact *task)
{
    KVF_TRY(verify_weights(ctx, path, live));
    return task ? verify_head(ctx, path, task) : KVF_OK;
}
