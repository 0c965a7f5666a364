/* Updates of the parameters, and timing of the parts of a step. */
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
    double mark;                   /* clock at the end of the previous part */
} kvf__step_timer;
/* Optimizer state and guards. */
typedef struct kvf__stepper {
    kvf__adamw adamw;
    kvf__schedule schedule;
    double lr, grad_norm; /* learning rate and gradient norm of the last step */
    int64_t skipped;      /* steps skipped because they were not finite */
    bool probing;         /* forecast: gradients are computed and not used */
} kvf__stepper;
/* step_guard.c: ENUMERIC names a parameter with a gradient that is not finite. Then decides whether
 * the current step, with status st, is taken, by --skip-nonfinite and --spike-guard. */
kvf_status kvf__step_check_gradient(const kvf__run *run, const kvf__stepper *stepper,
                                    const kvf__params *steps);
kvf_status kvf__step_guard(kvf__run *run, kvf__stepper *stepper, const kvf__params *params,
                           kvf_status st, bool *take);
/* Warns if the last losses of the run are far above the first ones. */
void kvf__step_note_risen(kvf__run *run);

#endif
