/* Replies in the form of OpenAI's API (reply.c), appended to a buffer. */
#ifndef KVF_REPLY_H
#define KVF_REPLY_H

#include "completion.h"
#include "prefix_cache.h"
#include "request.h"
#include "score.h"

/* What all objects of a reply have in common. */
typedef struct kvf__reply {
    bool chat;
    int64_t id, created; /* number of the request; seconds since 1970 */
    const char *model;
    int64_t prompt_tokens, new_tokens;
    const kvf__tokenizer *tokenizer; /* of log-probabilities; NULL: none are wanted */
} kvf__reply;
/* A prompt as an answer repeats it (echo). */
typedef struct kvf__echo {
    kvf__buf text;
    kvf__token_scores scores; /* [n ids], the first without a log-probability (NaN) */
} kvf__echo;
/* One of the completions that a request asks for. */
typedef struct kvf__choice {
    struct kvf__job *job;
    int64_t index, row, new_tokens;
    kvf__buf text; /* so far; streams do not keep it */
    kvf__finish finish;
    kvf__echo *echo;          /* NULL: none */
    kvf__token_scores scores; /* of its tokens so far, where they are wanted */
    int64_t told;             /* streams: of which the client has been told; -1: nor of the echo */
    size_t chars;             /* streams: characters of text before the next of them */
} kvf__choice;
kvf_status kvf__reply_whole(const kvf__reply *reply, kvf__choice *choices, int64_t n,
                            kvf__buf *out);
/* Events of a stream: a choice's beginning (chats name the role, an echo is there); more of its
 * text, and its end if it has finished; the end of the stream, after the counts if `usage`. */
kvf_status kvf__reply_begin(const kvf__reply *reply, kvf__choice *choice, kvf__buf *out);
kvf_status kvf__reply_text(const kvf__reply *reply, kvf__choice *choice, const char *text, size_t n,
                           kvf__buf *out);
kvf_status kvf__reply_close(const kvf__reply *reply, bool usage, kvf__buf *out);
/* What a classification says of its rows; takes `answers`. */
kvf_status kvf__reply_classes(const kvf__reply *reply, const char *task, kvf_json *answers,
                              kvf__buf *out);
/* An error object, as a whole body or as an event. */
kvf_status kvf__reply_problem(const kvf__problem *problem, bool event, kvf__buf *out);
/* Tokens of a text, in a row that may have `most` of them; with their written forms if tokenizer is
 * not NULL. Text of tokens. The tokenizer itself. (The last three in the form of vLLM's API.) */
kvf_status kvf__reply_tokens(const kvf__ids *ids, int64_t most, const kvf__tokenizer *tokenizer,
                             kvf__buf *out);
kvf_status kvf__reply_detokenized(const kvf__buf *text, kvf__buf *out);
kvf_status kvf__reply_tokenizer(const kvf__tokenizer *tokenizer, kvf__buf *out);
/* Models, with what their files say of them: all, or one. */
kvf_status kvf__reply_models(kvf__prefix_cache *cache, int64_t one, bool all, int64_t created,
                             kvf__buf *out);

#endif
