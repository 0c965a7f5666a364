/* Examples to one packed batch: rows back to back, labels shifted to the position that predicts them. */
#include "data_int.h"

#include <assert.h>
#include <string.h>

kvf_status kvf__batcher_init(kvf_ctx *ctx, kvf__batcher *batcher, int64_t rows, int64_t tokens, int64_t labels)
{
    kvf__batcher p = {.cap_rows = rows, .cap_tokens = tokens, .cap_labels = labels};
    kvf_status st = kvf__alloc_array(ctx, (size_t)rows + 1, sizeof *p.start, &p.start);
    if (!st) st = kvf__alloc_array(ctx, (size_t)rows, sizeof *p.example, &p.example);
    if (!st) st = kvf__alloc_array(ctx, (size_t)tokens, sizeof *p.ids, &p.ids);
    if (!st) st = kvf__alloc_array(ctx, (size_t)labels, sizeof *p.label_at, &p.label_at);
    if (!st) st = kvf__alloc_array(ctx, (size_t)labels, sizeof *p.label_id, &p.label_id);
    if (st)
        kvf__batcher_done(&p);
    else
        *batcher = p;
    return st;
}

void kvf__batcher_done(kvf__batcher *batcher)
{
    kvf__free(batcher->start);
    kvf__free(batcher->example);
    kvf__free(batcher->ids);
    kvf__free(batcher->label_at);
    kvf__free(batcher->label_id);
    *batcher = (kvf__batcher){0};
}

static void add_example(kvf__batcher *batcher, const kvf__dataset *dataset, int64_t example)
{
    kvf__batch *b = &batcher->batch;
    int64_t first = dataset->start[example], n = kvf__example_length(dataset, example);
    assert(b->n_rows < batcher->cap_rows && b->n_tokens + n <= batcher->cap_tokens);
    memcpy(batcher->ids + b->n_tokens, dataset->ids + first, (size_t)n * sizeof *batcher->ids);
    for (int64_t i = 1; i < n; i++) {
        int32_t label = dataset->labels[first + i];
        if (label == KVF__NO_LABEL) continue;
        assert(b->n_labels < batcher->cap_labels);
        batcher->label_at[b->n_labels] = (int32_t)(b->n_tokens + i - 1);
        batcher->label_id[b->n_labels++] = label;
    }
    batcher->example[b->n_rows++] = example;
    b->n_tokens += n;
    batcher->start[b->n_rows] = b->n_tokens;
}

void kvf__batcher_fill(kvf__batcher *batcher, const kvf__dataset *dataset, const int64_t *examples, int64_t n)
{
    batcher->batch = (kvf__batch){
        .start = batcher->start,
        .ids = batcher->ids,
        .label_at = batcher->label_at,
        .label_id = batcher->label_id,
        .example = batcher->example,
    };
    batcher->start[0] = 0;
    for (int64_t i = 0; i < n; i++)
        add_example(batcher, dataset, examples[i]);
}
