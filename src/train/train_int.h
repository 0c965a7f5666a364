/* The interface of a training run for other folders: open it on options or on a feed's rows, run it
 * whole or step by step, read its state. trainer.h has the implementation. */
#ifndef KVF_TRAIN_INT_H
#define KVF_TRAIN_INT_H

#include "states_plan.h"
#include "tuned.h"

typedef struct kvf__trainer kvf__trainer;

/* Optional inputs of a trainer. A zeroed struct opens everything by the options. */
typedef struct kvf__trainer_uses {
    kvf_base *base; /* borrowed, open for backward passes; for methods that do not change it */
    const kvf__feed *feed; /* source of the rows; it interprets options->data and valid */
    kvf__reads *reads;     /* data sets shared by the runs on this base */
    bool joins;            /* train together with the other processes of mpirun */
    bool in_memory;        /* write no run file: options->out is not set */
} kvf__trainer_uses;

/* Opens everything: base, data, encoder, optimizer; restores a run for --resume. */
kvf_status kvf__trainer_open(kvf_ctx *ctx, const kvf_train_options *options,
                             const kvf__trainer_uses *uses, kvf__trainer **out);
/* Opens a trainer on a base and examples in memory, which it takes over and empties: for bench.
 * Paths in the options are ignored and no files are used. The trainer may step past options->steps.
 */
kvf_status kvf__trainer_open_memory(kvf_ctx *ctx, const kvf_train_options *options, kvf_base **base,
                                    kvf__dataset *data, kvf__trainer **out);
void kvf__trainer_free(kvf__trainer *trainer);

/* Read-only views of a trainer's parts. */
typedef struct kvf__trainer_view {
    const kvf__run *run;
    const kvf__train_rows *rows;
    const kvf__tuned *tuned;
} kvf__trainer_view;
kvf__trainer_view kvf__trainer_look(const kvf__trainer *trainer);

/* Trains to the end or a stop; a dry run ends before the first step. begin: the clock when the call
 * began. */
kvf_status kvf__trainer_run(kvf__trainer *trainer, double begin, kvf_train_result *result);
/* Transfers ownership of the base to the caller, who frees it after the trainer. */
kvf_base *kvf__trainer_give_base(kvf__trainer *trainer);
/* Fills the result of a call. begin: the clock when it began; tokens_before: tokens trained on
 * before it. */
void kvf__trainer_result(const kvf__trainer *trainer, double begin, int64_t tokens_before,
                         kvf_train_result *out);
/* Reports the sizes of a dry run. */
void kvf__trainer_note_dry(kvf__trainer *trainer);

/* Runs one step; sets train_loss, lr, grad_norm, step, tokens. ENUMERIC names step and tensor. */
kvf_status kvf__trainer_step(kvf__trainer *trainer);
/* Returns the seconds by component since the trainer was prepared: first the pass, then the rest of
 * the step. Returns their number. */
size_t kvf__trainer_timings(const kvf__trainer *trainer, kvf__timing *out, size_t max);

/* The loop of a run in pieces, in this order. Opens the log files. */
kvf_status kvf__trainer_open_journal(kvf__trainer *trainer);
/* Measures the baselines and emits the first event. */
kvf_status kvf__trainer_start(kvf__trainer *trainer);
/* Records a step, then validates and saves if due. *over: the run has ended. ESTOPPED: a stop was
 * requested. */
kvf_status kvf__trainer_after_step(kvf__trainer *trainer, double seconds, int64_t tokens_before,
                                   bool *over);
/* Writes the last line of the log files. */
void kvf__trainer_end(kvf__trainer *trainer, kvf_status status);

/* Writes the run file. */
kvf_status kvf__trainer_save(kvf__trainer *trainer, bool force);
/* Folds a run of one task, as opening its file does. Not for methods of port block. */
kvf_status kvf__trainer_prefix(kvf__trainer *trainer, kvf_checkpoint checkpoint, kvf_prefix **out);
/* Swaps the best parameters with the last ones. */
void kvf__trainer_swap_best(kvf__trainer *trainer);

/* ---- several runs in one pass (group.c) ------------------------------------------------------ */

/* One of the runs. */
typedef struct kvf__member {
    kvf__trainer *trainer; /* NULL: the run has ended */
    kvf__step_rows rows;
    double loss_sum;   /* loss of the current part */
    kvf_status status; /* status of the last step: OK, or ENUMERIC with */
    char line[512];
} kvf__member;

/* Runs whose rows share a pass. Either all have heads of their own or none has. */
typedef struct kvf__run_group {
    kvf_ctx *ctx;
    size_t n;
    kvf__member *member;   /* [n] */
    kvf__states_run *runs; /* [n] the same runs for --keep-states */
    bool own_heads;
    kvf__pass *pass;
    kvf__states *states; /* NULL: no cache; borrowed */
    kvf__stacked_batch stacked;
    int64_t n_sections; /* sections in the current part */
    kvf__section *section;
    kvf__grads *grads;
    size_t *whose; /* [n_sections] member of each section */
} kvf__run_group;

/* trainers [n] are open on one base and not prepared yet. They must outlive the group, and so must
 * *states, the cache of earlier groups (NULL: none yet), which this call may create. */
kvf_status kvf__run_group_init(kvf_ctx *ctx, kvf__trainer *const *trainers, size_t n,
                               kvf__states **states, kvf__run_group *out);
void kvf__run_group_done(kvf__run_group *group);
/* Runs a step of every member. A failure of one run is stored in its member. A returned status ends
 * all runs. Allocates nothing. */
kvf_status kvf__run_group_step(kvf__run_group *group);

#endif
