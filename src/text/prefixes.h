/* A set of texts that finds those which a given text begins with (prefixes.c). */
#ifndef KVF_PREFIXES_H
#define KVF_PREFIXES_H

#include "base_int.h"

enum { KVF__LONGEST_TOKEN = 1024 }; /* maximum bytes of a text in the set, which bounds a search */

typedef struct kvf__prefixes {
    struct kvf__prefix_entry {
        uint64_t head; /* its first bytes, big-endian, for quick comparisons */
        size_t at;
        uint32_t n;
        int32_t value;
        int32_t shorter; /* the longest shorter entry that is a prefix of this one; -1: none */
    } * v;               /* [n] sorted by their bytes */
    size_t n, cap;
    kvf__buf text;
    uint32_t first[257]; /* entries that begin with byte b: first[b] .. first[b + 1] - 1 */
} kvf__prefixes;
/* Copies a text; an empty one is ignored. EFORMAT: it is longer than KVF__LONGEST_TOKEN. */
kvf_status kvf__prefixes_add(kvf_ctx *ctx, kvf__prefixes *set, const char *where, const char *text,
                             size_t n, int32_t value);
/* Called once, after the last addition; of equal texts the first is kept. */
void kvf__prefixes_sort(kvf__prefixes *set);
void kvf__prefixes_done(kvf__prefixes *set);
/* Returns the index of the longest entry that is a prefix of the text (n > 0 bytes); -1: none. */
int32_t kvf__prefixes_find(const kvf__prefixes *set, const char *text, size_t n);

#endif
