/* AdamW, learning-rate schedules and gradient clipping over a flat list of parameters. */
#ifndef KVF_OPTIM_INT_H
#define KVF_OPTIM_INT_H

#include <kvfold/train.h>

#include "prefix.h"
#include "wide.h"

/* Loshchilov & Hutter 2019, as torch.optim.AdamW computes it.
 *
 *   w *= 1 - lr*wd;  m += (1-b1)(g-m);  v = b2 v + (1-b2) g^2;
 *   w -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps) */
typedef struct kvf__adamw {
    double beta1, beta2, eps, weight_decay;
    int64_t t;        /* number of updates */
    kvf__params m, v; /* moments; names and dimensions of the parameters; owned */
    float *scratch;   /* scratch of Muon */
    void *memory;
} kvf__adamw;

/* Allocates zero moments for every parameter. */
kvf_status kvf__adamw_init(kvf_ctx *ctx, kvf__adamw *adamw, const kvf__params *params);
void kvf__adamw_done(kvf__adamw *adamw);
/* Runs one update with gradients times grad_scale and rate lr * lr_scale of each parameter. The
 * result does not depend on threads. */
void kvf__adamw_step(kvf__adamw *adamw, kvf__params *params, double lr, double grad_scale);

/* Updates a prefix with muon_heads (param.h): keys by AdamW, the values of each head by Muon, which
 * leaves their v unchanged. m and v have the layout of param. scratch: kvf__muon_floats(param)
 * floats (0 for other parameters). */
void kvf__muon_step(const kvf__adamw_rates *rates, double rate, const kvf__param *param, float *m,
                    float *v, float *scratch);
int64_t kvf__muon_floats(const kvf__param *param);

/* Returns the square root of the sum of squares of all gradients, added in a fixed order. */
double kvf__grad_norm(const kvf__params *params);
/* Returns the factor that limits a gradient of this norm to `clip` (0: no clipping): torch's clip /
 * (norm + 1e-6), at most 1. */
double kvf__clip_factor(double norm, double clip);

typedef struct kvf__schedule {
    kvf_schedule kind;
    int64_t warmup, length; /* in steps */
} kvf__schedule;
/* warmup: "5%" of the length (rounded up) or a number of steps.
 * EUSAGE. */
kvf_status kvf__schedule_init(kvf_ctx *ctx, kvf_schedule kind, const char *warmup, int64_t length,
                              kvf__schedule *out);
/* Returns the factor on lr for step 1, 2, ...: step/warmup during warmup. Then, with p = (step - 1
 * - warmup) / (length - warmup) in [0, 1): 1 - p, (1 + cos(pi p)) / 2, or 1. Never below 0. */
double kvf__schedule_factor(const kvf__schedule *schedule, int64_t step);

#endif
