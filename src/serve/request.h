/* A checked request, and the reason of a refusal (request.c). Independent of HTTP. */
#ifndef KVF_REQUEST_H
#define KVF_REQUEST_H

#include "data_int.h"
#include "sample.h"

/* A refusal in the form of OpenAI's error objects. */
typedef struct kvf__problem {
    unsigned status;  /* HTTP status; 0: none */
    const char *code; /* "model_not_found"; NULL: none */
    int retry;        /* 429: seconds until the client may try again */
    char param[40];   /* field of the request, "": none */
    char message[256];
} kvf__problem;
/* Fills it and returns false, for `return kvf__problem_set(...)`. */
bool kvf__problem_set(kvf__problem *out, unsigned status, const char *param, const char *fmt, ...)
    KVF__PRINTF(4, 5);
bool kvf__problem_no_model(kvf__problem *out, const char *name);

/* One prompt of a completion. */
typedef struct kvf__text_prompt {
    const char *text; /* [bytes] may contain U+0000; NULL: ids are given */
    size_t bytes;
    kvf__ids ids;
} kvf__text_prompt;

/* Kind of request; bits, because a field may belong to several kinds. */
typedef enum kvf__request_kind {
    KVF__COMPLETIONS = 1,
    KVF__CHAT = 2,
    KVF__TOKENIZE = 4,
    KVF__DETOKENIZE = 8,
    KVF__CLASSIFY = 16,
    KVF__LOAD = 32,
    KVF__UNLOAD = 64
} kvf__request_kind;

/* Options for converting a text or chat to tokens, as in vLLM's API. */
typedef struct kvf__tokenize_form {
    bool add_special; /* add BOS and EOS as the tokenizer does */
    bool generation;  /* open an assistant turn after a chat */
    bool written;     /* also return the tokens' texts */
} kvf__tokenize_form;

/* A checked body. Texts are views into root, except stop. */
typedef struct kvf__request {
    kvf__request_kind kind;
    bool stream, usage; /* usage: a chunk with the counts ends the stream */
    kvf_json *root;
    const char *path;          /* load: file of the model */
    const char *model;         /* NULL: the base, for tokenize and detokenize */
    kvf__text_prompt *prompts; /* [n_prompts]; the text of tokenize, the ids of detokenize */
    size_t n_prompts;
    const kvf_json *input; /* classify: a row, or an array of rows (classification.c) */
    kvf__tokenize_form form;
    kvf__message *messages; /* chat, tokenize: [n_messages] */
    size_t n_messages;
    kvf__buf *contents; /* [n_messages] for messages with content in parts */
    int64_t max_tokens; /* 0: only echo */
    kvf__sampling sampling;
    kvf_token_bias *bias; /* biases that sampling.penalties views */
    uint64_t seed;
    bool seeded;
    int64_t n;        /* choices for each prompt */
    int64_t logprobs; /* number of likeliest tokens besides each token's own log-probability; -1:
                       * none */
    bool echo;        /* the answer begins with its prompt */
    char **stop;      /* [n_stop] */
    size_t n_stop;
} kvf__request;

/* Parses the bytes of a body; returns false with the problem. max_tokens: limit, and default of
 * chats. The result is empty or complete. */
bool kvf__request_parse(kvf_ctx *ctx, const char *body, size_t bytes, kvf__request_kind kind,
                        int64_t max_tokens, kvf__request *out, kvf__problem *problem);
/* Frees everything that only tokenization needs: numbers, biases and stop texts remain. */
void kvf__request_forget(kvf__request *request);
void kvf__request_done(kvf__request *request);

#endif
