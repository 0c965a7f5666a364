/* Token texts and ids, both ways.
 *
 * There are two maps from text to id, because the model must not see added tokens outside its own
 * vocabulary, as in `tokenizers`. Byte-level text consists of characters below U+0180, so their ids
 * are in a plain array. */
#include "lexicon.h"
#include "utf8.h"

#include <string.h>

void kvf__lexicon_init(kvf__lexicon *lex)
{
    memset(lex->chars, 0xFF, sizeof lex->chars); /* fills with -1 */
    memset(lex->bytes, 0xFF, sizeof lex->bytes);
}

/* Adds entries for all ids up to this one. */
static kvf_status reach(kvf_ctx *ctx, kvf__lexicon *lex, size_t id)
{
    size_t was = lex->cap;

    KVF_TRY(kvf__reserve(ctx, &lex->v, &lex->cap, id + 1, sizeof *lex->v));
    memset(lex->v + was, 0, (lex->cap - was) * sizeof *lex->v);
    if (id >= lex->n) lex->n = id + 1;
    return KVF_OK;
}

kvf_status kvf__lexicon_put(kvf_ctx *ctx, kvf__lexicon *lex, const char *where, const char *text,
                            size_t n, int64_t id, uint32_t flags, bool added)
{
    size_t at = lex->text.n;

    if (id < 0 || id >= KVF__MAX_TOKEN_ID)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: token \"%.*s\" has id %lld, want 0 to %d", where,
                         (int)(n < 60 ? n : 60), text, (long long)id, KVF__MAX_TOKEN_ID - 1);
    KVF_TRY(reach(ctx, lex, (size_t)id));
    KVF_TRY(kvf__map_put(ctx, added ? &lex->added : &lex->model, text, n, id));
    struct kvf__token *token = &lex->v[id];
    token->flags |= flags | KVF__TOK_PRESENT;
    if (!added && n > lex->longest) lex->longest = n;
    if (token->n == n && n > 0 && memcmp(lex->text.data + token->at, text, n) == 0) return KVF_OK;
    if (n > UINT32_MAX)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: token %lld is too long", where, (long long)id);
    KVF_TRY(kvf__buf_add(ctx, &lex->text, text, n));
    KVF_TRY(kvf__buf_addc(ctx, &lex->text, '\0'));
    token->at = at;
    token->n = (uint32_t)n;
    return KVF_OK;
}

int32_t kvf__lexicon_model(const kvf__lexicon *lex, const char *text, size_t n)
{
    int64_t id;
    return n <= lex->longest && kvf__map_get(&lex->model, text, n, &id) ? (int32_t)id : -1;
}

int32_t kvf__lexicon_find(const kvf__lexicon *lex, const char *text, size_t n)
{
    int64_t id;
    return kvf__map_get(&lex->added, text, n, &id) ? (int32_t)id : kvf__lexicon_model(lex, text, n);
}

void kvf__lexicon_index(kvf__lexicon *lex)
{
    char text[8];

    for (uint32_t cp = 0; cp < KVF__DIRECT_CHARS; cp++)
        lex->chars[cp] = kvf__lexicon_model(lex, text, kvf__utf8_put(text, cp));
    for (unsigned byte = 0; byte < 256; byte++) {
        snprintf(text, sizeof text, "<0x%02X>", byte);
        lex->bytes[byte] = kvf__lexicon_model(lex, text, 6);
    }
}

kvf_status kvf__lexicon_index_prefixes(kvf_ctx *ctx, const char *where, kvf__lexicon *lex)
{
    for (size_t id = 0; id < lex->n; id++) {
        const struct kvf__token *token = &lex->v[id];
        const char *text = lex->text.data + token->at;
        if (token->flags & KVF__TOK_PRESENT &&
            kvf__lexicon_model(lex, text, token->n) == (int32_t)id)
            KVF_TRY(kvf__prefixes_add(ctx, &lex->prefixes, where, text, token->n, (int32_t)id));
    }
    kvf__prefixes_sort(&lex->prefixes);
    return KVF_OK;
}

void kvf__lexicon_done(kvf__lexicon *lex)
{
    kvf__prefixes_done(&lex->prefixes);
    kvf__map_done(&lex->model);
    kvf__map_done(&lex->added);
    kvf__buf_done(&lex->text);
    kvf__free(lex->v);
    *lex = (kvf__lexicon){0};
}
