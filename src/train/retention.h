/* Text that a prefix is not meant to change: --retain follows the loss on it (retention.c),
 * --kl-to-base holds it down (kl_to_base.c). Without them all of this does nothing. */
#ifndef KVF_RETENTION_H
#define KVF_RETENTION_H

#include "teacher.h"
#include "tuned.h"

typedef struct kvf__retention {
    kvf__dataset set;
    kvf__evaluator *evaluator;
    double base_loss, start_loss, loss; /* of the bare base; at step 0; measured last */

    /* --kl-to-base */
    kvf__teacher base; /* targets of every row, by the bare base; k = 0: no KL term */
    kvf__sampler sampler;
    kvf__batcher batcher;
    kvf__pass *pass;
} kvf__retention;

/* The set's rows, *out NULL without --retain; the base's losses and targets, once steps are known.
 */
kvf_status kvf__retention_open(kvf__run *run, const kvf__render *render, kvf__retention **out);
kvf_status kvf__retention_prepare(kvf__run *run, kvf__retention *retention, kvf__tuned *tuned,
                                  const kvf__train_rows *rows);
void kvf__retention_free(kvf__retention *retention);
/* The loss under the prefix now; the same of what is emitted already. */
kvf_status kvf__retention_measure(kvf__run *run, kvf__retention *retention, kvf__tuned *tuned,
                                  const kvf__train_rows *rows);
kvf_status kvf__retention_run(const kvf__run *run, kvf__retention *retention,
                              const kvf__tuned *tuned, const kvf__train_rows *rows);
void kvf__retention_lineage(const kvf__retention *retention, kvf_json *lineage);
void kvf__retention_result(const kvf__retention *retention, kvf_train_result *result);
const char *kvf__retention_hash(const kvf__retention *retention); /* "": none */

/* Memory, primitives and the targets. */
kvf_status kvf__base_kl_prepare(const kvf__run *run, kvf__retention *retention);
void kvf__base_kl_done(kvf__retention *retention);
/* What --kl-to-base adds to a step's gradient; a step that failed (st, which is returned) takes its
 * rows all the same. *kl: mean over their labels, NaN where the step failed. */
kvf_status kvf__base_kl_step(const kvf__run *run, kvf__retention *retention,
                             const kvf__tuned *tuned, kvf_status st, double *kl);
/* To the step that comes next. */
void kvf__base_kl_seek_step(const kvf__run *run, kvf__retention *retention);

#endif
