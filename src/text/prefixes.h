/* A set of texts, asked for those that another text begins with (prefixes.c). */
#ifndef KVF_PREFIXES_H
#define KVF_PREFIXES_H

#include "base_int.h"

enum { KVF__LONGEST_TOKEN = 1024 }; /* bytes of a text in the set: what limits a search */

typedef struct kvf__prefixes {
    struct kvf__prefix_entry {
        uint64_t head; /* its first bytes, the first one highest, for quick comparisons */
        size_t at;
        uint32_t n;
        int32_t value;
        int32_t shorter; /* the next shorter entry that this one begins with; -1: none */
    } * v;               /* [n] sorted by their bytes */
    size_t n, cap;
    kvf__buf text;
    uint32_t first[257]; /* entries that begin with byte b: first[b] .. first[b + 1] - 1 */
} kvf__prefixes;
/* Copies a text. An empty one is left out. EFORMAT: it is longer than KVF__LONGEST_TOKEN. */
kvf_status kvf__prefixes_add(kvf_ctx *ctx, kvf__prefixes *set, const char *where, const char *text,
                             size_t n, int32_t value);
void kvf__prefixes_sort(
    kvf__prefixes *set); /* once, after the last; of equal texts the first stays */
void kvf__prefixes_done(kvf__prefixes *set);
/* Index of the longest entry that a text of n > 0 bytes begins with; -1: none. */
int32_t kvf__prefixes_find(const kvf__prefixes *set, const char *text, size_t n);

#endif
