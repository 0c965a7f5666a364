/* --keep-states of a run, or of several with one pass (states_plan.c). */
#ifndef KVF_STATES_PLAN_H
#define KVF_STATES_PLAN_H

#include "kept_states.h"
#include "train_rows.h"

/* A run whose states are cached. */
typedef struct kvf__states_run {
    kvf__run *run;
    const kvf__train_rows *rows;
    const uint8_t *layer_mask; /* [L] 0: this layer has no prefix */
} kvf__states_run;

/* Returns the layer that the cached states of these runs [n] enter; 0: none are cached, and a note
 * says why if --keep-states was given. */
kvf_status kvf__states_layer(const kvf__states_run *runs, size_t n, int64_t *out);
/* Allocates a cache for the data and validations of all runs, for passes of these limits, whose
 * lowest layer the states enter. *states: the cache of earlier runs on the same base, or NULL.
 * Reports the remaining share of a step, given the shares of tokens with labels and in the source.
 */
kvf_status kvf__states_open(const kvf__states_run *runs, size_t n, const kvf__pass_limits *limits,
                            const kvf__batch_sizes *shares, kvf__states **states);
/* Calls kvf__states_keep and reports problems as a note of the run. */
void kvf__run_keep_states(kvf__run *run, kvf__states *states, const kvf__input *input);

#endif
