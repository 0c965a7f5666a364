/* Replies in the form of OpenAI's API, appended to a buffer (reply.c). */
#ifndef KVF_REPLY_H
#define KVF_REPLY_H

#include "access.h"
#include "completion.h"
#include "prefix_cache.h"
#include "request.h"
#include "score.h"

/* Common members of all objects of a reply. */
typedef struct kvf__reply {
    bool chat;
    int64_t id, created; /* number of the request; seconds since 1970 */
    const char *model;
    int64_t prompt_tokens, new_tokens;
    int64_t cached_tokens;           /* prompt tokens from the cache; -1: there is none */
    const kvf__tokenizer *tokenizer; /* tokenizer for log-probabilities; NULL: not requested */
} kvf__reply;
/* An echoed prompt. */
typedef struct kvf__echo {
    kvf__buf text;
    kvf__token_scores scores; /* [n ids] scores; the first is NaN */
} kvf__echo;
/* One of the requested completions. */
typedef struct kvf__choice {
    struct kvf__job *job;
    int64_t index, row, new_tokens;
    int64_t cached; /* prompt tokens from the cache */
    kvf__buf text;  /* text so far; not kept by streams */
    kvf__finish finish;
    kvf__echo *echo;          /* NULL: none */
    kvf__token_scores scores; /* scores of its tokens so far, if requested */
    int64_t told;             /* streams: tokens whose scores were sent; -1: also no echo */
    size_t chars;             /* streams: characters of text before the next token */
} kvf__choice;
kvf_status kvf__reply_whole(const kvf__reply *reply, kvf__choice *choices, int64_t n,
                            kvf__buf *out);
/* Append the events of a stream. kvf__reply_begin: start of a choice, with the role in chats, and
 * the echo. kvf__reply_text: new text, and the end of the choice if it has finished.
 * kvf__reply_close: end of the stream, preceded by the counts if `usage`. */
kvf_status kvf__reply_begin(const kvf__reply *reply, kvf__choice *choice, kvf__buf *out);
kvf_status kvf__reply_text(const kvf__reply *reply, kvf__choice *choice, const char *text, size_t n,
                           kvf__buf *out);
kvf_status kvf__reply_close(const kvf__reply *reply, bool usage, kvf__buf *out);
/* Replies to a classification; takes over `answers`. */
kvf_status kvf__reply_classes(const kvf__reply *reply, const char *task, kvf_json *answers,
                              kvf__buf *out);
/* Appends an error object as a complete body or as an event. */
kvf_status kvf__reply_problem(const kvf__problem *problem, bool event, kvf__buf *out);
/* Replies with the tokens of a text, in a row of at most `most`, with their texts if tokenizer is
 * not NULL; the text of tokens; the tokenizer. (The last three in the form of vLLM's API.) */
kvf_status kvf__reply_tokens(const kvf__ids *ids, int64_t most, const kvf__tokenizer *tokenizer,
                             kvf__buf *out);
kvf_status kvf__reply_detokenized(const kvf__buf *text, kvf__buf *out);
kvf_status kvf__reply_tokenizer(const kvf__tokenizer *tokenizer, kvf__buf *out);
/* Replies with a model, or with up to `most` models of a tenant after a name, with facts of the
 * files that were read. Releases the model. */
kvf_status kvf__reply_model(kvf__prefix_cache *cache, kvf__listed *model, int64_t created,
                            kvf__buf *out);
kvf_status kvf__reply_models(kvf__prefix_cache *cache, const kvf__tenant *tenant, const char *after,
                             int64_t most, int64_t created, kvf__buf *out);

#endif
