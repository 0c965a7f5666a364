/* Encoders for a base, and from a run. */
#ifndef KVF_ENCODER_RUN_H
#define KVF_ENCODER_RUN_H

#include "open_prefix.h"

struct kvf__encoder; /* infer includes this header, but not the encoder's */
struct kvf__encoder_shape;

/* Creates an encoder with the parts of the base that its method reads. shape: P, M and form; the
 * rest comes from the base. */
kvf_status kvf__encoder_on_base(kvf_ctx *ctx, const kvf_base *base, const char *method,
                                const struct kvf__encoder_shape *shape, struct kvf__encoder **out);

/* Returns the state selected by a checkpoint, with its parameters as views. EUSAGE: there is no
 * best state. */
kvf_status kvf__run_pick_state(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                               kvf_checkpoint checkpoint, const kvf__params **values,
                               int64_t *step);
/* Creates the encoder of a run with the values of a checkpoint; *step: step of that state. base may
 * be NULL if the method does not read it (EUSAGE otherwise). */
kvf_status kvf__encoder_from_run(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                                 const kvf_base *base, kvf_checkpoint checkpoint,
                                 struct kvf__encoder **out, int64_t *step);
/* Writes a run at step 0 with zero moments: the encoder's parameters, and identity, head,
 * layer_mask (NULL: every layer), options and lineage from *run. */
kvf_status kvf__encoder_write_run(kvf_ctx *ctx, const char *path, bool force,
                                  struct kvf__encoder *encoder, kvf__artifact *run);

#endif
