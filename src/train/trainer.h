/* One training run, inside: the parts it is made of. setup.c opens them, step.c draws the two lines
 * of calls (forward and backward), loop.c repeats them, state.c makes a run file of it and back.
 * Files that do a part's work see the part (run.h, train_rows.h, tuned.h ...), not this. */
#ifndef KVF_TRAINER_H
#define KVF_TRAINER_H

#include "pace.h"
#include "retention.h"
#include "step.h"
#include "train_int.h"

struct kvf__trainer {
    kvf__run run;
    kvf__train_rows rows; /* what it is trained on */
    kvf__tuned tuned;     /* what is trained */
    kvf__pass *pass;      /* through the base */
    kvf__states *states;  /* --keep-states; NULL: none; owned */
    kvf__stepper stepper; /* how parameters are stepped */
    kvf__step_timer timer;
    kvf__retention *retention; /* --retain; NULL: none; owned */
};

/* ---- lengths.c ------------------------------------------------------------------------------- */

/* How many steps, and the schedule over them. */
kvf_status kvf__trainer_lengths(kvf__trainer *trainer);
/* Makes what only steps need, by the sizes of those to come: batcher, pass, its primitives, what
 * the heads need. */
kvf_status kvf__trainer_prepare(kvf__trainer *trainer);
/* Of these the part that several runs with one pass in common have each. *limits: of a pass for the
 * run alone. */
kvf_status kvf__trainer_prepare_batches(kvf__trainer *trainer, kvf__pass_limits *limits);
/* What is left of the schedule, counted without computing. The sampler is then at the step that
 * comes next. */
typedef struct kvf__survey {
    int64_t steps, tokens, computed_tokens;
} kvf__survey;
kvf__survey kvf__trainer_survey(kvf__trainer *trainer);
/* Puts the samplers at the step that comes next, of KL to the base too. */
void kvf__trainer_seek(kvf__trainer *trainer);

/* ---- state.c --------------------------------------------------------------------------------- */

/* Restores parameters, moments, history and counters from output.resumed. */
kvf_status kvf__trainer_restore(kvf__trainer *trainer);

/* ---- step.c ---------------------------------------------------------------------------------- */

/* A step in pieces, which several runs with one pass share: its rows and what the base sees of what
 * is trained; the next part as a batch, false: there is none; what follows the parts, given their
 * status (gradients of all parameters and their norm, whether they are to be used); the update, if
 * so, and the count. */
kvf_status kvf__step_begin(kvf__trainer *trainer, kvf__step_rows *rows);
bool kvf__step_next(kvf__trainer *trainer, kvf__step_rows *rows);
kvf_status kvf__step_gradients(kvf__trainer *trainer, const kvf__step_rows *rows, kvf_status st,
                               bool *take);
kvf_status kvf__step_update(kvf__trainer *trainer, bool take);

/* ---- forecast.c ------------------------------------------------------------------------------ */

/* A few steps of the run's own batches, after kvf__trainer_prepare(). The run goes on as if nothing
 * had been. Sets the progress's forecast and reports it to the caller. */
kvf_status kvf__trainer_forecast(kvf__trainer *trainer);

/* ---- loop.c ---------------------------------------------------------------------------------- */

/* Every task's validation under what is emitted; the means are the run's. */
kvf_status kvf__trainer_validate(kvf__trainer *trainer);
/* To the last step or the stop request, with evaluations and saves. As a process that follows
 * another one: does as that one orders, until its end. */
kvf_status kvf__trainer_loop(kvf__trainer *trainer);
kvf_status kvf__trainer_follow(kvf__trainer *trainer);

/* ---- setup.c --------------------------------------------------------------------------------- */

/* Of the base and of what is trained; a weight that is trained, or a copy in its place, counts
 * once. */
int64_t kvf__trainer_all_parameters(const kvf__trainer *trainer);
/* What all processes of the run must have. */
kvf__rows_hashes kvf__trainer_hashes(const kvf__trainer *trainer);

#endif
