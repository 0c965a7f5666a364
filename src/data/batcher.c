/* Examples to one packed batch: rows back to back, labels shifted to the position that predicts
 * them. On causal bases what cannot matter is left out: tokens after a row's last label, and
 * repetitions of a beginning that several rows have in common (common_prefix.c). */
#include "arena.h"
#include "batcher_int.h"

#include <assert.h>
#include <string.h>

static void lay_lists(void *object, kvf__carver *c)
{
    kvf__batch_lists *l = object;
    l->start = kvf__carve(c, l->most.rows + 1, 1, sizeof *l->start);
    l->example = kvf__carve(c, l->most.rows, 1, sizeof *l->example);
    l->parent = kvf__carve(c, l->most.rows, 1, sizeof *l->parent);
    l->infix_at = kvf__carve(c, l->most.rows, 1, sizeof *l->infix_at);
    l->values = kvf__carve(c, l->most.rows, 1, sizeof *l->values);
    l->spans = kvf__carve(c, l->most.rows, 2, sizeof *l->spans);
    l->ids = kvf__carve(c, l->most.tokens, 1, sizeof *l->ids);
    l->types = kvf__carve(c, l->most.tokens, 1, sizeof *l->types);
    l->label_at = kvf__carve(c, l->most.labels, 1, sizeof *l->label_at);
    l->label_id = kvf__carve(c, l->most.labels, 1, sizeof *l->label_id);
}

kvf_status kvf__batch_lists_init(kvf_ctx *ctx, kvf__batch_lists *lists, int64_t rows,
                                 int64_t tokens, int64_t labels)
{
    *lists = (kvf__batch_lists){.most = {.rows = rows, .tokens = tokens, .labels = labels}};
    return kvf__carve_block(ctx, lay_lists, lists, &lists->memory);
}

kvf__batch kvf__batch_begin(kvf__batch_lists *lists)
{
    lists->start[0] = 0;
    return (kvf__batch){.start = lists->start,
                        .ids = lists->ids,
                        .label_at = lists->label_at,
                        .label_id = lists->label_id,
                        .example = lists->example};
}

/* Every common prefix has at least two rows below it: there are never more of them than examples;
 * and with infix each example has one of its own. */
kvf_status kvf__batcher_init(kvf_ctx *ctx, kvf__batcher *batcher, kvf__batch_rules rules,
                             int64_t examples, int64_t tokens, int64_t labels)
{
    kvf__batcher b = {.rules = rules};
    KVF_TRY(kvf__alloc_array(ctx, (size_t)examples, sizeof *b.rows, &b.rows));
    kvf_status st = kvf__batch_lists_init(ctx, &b.lists, (rules.infix ? 3 : 2) * examples, tokens,
                                          labels);
    if (!st && rules.source) st = kvf__batch_lists_init(ctx, &b.source_lists, examples, tokens, 0);
    if (st)
        kvf__batcher_done(&b);
    else
        *batcher = b;
    return st;
}

void kvf__batcher_done(kvf__batcher *batcher)
{
    kvf__free(batcher->rows);
    kvf__free(batcher->lists.memory);
    kvf__free(batcher->source_lists.memory);
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
    kvf__batch_lists *l = &batcher->lists;
    const kvf__batch was = batcher->batch;
    batcher->batch = kvf__batch_begin(l);
    batcher->batch.types = was.types;
    batcher->batch.values = was.values;
    batcher->batch.spans = was.spans;
    batcher->batch.parent = batcher->rules.infix ? l->parent : NULL;
    batcher->batch.infix_at = batcher->rules.infix ? l->infix_at : NULL;
    batcher->sizes = (kvf__batch_sizes){0};
    if (!batcher->rules.source) return;
    batcher->source = kvf__batch_begin(&batcher->source_lists);
    batcher->batch.source = &batcher->source;
}

