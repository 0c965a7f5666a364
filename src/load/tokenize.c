/* Texts to ids and back, with a base's tokenizer. */
#include "open_base.h"
#include "utf8.h"

kvf_status kvf_tokenize(kvf_ctx *ctx, const kvf_base *base, const char *text, size_t bytes,
                        bool special, int32_t **ids, size_t *n)
{
    KVF_TRY(KVF__NEED(ctx, base, text, ids, n));
    kvf__ids made = {0};
    KVF_TRY(kvf__utf8_check(ctx, "text", text, bytes, false));
    kvf_status st = kvf__encode(ctx, base->tokenizer, text, bytes, special, &made);
    if (st) {
        kvf__ids_done(&made);
        return st;
    }
    *ids = made.data; /* NULL for no ids */
    *n = made.n;
    return KVF_OK;
}

void kvf_ids_free(int32_t *ids)
{
    kvf__free(ids);
}

kvf_status kvf_detokenize(kvf_ctx *ctx, const kvf_base *base, const int32_t *ids, size_t n,
                          bool special, char **text, size_t *bytes)
{
    KVF_TRY(KVF__NEED(ctx, base, text));
    if (n) KVF_TRY(KVF__NEED(ctx, ids));
    const int64_t V = kvf__model_desc(base->model)->V;
    kvf__buf made = {0};
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= V)
            return kvf__fail(ctx, KVF_EUSAGE, "id %ld is outside the vocabulary of %lld",
                             (long)ids[i], (long long)V);
    kvf_status st = kvf__decode(ctx, base->tokenizer, ids, n, !special, &made);
    if (!st) st = kvf__buf_add(ctx, &made, "", 0); /* adds a NUL, also to an empty text */
    if (st) {
        kvf__buf_done(&made);
        return st;
    }
    *text = made.data;
    if (bytes) *bytes = made.n;
    return KVF_OK;
}

void kvf_string_free(char *text)
{
    kvf__free(text);
}
