/* A set of texts for prefix search: added tokens, and the vocabularies of Unigram and WordPiece.
 *
 * The texts are sorted, and each is linked to its longest proper prefix in the set. The prefixes of
 * a text are then found from the last entry not above it and along the links. A search takes log n
 * comparisons of bounded length, for any contents of the set. */
#include "prefixes.h"

#include <stdlib.h>
#include <string.h>

static uint64_t head_of(const char *text, size_t n)
{
    uint64_t head = 0;

    for (size_t i = 0; i < sizeof head; i++)
        head = head << 8 | (i < n ? (uint8_t)text[i] : 0);
    return head;
}

kvf_status kvf__prefixes_add(kvf_ctx *ctx, kvf__prefixes *set, const char *where, const char *text,
                             size_t n, int32_t value)
{
    const size_t at = set->text.n;

    if (n == 0) return KVF_OK;
    if (n > KVF__LONGEST_TOKEN)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: token \"%.40s...\" has %zu bytes, want at most %d",
                         where, text, n, KVF__LONGEST_TOKEN);
    if (set->n >= INT32_MAX) return kvf__fail(ctx, KVF_EFORMAT, "%s: too many tokens", where);
    KVF_TRY(kvf__reserve(ctx, &set->v, &set->cap, set->n + 1, sizeof *set->v));
    KVF_TRY(kvf__buf_add(ctx, &set->text, text, n));
    set->v[set->n++] = (struct kvf__prefix_entry){
        .head = head_of(text, n), .at = at, .n = (uint32_t)n, .value = value, .shorter = -1};
    return KVF_OK;
}

/* Compares an entry and a text with this head. */
static int compare(const char *texts, const struct kvf__prefix_entry *e, uint64_t head,
                   const char *text, size_t n)
{
    if (e->head != head) return e->head < head ? -1 : 1;
    const int order = memcmp(texts + e->at, text, e->n < n ? e->n : n);
    return order ? order : (e->n > n) - (e->n < n);
}

/* Sorts equal texts by order of insertion. */
static int by_text(const void *a, const void *b, void *texts)
{
    const struct kvf__prefix_entry *x = a, *y = b;
    const int order = compare(texts, x, y->head, (char *)texts + y->at, y->n);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static bool begins_with(const kvf__prefixes *set, size_t i, int32_t j)
{
    const struct kvf__prefix_entry *whole = &set->v[i], *part = &set->v[j];
    return part->n <= whole->n &&
           !memcmp(set->text.data + part->at, set->text.data + whole->at, part->n);
}

void kvf__prefixes_sort(kvf__prefixes *set)
{
    size_t n = 0;

    if (set->n) qsort_r(set->v, set->n, sizeof *set->v, by_text, set->text.data);
    for (size_t i = 0; i < set->n; i++) {
        int32_t j = (int32_t)n - 1;
        set->v[n] = set->v[i];
        while (j >= 0 && !begins_with(set, n, j))
            j = set->v[j].shorter;
        if (j >= 0 && set->v[j].n == set->v[n].n) continue;
        set->v[n].shorter = j;
        set->first[(uint8_t)set->text.data[set->v[n].at] + 1] = (uint32_t)n + 1;
        n++;
    }
    set->n = n;
    for (size_t b = 1; b < 257; b++)
        if (!set->first[b]) set->first[b] = set->first[b - 1];
}

void kvf__prefixes_done(kvf__prefixes *set)
{
    kvf__free(set->v);
    kvf__buf_done(&set->text);
    *set = (kvf__prefixes){0};
}

int32_t kvf__prefixes_find(const kvf__prefixes *set, const char *text, size_t n)
{
    const uint8_t byte = (uint8_t)text[0];
    size_t low = set->first[byte], high = set->first[byte + 1], same = 1;

    if (low == high) return -1;
    const uint64_t head = head_of(text, n);
    while (low < high) { /* invariant: entries before low are not above the text */
        const size_t middle = low + (high - low) / 2;
        if (compare(set->text.data, &set->v[middle], head, text, n) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == set->first[byte]) return -1;
    int32_t found = (int32_t)low - 1;
    const struct kvf__prefix_entry *last = &set->v[found];
    while (same < last->n && same < n && set->text.data[last->at + same] == text[same])
        same++;
    while (found >= 0 && set->v[found].n > same)
        found = set->v[found].shorter;
    return found;
}
