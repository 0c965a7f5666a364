/* One optimizer step, whole or in the pieces that several runs with one pass share. */
#ifndef KVF_STEP_H
#define KVF_STEP_H

#include "optim_int.h"
#include "teacher.h"
#include "tuned.h"

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
/* Books the time since the mark to a part. */
void kvf__step_lap(struct kvf__trainer *trainer, kvf__step_part part);
/* Seconds by component since the trainer was prepared: the pass's, then those of the step around
 * it. Returns how many there are. */
size_t kvf__trainer_timings(const struct kvf__trainer *trainer, kvf__timing *out, size_t max);

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
kvf_status kvf__trainer_check_gradient(struct kvf__trainer *trainer);
kvf_status kvf__trainer_guard(struct kvf__trainer *trainer, kvf_status st, bool *take);

/* One step; sets train_loss, lr, grad_norm, step, tokens. ENUMERIC names step and tensor. */
kvf_status kvf__trainer_step(struct kvf__trainer *trainer);
/* What follows its parts, given their status: gradients of all parameters and their norm, whether
 * they are to be used; then the update, if so, and the count. */
kvf_status kvf__step_gradients(struct kvf__trainer *trainer, const kvf__step_rows *rows,
                               kvf_status st, bool *take);
kvf_status kvf__step_update(struct kvf__trainer *trainer, bool take);

#endif
