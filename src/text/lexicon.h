/* The vocabulary: token texts and ids, both ways (lexicon.c). */
#ifndef KVF_LEXICON_H
#define KVF_LEXICON_H

#include "map.h"
#include "prefixes.h"

enum {
    KVF__TOK_PRESENT = 1,
    KVF__TOK_SPECIAL = 2,
    KVF__TOK_BYTE = 4,
    KVF__TOK_UNKNOWN = 8,
    KVF__TOK_UNUSED = 16
};
/* Limit of a token id. The largest known vocabulary has 0.9 million tokens (XLM-V); a table by id
 * stays below 64 MB. */
enum { KVF__DIRECT_CHARS = 0x180, KVF__MAX_TOKEN_ID = 1 << 21 };

typedef struct kvf__lexicon {
    kvf__map model; /* text -> id of tokens that the model may produce */
    kvf__map added; /* text -> id of added tokens */
    kvf__buf text;  /* written forms, each followed by a NUL */
    struct kvf__token {
        size_t at;
        uint32_t n;
        uint32_t flags;
    } * v;                            /* entries by id */
    size_t n, cap;                    /* n: largest id + 1 */
    size_t longest;                   /* longest token of the model in bytes */
    int32_t chars[KVF__DIRECT_CHARS]; /* id of a one-character token below U+0180, -1 */
    int32_t bytes[256];               /* id of <0xXX>, -1 */
    kvf__prefixes prefixes;           /* for models that search tokens within a text; values: ids */
} kvf__lexicon;
void kvf__lexicon_init(kvf__lexicon *lex);
/* Adds a token; those with `added` go to the added map only. where names the source of an invalid
 * id. */
kvf_status kvf__lexicon_put(kvf_ctx *ctx, kvf__lexicon *lex, const char *where, const char *text,
                            size_t n, int64_t id, uint32_t flags, bool added);
int32_t kvf__lexicon_model(const kvf__lexicon *lex, const char *text, size_t n); /* -1: none */
/* added tokens first */
int32_t kvf__lexicon_find(const kvf__lexicon *lex, const char *text, size_t n);
void kvf__lexicon_index(kvf__lexicon *lex); /* fills chars and bytes, after the last token */
kvf_status kvf__lexicon_index_prefixes(kvf_ctx *ctx, const char *where,
                                       kvf__lexicon *lex); /* fills prefixes */
void kvf__lexicon_done(kvf__lexicon *lex);

#endif
