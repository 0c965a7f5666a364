/* The special tokens around one text or two.
 *
 * A post-processor of any kind comes to two templates: lists of ids with holes for the texts, and
 * the token type of every place. */
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

kvf_status kvf__post_bare(kvf_ctx *ctx, kvf__tokenizer *t)
{
    t->post.items.n = t->post.types.n = t->pair.items.n = t->pair.types.n = 0;
    KVF_TRY(kvf__template_add(ctx, &t->post, KVF__POST_TEXT, 0));
    KVF_TRY(kvf__template_add(ctx, &t->pair, KVF__POST_TEXT, 0));
    return kvf__template_add(ctx, &t->pair, KVF__POST_PAIR, 1);
}

/* Each text of a pair has its own. */
kvf_status kvf__post_bos_eos(kvf_ctx *ctx, kvf__tokenizer *t, bool bos, bool eos)
{
    bos = bos && t->bos >= 0;
    eos = eos && t->eos >= 0;
    t->post.items.n = t->post.types.n = t->pair.items.n = t->pair.types.n = 0;
    if (bos) KVF_TRY(kvf__template_add(ctx, &t->post, t->bos, 0));
    KVF_TRY(kvf__template_add(ctx, &t->post, KVF__POST_TEXT, 0));
    if (eos) KVF_TRY(kvf__template_add(ctx, &t->post, t->eos, 0));
    for (int32_t type = 0; type < 2; type++) {
        if (bos) KVF_TRY(kvf__template_add(ctx, &t->pair, t->bos, type));
        KVF_TRY(kvf__template_add(ctx, &t->pair, type ? KVF__POST_PAIR : KVF__POST_TEXT, type));
        if (eos) KVF_TRY(kvf__template_add(ctx, &t->pair, t->eos, type));
    }
    return KVF_OK;
}

kvf_status kvf__post_cls_sep(kvf_ctx *ctx, kvf__tokenizer *t, int32_t cls, int32_t sep,
                             bool roberta)
{
    int32_t second = roberta ? 0 : 1; /* RoBERTa knows one type only */

    t->post.items.n = t->post.types.n = t->pair.items.n = t->pair.types.n = 0;
    KVF_TRY(kvf__template_add(ctx, &t->post, cls, 0));
    KVF_TRY(kvf__template_add(ctx, &t->post, KVF__POST_TEXT, 0));
    KVF_TRY(kvf__template_add(ctx, &t->post, sep, 0));
    KVF_TRY(kvf__template_add(ctx, &t->pair, cls, 0));
    KVF_TRY(kvf__template_add(ctx, &t->pair, KVF__POST_TEXT, 0));
    KVF_TRY(kvf__template_add(ctx, &t->pair, sep, 0));
    if (roberta) KVF_TRY(kvf__template_add(ctx, &t->pair, sep, 0));
    KVF_TRY(kvf__template_add(ctx, &t->pair, KVF__POST_PAIR, second));
    return kvf__template_add(ctx, &t->pair, sep, second);
}

/* One text: its ids, each of the type of its place. */
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
