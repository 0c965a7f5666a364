/* Between import and export: what PEFT knows of an encoder-decoder's prefix. */
#ifndef KVF_PEFT_STACKS_H
#define KVF_PEFT_STACKS_H

#include "artifact.h"
#include "peft.h"

/* EUNSUPPORTED: no adapter of PEFT says what this prefix does. Else it as one: *out is a prefix of
 * PEFT's layers, owned, *id a view of its identity with their number. */
kvf_status kvf__peft_stacks_export(kvf_ctx *ctx, const char *where, const kvf__artifact *file,
                                   kvf__prefix *out, kvf__identity *id);
/* The values of an adapter into `prefix`, which is for a base of that identity: its decoder's
 * self-attention gets them, other layers none; and into *id whether they take a relative bias. */
kvf_status kvf__peft_stacks_import(kvf_ctx *ctx, const char *where, const kvf__peft *peft,
                                   kvf__identity *id, kvf__prefix *prefix);

#endif
