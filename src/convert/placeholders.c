/* Chooses the ids that stand for a prefix in an engine's prompts (export.h). They are special
 * tokens that are always tokenized to one id and that the base's chats do not use. Their order
 * depends on the values of the prefix, so that prefixes of one base are not confused: an engine
 * looks for the cache whose ids a prompt begins with. */
#include "export.h"
#include "hash.h"

#include <string.h>

/* True for a text that is not part of a template's language or chats. */
static bool is_neutral(const kvf__llama_export *e, const char *text)
{
    return *text && !strpbrk(text, "{}%# \t\r\n\"\\") &&
           !(e->template && strstr(e->template, text));
}

static kvf_status collect(kvf_ctx *ctx, const kvf__llama_export *e, kvf__ids *out)
{
    const kvf__tokenizer *t = e->base->tokenizer;
    const int32_t bos = kvf__token_bos(t), eos = kvf__token_eos(t);

    for (int32_t id = 0; id < kvf__vocab_size(t); id++)
        if (kvf__token_is_special(t, id) && id != bos && id != eos &&
            is_neutral(e, kvf__token_text(t, id)))
            KVF_TRY(kvf__ids_add(ctx, out, id));
    if (!out->n && bos >= 0) return kvf__ids_add(ctx, out, bos);
    if (!out->n && eos >= 0) return kvf__ids_add(ctx, out, eos);
    return KVF_OK;
}

static kvf_status fingerprint(kvf_ctx *ctx, const kvf__prefix *prefix, char hex[33])
{
    kvf__hash *hash = NULL;

    KVF_TRY(kvf__hash_create(ctx, &hash));
    kvf__hash_add(hash, prefix->kv, kvf__prefix_count(prefix) * sizeof *prefix->kv);
    kvf__hash_hex(hash, hex);
    kvf__hash_free(hash);
    return KVF_OK;
}

/* Chooses a token for each digit of the fingerprint. */
static kvf_status choose(kvf_ctx *ctx, kvf__llama_export *e, const kvf__ids *among, const char *hex)
{
    const kvf__tokenizer *t = e->base->tokenizer;
    const bool bos = kvf__adds_bos(t);

    if (bos) KVF_TRY(kvf__ids_add(ctx, &e->ids, kvf__token_bos(t)));
    for (int64_t p = bos; p < e->prefix->file.id.P; p++) {
        const char digit = hex[p % 32];
        const size_t number = (size_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
        const int32_t id = among->data[number % among->n];
        const char *text = kvf__token_text(t, id);
        KVF_TRY(kvf__ids_add(ctx, &e->ids, id));
        KVF_TRY(kvf__buf_add(ctx, &e->text, text, strlen(text)));
    }
    return KVF_OK;
}

/* Checks that the text is tokenized to these ids in a chat. */
static kvf_status check_text(kvf_ctx *ctx, const kvf__llama_export *e)
{
    const size_t first = kvf__adds_bos(e->base->tokenizer);
    kvf__ids ids = {0};

    kvf_status st = kvf__encode(ctx, e->base->tokenizer, e->text.data ? e->text.data : "",
                                e->text.n, false, &ids);
    if (!st && (ids.n != e->ids.n - first ||
                memcmp(ids.data, e->ids.data + first, ids.n * sizeof *ids.data) != 0))
        st = kvf__fail(ctx, KVF_EUNSUPPORTED,
                       "%s: the tokenizer does not encode each of its special tokens as one id",
                       e->base->path);
    kvf__ids_done(&ids);
    return st;
}

kvf_status kvf__placeholders(kvf_ctx *ctx, kvf__llama_export *export)
{
    kvf__ids among = {0};
    char hex[33];

    kvf_status st = collect(ctx, export, &among);
    if (!st && !among.n)
        st = kvf__fail(ctx, KVF_EUNSUPPORTED,
                       "%s: has no special token that could serve as a placeholder for the prefix",
                       export->base->path);
    if (!st) st = fingerprint(ctx, &export->prefix->file.prefix, hex);
    if (!st) st = choose(ctx, export, &among, hex);
    if (!st) st = check_text(ctx, export);
    kvf__ids_done(&among);
    return st;
}
