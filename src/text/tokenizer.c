/* The tokenizer object: created empty, filled by a format's reader, then finished and read-only. */
#include "tok_work.h"

#include <string.h>

kvf_status kvf__tokenizer_create(kvf_ctx *ctx, kvf__tokenizer **out)
{
    kvf__tokenizer *t = NULL;

    KVF_TRY(kvf__alloc(ctx, sizeof *t, &t));
    kvf__lexicon_init(&t->lex);
    t->bos = t->eos = t->pad = t->cls = t->mask = t->model.unk = -1;
    *out = t;
    return KVF_OK;
}

kvf_status kvf__add_token(kvf_ctx *ctx, kvf__tokenizer *t, const char *where, kvf__added *token,
                          int64_t id)
{
    KVF_TRY(kvf__lexicon_put(ctx, &t->lex, where, token->text, token->n, id,
                             token->special ? KVF__TOK_SPECIAL : 0, true));
    token->id = (int32_t)id;
    return kvf__added_put(ctx, &t->added, token);
}

/* Indexes a normalised added token by its normalised text. */
static kvf_status index_normalized(kvf__work *w, const char *where, kvf__added_list *list, size_t i)
{
    const kvf__traced text = {.buf = {.data = list->v[i].text, .n = list->v[i].n}};

    KVF_TRY(kvf__normalize(w, &text, 0, text.buf.n, false));
    return kvf__prefixes_add(w->ctx, &list->normal, where, w->normal.buf.data, w->normal.buf.n,
                             (int32_t)i);
}

/* Special tokens come first: they win over others with equal normalised text. */
static kvf_status index_added(kvf_ctx *ctx, const char *where, kvf__tokenizer *t)
{
    kvf__work w = {.ctx = ctx, .t = t};
    kvf_status st = KVF_OK;

    for (int special = 1; special >= 0 && !st; special--)
        for (size_t i = 0; i < t->added.n && !st; i++) {
            const kvf__added *token = &t->added.v[i];
            if (token->special != (special == 1)) continue;
            if (token->normalized)
                st = index_normalized(&w, where, &t->added, i);
            else
                st = kvf__prefixes_add(ctx, &t->added.raw, where, token->text, token->n,
                                       (int32_t)i);
        }
    kvf__prefixes_sort(&t->added.raw);
    kvf__prefixes_sort(&t->added.normal);
    kvf__work_done(&w);
    return st;
}

/* Finds CLS and MASK by BERT's and RoBERTa's names if no file names them. */
static void find_cls_mask(kvf__tokenizer *t)
{
    if (t->cls < 0) t->cls = kvf__token_id(t, "[CLS]");
    if (t->mask < 0) t->mask = kvf__token_id(t, "[MASK]");
    if (t->mask < 0 && kvf__token_is_special(t, kvf__token_id(t, "<mask>")))
        t->mask = kvf__token_id(t, "<mask>");
}

kvf_status kvf__tokenizer_finish(kvf_ctx *ctx, const char *where, kvf__tokenizer *t)
{
    kvf__lexicon_index(&t->lex);
    if (t->model.kind == KVF__MODEL_UNIGRAM || t->model.kind == KVF__MODEL_WORDPIECE)
        KVF_TRY(kvf__lexicon_index_prefixes(ctx, where, &t->lex));
    for (unsigned byte = 0; byte < 256; byte++)
        if (t->lex.bytes[byte] >= 0 &&
            (t->model.byte_fallback || t->model.kind == KVF__MODEL_SCORES))
            t->lex.v[t->lex.bytes[byte]].flags |= KVF__TOK_BYTE;
    if (t->model.unk >= 0) t->lex.v[t->model.unk].flags |= KVF__TOK_UNKNOWN;
    if (t->post.items.n == 0) KVF_TRY(kvf__post_bare(ctx, t));
    find_cls_mask(t);
    return index_added(ctx, where, t);
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
    kvf__template_done(&tokenizer->post);
    kvf__template_done(&tokenizer->pair);
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

int32_t kvf__token_pad(const kvf__tokenizer *tokenizer)
{
    return tokenizer->pad;
}

bool kvf__adds_bos(const kvf__tokenizer *tokenizer)
{
    return tokenizer->bos >= 0 && tokenizer->post.items.data[0] == tokenizer->bos;
}

int32_t kvf__token_mask(const kvf__tokenizer *tokenizer)
{
    return tokenizer->mask;
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
