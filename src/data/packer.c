/* Examples to one packed batch: rows back to back, labels shifted to the position that predicts them. */
#include "data_int.h"

#include <assert.h>
#include <string.h>

kvf_status kvf__packer_init(kvf_ctx *ctx, kvf__packer *packer, int64_t rows, int64_t tokens, int64_t labels)
{
    kvf__packer p = {.cap_rows = rows, .cap_tokens = tokens, .cap_labels = labels};
    kvf_status st = kvf__alloc_array(ctx, (size_t)rows + 1, sizeof *p.start, &p.start);
    if (!st) st = kvf__alloc_array(ctx, (size_t)rows, sizeof *p.example, &p.example);
    if (!st) st = kvf__alloc_array(ctx, (size_t)tokens, sizeof *p.ids, &p.ids);
    if (!st) st = kvf__alloc_array(ctx, (size_t)labels, sizeof *p.label_at, &p.label_at);
    if (!st) st = kvf__alloc_array(ctx, (size_t)labels, sizeof *p.label_id, &p.label_id);
    if (st)
        kvf__packer_done(&p);
    else
        *packer = p;
    return st;
}

void kvf__packer_done(kvf__packer *packer)
{
    kvf__free(packer->start);
    kvf__free(packer->example);
    kvf__free(packer->ids);
    kvf__free(packer->label_at);
    kvf__free(packer->label_id);
    *packer = (kvf__packer){0};
}

static void add_example(kvf__packer *packer, const kvf__dataset *dataset, int64_t example)
{
    kvf__batch *b = &packer->batch;
    int64_t first = dataset->start[example], n = kvf__example_length(dataset, example);
    assert(b->n_rows < packer->cap_rows && b->n_tokens + n <= packer->cap_tokens);
    memcpy(packer->ids + b->n_tokens, dataset->ids + first, (size_t)n * sizeof *packer->ids);
    for (int64_t i = 1; i < n; i++) {
        int32_t label = dataset->labels[first + i];
        if (label == KVF__NO_LABEL) continue;
        assert(b->n_labels < packer->cap_labels);
        packer->label_at[b->n_labels] = (int32_t)(b->n_tokens + i - 1);
        packer->label_id[b->n_labels++] = label;
    }
    packer->example[b->n_rows++] = example;
    b->n_tokens += n;
    packer->start[b->n_rows] = b->n_tokens;
}

void kvf__packer_fill(kvf__packer *packer, const kvf__dataset *dataset, const int64_t *examples, int64_t n)
{
    packer->batch = (kvf__batch){
        .start = packer->start,
        .ids = packer->ids,
        .label_at = packer->label_at,
        .label_id = packer->label_id,
        .example = packer->example,
    };
    packer->start[0] = 0;
    for (int64_t i = 0; i < n; i++)
        add_example(packer, dataset, examples[i]);
}
