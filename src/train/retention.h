/* Text that a prefix should not change: --retain measures the loss on it (retention.c),
 * --kl-to-base keeps it low (kl_to_base.c). Without these options every function does nothing. */
#ifndef KVF_RETENTION_H
#define KVF_RETENTION_H

#include "teacher.h"
#include "tuned.h"

typedef struct kvf__retention {
    kvf__dataset set;
    kvf__evaluator *evaluator;
    double base_loss, start_loss, loss; /* loss of the bare base; at step 0; last measured */

    /* --kl-to-base */
    kvf__teacher base; /* targets of every row from the bare base; k = 0: no KL term */
    kvf__sampler sampler;
    kvf__batcher batcher;
    kvf__pass *pass;
} kvf__retention;

/* Opens the rows, once the training rows are open; *out stays NULL without --retain. */
kvf_status kvf__retention_open(kvf__run *run, const kvf__train_rows *rows, kvf__retention **out);
/* Measures the base's losses and targets, once the number of steps is known. */
kvf_status kvf__retention_prepare(kvf__run *run, kvf__retention *retention, kvf__tuned *tuned,
                                  const kvf__train_rows *rows);
void kvf__retention_free(kvf__retention *retention);
/* Measures the loss with the current prefix; with the prefix emitted last. */
kvf_status kvf__retention_measure(kvf__run *run, kvf__retention *retention, kvf__tuned *tuned,
                                  const kvf__train_rows *rows);
kvf_status kvf__retention_run(const kvf__run *run, kvf__retention *retention,
                              const kvf__tuned *tuned, const kvf__train_rows *rows);
void kvf__retention_lineage(const kvf__retention *retention, kvf_json *lineage);
void kvf__retention_result(const kvf__retention *retention, kvf_train_result *result);
const char *kvf__retention_hash(const kvf__retention *retention); /* "": none */

/* Allocates memory and primitives, and computes the targets. */
kvf_status kvf__base_kl_prepare(const kvf__run *run, kvf__retention *retention);
void kvf__base_kl_done(kvf__retention *retention);
/* Adds the gradient of --kl-to-base to a step's. A failed step (st, which is returned) still
 * consumes its rows. *kl: mean over their labels, NaN if the step failed. */
kvf_status kvf__base_kl_step(const kvf__run *run, kvf__retention *retention,
                             const kvf__tuned *tuned, kvf_status st, double *kl);
/* Moves to the next step. */
void kvf__base_kl_seek_step(const kvf__run *run, kvf__retention *retention);

#endif
