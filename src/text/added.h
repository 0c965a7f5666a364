/* Added tokens, and cutting a text at them (added.c). */
#ifndef KVF_ADDED_H
#define KVF_ADDED_H

#include "base_int.h"

typedef struct kvf__added {
    char *text; /* owned */
    size_t n;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} kvf__added;

/* Matches a set of texts, leftmost, then longest. */
typedef struct kvf__trie {
    struct kvf__trie_node {
        int32_t child, sibling, value;
        uint8_t byte;
    } * v;
    size_t n, cap;
    bool first[256];
} kvf__trie;
kvf_status kvf__trie_add(kvf_ctx *ctx, kvf__trie *trie, const char *text, size_t n, int32_t value);

typedef struct kvf__added_list {
    kvf__added *v;
    size_t n, cap;
    kvf__trie raw, normal; /* values are indices into v */
} kvf__added_list;
kvf_status kvf__added_put(kvf_ctx *ctx, kvf__added_list *list,
                          const kvf__added *token); /* copies text; replaces one of equal text */
void kvf__added_done(kvf__added_list *list);

/* A walk over a text by parts: {.s, .n} to begin. */
typedef struct kvf__cut {
    const char *s;
    size_t n, search_at, done;
    const kvf__added *token; /* what this part is; NULL: plain text */
    size_t start, end;       /* bytes start .. end-1 */
    const kvf__added *found; /* the next match, while the plain text before it is given out */
    size_t found_start, found_end;
} kvf__cut;
/* The next part: an added token, or the text before one. False at the end. */
bool kvf__added_next(const kvf__added_list *list, const kvf__trie *trie, kvf__cut *cut);

#endif
