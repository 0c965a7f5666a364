/* Computes all logits of one row. */
#include "session.h"

#include <kvfold/infer.h>
#include <math.h>
#include <string.h>

/* The row, or, with a prefix inside it, the tokens before it and the tokens after it. */
typedef struct whole_row {
    int64_t n, infix_at; /* number of tokens; place of the prefix, -1: not inside */
    int64_t rows, *start, *example;
    int32_t *ids, *label_at, *label_id, *parent, *places;
} whole_row;

/* Finds the prefix inside the row, marked by one id below 0. */
static kvf_status find_infix(kvf_ctx *ctx, const int32_t *ids, size_t n, whole_row *row)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= 0) continue;
        if (row->infix_at >= 0 || !i || i + 1 == n) {
            row->infix_at = -1;
            break;
        }
        row->infix_at = (int64_t)i;
    }
    if (row->infix_at < 0)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "the prefix is inside rows: mark its place with one id below 0, with "
                         "tokens before and after it");
    row->n--;
    row->rows = 2;
    return KVF_OK;
}

static kvf_status check(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                        const int32_t *ids, whole_row *row)
{
    const int64_t most = kvf__row_capacity(base, prefix), n = row->n;
    if (!kvf__model_desc(base->model)->block.causal)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: a %s does not predict the next token", base->path,
                         kvf_base_architecture(base));
    if (kvf__model_desc(base->model)->encoder)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "%s: not supported on %s, whose rows have an encoder part and a decoder part",
            base->path, kvf_base_architecture(base));
    if (prefix && prefix->task != KVF__TASK_LM)
        return kvf__fail(ctx, KVF_EUSAGE, "the prefix is of task %s, want lm",
                         kvf__task_name(prefix->task));
    if (prefix && prefix->file.id.infix) KVF_TRY(find_infix(ctx, ids, (size_t)n, row));
    if (row->n < 1 || row->n > most)
        return kvf__fail(ctx, KVF_ESHAPE, "a row of %lld tokens, want 1 to %lld", (long long)row->n,
                         (long long)most);
    return KVF_OK;
}

static void lay_row(void *object, kvf__carver *carve)
{
    whole_row *row = object;
    row->start = kvf__carve(carve, 3, 1, sizeof *row->start);
    row->example = kvf__carve(carve, 2, 1, sizeof *row->example);
    row->parent = kvf__carve(carve, 2, 1, sizeof *row->parent);
    row->places = kvf__carve(carve, 2, 1, sizeof *row->places);
    row->ids = kvf__carve(carve, row->n, 1, sizeof *row->ids);
    row->label_at = kvf__carve(carve, row->n, 1, sizeof *row->label_at);
    row->label_id = kvf__carve(carve, row->n, 1, sizeof *row->label_id); /* never read */
}

static kvf__batch fill_row(whole_row *row, const int32_t *ids)
{
    const bool infix = row->infix_at >= 0;
    const int64_t before = infix ? row->infix_at : row->n;
    memcpy(row->ids, ids, (size_t)before * sizeof *ids);
    if (infix) memcpy(row->ids + before, ids + before + 1, (size_t)(row->n - before) * sizeof *ids);
    for (int64_t i = 0; i < row->n; i++)
        row->label_at[i] = (int32_t)i;
    row->start[1] = before;
    row->start[2] = row->n;
    row->parent[0] = -1; /* row 1 continues row 0 */
    row->places[0] = -1;
    row->places[1] = (int32_t)before;
    if (infix) row->example[0] = -1;
    return (kvf__batch){.n_rows = row->rows,
                        .n_tokens = row->n,
                        .n_labels = row->n,
                        .start = row->start,
                        .ids = row->ids,
                        .label_at = row->label_at,
                        .label_id = row->label_id,
                        .example = row->example,
                        .parent = infix ? row->parent : NULL,
                        .infix_at = infix ? row->places : NULL};
}

/* Inserts a gap for the prefix, which has no logits. */
static void part_logits(const whole_row *row, int64_t V, float *logits)
{
    if (row->infix_at < 0) return;
    float *at = logits + row->infix_at * V;
    memmove(at + V, at, (size_t)((row->n - row->infix_at) * V) * sizeof *at);
    for (int64_t v = 0; v < V; v++)
        at[v] = NAN;
}

static kvf_status run(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, whole_row *row,
                      const int32_t *ids, float *logits)
{
    const int64_t shared = row->infix_at < 0 ? 0 : row->n;
    const kvf__pass_limits limits = {.rows = row->rows,
                                     .tokens = row->n,
                                     .row_len = row->n,
                                     .labels = row->n,
                                     .P = prefix ? prefix->file.prefix.P : 0,
                                     .neurons = kvf__prefix_neurons(prefix),
                                     .common_len = shared,
                                     .common_tokens = shared,
                                     .infix = shared > 0};
    const kvf__batch batch = fill_row(row, ids);
    const kvf__input input = {.batch = &batch, .condition = kvf__prefix_condition(prefix)};
    kvf__pass *pass = NULL;
    kvf__head *head = NULL;
    kvf_status st = prefix ? kvf__prefix_head(ctx, base, prefix, &head) : KVF_OK;
    if (!st) st = kvf__pass_create(ctx, base->model, &limits, &pass);
    if (!st) st = kvf__pass_fwd(ctx, pass, &input);
    if (!st) st = kvf__pass_outputs(ctx, pass, head, logits);
    if (!st) part_logits(row, kvf__model_desc(base->model)->V, logits);
    kvf__pass_free(pass);
    kvf__head_free(head);
    return st;
}

static kvf_status row_logits(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const int32_t *ids, size_t n, float *logits)
{
    whole_row row = {.n = (int64_t)n, .infix_at = -1, .rows = 1};
    void *memory = NULL;
    KVF_TRY(check(ctx, base, prefix, ids, &row));
    KVF_TRY(kvf__carve_block(ctx, lay_row, &row, &memory));
    kvf_status st = run(ctx, base, prefix, &row, ids, logits);
    kvf__free(memory);
    return st;
}

kvf_status kvf_logits(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, const int32_t *ids,
                      size_t n, float *logits)
{
    KVF_TRY(KVF__NEED(ctx, base, ids, logits));
    KVF__RETURN(ctx, row_logits(ctx, base, prefix, ids, n, logits));
}
