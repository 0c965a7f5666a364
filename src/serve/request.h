/* What a client asks for, checked, and why it is refused (request.c). No HTTP in it. */
#ifndef KVF_REQUEST_H
#define KVF_REQUEST_H

#include "data_int.h"
#include "sample.h"

/* A refusal as OpenAI's error objects have it. */
typedef struct kvf__problem {
    unsigned status;  /* of HTTP; 0: none */
    const char *code; /* "model_not_found"; NULL: none */
    char param[40];   /* field of the request, "": none */
    char message[256];
} kvf__problem;
/* Fills it in; returns false, for `return kvf__problem_set(...)`. */
bool kvf__problem_set(kvf__problem *out, unsigned status, const char *param, const char *fmt, ...)
    KVF__PRINTF(4, 5);
bool kvf__problem_no_model(kvf__problem *out, const char *name);

/* One of the prompts of a completion. */
typedef struct kvf__text_prompt {
    const char *text; /* [bytes], may hold U+0000; NULL: ids are given */
    size_t bytes;
    kvf__ids ids;
} kvf__text_prompt;

/* What is asked for; bits, because fields may belong to several. */
typedef enum kvf__request_kind {
    KVF__COMPLETIONS = 1,
    KVF__CHAT = 2,
    KVF__TOKENIZE = 4,
    KVF__DETOKENIZE = 8,
    KVF__CLASSIFY = 16
} kvf__request_kind;

/* How a text or a chat becomes tokens, as vLLM's API has it. */
typedef struct kvf__tokenize_form {
    bool add_special; /* BOS and EOS as the tokenizer puts them around a text */
    bool generation;  /* an assistant turn is opened after a chat */
    bool written;     /* the tokens' written forms are wanted, too */
} kvf__tokenize_form;

/* A body, checked. Texts are views into root, except stop. */
typedef struct kvf__request {
    kvf__request_kind kind;
    bool stream, usage; /* usage: a chunk with the counts ends the stream */
    kvf_json *root;
    const char *model;         /* NULL: tokenize and detokenize, the base */
    kvf__text_prompt *prompts; /* [n_prompts]; the one text of tokenize, the ids of detokenize */
    size_t n_prompts;
    const kvf_json
        *input; /* classify: a row, or an array of rows, as classification.c reads them */
    kvf__tokenize_form form;
    kvf__message *messages; /* chat, tokenize: [n_messages] */
    size_t n_messages;
    kvf__buf *contents; /* [n_messages] of messages whose content came in parts */
    int64_t max_tokens; /* 0: echo alone */
    kvf__sampling sampling;
    kvf_token_bias *bias; /* that sampling.penalties views */
    uint64_t seed;
    bool seeded;
    int64_t n;        /* choices for each prompt */
    int64_t logprobs; /* likeliest tokens wanted besides each one's own log-probability; -1: none */
    bool echo;        /* an answer begins with its prompt */
    char **stop;      /* [n_stop] */
    size_t n_stop;
} kvf__request;

/* From the bytes of a body; false with the problem. max_tokens: the most that is given, and the
 * default of chats. The request is empty or whole. */
bool kvf__request_parse(kvf_ctx *ctx, const char *body, size_t bytes, kvf__request_kind kind,
                        int64_t max_tokens, kvf__request *out, kvf__problem *problem);
/* Frees what only its ids are made of: numbers, biases and stop texts stay. */
void kvf__request_forget(kvf__request *request);
void kvf__request_done(kvf__request *request);

#endif
