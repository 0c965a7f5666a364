/* One completion on its way: its tokens, their text, what ends it, and how much of the text can be
 * shown already. Generation of files and the engine of the server share it, so that both end and
 * cut alike. */
#include "infer_int.h"

#include <string.h>

int32_t kvf__turn_end(const kvf_base *base, const kvf__chat *chat)
{
    if (chat->kind == KVF__CHAT_CHATML) return kvf__token_id(base->tokenizer, "<|im_end|>");
    if (chat->kind == KVF__CHAT_LLAMA3) return kvf__token_id(base->tokenizer, "<|eot_id|>");
    return -1;
}

/* Cuts the text at the earliest stop text; true if there was one. */
static bool cut_at_stop(kvf__answer *answer)
{
    kvf__buf *text = &answer->text;
    char *first = NULL;
    for (size_t i = 0; i < answer->n_stop && text->data; i++) {
        char *at = *answer->stop[i] ? strstr(text->data, answer->stop[i]) : NULL;
        if (at && (!first || at < first)) first = at;
    }
    if (!first) return false;
    *first = 0;
    text->n = (size_t)(first - text->data);
    return true;
}

static bool ends_row(const kvf_base *base, const kvf__answer *answer, int32_t token)
{
    return token == kvf__token_eos(base->tokenizer) || token == kvf__model_desc(base->model)->eos ||
           token == answer->turn_end;
}

kvf_status kvf__answer_add(kvf_ctx *ctx, const kvf_base *base, kvf__answer *answer, int32_t token)
{
    if (ends_row(base, answer, token)) {
        answer->finish = KVF__FINISH_STOP;
        return KVF_OK;
    }
    KVF_TRY(kvf__ids_add(ctx, &answer->out, token));
    answer->text.n = 0;
    KVF_TRY(
        kvf__decode(ctx, base->tokenizer, answer->out.data, answer->out.n, true, &answer->text));
    if (cut_at_stop(answer))
        answer->finish = KVF__FINISH_STOP;
    else if ((int64_t)answer->out.n >= answer->limit)
        answer->finish = KVF__FINISH_LENGTH;
    return KVF_OK;
}

/* Bytes of the text without U+FFFD at its end, which may be parts of a character to come. */
static size_t whole_characters(const kvf__buf *text)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    size_t n = text->n;
    for (int parts = 0; parts < 3 && n >= 3 && !memcmp(text->data + n - 3, replacement, 3); parts++)
        n -= 3;
    return n;
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
    size_t n = whole_characters(&answer->text), held = 0;
    for (size_t i = 0; i < answer->n_stop; i++) {
        size_t begun = begun_stop(answer->text.data, n, answer->stop[i]);
        if (begun > held) held = begun;
    }
    return n - held;
}

void kvf__answer_done(kvf__answer *answer)
{
    kvf__ids_done(&answer->out);
    kvf__buf_done(&answer->text);
}
