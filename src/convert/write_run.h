/* An encoder as a run file. */
#ifndef KVF_WRITE_RUN_H
#define KVF_WRITE_RUN_H

#include "artifact.h"

struct kvf__encoder;

/* Writes a run at step 0 with zero moments: the encoder's parameters, and what *run has already:
 * identity, head, layer_mask (NULL: every layer), options and lineage. */
kvf_status kvf__encoder_write_run(kvf_ctx *ctx, const char *path, bool force,
                                  struct kvf__encoder *encoder, kvf__artifact *run);

#endif
