/* Patterns: the regular expressions and literal strings of tokenizer.json (pattern.c). */
#ifndef KVF_PATTERN_H
#define KVF_PATTERN_H

#include "base_int.h"

typedef struct kvf__pattern kvf__pattern;
typedef struct kvf__work kvf__work;

kvf_status kvf__pattern_regex(kvf_ctx *ctx, const char *where, const char *source, size_t n,
                              kvf__pattern **out);
kvf_status kvf__pattern_literal(kvf_ctx *ctx, const char *text, size_t n, kvf__pattern **out);
const char *kvf__pattern_source(const kvf__pattern *pattern); /* the literal or the regex */
void kvf__pattern_free(kvf__pattern *pattern);
bool kvf__pattern_may_be_empty(const kvf__pattern *pattern); /* may match the empty text */
/* matches exactly one character and no other text */
bool kvf__pattern_is_character(const kvf__pattern *pattern);

/* A search in one text, begun with {.s, .n}; each hit is bytes start .. end-1. */
typedef struct kvf__search {
    const char *s;
    size_t n, at, last_end;
    bool any;
    size_t start, end;
} kvf__search;
/* *found = false at the end. ENOMEM; EDATA: the match limit was reached. */
kvf_status kvf__pattern_next(kvf__work *work, const kvf__pattern *pattern, kvf__search *search,
                             bool *found);
void kvf__match_free(void *match);
/* Sets *out to whether the pattern matches in a separate text. */
kvf_status kvf__pattern_matches(kvf_ctx *ctx, const kvf__pattern *pattern, const char *text,
                                bool *out);

#endif
