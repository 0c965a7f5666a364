/* Text that a prefix is not meant to change: --retain follows the loss on it (retention.c),
 * --kl-to-base holds it down (kl_to_base.c). Without them all of this does nothing. */
#ifndef KVF_RETENTION_H
#define KVF_RETENTION_H

#include "options.h"
#include "teacher.h"

struct kvf__trainer;

typedef struct kvf__retention {
    kvf__dataset set;
    kvf__evaluator *evaluator;
    double base_loss, start_loss, loss; /* of the bare base; at step 0; measured last */

    /* --kl-to-base */
    kvf__teacher base; /* targets of every row, by the bare base; k = 0: no KL term */
    kvf__sampler sampler;
    kvf__batcher batcher;
    kvf__pass *pass;
    double kl; /* of the last step's rows, mean over their labels */
} kvf__retention;

/* The set's rows; the base's losses and targets, once steps are known. */
kvf_status kvf__retention_open(struct kvf__trainer *trainer);
kvf_status kvf__retention_prepare(struct kvf__trainer *trainer);
void kvf__retention_free(kvf__retention *retention);
/* The loss under the prefix now; the same of what is emitted already. */
kvf_status kvf__retention_measure(struct kvf__trainer *trainer);
kvf_status kvf__retention_run(struct kvf__trainer *trainer);
kvf__evaluator *kvf__retention_evaluator(struct kvf__trainer *trainer); /* NULL: none */
void kvf__retention_lineage(const struct kvf__trainer *trainer, kvf_json *lineage);
void kvf__retention_result(const struct kvf__trainer *trainer, kvf_train_result *result);
const char *kvf__retention_hash(const struct kvf__trainer *trainer); /* "": none */

/* Memory, primitives and the targets. */
kvf_status kvf__base_kl_prepare(struct kvf__trainer *trainer);
void kvf__base_kl_done(kvf__retention *retention);
/* What --kl-to-base adds to a step's gradient; a step that failed (st, which is returned) takes its
 * rows all the same. */
kvf_status kvf__base_kl_step(struct kvf__trainer *trainer, kvf_status st);
void kvf__base_kl_seek_step(struct kvf__trainer *trainer);    /* to the step that comes next */
double kvf__base_kl_mean(const struct kvf__trainer *trainer); /* of the last step; NaN: none */

#endif
