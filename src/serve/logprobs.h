/* Log-probabilities of a choice's tokens in replies (logprobs.c). */
#ifndef KVF_LOGPROBS_H
#define KVF_LOGPROBS_H

#include "reply.h"

/* Returns those of the tokens not sent yet, starting with the echo, and marks them as sent. NULL:
 * no memory. */
kvf_json *kvf__logprobs_of(const kvf__reply *reply, kvf__choice *choice);
/* Returns the number of new tokens to report. The end token counts only in completions, where
 * clients with max_tokens 1 expect one more token than the prompt has. */
int64_t kvf__logprobs_count(const kvf__reply *reply, const kvf__choice *choice);

#endif
