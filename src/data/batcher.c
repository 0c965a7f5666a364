/* Examples to one packed batch: rows back to back, labels shifted to the position that predicts
 * them. On causal bases what cannot matter is left out: tokens behind a row's last label, and
 * repetitions of a beginning that several rows have in common (common_prefix.c). */
#include "batcher_int.h"

#include <assert.h>
#include <string.h>

kvf_status kvf__batcher_init(kvf_ctx *ctx, kvf__batcher *batcher, kvf__batch_rules rules,
                             int64_t examples, int64_t tokens, int64_t labels)
{
    kvf__batcher b = {
        .rules = rules,
        .most = {.rows = (rules.infix ? 3 : 2) * examples, .tokens = tokens, .labels = labels}};
    size_t rows =
        (size_t)b.most.rows; /* every lead has at least two rows below it: never more leads than
                                examples; and with infix each example one of its own */
    kvf_status st = kvf__alloc_array(ctx, rows + 1, sizeof *b.start, &b.start);
    if (!st) st = kvf__alloc_array(ctx, rows, sizeof *b.example, &b.example);
    if (!st) st = kvf__alloc_array(ctx, rows, sizeof *b.parent, &b.parent);
    if (!st) st = kvf__alloc_array(ctx, rows, sizeof *b.infix_at, &b.infix_at);
    if (!st) st = kvf__alloc_array(ctx, (size_t)examples, sizeof *b.rows, &b.rows);
    if (!st) st = kvf__alloc_array(ctx, (size_t)tokens, sizeof *b.ids, &b.ids);
    if (!st) st = kvf__alloc_array(ctx, (size_t)tokens, sizeof *b.types, &b.types);
    if (!st) st = kvf__alloc_array(ctx, rows, sizeof *b.values, &b.values);
    if (!st) st = kvf__alloc_array(ctx, 2 * rows, sizeof *b.spans, &b.spans);
    if (!st) st = kvf__alloc_array(ctx, (size_t)labels, sizeof *b.label_at, &b.label_at);
    if (!st) st = kvf__alloc_array(ctx, (size_t)labels, sizeof *b.label_id, &b.label_id);
    if (st)
        kvf__batcher_done(&b);
    else
        *batcher = b;
    return st;
}

void kvf__batcher_done(kvf__batcher *batcher)
{
    kvf__free(batcher->start);
    kvf__free(batcher->example);
    kvf__free(batcher->parent);
    kvf__free(batcher->infix_at);
    kvf__free(batcher->rows);
    kvf__free(batcher->ids);
    kvf__free(batcher->types);
    kvf__free(batcher->values);
    kvf__free(batcher->spans);
    kvf__free(batcher->label_at);
    kvf__free(batcher->label_id);
    *batcher = (kvf__batcher){0};
}

void kvf__batch_sizes_raise(kvf__batch_sizes *sizes, const kvf__batch_sizes *by)
{
    int64_t *to = &sizes->rows;
    const int64_t *from = &by->rows;
    for (size_t i = 0; i < sizeof *sizes / sizeof *to; i++)
        if (from[i] > to[i]) to[i] = from[i];
}

void kvf__batcher_clear(kvf__batcher *batcher)
{
    batcher->batch = (kvf__batch){
        .start = batcher->start,
        .ids = batcher->ids,
        .label_at = batcher->label_at,
        .label_id = batcher->label_id,
        .example = batcher->example,
        .types = batcher->batch.types,
        .values = batcher->batch.values,
        .spans = batcher->batch.spans,
        .parent = batcher->rules.infix ? batcher->parent : NULL,
        .infix_at = batcher->rules.infix ? batcher->infix_at : NULL,
    };
    batcher->sizes = (kvf__batch_sizes){0};
    batcher->start[0] = 0;
}

/* Appends tokens [from, to) of a row as a row of the batch; returns its index. */
int32_t kvf__batcher_add(kvf__batcher *batcher, const kvf__batch_row *row, int64_t from, int64_t to,
                         int32_t parent)
{
    kvf__batch *b = &batcher->batch;
    int64_t n = to - from;
    assert(b->n_rows < batcher->most.rows && b->n_tokens + n <= batcher->most.tokens);
    memcpy(batcher->ids + b->n_tokens, row->ids + from, (size_t)n * sizeof *batcher->ids);
    batcher->parent[b->n_rows] = parent;
    batcher->infix_at[b->n_rows] = -1;
    batcher->example[b->n_rows] = -1;
    batcher->values[b->n_rows] = 0;
    batcher->spans[2 * b->n_rows] = batcher->spans[2 * b->n_rows + 1] = -1;
    if (row->types)
        memcpy(batcher->types + b->n_tokens, row->types + from, (size_t)n * sizeof *batcher->types);
    b->n_tokens += n;
    batcher->start[++b->n_rows] = b->n_tokens;
    if (n > batcher->sizes.row_len) batcher->sizes.row_len = n;
    return (int32_t)(b->n_rows - 1);
}

