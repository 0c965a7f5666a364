/* Encoders on a base, and from a run. */
#ifndef KVF_ENCODER_RUN_H
#define KVF_ENCODER_RUN_H

#include "open_prefix.h"

struct kvf__encoder; /* infer sees this header, and not the encoder */
struct kvf__encoder_shape;

/* An encoder with what its method reads of the base. shape: P, M and
 * form; the rest is the base's. */
kvf_status kvf__encoder_on_base(kvf_ctx *ctx, const kvf_base *base, const char *method,
                                const struct kvf__encoder_shape *shape, struct kvf__encoder **out);

/* The state that a checkpoint means, its parameters viewed. EUSAGE: there is no best one. */
kvf_status kvf__run_pick_state(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                               kvf_checkpoint checkpoint, const kvf__params **values,
                               int64_t *step);
/* The encoder of a run with the values of a checkpoint; *step: of that state. base may be NULL
 * where the method does not read it (EUSAGE otherwise). */
kvf_status kvf__encoder_from_run(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                                 const kvf_base *base, kvf_checkpoint checkpoint,
                                 struct kvf__encoder **out, int64_t *step);
/* Writes a run at step 0 with zero moments: the encoder's parameters, and what *run has already:
 * identity, head, layer_mask (NULL: every layer), options and lineage. */
kvf_status kvf__encoder_write_run(kvf_ctx *ctx, const char *path, bool force,
                                  struct kvf__encoder *encoder, kvf__artifact *run);

#endif
