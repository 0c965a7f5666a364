/* Logits of one row for a caller that wants them all. */
#include "session.h"

#include <kvfold/infer.h>

static kvf_status check(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix, size_t n)
{
    const int64_t most = kvf__row_capacity(base, prefix);
    if (!kvf__model_desc(base->model)->block.causal)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: a %s predicts no next token", base->path,
                         kvf_base_architecture(base));
    if (prefix && prefix->task != KVF__TASK_LM)
        return kvf__fail(ctx, KVF_EUSAGE, "the prefix is of task %s, want lm",
                         kvf__task_name(prefix->task));
    if (prefix && prefix->file.id.infix)
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "the prefix is inside rows");
    if (n < 1 || (int64_t)n > most)
        return kvf__fail(ctx, KVF_ESHAPE, "a row of %zu tokens, want 1 to %lld", n,
                         (long long)most);
    return KVF_OK;
}

typedef struct whole_row {
    int64_t n;
    int64_t *start, *example; /* [2], [1] */
    int32_t *label_at, *label_id;
} whole_row;

static void lay_row(void *object, kvf__carver *carve)
{
    whole_row *row = object;
    row->start = kvf__carve(carve, 2, 1, sizeof *row->start);
    row->example = kvf__carve(carve, 1, 1, sizeof *row->example);
    row->label_at = kvf__carve(carve, row->n, 1, sizeof *row->label_at);
    row->label_id = kvf__carve(carve, row->n, 1, sizeof *row->label_id); /* never read */
}

static kvf_status run(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, whole_row *row,
                      const int32_t *ids, float *logits)
{
    const kvf__pass_limits limits = {.rows = 1,
                                     .tokens = row->n,
                                     .row_len = row->n,
                                     .labels = row->n,
                                     .P = prefix ? prefix->file.prefix.P : 0};
    const kvf__batch batch = {.n_rows = 1,
                              .n_tokens = row->n,
                              .n_labels = row->n,
                              .start = row->start,
                              .ids = ids,
                              .label_at = row->label_at,
                              .label_id = row->label_id,
                              .example = row->example};
    const kvf__input input = {.batch = &batch, .condition = kvf__prefix_condition(prefix)};
    kvf__pass *pass = NULL;
    kvf__head *head = NULL;
    row->start[1] = row->n;
    for (int64_t i = 0; i < row->n; i++)
        row->label_at[i] = (int32_t)i;
    kvf_status st = prefix ? kvf__prefix_head(ctx, base, prefix, &head) : KVF_OK;
    if (!st) st = kvf__pass_create(ctx, base->model, &limits, &pass);
    if (!st) st = kvf__pass_fwd(ctx, pass, &input);
    if (!st) st = kvf__pass_outputs(ctx, pass, head, logits);
    kvf__pass_free(pass);
    kvf__head_free(head);
    return st;
}

kvf_status kvf_logits(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, const int32_t *ids,
                      size_t n, float *logits)
{
    whole_row row = {.n = (int64_t)n};
    void *memory = NULL;
    KVF_TRY(check(ctx, base, prefix, n));
    KVF_TRY(kvf__carve_block(ctx, lay_row, &row, &memory));
    kvf_status st = run(ctx, base, prefix, &row, ids, logits);
    kvf__free(memory);
    return st;
}