void kvf__batcher_add_leaf(kvf__batcher *batcher, const kvf__batch_row *row, int64_t from,
                           int32_t parent)
{
    kvf__batch *b = &batcher->batch;
    if (batcher->rules.infix && from < row->shareable) {
        parent = kvf__batcher_add(batcher, row, from, row->shareable, parent);
        batcher->sizes.common_tokens += row->shareable - from;
        from = row->shareable;
    }
    int64_t first = b->n_tokens - from; /* packed index of the row's token 0, were it here */
    int32_t index = kvf__batcher_add(batcher, row, from, row->n, parent);
    batcher->example[index] = row->example;
    batcher->infix_at[index] = (int32_t)from;
    batcher->values[index] = row->value;
    for (int side = 0; side < 2 && row->span[side] >= 0;
         side++) /* never in a common prefix: it is labelled */
        batcher->spans[2 * index + side] = row->span[side] - (int32_t)from;
    for (int64_t i = row->shift; i < row->n_labels; i++) {
        if (row->labels[i] == KVF__NO_LABEL) continue;
        assert(b->n_labels < batcher->most.labels);
        batcher->label_at[b->n_labels] = (int32_t)(first + i - row->shift);
        batcher->label_id[b->n_labels++] = row->labels[i];
    }
    if (from > batcher->sizes.common_len) batcher->sizes.common_len = from;
}

/* Views an example; false if nothing of it needs to be computed. */
static bool view_row(const kvf__batcher *batcher, const kvf__dataset *dataset, int64_t example,
                     kvf__batch_row *row)
{
    int64_t at = dataset->start[example], n = kvf__example_length(dataset, example);
    int64_t shift = dataset->task == KVF__TASK_LM, first = -1, last = -1;
    const int32_t *labels = dataset->labels + at;
    for (int64_t i = n - 1; i >= shift; i--) {
        if (labels[i] == KVF__NO_LABEL) continue;
        first = i - shift;
        if (last < 0) last = i - shift;
    }
    *row = (kvf__batch_row){
        .ids = dataset->ids + at,
        .labels = labels,
        .n = n,
        .n_labels = n,
        .example = kvf__group_of(dataset, example),
        .shift = shift,
        .types = dataset->types ? dataset->types + at : NULL,
        .value = dataset->values ? dataset->values[example] : 0,
        .span = {-1, -1},
    };
    if (dataset->spans) memcpy(row->span, dataset->spans + 2 * example, sizeof row->span);
    if (!batcher->rules.causal) return true;
    row->n = last + 1;
    row->shareable = first;
    return last >= 0;
}

/* Lists a row of the step; the first of a group gives its key to the others. */
static void list_row(kvf__batcher *batcher, int64_t rows)
{
    kvf__batch_row *row = &batcher->rows[rows], *before = row - 1;
    bool joins = rows && before->example == row->example;
    row->index = rows;
    row->key_ids = joins ? before->key_ids : row->ids;
    row->key_shareable = joins ? before->key_shareable : row->shareable;
    row->key_index = joins ? before->key_index : rows;
}

void kvf__batcher_fill(kvf__batcher *batcher, const kvf__dataset *dataset, const int64_t *examples,
                       int64_t n)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!view_row(batcher, dataset, examples[i], &batcher->rows[rows])) continue;
        list_row(batcher, rows++);
    }
    batcher->batch.types = dataset->types ? batcher->types : NULL;
    batcher->batch.values = dataset->values ? batcher->values : NULL;
    batcher->batch.spans = dataset->spans ? batcher->spans : NULL;
    kvf__batcher_clear(batcher);
    bool may_share = batcher->rules.causal && batcher->rules.share && !dataset->types;
    if (!may_share || !kvf__batcher_share(batcher, rows, dataset->group != NULL))
        for (int64_t r = 0; r < rows; r++)
            kvf__batcher_add_leaf(batcher, &batcher->rows[r], 0, -1);
    batcher->sizes.rows = batcher->batch.n_rows;
    batcher->sizes.tokens = batcher->batch.n_tokens;
    batcher->sizes.labels = batcher->batch.n_labels;
}
