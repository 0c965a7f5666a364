/* Log-probabilities of tokens in the two forms of OpenAI's API: lists in a completion, entries in a
 * chat. A token is shown as the text that it adds, including a space before a word; a part of a
 * character is U+FFFD. Offsets count characters in the choice's text. */
#include "logprobs.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

/* Writes a token's text to *out, replacing its content. */
static kvf_status write_token(const kvf__tokenizer *tokenizer, int32_t id, kvf__buf *out)
{
    const int32_t twice[2] = {id, id};
    kvf__buf both = {0};
    out->n = 0;
    KVF_TRY(kvf__decode(NULL, tokenizer, twice, 1, false, out));
    kvf_status st = kvf__decode(NULL, tokenizer, twice, 2, false, &both);
    const size_t n = out->n;
    if (!st && both.n > n && !(n && memcmp(both.data, out->data, n))) {
        out->n = 0;
        st = kvf__buf_add(NULL, out, both.data + n, both.n - n);
    }
    if (!st) st = kvf__buf_add(NULL, out, "", 0); /* appends a NUL, which is not counted */
    kvf__buf_done(&both);
    return st;
}

/* ---- completions ----------------------------------------------------------------------------- */

/* The lists in a choice of a completion. */
typedef struct logprob_lists {
    const kvf__tokenizer *tokenizer;
    kvf_json *tokens, *values, *tops, *offsets;
    size_t chars; /* characters before the next token */
    kvf__buf text;
} logprob_lists;

/* Makes {text: value} of the likeliest tokens and the token itself; of tokens with equal text the
 * likeliest. */
static kvf_status top_object(logprob_lists *l, const kvf__token_scores *s, int64_t at,
                             kvf_json *object)
{
    const kvf_token_score *own = &s->token[at];
    for (int64_t i = 0; i <= s->n_top; i++) {
        const bool last = i == s->n_top;
        const kvf__candidate c = last ? (kvf__candidate){own->logprob, own->id}
                                      : s->top[at * s->n_top + i];
        if (c.id < 0) continue;
        KVF_TRY(write_token(l->tokenizer, c.id, &l->text));
        if (!kvf_json_get(object, l->text.data))
            kvf_json_set(object, l->text.data, kvf_json_new_real((double)c.logit));
    }
    return KVF_OK;
}

static kvf_status add_token(logprob_lists *l, const kvf__token_scores *s, int64_t at)
{
    const kvf_token_score *token = &s->token[at];
    kvf_json *top = isnan(token->logprob) ? kvf_json_new_null() : kvf_json_object();
    kvf_json_add(l->tops, top);
    if (!isnan(token->logprob)) KVF_TRY(top_object(l, s, at, top));
    KVF_TRY(write_token(l->tokenizer, token->id, &l->text));
    kvf_json_add(l->tokens, kvf_json_new_strn(l->text.data, l->text.n));
    kvf_json_add(l->values, kvf_json_new_real((double)token->logprob));
    kvf_json_add(l->offsets, kvf_json_new_int((int64_t)l->chars));
    l->chars += (size_t)kvf__utf8_count(l->text.data, l->text.n);
    return KVF_OK;
}

static kvf_json *completion_logprobs(const kvf__reply *reply, kvf__choice *choice)
{
    logprob_lists l = {.tokenizer = reply->tokenizer,
                       .tokens = kvf_json_array(),
                       .values = kvf_json_array(),
                       .tops = kvf_json_array(),
                       .offsets = kvf_json_array(),
                       .chars = choice->chars};
    kvf_status st = KVF_OK;
    if (choice->told < 0 && choice->echo)
        for (int64_t i = 0; i < choice->echo->scores.n && !st; i++)
            st = add_token(&l, &choice->echo->scores, i);
    if (choice->told < 0) choice->told = 0;
    for (; choice->told < choice->scores.n && !st; choice->told++)
        st = add_token(&l, &choice->scores, choice->told);
    choice->chars = l.chars;
    kvf__buf_done(&l.text);
    kvf_json *object = kvf__json_of("tokens:o token_logprobs:o top_logprobs:o text_offset:o",
                                    l.tokens, l.values, l.tops, l.offsets);
    if (!st) return object;
    kvf_json_free(object);
    return NULL;
}

/* ---- chats ----------------------------------------------------------------------------------- */

/* Makes {"token", "logprob", "bytes"}; bytes is null if the text is not exactly that of the token.
 */
static kvf_json *entry_of(const kvf__tokenizer *tokenizer, int32_t id, float logprob)
{
    kvf__buf text = {0};
    if (write_token(tokenizer, id, &text)) {
        kvf__buf_done(&text);
        return NULL;
    }
    kvf_json *bytes = strstr(text.data, "\xEF\xBF\xBD") ? kvf_json_new_null() : kvf_json_array();
    for (size_t i = 0; kvf_json_typeof(bytes) == KVF_JSON_ARRAY && i < text.n; i++)
        kvf_json_add(bytes, kvf_json_new_int((unsigned char)text.data[i]));
    kvf_json *entry = kvf__json_of("token:o logprob:f bytes:o",
                                   kvf_json_new_strn(text.data, text.n), (double)logprob, bytes);
    kvf__buf_done(&text);
    return entry;
}

static kvf_json *chat_logprobs(const kvf__reply *reply, kvf__choice *choice)
{
    const kvf__token_scores *s = &choice->scores;
    kvf_json *list = kvf_json_array();
    if (choice->told < 0) choice->told = 0;
    for (; choice->told < kvf__logprobs_count(reply, choice); choice->told++) {
        const kvf_token_score *token = &s->token[choice->told];
        kvf_json *entry = entry_of(reply->tokenizer, token->id, token->logprob);
        kvf_json *top = kvf_json_array();
        for (int64_t i = 0; i < s->n_top; i++) {
            const kvf__candidate *c = &s->top[choice->told * s->n_top + i];
            if (c->id >= 0) kvf_json_add(top, entry_of(reply->tokenizer, c->id, c->logit));
        }
        kvf_json_set(entry, "top_logprobs", top);
        kvf_json_add(list, entry);
    }
    return kvf__json_of("content:o refusal:o", list, kvf_json_new_null());
}

int64_t kvf__logprobs_count(const kvf__reply *reply, const kvf__choice *choice)
{
    const int64_t n = choice->scores.n;
    return reply->chat && choice->new_tokens < n ? choice->new_tokens : n;
}

kvf_json *kvf__logprobs_of(const kvf__reply *reply, kvf__choice *choice)
{
    return reply->chat ? chat_logprobs(reply, choice) : completion_logprobs(reply, choice);
}
