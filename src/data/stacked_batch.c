/* Concatenates batches of several runs, so that their rows share every product over the base.
 * Targets of heads stay in the original batches. */
#include "batcher.h"

#include <assert.h>
#include <string.h>

kvf_status kvf__stacked_init(kvf_ctx *ctx, kvf__stacked_batch *out, int64_t rows, int64_t tokens,
                             int64_t labels, int64_t source_tokens)
{
    kvf__stacked_batch s = {0};
    KVF_TRY(kvf__batch_lists_init(ctx, &s.lists, rows, tokens, labels));
    kvf_status st = kvf__batch_lists_init(ctx, &s.source_lists, rows, source_tokens, 0);
    if (st) {
        kvf__stacked_done(&s);
        return st;
    }
    *out = s;
    kvf__stacked_clear(out);
    return KVF_OK;
}

void kvf__stacked_done(kvf__stacked_batch *s)
{
    kvf__free(s->lists.memory);
    kvf__free(s->source_lists.memory);
    *s = (kvf__stacked_batch){0};
}

void kvf__stacked_clear(kvf__stacked_batch *s)
{
    s->batch = kvf__batch_begin(&s->lists);
    s->source = kvf__batch_begin(&s->source_lists);
}

static void add_source(kvf__stacked_batch *s, const kvf__batch *part)
{
    kvf__batch *b = &s->source;
    kvf__batch_lists *l = &s->source_lists;
    assert(b->n_tokens + part->n_tokens <= l->most.tokens);
    for (int64_t r = 0; r < part->n_rows; r++) {
        l->start[b->n_rows + r + 1] = b->n_tokens + part->start[r + 1];
        l->example[b->n_rows + r] = part->example[r];
    }
    memcpy(l->ids + b->n_tokens, part->ids, (size_t)part->n_tokens * sizeof *l->ids);
    b->n_rows += part->n_rows;
    b->n_tokens += part->n_tokens;
    s->batch.source = b;
}

void kvf__stacked_add(kvf__stacked_batch *s, const kvf__batch *part)
{
    kvf__batch *b = &s->batch;
    kvf__batch_lists *l = &s->lists;
    size_t tokens = (size_t)part->n_tokens;
    assert(b->n_rows + part->n_rows <= l->most.rows);
    assert(b->n_tokens + part->n_tokens <= l->most.tokens);
    assert(b->n_labels + part->n_labels <= l->most.labels);
    for (int64_t r = 0; r < part->n_rows; r++) {
        int32_t parent = part->parent ? part->parent[r] : -1;
        l->start[b->n_rows + r + 1] = b->n_tokens + part->start[r + 1];
        l->example[b->n_rows + r] = part->example[r];
        l->parent[b->n_rows + r] = parent < 0 ? -1 : (int32_t)b->n_rows + parent;
    }
    memcpy(l->ids + b->n_tokens, part->ids, tokens * sizeof *l->ids);
    if (part->types)
        memcpy(l->types + b->n_tokens, part->types, tokens * sizeof *l->types);
    else
        memset(l->types + b->n_tokens, 0, tokens * sizeof *l->types);
    for (int64_t i = 0; i < part->n_labels; i++) {
        l->label_at[b->n_labels + i] = (int32_t)b->n_tokens + part->label_at[i];
        l->label_id[b->n_labels + i] = part->label_id[i];
    }
    if (part->source) add_source(s, part->source);
    if (part->parent) b->parent = l->parent;
    if (part->types) b->types = l->types;
    b->n_rows += part->n_rows;
    b->n_tokens += part->n_tokens;
    b->n_labels += part->n_labels;
}
