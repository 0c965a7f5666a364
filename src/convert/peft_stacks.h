/* Import and export of prefixes of encoder-decoders in PEFT's form. */
#ifndef KVF_PEFT_STACKS_H
#define KVF_PEFT_STACKS_H

#include "artifact.h"
#include "peft.h"

/* Converts a prefix: *out is an owned prefix of PEFT's layers, *id a view of its identity with
 * their number. EUNSUPPORTED: PEFT cannot represent this prefix. */
kvf_status kvf__peft_stacks_export(kvf_ctx *ctx, const char *where, const kvf__artifact *file,
                                   kvf__prefix *out, kvf__identity *id);
/* Copies the values of an adapter into `prefix`, for a base of that identity: its decoder's
 * self-attention gets them, other layers have none. Sets in *id whether the keys use a relative
 * bias. */
kvf_status kvf__peft_stacks_import(kvf_ctx *ctx, const char *where, const kvf__peft *peft,
                                   kvf__identity *id, kvf__prefix *prefix);

#endif
