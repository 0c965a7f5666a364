/* The special tokens around one text or two.
 *
 * Every post-processor is reduced to two templates: lists of ids with holes for the texts, and the
 * token type of every item. */
#include "tok_int.h"

kvf_status kvf__template_add(kvf_ctx *ctx, kvf__post_template *to, int32_t item, int32_t type)
{
    KVF_TRY(kvf__ids_add(ctx, &to->items, item));
    return kvf__ids_add(ctx, &to->types, type);
}

void kvf__template_done(kvf__post_template *template)
{
    kvf__ids_done(&template->items);
    kvf__ids_done(&template->types);
}

static void clear(kvf__tokenizer *t)
{
    t->post.items.n = t->post.types.n = t->pair.items.n = t->pair.types.n = 0;
}

/* Appends a text, or the second of a pair, between two ids; -1: none. */
static kvf_status add_around(kvf_ctx *ctx, kvf__post_template *to, int32_t first, int32_t text,
                             int32_t last, int32_t type)
{
    if (first >= 0) KVF_TRY(kvf__template_add(ctx, to, first, type));
    KVF_TRY(kvf__template_add(ctx, to, text, type));
    return last >= 0 ? kvf__template_add(ctx, to, last, type) : KVF_OK;
}

/* In a pair, each text has its own BOS and EOS. */
kvf_status kvf__post_bos_eos(kvf_ctx *ctx, kvf__tokenizer *t, bool bos, bool eos)
{
    int32_t first = bos ? t->bos : -1, last = eos ? t->eos : -1;

    clear(t);
    KVF_TRY(add_around(ctx, &t->post, first, KVF__POST_TEXT, last, 0));
    KVF_TRY(add_around(ctx, &t->pair, first, KVF__POST_TEXT, last, 0));
    return add_around(ctx, &t->pair, first, KVF__POST_PAIR, last, 1);
}

kvf_status kvf__post_bare(kvf_ctx *ctx, kvf__tokenizer *t)
{
    return kvf__post_bos_eos(ctx, t, false, false);
}

/* RoBERTa puts two separators between texts and has only one type. */
kvf_status kvf__post_cls_sep(kvf_ctx *ctx, kvf__tokenizer *t, int32_t cls, int32_t sep,
                             bool roberta)
{
    clear(t);
    KVF_TRY(add_around(ctx, &t->post, cls, KVF__POST_TEXT, sep, 0));
    KVF_TRY(add_around(ctx, &t->pair, cls, KVF__POST_TEXT, sep, 0));
    return add_around(ctx, &t->pair, roberta ? sep : -1, KVF__POST_PAIR, sep, roberta ? 0 : 1);
}

/* Appends the ids of one text, with the type of its item. */
static kvf_status put_text(kvf_ctx *ctx, const kvf__ids *text, int32_t type, kvf__ids *ids,
                           kvf__ids *types)
{
    KVF_TRY(kvf__ids_append(ctx, ids, text->data, text->n));
    for (size_t i = 0; types && i < text->n; i++)
        KVF_TRY(kvf__ids_add(ctx, types, type));
    return KVF_OK;
}

static kvf_status fill(kvf_ctx *ctx, const kvf__post_template *how, const kvf__ids *a,
                       const kvf__ids *b, kvf__ids *ids, kvf__ids *types, size_t at[2])
{
    for (size_t i = 0; i < how->items.n; i++) {
        int32_t item = how->items.data[i], type = how->types.data[i];
        bool second = item == KVF__POST_PAIR;

        if (item >= 0) {
            KVF_TRY(kvf__ids_add(ctx, ids, item));
            if (types) KVF_TRY(kvf__ids_add(ctx, types, type));
            continue;
        }
        at[second] = ids->n;
        KVF_TRY(put_text(ctx, second ? b : a, type, ids, types));
    }
    return KVF_OK;
}

kvf_status kvf__add_specials(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const kvf__ids *a,
                             const kvf__ids *b, kvf__ids *ids, kvf__ids *types, size_t *a_at,
                             size_t *b_at)
{
    const kvf__post_template *how = b ? &tokenizer->pair : &tokenizer->post;
    size_t ids_n = ids->n, types_n = types ? types->n : 0, at[2] = {ids_n, ids_n};
    kvf_status st = fill(ctx, how, a, b, ids, types, at);

    if (st) {
        ids->n = ids_n;
        if (types) types->n = types_n;
        return st;
    }
    if (a_at) *a_at = at[0];
    if (b_at && b) *b_at = at[1];
    return KVF_OK;
}

size_t kvf__specials_cost(const kvf__tokenizer *tokenizer, bool pair)
{
    const kvf__ids *items = pair ? &tokenizer->pair.items : &tokenizer->post.items;
    size_t n = 0;

    for (size_t i = 0; i < items->n; i++)
        n += items->data[i] >= 0;
    return n;
}
