/* --keep-states of a run, or of several with one pass (states_plan.c). */
#ifndef KVF_STATES_PLAN_H
#define KVF_STATES_PLAN_H

#include "kept_states.h"

struct kvf__trainer;

/* The layer that states of these runs [n] on one base enter; 0: none are kept, and why is said by a
 * note where they were asked for. */
kvf_status kvf__states_layer(struct kvf__trainer *const *trainers, size_t n, int64_t *out);
/* Room for the data of all of them, for passes of these limits, whose lowest layer the states
 * enter, and for their validations, which use it from then on. *states: those of runs before on the
 * same base, else NULL. A note says how much of a step is
 * left, if labels and source have these shares of the tokens. */
kvf_status kvf__states_open(struct kvf__trainer *const *trainers, size_t n,
                            const kvf__pass_limits *limits, const kvf__batch_sizes *shares,
                            kvf__states **states);
/* As kvf__states_keep, with the news as a note of the run. */
void kvf__trainer_keep_states(struct kvf__trainer *trainer, kvf__states *states,
                              const kvf__input *input);

#endif
