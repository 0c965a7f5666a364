/* Inside src/train: the forgetting meter (meter.c) and what holds it (anchor.c). */
#ifndef KVF_METER_H
#define KVF_METER_H

#include "train_int.h"

struct kvf__meter {
    kvf__dataset set;
    kvf__evaluator *evaluator;
    double base_loss, start_loss, loss; /* of the bare base; at step 0; measured last */

    /* --kl-to-base */
    kvf__soft_set base; /* what the base says of every row; k = 0: nothing is held */
    kvf__sampler sampler;
    kvf__batcher batcher;
    kvf__pass *pass;
    double kl; /* of the last step's rows, mean over their labels */
};

/* Memory, primitives, and what the base says. */
kvf_status kvf__anchor_prepare(kvf__trainer *trainer);
void kvf__anchor_done(kvf__meter *meter);

#endif
