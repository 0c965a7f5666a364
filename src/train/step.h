/* How parameters are stepped, and how long the parts of a step take. */
#ifndef KVF_STEP_H
#define KVF_STEP_H

#include "optim_int.h"
#include "run.h"

/* Parts of a step outside the pass, in the order of kvf__trainer_timings. */
#define KVF__STEP_PART_LIST(X)                                                                     \
    X(BATCH, "batch")                                                                              \
    X(ENCODER, "encoder")                                                                          \
    X(ENCODER_BWD, "encoder_bwd")                                                                  \
    X(CLIP, "clip")                                                                                \
    X(ADAMW, "adamw")

typedef enum kvf__step_part {
#define KVF__STEP_PART_ENUM(name, text) KVF__STEP_##name,
    KVF__STEP_PART_LIST(KVF__STEP_PART_ENUM)
#undef KVF__STEP_PART_ENUM
        KVF__STEP_PARTS
} kvf__step_part;

typedef struct kvf__step_timer {
    double spent[KVF__STEP_PARTS]; /* seconds by part */
    double mark;                   /* clock at the end of the last one */
} kvf__step_timer;
/* How parameters are stepped. */
typedef struct kvf__stepper {
    kvf__adamw adamw;
    kvf__schedule schedule;
    double lr, grad_norm; /* of the last step */
    int64_t skipped;      /* steps left out because they were not finite */
    bool probing;         /* for a forecast: gradients are computed and never used */
} kvf__stepper;
/* step_guard.c: ENUMERIC names the parameter whose gradient is not finite; whether the step at
 * hand, computed with status st, is taken: not where --skip-nonfinite or --spike-guard leave it
 * out. */
kvf_status kvf__step_check_gradient(const kvf__run *run, const kvf__stepper *stepper,
                                    const kvf__params *steps);
kvf_status kvf__step_guard(kvf__run *run, kvf__stepper *stepper, const kvf__params *params,
                           kvf_status st, bool *take);

#endif
