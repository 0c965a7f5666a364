/* One completion on its way: its tokens, their text, what ends it, and how much of the text can be
 * shown already. Generation of files and the engine of the server share it, so that both end and
 * cut alike. */
#include "infer_int.h"

#include <string.h>

kvf__ends kvf__answer_ends(const kvf_base *base, const kvf_prefix *prefix, const kvf__chat *chat)
{
    kvf__ends ends = kvf__model_desc(base->model)->ends;
    if (!ends.n || prefix) kvf__ends_add(&ends, kvf__token_eos(base->tokenizer));
    if (chat->kind == KVF__CHAT_CHATML)
        kvf__ends_add(&ends, kvf__token_id(base->tokenizer, "<|im_end|>"));
    if (chat->kind == KVF__CHAT_LLAMA3)
        kvf__ends_add(&ends, kvf__token_id(base->tokenizer, "<|eot_id|>"));
    return ends;
}

/* Cuts the text at the earliest stop text that was not there before; true if there was one.
 * changed: of the text stands as it was before. */
static bool cut_at_stop(kvf__answer *answer, size_t changed)
{
    kvf__buf *text = &answer->text;
    char *first = NULL;
    for (size_t i = 0; i < answer->n_stop && text->n; i++) {
        const char *stop = answer->stop[i];
        const size_t n = strlen(stop), from = changed > n ? changed - n : 0;
        char *at = n ? memmem(text->data + from, text->n - from, stop, n) : NULL;
        if (at && (!first || at < first)) first = at;
    }
    if (!first) return false;
    *first = 0;
    text->n = (size_t)(first - text->data);
    return true;
}

/* No more tokens come: bytes that may still have become a character are told as they are. */
static kvf_status end_text(kvf_ctx *ctx, kvf__answer *answer, kvf__finish finish)
{
    kvf__grown grown;
    if (answer->decoding) {
        KVF_TRY(kvf__decoding_end(ctx, answer->decoding, &answer->text, &grown));
        if (cut_at_stop(answer, grown.changed)) finish = KVF__FINISH_STOP;
    }
    answer->finish = finish;
    return KVF_OK;
}

static kvf_status add(kvf_ctx *ctx, const kvf_base *base, kvf__answer *answer, int32_t token)
{
    kvf__grown grown;
    if (kvf__ends_has(answer->ends, token)) return end_text(ctx, answer, KVF__FINISH_STOP);
    KVF_TRY(kvf__ids_add(ctx, &answer->out, token));
    if (!answer->decoding)
        KVF_TRY(kvf__decoding_create(ctx, base->tokenizer, true, &answer->decoding));
    KVF_TRY(kvf__decoding_add(ctx, answer->decoding, token, &answer->text, &grown));
    answer->settled = grown.settled;
    if (cut_at_stop(answer, grown.changed))
        answer->finish = KVF__FINISH_STOP;
    else if ((int64_t)answer->out.n >= answer->limit)
        return end_text(ctx, answer, KVF__FINISH_LENGTH);
    return KVF_OK;
}

kvf_status kvf__answer_add(kvf_ctx *ctx, const kvf_base *base, kvf__answer *answer, int32_t token)
{
    KVF_TRY(add(ctx, base, answer, token));
    if (!answer->finish) return KVF_OK;
    kvf__decoding_free(answer->decoding);
    answer->decoding = NULL;
    return KVF_OK;
}

/* Bytes at the end of text [n] that a stop text begins with. */
static size_t begun_stop(const char *text, size_t n, const char *stop)
{
    size_t most = strlen(stop);
    most = most ? most - 1 : 0; /* a whole one was cut */
    for (size_t k = most < n ? most : n; k > 0; k--)
        if (!memcmp(text + n - k, stop, k)) return k;
    return 0;
}

size_t kvf__answer_ready(const kvf__answer *answer)
{
    if (answer->finish) return answer->text.n;
    size_t n = answer->settled, held = 0;
    for (size_t i = 0; i < answer->n_stop; i++) {
        size_t begun = begun_stop(answer->text.data, n, answer->stop[i]);
        if (begun > held) held = begun;
    }
    return n - held;
}

void kvf__answer_done(kvf__answer *answer)
{
    kvf__decoding_free(answer->decoding);
    kvf__ids_done(&answer->out);
    kvf__buf_done(&answer->text);
}
