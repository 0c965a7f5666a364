/* One completion on its way: its tokens, their text, what ends it, and how much of the text can be
 * shown already (completion.c). */
#ifndef KVF_COMPLETION_H
#define KVF_COMPLETION_H

#include "renderer.h"

typedef enum kvf__finish {
    KVF__GOES_ON,
    KVF__FINISH_STOP,   /* an end token or a stop text */
    KVF__FINISH_LENGTH, /* no more tokens are allowed */
    KVF__FINISH_FAILED
} kvf__finish;

typedef struct kvf__completion {
    kvf__ids out;  /* new tokens */
    kvf__buf text; /* theirs so far */
    kvf__decoding *decoding;
    size_t settled;          /* bytes of text that later tokens cannot change */
    size_t shown;            /* bytes of text that the row's callback has had */
    int64_t limit;           /* most new tokens */
    const char *const *stop; /* [n_stop] texts that end it and are left out; views */
    size_t n_stop;
    const kvf__ends *ends; /* tokens that end it; a view */
    kvf__finish finish;
} kvf__completion;

/* Adds a token, or ends the completion. */
kvf_status kvf__completion_add(kvf_ctx *ctx, const kvf_base *base, kvf__completion *completion,
                               int32_t token);
/* Bytes of the text that can be shown: settled, and no beginning of a stop text. */
size_t kvf__completion_ready(const kvf__completion *completion);
void kvf__completion_done(kvf__completion *completion);
/* Tokens that end a completion: those that the base's files name, and the end of a message in the
 * chat template. The tokenizer's EOS is added where the base names none, and with a prefix, because
 * training rows ended in it. */
kvf__ends kvf__completion_ends(const kvf_base *base, const kvf_prefix *prefix,
                               const kvf__chat *chat);
/* The token that a completion of n tokens must go on with, whatever the logits: the first of an
 * encoder-decoder with forced_bos_token_id (transformers' ForcedBOSTokenLogitsProcessor); -1: none.
 */
int32_t kvf__completion_forced(const kvf_base *base, int64_t n);

#endif
