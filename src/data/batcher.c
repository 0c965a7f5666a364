/* Packs examples into one batch: rows back to back, labels shifted to the positions that predict
 * them. On causal bases, tokens after a row's last label are left out, and a beginning that several
 * rows share is stored once (common_prefix.c). */
#include "batcher_int.h"

#include <string.h>

/* Allocates two rows for each example, because every common prefix has at least two rows below it.
 * With infix it allocates three, because each example also has a prefix of its own. */
kvf_status kvf__batcher_init(kvf_ctx *ctx, kvf__batcher *batcher, kvf__batch_rules rules,
                             int64_t examples, int64_t tokens, int64_t labels)
{
    kvf__batcher b = {.rules = rules};
    KVF_TRY(kvf__alloc_array(ctx, (size_t)examples, sizeof *b.rows, &b.rows));
    kvf_status st = kvf__batch_lists_init(ctx, &b.lists, (rules.infix ? 3 : 2) * examples, tokens,
                                          labels);
    if (!st && rules.source) st = kvf__batch_lists_init(ctx, &b.source_lists, examples, tokens, 0);
    KVF__GIVE(st, batcher, b, kvf__batcher_done(&b));
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

/* Makes a view of an example. Returns false if no token of it needs to be computed. */
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
    row->shareable = batcher->rules.source && !shift ? row->n / 2 : first; /* text comes twice */
    return last >= 0;
}

/* Completes the view of a row of the step. Rows of a group take the key of its first row. */
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
