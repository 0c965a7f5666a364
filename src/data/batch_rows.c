/* Packed batches: allocates their lists and appends rows to them. */
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

/* Appends the encoder's part of a row. */
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
    int64_t first = b->n_tokens - from; /* packed index that token 0 of the row would have */
    int32_t index = kvf__batcher_add(batcher, row, from, row->n, parent);
    l->example[index] = row->example;
    l->infix_at[index] = (int32_t)from;
    l->values[index] = row->value;
    for (int side = 0; side < 2 && row->span[side] >= 0;
         side++) /* spans are labelled, so never in a common prefix */
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
