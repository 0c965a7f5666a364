/* Inside src/train: the forgetting retention set (retention set.c) and what holds it (KL term.c).
 */
#ifndef KVF_METER_H
#define KVF_METER_H

#include "train_int.h"

struct kvf__retention {
    kvf__dataset set;
    kvf__evaluator *evaluator;
    double base_loss, start_loss, loss; /* of the bare base; at step 0; measured last */

    /* --kl-to-base */
    kvf__teacher base; /* what the base says of every row; k = 0: nothing is held */
    kvf__sampler sampler;
    kvf__batcher batcher;
    kvf__pass *pass;
    double kl; /* of the last step's rows, mean over their labels */
};

/* Memory, primitives, and what the base says. */
kvf_status kvf__base_kl_prepare(kvf__trainer *trainer);
void kvf__base_kl_done(kvf__retention *retention);

#endif
