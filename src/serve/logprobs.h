/* Log-probabilities of a choice's tokens as replies have them (logprobs.c). */
#ifndef KVF_LOGPROBS_H
#define KVF_LOGPROBS_H

#include "reply.h"

/* Of the tokens that the client has not been told of, those of the echo first; afterwards it has.
 * NULL: no memory. */
kvf_json *kvf__logprobs_of(const kvf__reply *reply, kvf__choice *choice);
/* New tokens of which clients are told: the end token only in completions, where clients of
 * max_tokens 1 count on one more than the prompt has. */
int64_t kvf__logprobs_count(const kvf__reply *reply, const kvf__choice *choice);

#endif
