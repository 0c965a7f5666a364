/* Batches of several runs as one, back to back: what lets their rows share every product over the
 * base. Targets of heads stay with the batches they came from. */
#include "data_int.h"

#include <assert.h>
#include <string.h>

kvf_status kvf__joined_init(kvf_ctx *ctx, kvf__joined *out, int64_t rows, int64_t tokens,
                            int64_t labels)
{
    kvf__joined j = {.most = {.rows = rows, .tokens = tokens, .labels = labels}};
    kvf_status st = kvf__alloc_array(ctx, (size_t)rows + 1, sizeof *j.start, &j.start);
    if (!st) st = kvf__alloc_array(ctx, (size_t)rows, sizeof *j.example, &j.example);
    if (!st) st = kvf__alloc_array(ctx, (size_t)rows, sizeof *j.parent, &j.parent);
    if (!st) st = kvf__alloc_array(ctx, (size_t)tokens, sizeof *j.ids, &j.ids);
    if (!st) st = kvf__alloc_array(ctx, (size_t)tokens, sizeof *j.types, &j.types);
    if (!st) st = kvf__alloc_array(ctx, (size_t)labels, sizeof *j.label_at, &j.label_at);
    if (!st) st = kvf__alloc_array(ctx, (size_t)labels, sizeof *j.label_id, &j.label_id);
    if (st) {
        kvf__joined_done(&j);
        return st;
    }
    *out = j;
    kvf__joined_clear(out);
    return KVF_OK;
}

void kvf__joined_done(kvf__joined *j)
{
    kvf__free(j->start);
    kvf__free(j->example);
    kvf__free(j->parent);
    kvf__free(j->ids);
    kvf__free(j->types);
    kvf__free(j->label_at);
    kvf__free(j->label_id);
    *j = (kvf__joined){0};
}

void kvf__joined_clear(kvf__joined *j)
{
    j->start[0] = 0;
    j->batch = (kvf__batch){.start = j->start,
                            .ids = j->ids,
                            .label_at = j->label_at,
                            .label_id = j->label_id,
                            .example = j->example};
}

void kvf__joined_add(kvf__joined *j, const kvf__batch *part)
{
    kvf__batch *b = &j->batch;
    size_t tokens = (size_t)part->n_tokens;
    assert(b->n_rows + part->n_rows <= j->most.rows);
    assert(b->n_tokens + part->n_tokens <= j->most.tokens);
    assert(b->n_labels + part->n_labels <= j->most.labels);
    for (int64_t r = 0; r < part->n_rows; r++) {
        int32_t parent = part->parent ? part->parent[r] : -1;
        j->start[b->n_rows + r + 1] = b->n_tokens + part->start[r + 1];
        j->example[b->n_rows + r] = part->example[r];
        j->parent[b->n_rows + r] = parent < 0 ? -1 : (int32_t)b->n_rows + parent;
    }
    memcpy(j->ids + b->n_tokens, part->ids, tokens * sizeof *j->ids);
    if (part->types)
        memcpy(j->types + b->n_tokens, part->types, tokens * sizeof *j->types);
    else
        memset(j->types + b->n_tokens, 0, tokens * sizeof *j->types);
    for (int64_t i = 0; i < part->n_labels; i++) {
        j->label_at[b->n_labels + i] = (int32_t)b->n_tokens + part->label_at[i];
        j->label_id[b->n_labels + i] = part->label_id[i];
    }
    if (part->parent) b->parent = j->parent;
    if (part->types) b->types = j->types;
    b->n_rows += part->n_rows;
    b->n_tokens += part->n_tokens;
    b->n_labels += part->n_labels;
}
