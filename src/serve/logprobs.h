/* Log-probabilities of a choice's tokens as replies have them (logprobs.c). */
#ifndef KVF_LOGPROBS_H
#define KVF_LOGPROBS_H

#include "reply.h"

/* Of the tokens that the client has not been told of, those of the echo first; afterwards it has.
 * NULL: no memory. */
kvf_json *kvf__logprobs_of(const kvf__reply *reply, kvf__choice *choice);

#endif
