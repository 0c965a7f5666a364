/* Internals of a training run, made of parts. setup.c opens them, step.c runs one step forward and
 * backward, loop.c repeats it, and state.c writes and reads the run file. Files that implement a
 * part include only its header (run.h, train_rows.h, tuned.h ...). */
#ifndef KVF_TRAINER_H
#define KVF_TRAINER_H

#include "pace.h"
#include "retention.h"
#include "step.h"
#include "train_int.h"

struct kvf__trainer {
    kvf__run run;
    kvf__train_rows rows; /* training data */
    kvf__tuned tuned;     /* trained values */
    kvf__pass *pass;      /* pass through the base */
    kvf__states *states;  /* --keep-states; NULL: none; owned */
    kvf__stepper stepper; /* optimizer */
    kvf__step_timer timer;
    kvf__retention *retention; /* --retain; NULL: none; owned */
};

/* ---- lengths.c ------------------------------------------------------------------------------- */

/* Sets the number of steps and the schedule. */
kvf_status kvf__trainer_lengths(kvf__trainer *trainer);
/* Allocates the batcher, the pass, its primitives and the buffers of the heads, sized for all steps
 * to come. */
kvf_status kvf__trainer_prepare(kvf__trainer *trainer);
/* Prepares the part of the above that is not shared by a group of runs. *limits: limits of a pass
 * for this run alone. */
kvf_status kvf__trainer_prepare_batches(kvf__trainer *trainer, kvf__pass_limits *limits);
/* Counts the remaining steps and tokens without computing them. The sampler is then at the next
 * step. */
typedef struct kvf__survey {
    int64_t steps, tokens, computed_tokens;
} kvf__survey;
kvf__survey kvf__trainer_survey(kvf__trainer *trainer);
/* Moves the samplers, including that of --kl-to-base, to the next step. */
void kvf__trainer_seek(kvf__trainer *trainer);

/* ---- state.c --------------------------------------------------------------------------------- */

/* Restores parameters, moments, history and counters from output.resumed. */
kvf_status kvf__trainer_restore(kvf__trainer *trainer);

/* ---- step.c ---------------------------------------------------------------------------------- */

/* A step in pieces, for several runs in one pass. Draws the rows and emits the prefix. */
kvf_status kvf__step_begin(kvf__trainer *trainer, kvf__step_rows *rows);
/* Fills the batcher with the next part; false: there is none. */
bool kvf__step_next(kvf__trainer *trainer, kvf__step_rows *rows);
/* Finishes the gradients of all parameters and their norm. st: status of the parts; *take: whether
 * to update. */
kvf_status kvf__step_gradients(kvf__trainer *trainer, const kvf__step_rows *rows, kvf_status st,
                               bool *take);
/* Updates the parameters if `take`, and counts the step. */
kvf_status kvf__step_update(kvf__trainer *trainer, bool take);

/* ---- forecast.c ------------------------------------------------------------------------------ */

/* Runs a few steps with the run's own batches, after kvf__trainer_prepare(), and restores the
 * state. Sets the progress's forecast and reports it to the caller. */
kvf_status kvf__trainer_forecast(kvf__trainer *trainer);
/* Fails if the run file does not fit beside what is on the disk of --out. */
kvf_status kvf__trainer_check_disk(const kvf__trainer *trainer);

/* ---- loop.c ---------------------------------------------------------------------------------- */

/* Validates every task with the emitted prefix and sets valid_loss and metric_value to the means.
 */
kvf_status kvf__trainer_validate(kvf__trainer *trainer);
/* Trains to the last step or a stop request, with validations and saves. */
kvf_status kvf__trainer_loop(kvf__trainer *trainer);
/* Follows the orders of rank 0 until it ends the run. */
kvf_status kvf__trainer_follow(kvf__trainer *trainer);

/* ---- setup.c --------------------------------------------------------------------------------- */

/* Number of values of the base and of all trained parameters. A weight that is trained, or replaced
 * by a trained copy, counts once. */
int64_t kvf__trainer_all_parameters(const kvf__trainer *trainer);
/* Compares base, rows and options of all processes, so that all continue or none. Sets
 * output.finished_before to that of rank 0. */
kvf_status kvf__trainer_agree(kvf__trainer *trainer, kvf_status status);

#endif