/* Appends tokens [from, to) of a row as a row of the batch; returns its index. */
int32_t kvf__batcher_add(kvf__batcher *batcher, const kvf__batch_row *row, int64_t from, int64_t to,
                         int32_t parent)
{
    kvf__batch *b = &batcher->batch;
    kvf__batch_lists *l = &batcher->lists;
    int64_t n = to - from, r = b->n_rows++;
    assert(r < l->most.rows && b->n_tokens + n <= l->most.tokens);
    memcpy(l->ids + b->n_tokens, row->ids + from, (size_t)n * sizeof *l->ids);
    if (row->types) memcpy(l->types + b->n_tokens, row->types + from, (size_t)n * sizeof *l->types);
    l->parent[r] = parent;
    l->infix_at[r] = -1;
    l->example[r] = -1;
    l->values[r] = 0;
    l->spans[2 * r] = l->spans[2 * r + 1] = -1;
    b->n_tokens += n;
    l->start[r + 1] = b->n_tokens;
    if (n > batcher->sizes.row_len) batcher->sizes.row_len = n;
    return (int32_t)r;
}

/* What the encoder reads of a row. */
static void add_source(kvf__batcher *batcher, const kvf__batch_row *row)
{
    kvf__batch *b = &batcher->source;
    kvf__batch_lists *l = &batcher->source_lists;
    const int64_t n = row->shareable;
    memcpy(l->ids + b->n_tokens, row->ids, (size_t)n * sizeof *l->ids);
    l->example[b->n_rows] = row->example;
    b->n_tokens += n;
    l->start[++b->n_rows] = b->n_tokens;
    batcher->sizes.source_tokens = b->n_tokens;
    if (n > batcher->sizes.source_len) batcher->sizes.source_len = n;
}

void kvf__batcher_add_leaf(kvf__batcher *batcher, const kvf__batch_row *row, int64_t from,
                           int32_t parent)
{
    kvf__batch *b = &batcher->batch;
    kvf__batch_lists *l = &batcher->lists;
    if (batcher->rules.infix && from < row->shareable) {
        parent = kvf__batcher_add(batcher, row, from, row->shareable, parent);
        batcher->sizes.common_tokens += row->shareable - from;
        from = row->shareable;
    }
    const int64_t shared = from;
    if (batcher->rules.source) {
        add_source(batcher, row);
        from = row->shareable;
    }
    int64_t first = b->n_tokens - from; /* packed index of the row's token 0, were it here */
    int32_t index = kvf__batcher_add(batcher, row, from, row->n, parent);
    l->example[index] = row->example;
    l->infix_at[index] = (int32_t)from;
    l->values[index] = row->value;
    for (int side = 0; side < 2 && row->span[side] >= 0;
         side++) /* never in a common prefix: it is labelled */
        l->spans[2 * index + side] = row->span[side] - (int32_t)from;
    for (int64_t i = row->shift; i < row->n_labels; i++) {
        const int32_t label = row->label == KVF__NO_LABEL ? row->labels[i] : row->label;
        if (label == KVF__NO_LABEL) continue;
        assert(b->n_labels < l->most.labels);
        l->label_at[b->n_labels] = (int32_t)(first + i - row->shift);
        l->label_id[b->n_labels++] = label;
    }
    if (shared > batcher->sizes.common_len) batcher->sizes.common_len = shared;
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
        .label = dataset->pooled && first >= 0 ? labels[first] : KVF__NO_LABEL,
        .value = dataset->values ? dataset->values[example] : 0,
        .span = {-1, -1},
    };
    if (dataset->spans) memcpy(row->span, dataset->spans + 2 * example, sizeof row->span);
    if (!batcher->rules.causal) return true;
    row->n = last + 1;
    row->shareable = batcher->rules.source && !shift ? row->n / 2 : first; /* read on both sides */
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
    batcher->batch.types = dataset->types ? batcher->lists.types : NULL;
    batcher->batch.values = dataset->values ? batcher->lists.values : NULL;
    batcher->batch.spans = dataset->spans ? batcher->lists.spans : NULL;
    kvf__batcher_clear(batcher);
    bool may_share = batcher->rules.causal && batcher->rules.share && !dataset->types &&
                     !batcher->rules.source;
    if (!may_share || !kvf__batcher_share(batcher, rows, dataset->group != NULL))
        for (int64_t r = 0; r < rows; r++)
            kvf__batcher_add_leaf(batcher, &batcher->rows[r], 0, -1);
    batcher->sizes.rows = batcher->batch.n_rows;
    batcher->sizes.tokens = batcher->batch.n_tokens;
    batcher->sizes.labels = batcher->batch.n_labels;
}
