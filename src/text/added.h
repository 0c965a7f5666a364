/* Added tokens, and cutting a text at them (added.c). */
#ifndef KVF_ADDED_H
#define KVF_ADDED_H

#include "map.h"
#include "prefixes.h"

typedef struct kvf__added {
    char *text; /* owned */
    size_t n;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} kvf__added;

typedef struct kvf__added_list {
    kvf__added *v;
    size_t n, cap;
    kvf__map index;            /* text -> index into v */
    kvf__prefixes raw, normal; /* index of the texts to cut at, raw and normalised */
} kvf__added_list;
/* Copies text; replaces a token with equal text. */
kvf_status kvf__added_put(kvf_ctx *ctx, kvf__added_list *list, const kvf__added *token);
void kvf__added_done(kvf__added_list *list);

/* Iteration over the parts of a text; begins with {.s, .n}. */
typedef struct kvf__cut {
    const char *s;
    size_t n, search_at, done;
    const kvf__added *token; /* added token of this part; NULL: plain text */
    size_t start, end;       /* bytes start .. end-1 */
    const kvf__added *found; /* the next match, while the plain text before it is returned */
    size_t found_start, found_end;
} kvf__cut;
/* Moves to the next part: an added token, or the text before one. False at the end. */
bool kvf__added_next(const kvf__added_list *list, const kvf__prefixes *texts, kvf__cut *cut);

#endif
