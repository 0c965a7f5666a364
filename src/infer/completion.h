/* A running completion: its tokens, their text, its end, and how much of the text can be released
 * (completion.c). */
#ifndef KVF_COMPLETION_H
#define KVF_COMPLETION_H

#include "renderer.h"

typedef enum kvf__finish {
    KVF__GOES_ON,
    KVF__FINISH_STOP,   /* ended by an end token or a stop text */
    KVF__FINISH_LENGTH, /* ended by the limit of tokens */
    KVF__FINISH_FAILED
} kvf__finish;

typedef struct kvf__completion {
    kvf__ids out;  /* new tokens */
    kvf__buf text; /* text of out */
    kvf__decoding *decoding;
    size_t settled;          /* bytes of text that later tokens cannot change */
    size_t shown;            /* bytes of text passed to the row's callback */
    int64_t limit;           /* most new tokens */
    const char *const *stop; /* [n_stop] texts that end it and are removed; views */
    size_t n_stop;
    const kvf__ends *ends; /* tokens that end it; a view */
    kvf__finish finish;
} kvf__completion;

/* Adds a token, or ends the completion. */
kvf_status kvf__completion_add(kvf_ctx *ctx, const kvf_base *base, kvf__completion *completion,
                               int32_t token);
/* Returns the bytes of text that can be released: settled, and not the start of a stop text. */
size_t kvf__completion_ready(const kvf__completion *completion);
void kvf__completion_done(kvf__completion *completion);
/* Returns the tokens that end a completion: those named by the base's files, and the end of a
 * message in the chat template. The tokenizer's EOS is added if the base names none, and with a
 * prefix, because training rows end with it. */
kvf__ends kvf__completion_ends(const kvf_base *base, const kvf_prefix *prefix,
                               const kvf__chat *chat);
/* Returns the forced next token of a completion of n tokens: the first one on an encoder-decoder
 * with forced_bos_token_id (ForcedBOSTokenLogitsProcessor of transformers); -1: none. */
int32_t kvf__completion_forced(const kvf_base *base, int64_t n);

#endif
