/* One training run: the parts it is made of. run.c sets them up, step.c draws the two lines of
 * calls (forward and backward), loop.c repeats them, state.c makes a run file of it and back. */
#ifndef KVF_TRAINER_H
#define KVF_TRAINER_H

#include "forecast.h"
#include "journal.h"
#include "pace.h"
#include "ranks.h"
#include "retention.h"
#include "states_plan.h"
#include "step.h"

/* The best validation so far. */
typedef struct kvf__best {
    kvf__params params; /* n = 0 until a validation ran; owned */
    float *values;      /* copies of all parameters at `step` */
    int64_t step;
    double value, loss; /* of the metric; valid_loss */
} kvf__best;

typedef struct kvf__progress {
    int64_t steps, step;             /* in all; done */
    int64_t tokens;                  /* trained on */
    int64_t computed_tokens;         /* in this process: tokens of its batches */
    double train_loss;               /* of the last step */
    kvf__history history;            /* memory for all steps */
    const kvf__metric *metric;       /* what best is best in */
    double valid_loss, metric_value; /* of the last validation */
    kvf__best best;
    int64_t stale; /* validations since the best one */
    bool stopped_early;
    double begin, step_seconds; /* clock at the start; time spent in steps */
    kvf__pace pace;
    kvf_forecast forecast; /* steps = 0: none was made */
} kvf__progress;

typedef struct kvf__output {
    kvf__outlock lock; /* on options.out; none for a dry run */
    kvf__journal journal;
    kvf__artifact resumed; /* what --resume read; owns texts that options borrow */
    bool is_resumed;
    bool finished_before; /* --resume has nothing to do */
} kvf__output;

typedef struct kvf__trainer {
    kvf_ctx *ctx;
    kvf_train_options options;
    kvf_base *base;
    bool borrows_base; /* it is not this trainer's to free */
    kvf__identity id;
    kvf__train_rows rows;      /* what it is trained on */
    kvf__tuned tuned;          /* what is trained */
    kvf__pass *pass;           /* through the base */
    kvf__states *states;       /* --keep-states; NULL: none; owned */
    kvf__teacher teacher;      /* targets in place of labels; k = 0: none */
    kvf__stepper stepper;      /* how parameters are stepped */
    kvf__retention *retention; /* --retain; NULL: none; owned */
    kvf__ranks *ranks;         /* NULL: alone; owned */
    kvf__progress progress;
    kvf__step_timer timer;
    kvf__output output;
} kvf__trainer;

/* What a trainer may have from outside; all NULL: it opens its own. */
typedef struct kvf__trainer_uses {
    kvf_base *base;        /* open for backward passes, outlives the trainer; for methods that leave
                              the base as it is */
    const kvf__feed *feed; /* its rows; options->data and valid are what the feed makes of them */
    kvf__reads *reads;     /* of runs on this base */
    kvf__ranks *ranks;     /* taken over, on failure too */
} kvf__trainer_uses;

/* Opens everything: base, data, encoder, optimizer; restores a run for --resume. */
kvf_status kvf__trainer_init(kvf_ctx *ctx, const kvf_train_options *options,
                             const kvf__trainer_uses *uses, kvf__trainer *out);
/* On a base and examples in memory, which it takes over (and empties), ready to step: for bench.
 * Paths in the options are ignored, nothing is read or written, and the trainer may step past
 * options->steps. */
kvf_status kvf__trainer_init_memory(kvf_ctx *ctx, const kvf_train_options *options, kvf_base **base,
                                    kvf__dataset *data, kvf__trainer *out);
void kvf__trainer_done(kvf__trainer *trainer);
/* Trains to the end, the stop or, for a dry run, to before the first step; begin: the clock when
 * the call began. */
kvf_status kvf__trainer_run(kvf__trainer *trainer, double begin, kvf_train_result *result);
/* What a call did that began at this time and count of tokens. */
void kvf__trainer_result(const kvf__trainer *trainer, double begin, int64_t tokens_before,
                         kvf_train_result *out);
/* Of the base and of what is trained; a weight that is trained, or a copy in its place, counts
 * once.
 */
int64_t kvf__trainer_all_parameters(const kvf__trainer *trainer);
/* Reports to the caller. */
void kvf__trainer_note(kvf__trainer *trainer, const char *fmt, ...) KVF__PRINTF(2, 3);
/* With --precision int8: the bare base's loss in it and in bf16 (int8_note.c). */
kvf_status kvf__trainer_note_int8(kvf__trainer *trainer);

/* loop.c: runs to the last step or the stop request, with evaluations and saves. */
kvf_status kvf__trainer_loop(kvf__trainer *trainer);
/* The loop in pieces: its first event; then what follows each step (history, validation, saves).
 * *over: that was the last one. ESTOPPED as in the loop. */
void kvf__trainer_start(kvf__trainer *trainer);
kvf_status kvf__trainer_after_step(kvf__trainer *trainer, double seconds, int64_t tokens_before,
                                   bool *over);
/* places.c: whether the run's method, task and options are for its base, if that is an
 * encoder-decoder; --places, in the layer mask. */
kvf_status kvf__places_check(kvf__trainer *trainer);
bool kvf__places_near(const kvf_train_options *options, const kvf__desc *desc); /* see prefix.h */
kvf_status kvf__places_mask(kvf__trainer *trainer, uint8_t *layer_mask);
/* base_check.c: after the first step, a note where the frozen base seems never pretrained. */
kvf_status kvf__trainer_check_base(kvf__trainer *trainer);
/* --early-stop: as many validations without a better one as it allows. */
bool kvf__trainer_patience_over(const kvf__trainer *trainer);
/* Whether what is done every so many steps (0: at the end of an epoch), and at the end, is done
 * after the step that is done. */
bool kvf__trainer_is_due(const kvf__trainer *trainer, int64_t every);
/* state.c: writes the run file; restores parameters, moments, history and counters from
 * output.resumed. */
kvf_status kvf__trainer_save(kvf__trainer *trainer, bool force);
kvf_status kvf__trainer_restore(kvf__trainer *trainer);

#endif
