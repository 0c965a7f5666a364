/* A word during merging: symbols in a linked list, candidate merges in a binary heap.
 *
 * Both BPE models use it. The heap returns the smallest key, of equal keys the leftmost. The result
 * is that of "merge the best pair, leftmost first", in O(n log n). Entries are not removed when
 * their symbols change; the models skip outdated ones. */
#include "tok_model.h"

/* Positions of symbols are 32-bit. */
static kvf_status reserve(kvf_ctx *ctx, void *inout, size_t n, size_t *cap, size_t size)
{
    if (n >= INT32_MAX)
        return kvf__fail(ctx, KVF_EDATA, "a text is too long to tokenize: more than %zu symbols",
                         n);
    return kvf__reserve(ctx, inout, cap, n + 1, size);
}

kvf_status kvf__word_add(kvf_ctx *ctx, kvf__word *word, int32_t id, size_t at, size_t n)
{
    int32_t i = (int32_t)word->n;

    KVF_TRY(reserve(ctx, &word->v, word->n, &word->cap, sizeof *word->v));
    if (at + n > UINT32_MAX) return kvf__fail(ctx, KVF_EDATA, "a text is too long to tokenize");
    word->v[i] = (kvf__symbol){
        .id = id, .prev = i - 1, .next = -1, .at = (uint32_t)at, .n = (uint32_t)n};
    if (i > 0) word->v[i - 1].next = i;
    word->n++;
    return KVF_OK;
}

static bool before(const kvf__merge *a, const kvf__merge *b)
{
    return a->key < b->key || (a->key == b->key && a->at < b->at);
}

kvf_status kvf__word_push(kvf_ctx *ctx, kvf__word *word, kvf__merge merge)
{
    size_t i = word->heap_n;

    KVF_TRY(reserve(ctx, &word->heap, word->heap_n, &word->heap_cap, sizeof *word->heap));
    word->heap_n++;
    while (i > 0 && before(&merge, &word->heap[(i - 1) / 2])) {
        word->heap[i] = word->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    word->heap[i] = merge;
    return KVF_OK;
}

bool kvf__word_pop(kvf__word *word, kvf__merge *merge)
{
    size_t i = 0;

    if (word->heap_n == 0) return false;
    *merge = word->heap[0];
    kvf__merge last = word->heap[--word->heap_n];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= word->heap_n) break;
        if (child + 1 < word->heap_n && before(&word->heap[child + 1], &word->heap[child])) child++;
        if (!before(&word->heap[child], &last)) break;
        word->heap[i] = word->heap[child];
        i = child;
    }
    word->heap[i] = last;
    return true;
}

void kvf__word_merge(kvf__word *word, int32_t at, int32_t id)
{
    kvf__symbol *left = &word->v[at];
    kvf__symbol *right = &word->v[left->next];

    left->id = id;
    left->n += right->n;
    left->next = right->next;
    if (right->next >= 0) word->v[right->next].prev = at;
    right->n = 0;
    right->id = -1;
}

void kvf__word_done(kvf__word *word)
{
    kvf__free(word->v);
    kvf__free(word->heap);
    kvf__buf_done(&word->affixed);
    kvf__free(word->path);
    *word = (kvf__word){0};
}
