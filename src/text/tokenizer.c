/* The tokenizer object: made empty, filled by a reader of some format, finished, then only asked.
 */
#include "tok_int.h"

#include <string.h>

kvf_status kvf__tokenizer_create(kvf_ctx *ctx, kvf__tokenizer **out)
{
    kvf__tokenizer *t = NULL;

    KVF_TRY(kvf__alloc(ctx, sizeof *t, &t));
    kvf__lexicon_init(&t->lex);
    t->bos = t->eos = t->model.unk = -1;
    *out = t;
    return KVF_OK;
}

/* The text that a normalised added token is matched by: its own, normalised. */
static kvf_status index_normalized(kvf__work *w, kvf__added_list *list, size_t i)
{
    KVF_TRY(kvf__normalize(w, list->v[i].text, list->v[i].n, false));
    return kvf__trie_add(w->ctx, &list->normal, w->normal.data, w->normal.n, (int32_t)i);
}

/* Special tokens go first: of two with equal normalised texts they win. */
static kvf_status index_added(kvf_ctx *ctx, kvf__tokenizer *t)
{
    kvf__work w = {.ctx = ctx, .t = t};
    kvf_status st = KVF_OK;

    for (int special = 1; special >= 0 && !st; special--)
        for (size_t i = 0; i < t->added.n && !st; i++) {
            const kvf__added *token = &t->added.v[i];
            if (token->special != (special == 1)) continue;
            if (token->normalized)
                st = index_normalized(&w, &t->added, i);
            else
                st = kvf__trie_add(ctx, &t->added.raw, token->text, token->n, (int32_t)i);
        }
    kvf__work_done(&w);
    return st;
}

kvf_status kvf__tokenizer_finish(kvf_ctx *ctx, kvf__tokenizer *t)
{
    kvf__lexicon_index(&t->lex);
    for (unsigned byte = 0; byte < 256; byte++)
        if (t->lex.bytes[byte] >= 0 && (t->model.byte_fallback || t->model.by_score))
            t->lex.v[t->lex.bytes[byte]].flags |= KVF__TOK_BYTE;
    if (t->model.unk >= 0) t->lex.v[t->model.unk].flags |= KVF__TOK_UNKNOWN;
    if (t->post.n == 0) KVF_TRY(kvf__ids_add(ctx, &t->post, KVF__POST_TEXT));
    return index_added(ctx, t);
}

kvf_status kvf__post_bos_eos(kvf_ctx *ctx, kvf__tokenizer *t, bool bos, bool eos)
{
    t->post.n = 0;
    if (bos && t->bos >= 0) KVF_TRY(kvf__ids_add(ctx, &t->post, t->bos));
    KVF_TRY(kvf__ids_add(ctx, &t->post, KVF__POST_TEXT));
    if (eos && t->eos >= 0) KVF_TRY(kvf__ids_add(ctx, &t->post, t->eos));
    return KVF_OK;
}

void kvf__tokenizer_free(kvf__tokenizer *tokenizer)
{
    if (!tokenizer) return;
    kvf__lexicon_done(&tokenizer->lex);
    kvf__added_done(&tokenizer->added);
    kvf__steps_done(&tokenizer->normalizer);
    kvf__steps_done(&tokenizer->pre);
    kvf__steps_done(&tokenizer->decoder);
    kvf__free(tokenizer->model.pairs.v);
    kvf__free(tokenizer->model.scores);
    kvf__free(tokenizer->model.prefix);
    kvf__free(tokenizer->model.suffix);
    kvf__ids_done(&tokenizer->post);
    kvf__free(tokenizer->chat_template);
    kvf__free(tokenizer);
}

int32_t kvf__vocab_size(const kvf__tokenizer *tokenizer)
{
    return (int32_t)tokenizer->lex.n;
}

int32_t kvf__token_bos(const kvf__tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t kvf__token_eos(const kvf__tokenizer *tokenizer)
{
    return tokenizer->eos;
}

bool kvf__adds_bos(const kvf__tokenizer *tokenizer)
{
    return tokenizer->bos >= 0 && tokenizer->post.data[0] == tokenizer->bos;
}

void kvf__tokenizer_set_eos(kvf__tokenizer *tokenizer, int32_t eos)
{
    tokenizer->eos = eos;
}

void kvf__tokenizer_set_bos(kvf__tokenizer *tokenizer, int32_t bos)
{
    tokenizer->bos = bos;
}

int32_t kvf__token_id(const kvf__tokenizer *tokenizer, const char *token)
{
    return kvf__lexicon_find(&tokenizer->lex, token, strlen(token));
}

static uint32_t flags_of(const kvf__tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->lex.n ? t->lex.v[id].flags : 0;
}

const char *kvf__token_text(const kvf__tokenizer *tokenizer, int32_t id)
{
    if (!(flags_of(tokenizer, id) & KVF__TOK_PRESENT)) return NULL;
    return tokenizer->lex.text.data + tokenizer->lex.v[id].at;
}

bool kvf__token_is_special(const kvf__tokenizer *tokenizer, int32_t id)
{
    return (flags_of(tokenizer, id) & KVF__TOK_SPECIAL) != 0;
}

bool kvf__token_is_ordinary(const kvf__tokenizer *tokenizer, int32_t id)
{
    return flags_of(tokenizer, id) == KVF__TOK_PRESENT;
}

const char *kvf__tokenizer_chat_template(const kvf__tokenizer *tokenizer)
{
    return tokenizer->chat_template;
}
