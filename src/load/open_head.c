/* The head of a prefix as an object on its base. It is created by the task's row for the base's
 * architecture, then filled from the file by name, with checks of every shape. */
#include "verbalizer.h"

#include <string.h>

kvf_status kvf__head_load(kvf_ctx *ctx, kvf__params *to, const char *where, const kvf__params *from)
{
    char found[128], want[128];
    for (size_t i = 0; i < to->n; i++) {
        kvf__param *p = &to->item[i];
        const kvf__param *source = kvf__params_find(from, p->name);
        if (!source)
            return kvf__fail(ctx, KVF_EFORMAT, "%s: the head has no %s, which this base needs",
                             where, p->name);
        if (source->rank != p->rank ||
            memcmp(source->dim, p->dim, (size_t)p->rank * sizeof *p->dim))
            return kvf__fail(ctx, KVF_ESHAPE, "%s: %s is %s, want %s", where, p->name,
                             kvf__shape_text(found, source->rank, source->dim),
                             kvf__shape_text(want, p->rank, p->dim));
    }
    for (size_t i = 0; i < from->n; i++)
        if (!kvf__params_find(to, from->item[i].name))
            return kvf__fail(ctx, KVF_EFORMAT, "%s: %s is not a parameter of the base's head",
                             where, from->item[i].name);
    for (size_t i = 0; i < to->n; i++)
        memcpy(to->item[i].value, kvf__params_find(from, to->item[i].name)->value,
               (size_t)to->item[i].n * sizeof(float));
    return KVF_OK;
}

/* Returns the number of outputs: the number of names, or one. */
static int64_t outputs(const kvf_prefix *prefix)
{
    return prefix->file.head.n_labels ? (int64_t)prefix->file.head.n_labels : 1;
}

/* Creates an empty head for the prefix's task, NULL for lm with the base's own head. */
static kvf_status make_head(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                            kvf__head **out)
{
    const kvf__head_options options = {.task = prefix->task,
                                       .labels = outputs(prefix),
                                       .regression = prefix->file.head.regression};
    if (prefix->task != KVF__TASK_LM) return kvf__head_create(ctx, base->model, &options, out);
    if (!prefix->file.head.params.params.n) return KVF_OK;
    return kvf__head_create_lm(ctx, base->model, false, out);
}

kvf_status kvf__prefix_head(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                            kvf__head **out)
{
    kvf__head *head = NULL;
    if (prefix->task != KVF__TASK_LM && prefix->file.head.words)
        return kvf__verbalizer_head(ctx, base, prefix->file.head.words, prefix->file.head.n_labels,
                                    out);
    KVF_TRY(make_head(ctx, base, prefix, &head));
    if (!head) return KVF_OK;
    kvf_status st = kvf__head_load(ctx, kvf__head_params(head), "/head",
                                   &prefix->file.head.params.params);
    KVF__GIVE(st, out, head, kvf__head_free(head));
    return st;
}
