/* --keep-states of a run, or of several with one pass (states_plan.c). */
#ifndef KVF_STATES_PLAN_H
#define KVF_STATES_PLAN_H

#include "kept_states.h"
#include "train_rows.h"

/* What states are kept for. */
typedef struct kvf__states_run {
    kvf__run *run;
    const kvf__train_rows *rows;
    const uint8_t *layer_mask; /* [L] 0: this layer has no prefix */
} kvf__states_run;

/* The layer that states of these runs [n] on one base enter; 0: none are kept, and why is said by a
 * note where they were asked for. */
kvf_status kvf__states_layer(const kvf__states_run *runs, size_t n, int64_t *out);
/* Room for the data of all of them, for passes of these limits, whose lowest layer the states
 * enter, and for their validations, which use it from then on. *states: those of runs before on the
 * same base, else NULL. A note says how much of a step is
 * left, if labels and source have these shares of the tokens. */
kvf_status kvf__states_open(const kvf__states_run *runs, size_t n, const kvf__pass_limits *limits,
                            const kvf__batch_sizes *shares, kvf__states **states);
/* As kvf__states_keep, with the news as a note of the run. */
void kvf__run_keep_states(kvf__run *run, kvf__states *states, const kvf__input *input);

#endif
