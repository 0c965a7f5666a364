/* Converts sampled tokens to text, and ends it at a stop text, an end token or the limit. Text is
 * released only once no later token can change it: bytes of an unfinished character and the start
 * of a stop text are held back. */
#include "completion.h"

#include <string.h>

kvf__ends kvf__completion_ends(const kvf_base *base, const kvf_prefix *prefix,
                               const kvf__chat *chat)
{
    kvf__ends ends = kvf__model_desc(base->model)->ids.ends;
    if (!ends.n || prefix) kvf__ends_add(&ends, kvf__token_eos(base->tokenizer));
    if (kvf__chat_end(chat))
        kvf__ends_add(&ends, kvf__token_id(base->tokenizer, kvf__chat_end(chat)));
    return ends;
}

int32_t kvf__completion_forced(const kvf_base *base, int64_t n)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    return d->encoder && !n ? d->ids.forced : -1;
}

/* Cuts the text at the earliest new stop text; returns true if there was one. The first `changed`
 * bytes are the same as in the last call. */
static bool cut_at_stop(kvf__completion *c, size_t changed)
{
    kvf__buf *text = &c->text;
    char *first = NULL;
    for (size_t i = 0; i < c->n_stop && text->n; i++) {
        const char *stop = c->stop[i];
        const size_t n = strlen(stop), from = changed > n ? changed - n : 0;
        char *at = n ? memmem(text->data + from, text->n - from, stop, n) : NULL;
        if (at && (!first || at < first)) first = at;
    }
    if (!first) return false;
    *first = 0;
    text->n = (size_t)(first - text->data);
    return true;
}

/* Ends the text: held-back bytes of an unfinished character are kept as they are. */
static kvf_status end_text(kvf_ctx *ctx, kvf__completion *c, kvf__finish finish)
{
    kvf__grown grown;
    if (c->decoding) {
        KVF_TRY(kvf__decoding_end(ctx, c->decoding, &c->text, &grown));
        if (cut_at_stop(c, grown.changed)) finish = KVF__FINISH_STOP;
    }
    c->finish = finish;
    return KVF_OK;
}

static kvf_status add(kvf_ctx *ctx, const kvf_base *base, kvf__completion *c, int32_t token)
{
    kvf__grown grown;
    if (kvf__ends_has(c->ends, token)) return end_text(ctx, c, KVF__FINISH_STOP);
    KVF_TRY(kvf__ids_add(ctx, &c->out, token));
    if (!c->decoding) KVF_TRY(kvf__decoding_create(ctx, base->tokenizer, true, &c->decoding));
    KVF_TRY(kvf__decoding_add(ctx, c->decoding, token, &c->text, &grown));
    c->settled = grown.settled;
    if (cut_at_stop(c, grown.changed))
        c->finish = KVF__FINISH_STOP;
    else if ((int64_t)c->out.n >= c->limit)
        return end_text(ctx, c, KVF__FINISH_LENGTH);
    return KVF_OK;
}

kvf_status kvf__completion_add(kvf_ctx *ctx, const kvf_base *base, kvf__completion *c,
                               int32_t token)
{
    KVF_TRY(add(ctx, base, c, token));
    if (!c->finish) return KVF_OK;
    kvf__decoding_free(c->decoding);
    c->decoding = NULL;
    return KVF_OK;
}

/* Returns the number of bytes at the end of text [n] that begin a stop text. */
static size_t begun_stop(const char *text, size_t n, const char *stop)
{
    size_t most = strlen(stop);
    most = most ? most - 1 : 0; /* a complete stop text was cut already */
    for (size_t k = most < n ? most : n; k > 0; k--)
        if (!memcmp(text + n - k, stop, k)) return k;
    return 0;
}

size_t kvf__completion_ready(const kvf__completion *c)
{
    if (c->finish) return c->text.n;
    size_t n = c->settled, longest = 0;
    for (size_t i = 0; i < c->n_stop; i++) {
        size_t begun = begun_stop(c->text.data, n, c->stop[i]);
        if (begun > longest) longest = begun;
    }
    return n - longest;
}

void kvf__completion_done(kvf__completion *c)
{
    kvf__decoding_free(c->decoding);
    kvf__ids_done(&c->out);
    kvf__buf_done(&c->text);
}
